"""Inputs and outputs of a policy graph, derived from its contract.

The single source for the twin, the exporter and the robot's runtime.
"""

from dataclasses import dataclass

from physai.sdk.base.errors import ContractError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.position_limits import position_limits

JOINT_POS_KINDS = frozenset({"joint_pos_rel", "sin_cos", "pose_error", "position_error"})
"""Observation kinds that always read the sensor field joint_pos."""

PREVIOUS_ACTION = "previous_action"
"""Name of the memory that holds the network's last output, within its limit."""

STARTED = "started"
"""Name of the memory that is 0 before the first call and 1 after it."""

HISTORY_PREFIX = "history_"
"""Name prefix of memories that hold past samples of an observation term."""


CLOCK_PREFIX = "clock_"
"""Name prefix of memories that hold the angle of a gait's clock [rad], -1 while the robot stands."""


def last_memory(target: str) -> str:
    """Return the name of the memory that holds the last command of an output."""
    return f"last_{target}"


def step_memory(target: str) -> str:
    """Return the name of the memory that holds the last change of that command per control period."""
    return f"step_{target}"


@dataclass(frozen=True)
class GraphInterface:
    """Names and sizes of a graph's inputs and outputs, in order."""

    sensors: dict[str, int]
    """Sensor fields the graph reads, in the robot's order."""
    commands: dict[str, int]
    """Command fields the graph reads."""
    targets: dict[str, int]
    """Joint command vectors the graph writes, elements in the action term's joint order."""


def remembers_target(contract: PolicyContract) -> bool:
    """Whether an observation term reads the last joint commands."""
    return any(term.kind == "last_target" for term in contract.observation.terms)


def refuse_plans(contract: PolicyContract) -> None:
    """Check that a policy answers with the command of one period, which is what is exported and run so far.

    Raises:
        ContractError: the policy sees or plans.
    """
    if contract.action.plan is not None:
        raise ContractError(
            f"the contract of task {contract.task} has action.plan: policies that see or plan can be described, but "
            "this version neither exports nor runs them; leave action.plan and observation.images out"
        )


def graph_interface(contract: PolicyContract) -> GraphInterface:
    """Return the interface of graphs with this contract."""
    needed: set[str] = set()
    for term in contract.observation.terms:
        if term.kind in JOINT_POS_KINDS:
            needed.add("joint_pos")
        if term.kind == "projected_gravity":
            needed.add("imu_quat")
        elif term.kind in ("sensor", "position_error", "function") and term.source is not None:
            needed.add(term.source)
    commands_positions = any(term.kind.startswith("joint_pos") for term in contract.action.terms)
    starts_at_measured = any(term.kind == "joint_pos_incremental" for term in contract.action.terms)
    if starts_at_measured or (commands_positions and remembers_target(contract)) or position_limits(contract):
        needed.add("joint_pos")
    return GraphInterface(
        sensors={s.name: s.size for s in contract.robot.sensors if s.name in needed},
        commands={c.name: c.size for c in contract.command.fields},
        targets={t.target_name: len(t.joints) for t in contract.action.terms},
    )
