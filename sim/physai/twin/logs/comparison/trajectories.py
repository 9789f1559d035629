"""Group recordings in which servos followed the same trajectory, for instance with other gains or loads."""

from collections.abc import Sequence

import numpy as np

from physai.twin.logs.robot_log import Array, RobotLog

DURATION_SHARE = 0.02
"""Maximum difference of two durations, as a share of the longer one."""
COMMAND_SHARE = 0.05
"""Maximum root mean square difference of two commands, as a share of their root mean square motion."""
_SAMPLES = 500


def by_trajectory(logs: Sequence[RobotLog]) -> tuple[tuple[int, ...], ...]:
    """Return the indices of recordings in groups with the same commands over time, in the given order.

    Only commands of positions and speeds make a trajectory. The same efforts from another state are another motion.
    """
    groups: list[list[int]] = []
    for index, log in enumerate(logs):
        known = next((group for group in groups if _same(logs[group[0]], log)), None)
        if known is None:
            groups.append([index])
        else:
            known.append(index)
    return tuple(tuple(group) for group in groups)


def _same(one: RobotLog, other: RobotLog) -> bool:
    if one.command_kind != other.command_kind or one.command_kind == "joint_effort":
        return False
    longer = float(max(one.time[-1], other.time[-1]))
    shorter = float(min(one.time[-1], other.time[-1]))
    if not longer - shorter <= DURATION_SHARE * longer:
        return False
    moments = np.linspace(0.0, shorter, _SAMPLES)
    first, second = (_at(moments, log) for log in (one, other))
    motion = max(float(first.std(axis=0).max()), float(second.std(axis=0).max()))
    return float(np.sqrt(((first - second) ** 2).mean(axis=0)).max()) <= COMMAND_SHARE * motion


def _at(moments: Array, log: RobotLog) -> Array:
    columns: list[Array] = [np.interp(moments, log.time, column) for column in log.command.T]
    return np.stack(columns, axis=1)
