"""Angles of single-turn encoders, which jump by a full turn."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.robot import JointSpec
from physai.twin.logs.findings import LogFinding, places
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.robot_log import Array

_DEGREES = 360.0


def turns(position: Array, turn: float) -> npt.NDArray[np.int64]:
    """Rows before a jump by a full turn of an angle of shape (n,); none if it goes beyond one turn."""
    if np.ptp(position) > 1.01 * turn:
        return np.zeros(0, np.int64)
    steps = np.abs(np.diff(position))
    # The tolerance allows for the motion during the sample in which the angle wraps.
    return np.flatnonzero((steps > 0.75 * turn) & (steps < 1.25 * turn))


def turns_in_degrees(log: RawLog, position: Array, joint: JointSpec) -> Iterator[LogFinding]:
    """Detect degrees that are read as radians and wrap: neither limits nor speeds tell what they are."""
    jumps = turns(position, _DEGREES)
    if joint.kind == "prismatic" or not len(jumps):
        return
    speeds = "" if log.joint_vel is None else "; of joint_vel, `unit: deg/s` if it is in degrees, too"
    same = "joint_pos and command" if log.command_kind == "joint_pos" and any(log.driven) else "joint_pos"
    yield LogFinding(
        severity="defect",
        check="units",
        joint=joint.name,
        channel="joint_pos",
        message=(
            f"joint_pos of {joint.name} jumps by 360 {len(jumps)} times, first at {log.time[jumps[0] + 1]:.3f} s: "
            "degrees of a single-turn encoder"
        ),
        advice=f"set `unit: deg` and `period: 360` for {same} of {joint.name} in the column map{speeds}",
        numbers={"jumps": len(jumps)},
        samples=places((jumps + 1).tolist()),
    )
