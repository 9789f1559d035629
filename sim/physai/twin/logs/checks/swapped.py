"""Positions that follow the speed of another joint: columns in another order than the column map says."""

from collections.abc import Callable, Iterator

from physai.twin.logs.findings import LogFinding
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.robot_log import Array

_OWN, _OTHER = 0.5, 0.9
"""Share of a position's changes that its own speed explains at most, and another joint's at least, if they are mixed
up."""
_SLOPE = 0.15
"""Greatest distance from 1 of the ratio of the changes to the integral of that speed."""

Strides = Callable[[Array, Array, Array], tuple[Array, Array]]
"""Changes of a position and integrals of a speed over the same strides, of time, position and speed."""


def swapped_findings(log: RawLog, joint: int, strides: Strides) -> Iterator[LogFinding]:
    """Detect a position whose changes are the integral of another joint's speed and not of its own."""
    if log.joint_vel is None or _fit(log, joint, joint, strides)[0] > _OWN:
        return
    fits = {other: _fit(log, joint, other, strides) for other in range(len(log.joints)) if other != joint}
    other = max(fits, key=lambda row: fits[row][0], default=joint)
    if other == joint or fits[other][0] < _OTHER or abs(fits[other][1] - 1.0) > _SLOPE:
        return
    own, of = log.joint_names[joint], log.joint_names[other]
    yield LogFinding(
        severity="defect",
        check="units",
        joint=own,
        channel="joint_pos",
        message=f"joint_pos of {own} changes as joint_vel of {of} says, and not as that of {own}: columns are mixed up",
        advice=f"exchange the columns of joint_pos, or of joint_vel, of {own} and {of} in the column map",
        numbers={"explained": fits[other][0], "ratio": fits[other][1]},
    )


def _fit(log: RawLog, joint: int, other: int, strides: Strides) -> tuple[float, float]:
    """Coefficient of determination, and slope, of a joint's changes over the integral of a speed."""
    assert log.joint_vel is not None
    changes, integrals = strides(log.time, log.joint_pos[:, joint], log.joint_vel[:, other])
    power, energy, cross = float(integrals @ integrals), float(changes @ changes), float(changes @ integrals)
    return (cross * cross / (power * energy), cross / power) if power > 0.0 and energy > 0.0 else (0.0, 0.0)
