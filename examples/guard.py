"""Put the guard between a policy and the joints: a command beyond a limit does not pass.

python examples/guard.py
"""

import numpy as np

from physai.sdk import Guard, GuardResult, GuardState, guard_limits
from physai.sim import load_task

contract = load_task("ur10e-reach").contract
limits = guard_limits(contract)
guard = Guard(contract)

joint_pos = np.array([[joint.default_pos for joint in contract.robot.joints]])
joint_vel = np.zeros_like(joint_pos)
output = contract.action.terms[0].target_name
wild = {output: joint_pos + 10.0}

for period in range(3):
    now = period * contract.timing.control_dt
    result: GuardResult = guard.check(
        now_s=now, sensor_stamp_s=now, joint_pos=joint_pos, joint_vel=joint_vel, targets=wild
    )
    step = np.abs(result.targets[output] - joint_pos).max()
    print(f"{GuardState(int(result.state[0])).name}: commanded 10 rad away, sent at most {step:.4f} rad away")
    assert result.intervened[0]
print(f"{len(limits.joints)} joints are limited")
