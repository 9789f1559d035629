"""Find velocities that are computed from the positions of the same recording instead of measured."""

from collections.abc import Iterator

import numpy as np

from physai.twin.logs.findings import LogFinding
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.signals.speed import Speed, speed_origin


def derived_findings(log: RawLog) -> Iterator[LogFinding]:
    """Compare each joint's speed with difference quotients of its position.

    A backward difference over k samples lags by half their duration, and its noise is the position's divided by that
    duration: it tells a replay and a policy less than a sensor of speed would.
    """
    if log.joint_vel is None:
        return
    period = float(np.median(np.diff(log.time)))
    for j, joint in enumerate(log.joints):
        found = speed_origin(log.time, log.joint_pos[:, j], log.joint_vel[:, j])
        if found is None or found.kind == "measured":
            continue
        yield LogFinding(
            severity="note",
            check="derived",
            joint=joint.name,
            channel="joint_vel",
            message=f"joint_vel of {joint.name} is {_text(found, period)}",
            advice="record the speed that the robot measures, if it does",
            numbers={
                "samples": float(found.span),
                "lag_s": found.lag_s(period),
                "time_constant_s": found.time_constant_s,
            },
        )


def _text(found: Speed, period: float) -> str:
    samples = f"{found.span} sample{'s' if found.span > 1 else ''}"
    through = f", through a low-pass filter of {1e3 * found.time_constant_s:.3g} ms" if found.time_constant_s else ""
    lag = found.lag_s(period)
    delay = f": it lags by {1e3 * lag:.3g} ms" if lag else ""
    return f"the {found.kind} difference of joint_pos over {samples}{through}{delay}"
