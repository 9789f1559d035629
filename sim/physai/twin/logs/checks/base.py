"""Checks of a floating base's pose: missing values, quaternions, jumps, and whether pose and velocity agree."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.twin.logs.checks.channels import spike_samples
from physai.twin.logs.findings import LogFinding, places
from physai.twin.logs.raw_log import RawLog, unit_quaternions
from physai.twin.logs.robot_log import Array, BasePose
from physai.twin.logs.signals.rotation import relative, rotate

MAX_POSITION = 1e6
"""Maximum plausible coordinate [m]."""
LENGTH_TOLERANCE = 0.05
"""Deviation of a quaternion's length from 1 that no rounding explains; smaller ones are normalised."""
JUMP_RAD, JUMP_FACTOR = 0.5, 5.0
"""A jump turns the base by more than this between two samples, and by more than this many times their 90th percentile:
the pose of a flat marker may flip."""
MIN_TRAVEL_M, MIN_TURN_RAD = 0.01, 0.1
"""Minimum motion of a base that identifies anything."""
AGREE, EXPLAINED = 0.15, 0.8
"""Maximum deviation of the slope of motion over integrated velocity from 1, and the minimum share of the motion's mean
square that the velocity explains."""
MIN_SAMPLES = 20


def base_reading(log: RawLog) -> Iterator[LogFinding]:
    """Yield defects in poses that nothing can be computed from."""
    if log.base is None:
        return
    for name, values in log.base.series():
        bad = np.flatnonzero(~(np.abs(values) <= MAX_POSITION).all(axis=1))
        if len(bad):
            yield LogFinding(
                severity="defect",
                check="finite",
                channel=name,
                message=(
                    f"{name} is missing, not finite or beyond ±{MAX_POSITION:g} in {len(bad)} of {len(values)} "
                    f"samples, first in sample {bad[0]}"
                ),
                advice="remove these rows or record again; missing poses are not interpolated",
                numbers={"samples": len(bad)},
                samples=places(bad.tolist()),
            )
            return
    length = np.linalg.norm(log.base.quat, axis=1)
    bad = np.flatnonzero(~(np.abs(length - 1.0) <= LENGTH_TOLERANCE))
    if len(bad):
        yield LogFinding(
            severity="defect",
            check="quat",
            channel="base_quat",
            message=(
                f"{len(bad)} of {len(length)} quaternions do not have the length 1, first in sample {bad[0]} with "
                f"{length[bad[0]]:.4g}"
            ),
            advice="check the columns of `quat`: w, x, y and z of a unit quaternion",
            numbers={"samples": len(bad), "first": float(length[bad[0]])},
            samples=places(bad.tolist()),
        )


def sound_poses(log: RawLog) -> npt.NDArray[np.bool_]:
    """Return the rows whose pose is usable, shape (n,)."""
    keep = np.ones(len(log.time), bool)
    if log.base is not None:
        for _, values in log.base.series():
            keep &= (np.abs(values) <= MAX_POSITION).all(axis=1)
        keep &= np.abs(np.linalg.norm(log.base.quat, axis=1) - 1.0) <= LENGTH_TOLERANCE
    return keep


def base_findings(log: RawLog) -> Iterator[LogFinding]:
    """Yield the findings on the poses of a recording with sound rows."""
    if log.base is None:
        return
    yield from _signs(log.base)
    base = unit_quaternions(log.base)
    yield from _jumps(log, base)
    yield from _motion(log, base)
    if len(log.time) >= MIN_SAMPLES:
        yield from _linear(log.time, base)
        yield from _angular(log.time, base)


@dataclass(frozen=True)
class BaseSummary:
    """Summary of the poses of a recording."""

    position_lowest_m: tuple[float, ...]
    position_highest_m: tuple[float, ...]
    turn_rad: float
    """Greatest rotation from the first pose."""
    position_noise_m: float
    """Standard deviation per axis."""
    rotation_noise_rad: float


def base_summary(base: BasePose) -> BaseSummary:
    """Summarise sound poses."""
    base = unit_quaternions(base)
    position, rotation = pose_noise(base)
    return BaseSummary(
        position_lowest_m=tuple(float(x) for x in base.position.min(axis=0)),
        position_highest_m=tuple(float(x) for x in base.position.max(axis=0)),
        turn_rad=float(np.linalg.norm(relative(base.quat[:1], base.quat), axis=1).max()),
        position_noise_m=float(position),
        rotation_noise_rad=float(rotation),
    )


def pose_noise(base: BasePose) -> Array:
    """Return the standard deviation of the measured positions [m] and rotations [rad], shape (2,)."""
    turns = relative(base.quat[:-1], base.quat[1:])
    # Third differences remove smooth motion, and medians what impacts leave; 1.4826 scales a normal distribution's
    # median absolute value to its standard deviation, and third differences have √20 times that of white noise.
    third = (np.diff(base.position, 3, axis=0), np.diff(turns, 2, axis=0))
    spread = [1.4826 * float(np.median(np.abs(part))) / 20.0**0.5 if len(part) else 0.0 for part in third]
    return np.array(spread)


def turn_steps(quat: Array) -> Array:
    """Return the angle from each orientation to the next [rad], shape (n - 1,)."""
    return np.linalg.norm(relative(quat[:-1], quat[1:]), axis=1)


def jump_samples(base: BasePose) -> npt.NDArray[np.int64]:
    """Return samples at which the pose jumps: outliers of the position, and turns that no neighbour shows."""
    turns = turn_steps(base.quat)
    usual = float(np.quantile(turns, 0.9))
    turned = np.flatnonzero((turns > JUMP_RAD) & (turns > JUMP_FACTOR * usual)) + 1
    return np.unique(np.concatenate([turned, *(spike_samples(column) for column in base.position.T)]))


def _signs(base: BasePose) -> Iterator[LogFinding]:
    flips = np.flatnonzero((base.quat[1:] * base.quat[:-1]).sum(axis=1) < 0.0) + 1
    if len(flips):
        yield LogFinding(
            severity="note",
            check="quat",
            channel="base_quat",
            message=f"the quaternion changes its sign {len(flips)} times, first in sample {flips[0]}: q and -q are the "
            "same orientation, so this is undone",
            numbers={"flips": len(flips)},
            samples=places(flips.tolist()),
        )
    off = float(np.abs(np.linalg.norm(base.quat, axis=1) - 1.0).max())
    if off > 1e-3:
        yield LogFinding(
            severity="warning",
            check="quat",
            channel="base_quat",
            message=f"the quaternions' length differs from 1 by up to {off:.2g}; they are normalised",
            advice="write more digits, or normalise before filtering",
            numbers={"off": off},
        )


def _jumps(log: RawLog, base: BasePose) -> Iterator[LogFinding]:
    jumps = jump_samples(base)
    if not len(jumps):
        return
    share = len(jumps) / len(log.time)
    yield LogFinding(
        severity="defect" if share > 0.1 else "warning",
        check="jump",
        channel="base_pos",
        message=f"the pose jumps in {len(jumps)} samples, first at {log.time[jumps[0]]:.3f} s",
        advice="look for a marker that was hidden or whose pose flipped; windows with jumps are excluded from replay",
        numbers={"samples": len(jumps)},
        samples=places(jumps.tolist()),
    )


def _motion(log: RawLog, base: BasePose) -> Iterator[LogFinding]:
    travel = float(np.ptp(base.position, axis=0).max())
    turn = float(np.linalg.norm(relative(base.quat[:1], base.quat), axis=1).max())
    if travel >= MIN_TRAVEL_M or turn >= MIN_TURN_RAD:
        return
    yield LogFinding(
        severity="warning" if log.joints else "defect",
        check="motion",
        channel="base_pos",
        message=(
            f"the base moves by {travel:.3g} m and turns by {turn:.3g} rad; {MIN_TRAVEL_M:g} m or {MIN_TURN_RAD:g} rad "
            "are needed"
        ),
        advice="throw or push it, so that it touches the ground in motion",
        numbers={"travel_m": travel, "turn_rad": turn},
    )


def _fit(change: Array, velocity: Array, time: Array) -> tuple[float, float]:
    """Return slope and explained share of changes between samples by the velocity's integral."""
    integral = 0.5 * (velocity[1:] + velocity[:-1]) * np.diff(time)[:, None]
    cross, power = float((change * integral).sum()), float((integral**2).sum())
    energy = float((change**2).sum())
    return (cross / power, cross * cross / (power * energy)) if power > 0.0 and energy > 0.0 else (1.0, 0.0)


def _linear(time: Array, base: BasePose) -> Iterator[LogFinding]:
    if base.lin_vel is None:
        return
    change = np.diff(base.position, axis=0)
    slope, explained = _fit(change, base.lin_vel, time)
    if explained >= EXPLAINED and abs(slope - 1.0) <= AGREE:
        return
    turned = _fit(change, rotate(base.quat, base.lin_vel), time)
    if turned[1] >= EXPLAINED > explained:
        meaning, advice = ": it is in the base's frame", "map the velocity in the world"
    else:
        meaning, advice = "", "check units of both, or remove lin_vel from the column map"
    yield _disagree("base_lin_vel", "position", slope, explained, meaning, advice)


def _angular(time: Array, base: BasePose) -> Iterator[LogFinding]:
    if base.ang_vel is None:
        return
    change = relative(base.quat[:-1], base.quat[1:])
    slope, explained = _fit(change, base.ang_vel, time)
    if explained >= EXPLAINED and abs(slope - 1.0) <= AGREE:
        return
    world = _fit(rotate(base.quat[:-1], change), base.ang_vel, time)
    last = np.roll(base.quat, 1, axis=1)
    xyzw = _fit(relative(last[:-1], last[1:]), base.ang_vel, time)
    if xyzw[1] >= EXPLAINED > explained and xyzw[1] > world[1]:
        meaning, advice = ": the quaternion is xyzw", "map `quat` as w, x, y, z"
    elif world[1] >= EXPLAINED > explained:
        meaning, advice = ": it is in the world's frame", "map the angular velocity in the base's frame"
    else:
        meaning, advice = "", "check its unit and axes, or remove ang_vel from the column map"
    yield _disagree("base_ang_vel", "orientation", slope, explained, meaning, advice)


def _disagree(name: str, what: str, slope: float, explained: float, meaning: str, advice: str) -> LogFinding:
    return LogFinding(
        # Velocities are not replayed, but what contradicts them may be the pose.
        severity="defect" if meaning else "warning",
        check="units",
        channel=name,
        message=f"the {what} changes by {slope:.3g} times the integral of {name}, which explains {explained:.0%} of "
        f"it{meaning}",
        advice=advice,
        numbers={"ratio": slope, "explained": explained},
    )
