"""Find recordings of one motion: copies with noise, another sampling rate, a shift in time or position, or mirrored.

Anchors are found as in audio fingerprinting: turning points of a joint, which none of these changes moves. The motion
about an anchor is compared with that about every other one; recordings that are alike there are aligned and compared
as a whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from physai.twin.logs.robot_log import Array, RobotLog
from physai.twin.logs.signals.noise import noise_std

GRID_S = 0.005
"""Sampling period of the compared motion [s]."""
SMOOTH_S = 0.05
"""Width of the parabolas that smooth it [s]."""
SPAN_S, POINTS = 0.75, 12
"""Time about an anchor that is compared first [s], and its number of points."""
LIKE = 0.05
"""Maximum distance of two such stretches, as a share of the recordings' motion."""
NEAR = 0.3
"""The same of two aligned motions."""
STILL = 0.05
"""Speed per recorded motion up to which a robot is at rest [1/s]."""
MIN_COMMON_S, MIN_SHARE = 2.0, 0.2
"""Minimum length of a common motion [s], and its minimum share of the shorter recording's: from one start, one policy
moves a robot alike for a while, and recordings may begin with the same motion to a start."""
DENSE = 0.9
"""Minimum share of any `SPAN_S` in which a motion is common: others cross now and then, in long recordings for long."""
DRIVES_APART = 0.2
"""Minimum difference of what drives two motions, over `SPAN_S` and as a share of it, that makes them two: the same
motion in another pose or with a load."""
NOISE_STDS = 4.0
"""Difference that noise explains, in its standard deviations."""
MOTION_SHARE = 2e-3
"""Difference that smoothing and sampling anew explain, as a share of the recording's motion."""
ALIGNMENTS = 4
"""Maximum number of alignments that are tried of two recordings."""
MAX_ANCHORS, LEAST_ANCHORS = 5000, 5
"""Maximum number of anchors of all recordings, and of one however many there are: those in the largest motions. In
periodic motions all are alike, and the number of pairs is that of anchors squared."""


@dataclass(frozen=True)
class _Motion:
    """A recording on the common grid."""

    path: Array
    """Positions, shape (n, J)."""
    noise: Array
    """Standard deviation of a position, shape (J,)."""
    anchors: Array
    """Times of turning points [s], shape (A,)."""
    stretches: Array
    """Motion about each of them [rad or m], shape (A, POINTS·J)."""
    drives: tuple[Array, ...] = ()
    """Commands, less the positions that they are for, and measured efforts, shape (n, J) each."""

    @property
    def size(self) -> Array:
        """Standard deviation of each joint's positions."""
        return self.path.std(axis=0)


def same_motion(logs: Sequence[RobotLog]) -> Iterator[tuple[int, int, float]]:
    """Yield pairs of recordings, by their index, with the same motion, and its share of the shorter one's.

    Equal are positions that differ by noise and by a constant, at some shift in time, for at least `MIN_COMMON_S`. So
    are those of all joints with the opposite sign, with which an arm that hangs down moves in the same way. Commands
    and efforts that both differ tell two motions apart, such as one in another pose or with a load: one of them is the
    input of a replay.
    """
    # Imported here because it is slow to import.
    from scipy.spatial import KDTree  # pyright: ignore[reportMissingTypeStubs]

    motions = [_motion(log, max(LEAST_ANCHORS, MAX_ANCHORS // len(logs))) for log in logs]
    count = len(motions)
    motions += [_mirrored(one) for one in motions]
    moving = [one for one in motions if len(one.anchors)]
    if len(moving) < 2:
        return
    owner = np.concatenate([np.full(len(one.anchors), number) for number, one in enumerate(motions)])
    times = np.concatenate([one.anchors for one in motions])
    stretches = np.concatenate([one.stretches for one in moving])
    shifts: dict[tuple[int, int], list[float]] = {}
    reach = LIKE * float(np.median([one.size.max() for one in moving])) * stretches.shape[1] ** 0.5
    near: npt.NDArray[np.int64] = cast("Any", KDTree(stretches)).query_pairs(reach, output_type="ndarray")
    # The mirror images of two say what the two say.
    near = near[(owner[near[:, 0]] < count) & (owner[near[:, 0]] != owner[near[:, 1]] % count)]
    apart = times[near[:, 1]] - times[near[:, 0]]
    rows = np.column_stack([owner[near], np.round(apart / SMOOTH_S).astype(np.int64)])
    kinds, kind, often = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    mean = np.bincount(kind.ravel(), apart) / often
    # The most frequent shifts of two recordings first.
    for place in np.argsort(-often, kind="stable").tolist():
        one, other = int(kinds[place, 0]), int(kinds[place, 1])
        likely = shifts.setdefault((one, other), [])
        if len(likely) < ALIGNMENTS:
            likely.append(float(mean[place]))
    shares: dict[tuple[int, int], float] = {}
    for (one, other), likely in shifts.items():
        share = max(_common_share(motions[one], motions[other], shift_s) for shift_s in likely)
        pair = (min(one, other % count), max(one, other % count))
        shares[pair] = max(share, shares.get(pair, 0.0))
    for (one, other), share in sorted(shares.items()):
        if share > 0.0:
            yield one, other, share


def _mirrored(one: _Motion) -> _Motion:
    return replace(one, path=-one.path, stretches=-one.stretches, drives=tuple(-drive for drive in one.drives))


def _motion(log: RobotLog, most: int) -> _Motion:
    from scipy.signal import savgol_filter

    moments: Array = np.arange(0.0, float(log.time[-1]), GRID_S)
    joints = int(log.positions.shape[1])
    width = round(SMOOTH_S / GRID_S) | 1
    nothing = _Motion(np.zeros((0, joints)), np.zeros(joints), np.zeros(0), np.zeros((0, 0)))
    if len(moments) < 2 * round(SPAN_S / GRID_S) or len(moments) <= width:
        return nothing
    path: Array = savgol_filter(_interpolated(moments, log.time, log.positions), width, 2, axis=0)
    size = path.std(axis=0)
    moved = float(size.max())
    noise = np.array([noise_std(column, []) for column in log.positions.T], np.float64)
    if not moved > NOISE_STDS * float(noise.max()):
        return nothing
    moving = np.flatnonzero(size > 0.1 * moved)
    places = np.concatenate([_turning_points(path[:, joint], 0.1 * size[joint]) for joint in moving])
    span = SPAN_S / GRID_S
    places = places[(places >= 0.5 * span) & (places + 0.5 * span < len(path) - 1)]
    if not len(places):
        return nothing
    steps = places[:, None] + np.linspace(-0.5 * span, 0.5 * span, POINTS + 1)
    there = _interpolated(steps.ravel(), np.arange(len(path), dtype=np.float64), path).reshape(*steps.shape, -1)
    stretches = (there[:, 1:] - there[:, :1]).reshape(len(places), -1)
    # At rest, all recordings are alike.
    change = np.sqrt((stretches**2).mean(axis=1))
    kept = np.argsort(-change, kind="stable")[: min(most, int((change > LIKE * moved).sum()))]
    asked = log.command - log.joint_pos if log.command_kind == "joint_pos" else log.command
    drives = [drive for drive in (asked, log.joint_effort) if drive is not None]
    there = tuple(_interpolated(moments, log.time, drive) for drive in drives)
    return _Motion(path, noise, places[kept] * GRID_S, stretches[kept], there)


def _turning_points(path: Array, least: float) -> Array:
    """Turning points of a joint, in steps of the grid, after a motion of at least that much."""
    speed = np.gradient(path)
    before = np.flatnonzero(np.sign(speed[:-1]) * np.sign(speed[1:]) < 0.0)
    places = before + speed[before] / (speed[before] - speed[before + 1])
    heights = np.interp(places, np.arange(len(path)), path)
    kept = np.abs(np.diff(heights, prepend=path[0])) >= least
    return places[kept]


def _common_share(one: _Motion, other: _Motion, shift_s: float) -> float:
    """Share of the shorter recording's time in which the motion is the same after a shift, refined here."""
    for _ in range(3):
        first, second = _overlap(one, other, shift_s)
        if len(first) < MIN_COMMON_S / GRID_S:
            return 0.0
        apart = second - first
        apart = apart - np.median(apart, axis=0)
        speed = np.gradient(second, GRID_S, axis=0)
        # Where the motion is another for a while, its distance must not count.
        near = np.abs(apart).max(axis=1) <= NEAR * one.size.max()
        if int(near.sum()) < MIN_COMMON_S / GRID_S:
            return 0.0
        shift_s -= float((apart[near] * speed[near]).sum() / max(1e-12, float((speed[near] ** 2).sum())))
    first, second = _overlap(one, other, shift_s)
    tolerance = NOISE_STDS * np.hypot(one.noise, other.noise) + MOTION_SHARE * one.size.max()
    apart = second - first
    same = (np.abs(apart - np.median(apart, axis=0)) <= tolerance).all(axis=1)
    same &= _averaged(same[:, None].astype(np.float64))[:, 0] >= DENSE
    if _driven_apart(one, other, shift_s, same):
        return 0.0
    common_s = float((same & _moving(first, one)).sum()) * GRID_S
    shorter_s = min(float(_moving(each.path, each).sum()) for each in (one, other)) * GRID_S
    return min(1.0, common_s / shorter_s) if common_s >= max(MIN_COMMON_S, MIN_SHARE * shorter_s) else 0.0


def _driven_apart(one: _Motion, other: _Motion, shift_s: float, same: npt.NDArray[np.bool_]) -> bool:
    """Whether other commands and other efforts make the same motion, over times in which noise averages out."""
    different: list[bool] = []
    for first, second in zip(one.drives, other.drives, strict=False) if same.any() else ():
        here, there = _overlap(replace(one, path=first), replace(other, path=second), shift_s)
        apart = _averaged(there - here)[same]
        different.append(bool((apart**2).mean() > DRIVES_APART**2 * (here[same] ** 2).mean()))
    return bool(different) and all(different)


def _averaged(values: Array) -> Array:
    """Running mean over `SPAN_S`."""
    from scipy import ndimage  # pyright: ignore[reportMissingTypeStubs]

    return np.asarray(ndimage.uniform_filter1d(values, round(SPAN_S / GRID_S), axis=0), np.float64)


def _moving(path: Array, motion: _Motion) -> npt.NDArray[np.bool_]:
    """Samples in which a robot moves: at rest it is always the same."""
    return np.abs(np.gradient(path, GRID_S, axis=0)).max(axis=1) > STILL * motion.size.max()


def _overlap(one: _Motion, other: _Motion, shift_s: float) -> tuple[Array, Array]:
    """Both motions at the moments of the first that the second has, too; the second's are later by the shift."""
    later = np.arange(len(one.path), dtype=np.float64) + shift_s / GRID_S
    inside = (later >= 0.0) & (later <= len(other.path) - 1)
    return one.path[inside], _interpolated(later[inside], np.arange(len(other.path), dtype=np.float64), other.path)


def _interpolated(moments: Array, times: Array, values: Array) -> Array:
    columns: list[Array] = [np.interp(moments, times, column) for column in values.T]
    return np.stack(columns, axis=1)
