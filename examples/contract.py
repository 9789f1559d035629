"""Read a contract, change it, and see what differs.

python examples/contract.py
"""

import tempfile
from pathlib import Path

from physai.sdk import (
    ActionTerm,
    CommandField,
    ContractError,
    ContractMismatchError,
    JointSpec,
    ObservationTerm,
    PolicyContract,
    RobotSpec,
    SafetyEnvelope,
    TimingSpec,
    diff,
    load_contract,
    require_same,
    save_contract,
)
from physai.sim import load_task

contract: PolicyContract = load_task("ur10e-reach").contract
robot: RobotSpec = contract.robot
shoulder: JointSpec = robot.joints[0]
action: ActionTerm = contract.action.terms[0]
first: ObservationTerm = contract.observation.terms[0]
command: CommandField = contract.command.fields[0]
timing: TimingSpec = contract.timing
safety: SafetyEnvelope = contract.safety
print(f"{contract.task} for {robot.name}: {1 / timing.control_dt:g} Hz, fingerprint {contract.fingerprint[:12]}")
print(f"  observes {first.name} and more, {contract.observation_size} numbers; is told {command.name} [{command.unit}]")
print(f"  commands {action.target_name}; {shoulder.name} is limited to {shoulder.velocity_limit} rad/s")
print(f"  repeats its last command at most {safety.max_reused_commands} times")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "contract.json"
    save_contract(contract, path)
    assert load_contract(path).fingerprint == contract.fingerprint

# A deadline of half the time is another contract; a computer that holds one refuses the other.
hasty = contract.model_copy(update={"timing": timing.model_copy(update={"deadline_s": timing.deadline_s / 2})})
for difference in diff(contract, hasty):
    print("  differs:", difference)
try:
    require_same(contract, hasty, left="trained", right="on the robot")
except ContractMismatchError as error:
    print(error)

try:
    load_contract("no-such-contract.json")
except ContractError as error:  # every error of physai is a PhysaiError
    print("refused:", error)
