"""Columns of a floating base's pose in SI units."""

from collections.abc import Callable

import numpy as np

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs.raw_log import RawColumn
from physai.twin.logs.readers.column_map import BaseColumns, Column, ColumnMap
from physai.twin.logs.readers.units import Dimension
from physai.twin.logs.robot_log import Array, BasePose, LogError

Convert = Callable[[str, Column, Dimension], RawColumn]
"""Returns a column of the file in SI units, given its label, its entry in the map and its dimension."""


def base_pose(
    source: str, column_map: ColumnMap, robot: RobotSpec | None, convert: Convert
) -> tuple[BasePose | None, tuple[RawColumn, ...]]:
    """Return the pose of the base and its columns; None and none if the map has no base.

    Raises:
        LogError: the robot's base is fixed.
    """
    columns = column_map.base
    if columns is None:
        return None, ()
    if robot is not None and robot.base == "fixed":
        raise LogError(
            f"{source}: the column map has the pose of a base, but the base of robot {robot.name} is fixed; remove "
            "`base` from the map, or give the robot's body a <freejoint/>"
        )
    return _pose(columns, convert)


def _pose(columns: BaseColumns, convert: Convert) -> tuple[BasePose, tuple[RawColumn, ...]]:
    used: list[RawColumn] = []

    def block(name: str, axes: str, refs: tuple[Column, ...], expected: Dimension) -> Array:
        block = [convert(f"{name} {axis}", ref, expected) for axis, ref in zip(axes, refs, strict=True)]
        used.extend(block)
        return np.stack([column.values for column in block], axis=1)

    pose = BasePose(
        position=block("base_pos", "xyz", columns.position, "length"),
        quat=block("base_quat", "wxyz", columns.quat, "ratio"),
        lin_vel=None if columns.lin_vel is None else block("base_lin_vel", "xyz", columns.lin_vel, "speed"),
        ang_vel=None if columns.ang_vel is None else block("base_ang_vel", "xyz", columns.ang_vel, "angular speed"),
    )
    return pose, tuple(used)
