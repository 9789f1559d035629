"""Checks that every recording must pass: finite values, ascending time and correct units."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.robot import JointSpec
from physai.twin.logs.checks.base import base_reading, sound_poses
from physai.twin.logs.checks.frozen import publisher_findings
from physai.twin.logs.checks.normalised import degrees_of_a_gripper, lerobot_range, normalised_advice
from physai.twin.logs.checks.swapped import swapped_findings
from physai.twin.logs.checks.turns import turns, turns_in_degrees
from physai.twin.logs.findings import LogFinding, places
from physai.twin.logs.raw_log import RawColumn, RawLog
from physai.twin.logs.robot_log import Array, LogError
from physai.twin.logs.signals.timing import GAP_FACTOR

_DEGREE = math.pi / 180.0

MAX_VALUE = 1e9
"""Maximum plausible position, speed or effort in SI units."""

_STRIDE_S = 0.02
"""Time over which position changes are compared with measured speed [s]: long enough to average out noise."""

_SLOW_S = 0.1
"""Period below which time is not in milliseconds: no robot is recorded at 10 kHz or more [s]."""

_DEG, _REV = "set `unit: deg` for joint_pos", "set `unit: rev` for joint_pos"

_RATIOS: tuple[tuple[float, str, str], ...] = (
    (1.0 / _DEGREE, "positions are in degrees and speeds in rad/s", _DEG),
    (_DEGREE, "speeds are in degrees per second and positions in rad", "set `unit: deg/s` for joint_vel"),
    (2.0 * math.pi / 60.0, "speeds are in rpm", "set `unit: rpm` for joint_vel"),
    (1.0 / 60.0, "positions are in revolutions and speeds in rpm", f"{_REV} and `unit: rpm` for joint_vel"),
    (1.0 / 360.0, "positions are in revolutions and speeds in deg/s", f"{_REV} and `unit: deg/s` for joint_vel"),
    (6.0, "positions are in degrees and speeds in rpm", f"{_DEG} and `unit: rpm` for joint_vel"),
    (360.0, "positions are in degrees and speeds in rev/s", f"{_DEG} and `unit: rev/s` for joint_vel"),
    (2.0 * math.pi, "speeds are in revolutions per second", "set `unit: rev/s` for joint_vel"),
    (1.0 / (2.0 * math.pi), "positions are in revolutions", _REV),
    (1e-3, "time is in milliseconds", "set `unit: ms` for time"),
    (1e-6, "time is in microseconds", "set `unit: us` for time"),
    (1e-9, "time is in nanoseconds", "set `unit: ns` for time"),
    (-1.0, "position and speed count in opposite directions", "set `sign: -1` for one of the two"),
)
"""Ratio of position change to integrated speed, its meaning, and the fix in the column map; the nearest one counts."""

_SLIDING: tuple[tuple[float, str, str], ...] = (
    (1e3, "positions are in millimetres and speeds in m/s", "set `unit: mm` for joint_pos"),
    *((ratio, what, how) for ratio, what, how in _RATIOS if ratio in (1e-3, 1e-6, 1e-9, -1.0)),
    (1e-3, "speeds are in millimetres per second and positions in m", "set `unit: mm/s` for joint_vel"),
)
"""The same of slide joints; of two with one ratio the first whose condition holds."""


def require_readable(log: RawLog) -> None:
    """Require that a recording passes the checks of this module.

    Raises:
        LogError: a check fails; the message includes advice.
    """
    defects = [finding for finding in (*log.findings, *reading_findings(log)) if finding.severity == "defect"]
    if defects:
        more = f"; and {len(defects) - 1} more: physai logs check {log.source}" if len(defects) > 1 else ""
        first = defects[0]
        advice = f"; {first.advice}" if first.advice else ""
        raise LogError(f"{log.source}: {first.message}{advice}{more}")


def reading_findings(log: RawLog) -> list[LogFinding]:
    """Return the findings; units are checked only if values and time are valid."""
    unsound = [*_time(log), *_finite(log), *base_reading(log)]
    # The jumps between two series would look like speeds in another unit.
    return unsound or list(publisher_findings(log)) or list(_units(log))


def sound_rows(log: RawLog) -> RawLog:
    """Return the rows in which all values are finite and time is later than in every row before."""
    keep = np.isfinite(log.time)
    for _, values in log.series():
        keep &= (np.abs(values) <= MAX_VALUE).all(axis=1)
    keep &= sound_poses(log)
    # A clock that jumps back once loses only the rows until it has caught up.
    latest = np.maximum.accumulate(np.where(keep, log.time, -np.inf))
    keep[1:] &= log.time[1:] > latest[:-1]
    return log if keep.all() else log.rows(keep)


def _time(log: RawLog) -> Iterator[LogFinding]:
    bad = np.flatnonzero(~np.isfinite(log.time))
    if len(bad):
        yield LogFinding(
            severity="defect",
            check="time",
            message=f"time is not finite in {len(bad)} of {len(log.time)} samples, first in sample {bad[0]}",
            advice="remove these rows",
            numbers={"samples": len(bad)},
            samples=places(bad.tolist()),
        )
        return
    steps = np.diff(log.time)
    back = np.flatnonzero(steps <= 0.0) + 1
    if len(back):
        first = int(back[0])
        yield LogFinding(
            severity="defect",
            check="time",
            message=(
                f"time does not ascend in {len(back)} of {len(steps)} steps, first from {log.time[first - 1]:.6f} s to "
                f"{log.time[first]:.6f} s in sample {first}"
            ),
            advice=_ascend(steps),
            numbers={"samples": len(back), "worst_s": float(steps.min())},
            samples=places(back.tolist()),
        )


def _ascend(steps: Array) -> str:
    """Return advice for times that do not ascend. Sorting would mix what came before and after a clock was set."""
    if -float(steps.min()) > GAP_FACTOR * float(np.median(np.abs(steps))):
        return "the clock was set: cut the recording there and give one part, or of a bag use `ros: {clock: log}`"
    return (
        "sort the rows by time and remove duplicates, or map the column of the sensor's own clock; of a bag use "
        "`ros: {clock: log}`"
    )


def _finite(log: RawLog) -> Iterator[LogFinding]:
    for name, values in log.series():
        for j, joint in enumerate(log.joint_names):
            bad = np.flatnonzero(~(np.abs(values[:, j]) <= MAX_VALUE))
            if len(bad):
                yield LogFinding(
                    severity="defect",
                    check="finite",
                    joint=joint,
                    channel=name,
                    message=(
                        f"{name} of {joint} is missing, not finite or beyond ±{MAX_VALUE:g} in {len(bad)} of "
                        f"{len(values)} samples, first in sample {bad[0]} at {log.time[bad[0]]:.4f} s"
                    ),
                    advice="remove these rows or record again; missing values are not interpolated",
                    numbers={"samples": len(bad)},
                    samples=places(bad.tolist()),
                )


def _units(log: RawLog) -> Iterator[LogFinding]:
    if len(log.time) < 10:
        return
    for j, joint in enumerate(log.joints):
        position = log.joint_pos[:, j]
        speed = None if log.joint_vel is None else log.joint_vel[:, j]
        # Report only the most specific defect: one wrong unit causes all of them.
        ratio = [*_ratio(log.time, position, speed, joint), *swapped_findings(log, j, _strides)]
        yield from ratio
        if not any(finding.severity == "defect" for finding in ratio):
            yield from (
                list(turns_in_degrees(log, position, joint))
                or list(_position_limits(log, position, joint, degrees=not ratio))
                or list(_speed_limit(log, position, speed, joint))
                or ([] if ratio else _gripper(log, joint))
            )


def _ratio(time: Array, position: Array, speed: Array | None, joint: JointSpec) -> Iterator[LogFinding]:
    """Compare position changes with the integral of the speed."""
    if speed is None:
        return
    changes, integrals = _strides(time, position, speed)
    power, energy = float(integrals @ integrals), float(changes @ changes)
    if not (power > 0.0 and energy > 0.0):
        return
    # Least-squares slope through the origin, and its coefficient of determination.
    cross = float(changes @ integrals)
    slope, explained = cross / power, cross * cross / (power * energy)
    if not explained >= 0.8 or abs(slope - 1.0) <= 0.15:
        return
    message = f"joint_pos of {joint.name} changes by {slope:.4g} times the integral of joint_vel"
    known = _SLIDING if joint.kind == "prismatic" else _RATIOS
    if float(np.median(np.diff(time))) < _SLOW_S:
        known = tuple(row for row in known if " for time" not in row[2])
    near = [row for row in known if abs(slope / row[0] - 1.0) <= 0.1]
    _, meaning, fix = min(near, key=lambda row: abs(slope / row[0] - 1.0), default=(0.0, "", ""))
    whose = "" if " for time" in fix else f" of {joint.name}"
    yield LogFinding(
        severity="defect" if meaning else "warning",
        check="units",
        joint=joint.name,
        channel="joint_pos" if meaning else "joint_vel",
        message=f"{message}: {meaning}" if meaning else f"{message}, expected 1",
        advice=f"{fix}{whose} in the column map"
        if fix
        else "check units and scale of both, or remove joint_vel from the column map",
        numbers={"ratio": slope, "explained": explained},
    )


def _strides(time: Array, position: Array, speed: Array) -> tuple[Array, Array]:
    """Return position changes and speed integrals over strides of `_STRIDE_S`, shape (m,) each."""
    # Trapezoidal rule.
    area = np.concatenate([[0.0], np.cumsum(0.5 * (speed[1:] + speed[:-1]) * np.diff(time))])
    at = _stride_rows(time)
    return np.diff(position[at]), np.diff(area[at])


def _stride_rows(time: Array) -> npt.NDArray[np.int64]:
    """Return row indices about `_STRIDE_S` apart."""
    stride = max(1, round(_STRIDE_S / float(np.median(np.diff(time)))))
    return np.arange(0, len(time), min(stride, len(time) - 1))


def _speed_limit(log: RawLog, position: Array, speed: Array | None, joint: JointSpec) -> Iterator[LogFinding]:
    """Detect degrees by speeds beyond the joint's limit."""
    if joint.velocity_limit is None or joint.kind == "prismatic":
        return
    if speed is None:
        at = _stride_rows(log.time)
        speed = np.diff(position[at]) / np.diff(log.time[at])
    # The quantile ignores spikes.
    fastest = float(np.quantile(np.abs(speed), 0.99))
    limit = joint.velocity_limit
    if fastest > 2.0 * limit and fastest * _DEGREE <= limit:
        yield LogFinding(
            severity="defect",
            check="units",
            joint=joint.name,
            channel="joint_pos",
            message=(
                f"{joint.name} reaches {fastest:.4g} rad/s, its limit is {limit:g} rad/s; read as degrees it is "
                f"{fastest * _DEGREE:.4g} rad/s"
            ),
            advice=_set_degrees(log, joint),
            numbers={"fastest": fastest, "limit": limit},
        )


def _set_degrees(log: RawLog, joint: JointSpec) -> str:
    """Return advice for positions, and what is measured or commanded in the same unit, in degrees."""
    if (column := _shares(log, joint)) is not None:
        return normalised_advice(column, joint)
    same = "joint_pos and command" if log.command_kind == "joint_pos" and any(log.driven) else "joint_pos"
    speeds = "" if log.joint_vel is None else " and `unit: deg/s` for joint_vel"
    return f"set `unit: deg` for {same}{speeds} in the column map"


def _gripper(log: RawLog, joint: JointSpec) -> Iterator[LogFinding]:
    """Doubt a column map that takes LeRobot's gripper for degrees: they are within a gripper's limits."""
    column = next((one for one in log.channels if one.joint == joint.name and one.series == "joint_pos"), None)
    if column is not None and degrees_of_a_gripper(column):
        yield LogFinding(
            severity="warning",
            check="units",
            joint=joint.name,
            channel="joint_pos",
            message=f"the map takes {column.column}, {column.raw.min():.4g} to {column.raw.max():.4g}, as degrees",
            advice=normalised_advice(column, joint),
        )


def _shares(log: RawLog, joint: JointSpec) -> RawColumn | None:
    """Return the column of a joint's positions if they may be shares of its range, as LeRobot writes them."""
    column = next((one for one in log.channels if one.joint == joint.name and one.series == "joint_pos"), None)
    if column is None or lerobot_range(column) is None or not np.array_equal(column.raw, column.values):
        return None
    return column


def _position_limits(log: RawLog, position: Array, joint: JointSpec, *, degrees: bool) -> Iterator[LogFinding]:
    """Compare positions with the joint's limits; its speeds do not contradict that they are degrees."""
    lower, upper = joint.position_lower, joint.position_upper
    # A full turn too far is no other unit; the wrapped angle is reported by itself.
    if lower is None or upper is None or (joint.kind != "prismatic" and len(turns(position, 2.0 * math.pi))):
        return
    # The quantiles ignore spikes.
    lowest, highest = (float(value) for value in np.quantile(position, [0.001, 0.999]))
    slack = 0.1 * (upper - lower)
    if lower - slack <= lowest and highest <= upper + slack:
        return
    unit = "m" if joint.kind == "prismatic" else "rad"
    reach = f"{joint.name} moves between {lowest:.4g} and {highest:.4g} {unit}, "
    reach += f"its limits are {lower:g} and {upper:g} {unit}"
    numbers = {"lowest": lowest, "highest": highest, "lower": lower, "upper": upper}
    in_degrees = degrees and lower - slack <= lowest * _DEGREE and highest * _DEGREE <= upper + slack
    turn = _full_turns(log, joint, lowest, highest)
    if turn and lower - slack <= lowest + turn <= highest + turn <= upper + slack:
        message = f"{reach}; full turns off, they are {lowest + turn:.4g} and {highest + turn:.4g} rad"
        advice = f"add {turn:.10g} to the `offset` of joint_pos of {joint.name} in the column map"
    elif _shares(log, joint) is not None:
        message, advice = reach, _set_degrees(log, joint)
    elif joint.kind != "prismatic" and in_degrees and max(-lowest, highest) > 3.0 * max(-lower, upper):
        message = f"{reach}; read as degrees they are {lowest * _DEGREE:.4g} and {highest * _DEGREE:.4g} rad"
        advice = _set_degrees(log, joint)
    else:
        message = reach
        both = "joint_pos and command the same" if log.command_kind == "joint_pos" else "joint_pos an"
        which = "`offset` or `sign`" if degrees else "`scale` and `offset`"
        advice = f"give {both} {which} in the column map, or correct the robot's limits"
    yield LogFinding(
        severity="defect",
        check="units",
        joint=joint.name,
        channel="joint_pos",
        message=message,
        advice=advice,
        numbers=numbers,
    )


def _full_turns(log: RawLog, joint: JointSpec, lowest: float, highest: float) -> float:
    """Whole turns by which the middle of positions is moved to near 0 [rad]; 0 if the column map does not convert them.

    An unwrapped angle starts wherever the encoder was.
    """
    column = next((one for one in log.channels if one.joint == joint.name and one.series == "joint_pos"), None)
    if column is None or joint.kind == "prismatic" or np.array_equal(column.raw, column.values):
        return 0.0
    return -2.0 * math.pi * round((lowest + highest) / (4.0 * math.pi))
