"""Find velocities that are computed from the positions of the same recording instead of measured."""

from collections.abc import Iterator

import numpy as np

from physai.sim.logs.checks.findings import LogFinding
from physai.sim.logs.raw_log import RawLog
from physai.sim.logs.robot_log import Array

MAX_SPAN = 8
"""Maximum number of sampling periods of a difference quotient."""
SAME = 1e-3
"""Maximum root mean square deviation from the difference quotient, relative to the speed's, that counts as equal.

A measured speed deviates from it by its noise, and by the change of speed within a period.
"""
MIN_SAMPLES = 50


def derived_findings(log: RawLog) -> Iterator[LogFinding]:
    """Compare each joint's speed with difference quotients of its position.

    A backward difference over k samples lags by half their duration, and its noise is the position's divided by that
    duration: it tells a replay and a policy less than a sensor of speed would.
    """
    if log.joint_vel is None or len(log.time) < MIN_SAMPLES:
        return
    period = float(np.median(np.diff(log.time)))
    for j, joint in enumerate(log.joints):
        found = difference(log.time, log.joint_pos[:, j], log.joint_vel[:, j])
        if found is None:
            continue
        kind, span = found
        lag = 0.5 * span * period if kind == "backward" else 0.0
        samples = f"over {span} sample{'s' if span > 1 else ''}"
        delay = f": it lags by {1e3 * lag:.3g} ms" if lag else ""
        yield LogFinding(
            severity="note",
            check="derived",
            joint=joint.name,
            channel="joint_vel",
            message=f"joint_vel of {joint.name} is the {kind} difference of joint_pos {samples}{delay}",
            advice="record the speed that the robot measures, if it does",
            numbers={"samples": float(span), "lag_s": lag},
        )


def difference(time: Array, position: Array, speed: Array) -> tuple[str, int] | None:
    """Return the difference quotient that a speed is, `backward` or `central`, and its span in samples.

    None if there is none, or several: those of a smooth motion without noise equal its speed, and each other.

    Args:
        time: of each sample [s], shape (n,).
        position: [rad or m], shape (n,).
        speed: [rad/s or m/s], shape (n,).
    """
    size = float(np.sqrt(np.mean(speed**2)))
    if not size > 0.0:
        return None
    found: list[tuple[str, int]] = []
    for span in range(1, MAX_SPAN + 1):
        quotient = (position[span:] - position[:-span]) / (time[span:] - time[:-span])
        # The first samples may be computed from what came before the recording, so they are left out.
        candidates = [("backward", speed[span:])]
        if span % 2 == 0:
            candidates.append(("central", speed[span // 2 : -(span // 2)]))
        for kind, aligned in candidates:
            if float(np.sqrt(np.mean((aligned - quotient)[MAX_SPAN:] ** 2))) <= SAME * size:
                found.append((kind, span))
    return found[0] if len(found) == 1 else None
