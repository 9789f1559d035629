"""Positions of LeRobot, which are shares of each joint's calibrated range unless degrees were asked for.

LeRobot's motors (lerobot.motors.MotorNormMode) write -100 to 100 (RANGE_M100_100), grippers 0 to 100 (RANGE_0_100),
and degrees for all but grippers with `use_degrees`. Nothing in a dataset says which.
"""

import math
import re

import numpy as np

from physai.sdk.contract.robot import JointSpec
from physai.twin.logs.raw_log import RawColumn

FULL = 100.0
_GRIPPER = re.compile(r"gripper|jaw|finger|hand", re.IGNORECASE)
_ROUNDING = 1e-3


def lerobot_range(column: RawColumn) -> tuple[float, float] | None:
    """Range that a column's values may be shares of; None if LeRobot did not write it, or a value is outside."""
    if not (column.column.startswith("observation.state") or column.column.endswith(".pos")):
        return None
    low, high = float(np.nanmin(column.raw)), float(np.nanmax(column.raw))
    if not (low >= -FULL - _ROUNDING and high <= FULL + _ROUNDING):
        return None
    return (0.0, FULL) if _GRIPPER.search(column.joint) and low >= -_ROUNDING else (-FULL, FULL)


def normalised_advice(column: RawColumn, joint: JointSpec) -> str:
    """Return the entry of the column map that turns shares of a joint's range into radians or metres."""
    first, last = lerobot_range(column) or (-FULL, FULL)
    degrees = "" if first == 0.0 else "; only if it was recorded with `use_degrees`, set `unit: deg` for both"
    writes = f"LeRobot writes {first:g} to {last:g} for the range that was calibrated"
    lower, upper = joint.position_lower, joint.position_upper
    if lower is None or upper is None:
        return f"{writes}: give joint_pos and command the `scale` and `offset` of that range{degrees}"
    scale = (upper - lower) / (last - first)
    entry = f"{{column: {column.column}, scale: {scale:.6g}, offset: {lower - first * scale:.6g}}}"
    return (
        f"{writes}: if that is the range of the model, set `joint_pos: {entry}`, and the same scale and offset for its "
        f"command{degrees}"
    )


def degrees_of_a_gripper(column: RawColumn) -> bool:
    """Whether the column map takes shares of a gripper's range for degrees."""
    return lerobot_range(column) == (0.0, FULL) and bool(
        np.ptp(column.raw) > 0.0 and np.allclose(column.values, column.raw * math.pi / 180.0)
    )
