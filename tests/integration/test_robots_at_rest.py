"""Every robot, at rest with encoders that repeat bit for bit: its guard lets a policy run that asks for where it is."""

import numpy as np
import pytest

from physai.sdk.safety import Guard, GuardState, Reason, Request, RequestAnswer
from physai.sim.tasks.registry import load_task, task_names

INCREMENTS = 1 << 14
"""Of an encoder per turn."""


@pytest.mark.parametrize("name", task_names())
def test_a_robot_at_rest_is_not_frozen(name: str) -> None:
    contract = load_task(name).contract
    guard, dt = Guard(contract), contract.timing.control_dt
    limits = guard.limits
    default = np.array([joint.default_pos for joint in contract.robot.joints])
    step = 2.0 * np.pi / INCREMENTS
    # Two increments from the default pose, which is the command that the guard remembers at its start.
    measured = (np.round(default / step) + 200.0) * step
    measured = np.clip(measured, limits.position_lower, limits.position_upper)[None]
    still = np.zeros_like(measured)
    sensors = {sensor.name: np.zeros((1, sensor.size)) for sensor in contract.robot.sensors}
    for one in contract.safety.sensor_ranges or ():
        lower, upper = np.array(one.lower, float), np.array(one.upper, float)
        sensors[one.name] = np.clip(0.0, np.nan_to_num(lower, nan=-1.0), np.nan_to_num(upper, nan=1.0))[None]
    wanted = np.where(limits.holds_position, np.clip(measured[:, limits.joints], limits.lower, limits.upper), 0.0)
    targets = {output: wanted[:, part] for output, part in limits.slices.items()}
    guard.activate()
    periods = 20 + round(1.0 / dt)
    started = False
    for period in range(periods + 10 * (contract.safety.frozen_samples or 0)):
        request = Request() if started else Request(start=guard.read_back)
        guard.observe(stamp_s=period * dt, joint_pos=measured, joint_vel=still, sensors=sensors)
        with np.errstate(all="ignore"):
            result = guard.decide(age_s=0.0, targets=targets, request=request)
            guard.commit(sent=bool(result.referenced[0]))
        started |= result.start[0] == RequestAnswer.OBEYED
        assert not result.reasons[0] & Reason.SENSOR_FROZEN, f"period {period}"
    assert started
    assert guard.level == GuardState.RUN
