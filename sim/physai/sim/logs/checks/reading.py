"""Checks that a recording must pass before it is one: numbers where numbers belong, a clock that runs, right units."""

import math
from collections.abc import Iterator

import numpy as np

from physai.sdk.contract.robot import JointSpec
from physai.sim.logs.checks.findings import LogFinding, places
from physai.sim.logs.raw_log import RawLog
from physai.sim.logs.robot_log import Array, LogError

_DEGREE = math.pi / 180.0

MAX_VALUE = 1e9
"""Greatest position, speed or effort that is taken for a measurement, in SI units."""

_STRIDE_S = 0.02
"""Time over which a change of position is compared with the measured speed: long enough to average its noise."""

_RATIOS: tuple[tuple[float, str, str], ...] = (
    (1.0 / _DEGREE, "positions are in degrees and speeds in rad/s", "set `unit: deg` for joint_pos"),
    (_DEGREE, "speeds are in degrees per second and positions in rad", "set `unit: deg/s` for joint_vel"),
    (2.0 * math.pi / 60.0, "speeds are in rpm", "set `unit: rpm` for joint_vel"),
    (2.0 * math.pi, "speeds are in revolutions per second", "set `unit: rev/s` for joint_vel"),
    (1.0 / (2.0 * math.pi), "positions are in revolutions", "set `unit: rev` for joint_pos"),
    (1e-3, "time is in milliseconds", "set `unit: ms` for time"),
    (1e-6, "time is in microseconds", "set `unit: us` for time"),
    (1e-9, "time is in nanoseconds", "set `unit: ns` for time"),
    (-1.0, "position and speed count in opposite directions", "set `sign: -1` for one of the two"),
)
"""Change of position per integrated speed, what it would mean, and what to write into the column map."""


def require_readable(log: RawLog) -> None:
    """Refuses a recording that fails a check of this module.

    Raises:
        LogError: so it does; the message says what and what to do.
    """
    found = [finding for finding in reading_findings(log) if finding.severity == "defect"]
    if found:
        more = f"; and {len(found) - 1} more: physai logs check {log.source}" if len(found) > 1 else ""
        first = found[0]
        advice = f"; {first.advice}" if first.advice else ""
        raise LogError(f"{log.source}: {first.message}{advice}{more}")


def reading_findings(log: RawLog) -> list[LogFinding]:
    """What these checks find; units are judged only where numbers and time are sound."""
    found = [*_time(log), *_finite(log)]
    if not found:
        found += _units(log)
    return found


def sound_rows(log: RawLog) -> RawLog:
    """The rows in which everything is finite and time is later than in every row before."""
    keep = np.isfinite(log.time)
    for _, values in log.series():
        keep &= (np.abs(values) <= MAX_VALUE).all(axis=1)
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
            advice="sort the rows by time and remove doubles, or map the column of the sensor's own clock",
            numbers={"samples": len(back), "worst_s": float(steps.min())},
            samples=places(back.tolist()),
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
                    advice="remove these rows or record them again; nothing is filled in",
                    numbers={"samples": len(bad)},
                    samples=places(bad.tolist()),
                )


def _units(log: RawLog) -> Iterator[LogFinding]:
    if len(log.time) < 10:
        return
    for j, joint in enumerate(log.joints):
        position = log.joint_pos[:, j]
        speed = None if log.joint_vel is None else log.joint_vel[:, j]
        found = list(_ratio(log.time, position, speed, joint)) or list(_position_limits(position, speed, joint))
        yield from found or _speed_limit(log.time, position, speed, joint)


def _ratio(time: Array, position: Array, speed: Array | None, joint: JointSpec) -> Iterator[LogFinding]:
    """Compares changes of position with the integral of the speed."""
    if speed is None:
        return
    changes, integrals = _strides(time, position, speed)
    power, energy = float(integrals @ integrals), float(changes @ changes)
    if not (power > 0.0 and energy > 0.0):
        return
    cross = float(changes @ integrals)
    slope, explained = cross / power, cross * cross / (power * energy)
    if not explained >= 0.8 or abs(slope - 1.0) <= 0.15:
        return
    numbers = {"ratio": slope, "explained": explained}
    for ratio, meaning, advice in _RATIOS:
        if joint.kind == "prismatic" and abs(ratio) not in (1.0, 1e-3, 1e-6, 1e-9):
            continue
        if abs(slope / ratio - 1.0) <= 0.1:
            yield LogFinding(
                severity="defect",
                check="units",
                joint=joint.name,
                channel="joint_pos",
                message=f"joint_pos of {joint.name} changes by {slope:.4g} times the integral of joint_vel: {meaning}",
                advice=f"{advice} of {joint.name} in the column map",
                numbers=numbers,
            )
            return
    yield LogFinding(
        severity="warning",
        check="units",
        joint=joint.name,
        channel="joint_vel",
        message=f"joint_pos of {joint.name} changes by {slope:.4g} times the integral of joint_vel, expected 1",
        advice="check units and scale of both, or leave joint_vel out",
        numbers=numbers,
    )


def _strides(time: Array, position: Array, speed: Array) -> tuple[Array, Array]:
    """Changes of position and integrals of speed over strides of `_STRIDE_S`, shape (m,) each."""
    stride = max(1, round(_STRIDE_S / float(np.median(np.diff(time)))))
    area = np.concatenate([[0.0], np.cumsum(0.5 * (speed[1:] + speed[:-1]) * np.diff(time))])
    at = np.arange(0, len(time), min(stride, len(time) - 1))
    return np.diff(position[at]), np.diff(area[at])


def _speed_limit(time: Array, position: Array, speed: Array | None, joint: JointSpec) -> Iterator[LogFinding]:
    """Finds degrees by speeds that the joint cannot reach; 1 % of the samples may be spikes."""
    if joint.velocity_limit is None or joint.kind == "prismatic":
        return
    advice = _set_degrees(speed)
    if speed is None:
        stride = max(1, round(_STRIDE_S / float(np.median(np.diff(time)))))
        at = np.arange(0, len(time), min(stride, len(time) - 1))
        speed = np.diff(position[at]) / np.diff(time[at])
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
            advice=advice,
            numbers={"fastest": fastest, "limit": limit},
        )


def _set_degrees(speed: Array | None) -> str:
    """What to write into the column map where positions and, if measured, speeds are in degrees."""
    both = "" if speed is None else " and `unit: deg/s` for joint_vel"
    return f"set `unit: deg` for joint_pos{both} in the column map"


def _position_limits(position: Array, speed: Array | None, joint: JointSpec) -> Iterator[LogFinding]:
    """Compares the positions with the joint's limits."""
    lower, upper = joint.position_lower, joint.position_upper
    if lower is None or upper is None:
        return
    lowest, highest = (float(value) for value in np.quantile(position, [0.001, 0.999]))
    slack = 0.1 * (upper - lower)
    if lower - slack <= lowest and highest <= upper + slack:
        return
    unit = "m" if joint.kind == "prismatic" else "rad"
    reach = f"{joint.name} moves between {lowest:.4g} and {highest:.4g} {unit}, its limits are {lower:g} and {upper:g}"
    numbers = {"lowest": lowest, "highest": highest, "lower": lower, "upper": upper}
    in_degrees = lower - slack <= lowest * _DEGREE and highest * _DEGREE <= upper + slack
    if joint.kind != "prismatic" and in_degrees and max(-lowest, highest) > 3.0 * max(-lower, upper):
        message = f"{reach} rad; read as degrees they are {lowest * _DEGREE:.4g} and {highest * _DEGREE:.4g} rad"
        advice = _set_degrees(speed)
    else:
        message = f"{reach} {unit}"
        advice = "give joint_pos an `offset` or a `sign` in the column map, or correct the robot's limits"
    yield LogFinding(
        severity="defect",
        check="units",
        joint=joint.name,
        channel="joint_pos",
        message=message,
        advice=advice,
        numbers=numbers,
    )
