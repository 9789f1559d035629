"""Windows: short pieces of recordings with their start states and measured motion.

A replay starts every window at its measured state and runs the twin open loop. A quarter of a second is long enough to
show model errors, and short enough for open-loop errors to be meaningful: beyond about half a second, the motion of a
free double pendulum is chaotic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from physai.twin.calibration.replay.pose import (
    BasePath,
    by_channel,
    impossible_poses,
    in_motion,
    measured_coordinates,
    pose_starts,
)
from physai.twin.calibration.replay.states import StateEstimate
from physai.twin.logs import LogError, RobotLog
from physai.twin.logs.checks.channels import spike_samples

Array = npt.NDArray[np.float64]

SAMPLES = 24
"""Samples of a window at which the twin is compared with the recording."""
MARGIN_S = 0.02
"""Excluded time at both ends of a recording, where the state estimate is one-sided [s]."""
EFFORT_MARGIN = 1.1
"""Tolerance factor between a measured effort and the joint's limit."""
MIN_SAMPLES = 3
Touching = Callable[[RobotLog], npt.NDArray[np.bool_]]
"""Returns whether the robot touches the world at each sample of a recording."""
GAP_LIMIT = 0.25
"""Maximum time between two samples of a window, as a fraction of the window."""


@dataclass(frozen=True)
class Windows:
    """W windows from recordings of one robot with C coordinates and M compared samples each.

    The coordinates are the positions of the J joints; with a floating base, the six coordinates of its pose come before
    them, see `physai.twin.calibration.replay.pose`, and C is J + 6.
    """

    window_s: float
    logs: tuple[RobotLog, ...]
    log_index: npt.NDArray[np.int64]
    """Index of each window's recording, shape (W,), ascending."""
    start_s: Array
    """Start in the recording's time [s], shape (W,)."""
    joint_pos: Array
    """Position at the start [rad or m], shape (W, C)."""
    joint_vel: Array
    """Speed at the start [rad/s or m/s], shape (W, C)."""
    start_std: Array
    """Standard deviation of the start state, positions, then speeds, shape (W, 2·C)."""
    sample_s: Array
    """Times of the compared samples after the start [s], shape (W, M)."""
    target: Array
    """Measured positions at these times, shape (W, M, C)."""
    offset: Array
    """Measured minus true position [rad or m], of the joints only, shape (W, J): the encoder's zero in the window's
    recording."""
    base: BasePath | None = None
    """Orientations of a floating base; None for a fixed one."""

    def __len__(self) -> int:
        return len(self.start_s)

    def subset(self, chosen: npt.NDArray[np.int64]) -> "Windows":
        """Return the windows with these indices, which must be ascending."""
        names = ("log_index", "start_s", "joint_pos", "joint_vel", "start_std", "sample_s", "target", "offset")
        base = None if self.base is None else self.base.subset(chosen)
        return replace(self, **{name: getattr(self, name)[chosen] for name in names}, base=base)

    def thinned(self, count: int) -> "Windows":
        """Return at most `count` evenly spaced windows."""
        if len(self) <= count:
            return self
        return self.subset(np.unique(np.linspace(0, len(self) - 1, count).round().astype(np.int64)))

    def shortened(self, window_s: float) -> "Windows":
        """Return the beginnings of the windows with the samples in them."""
        inside = max(1, int((self.sample_s <= window_s).sum(axis=1).min()))
        samples = np.round(np.linspace(0, inside - 1, self.sample_s.shape[1])).astype(np.int64)
        return replace(
            self,
            # Never shorter than the last sample kept, which a slow recording may have only after `window_s`.
            window_s=float(max(window_s, self.sample_s[:, inside - 1].max())),
            sample_s=self.sample_s[:, samples],
            target=self.target[:, samples],
            base=None if self.base is None else self.base.sampled(samples),
        )

    def motion(self) -> Array:
        """Return the root mean square displacement from the windows' starts, one per scored error."""
        squared = ((self.target - self.joint_pos[:, None]) ** 2).mean(axis=(0, 1))
        return np.sqrt(self.by_channel(squared))

    def by_channel(self, squared: Array) -> Array:
        """Return squares of scored errors from those of coordinates: distance and angle of a base, then the joints."""
        return by_channel(squared, self.base is not None)


def cut(
    logs: Sequence[RobotLog],
    window_s: float,
    *,
    stride_s: float | None = None,
    effort_limits: Sequence[float] = (),
    touching: Touching | None = None,
) -> Windows:
    """Cut recordings into windows.

    Windows with a gap of more than `GAP_LIMIT` of their length, a spike in a measured position, or a measured effort
    beyond the joint's limit are excluded. Of recordings with poses, only windows are used in which the robot moves and
    touches the world, and which do not start in an impact.

    Args:
        logs: recordings of one robot.
        window_s: length [s].
        stride_s: time between starts [s]; the window length by default.
        effort_limits: effort limit of each joint [N·m or N], 0 if unknown; not checked by default.
        touching: tells when a robot with a floating base touches the world; None for a fixed base.

    Raises:
        LogError: a recording has no usable window.
    """
    parts: list[tuple[Array, ...]] = []
    index: list[int] = []
    for number, log in enumerate(logs):
        starts = _starts(log, window_s, stride_s or window_s, _impossible(log, effort_limits))
        part = (
            ()
            if not len(starts)
            else _part(log, starts, window_s)
            if touching is None
            else _poses(log, starts, window_s, touching(log))
        )
        if not part:
            raise LogError(_without_window(log, window_s, effort_limits, poses=touching is not None))
        parts.append(part)
        index.extend([number] * len(part[0]))
    start_s, position, speed, std, sample_s, target, *paths = (
        np.concatenate(arrays) for arrays in zip(*parts, strict=True)
    )
    base = BasePath(*paths) if paths else None
    zero = np.zeros((len(start_s), len(logs[0].joint_names)))
    return Windows(window_s, tuple(logs), np.array(index), start_s, position, speed, std, sample_s, target, zero, base)


def _part(log: RobotLog, starts: npt.NDArray[np.int64], window_s: float) -> tuple[Array, ...]:
    """Return the windows of one recording in the order of the fields of `Windows`."""
    samples = np.stack([_samples(log, start, window_s) for start in starts.tolist()])
    sample_s = log.time[samples] - log.time[starts][:, None]
    if not log.joint_names:
        empty = np.zeros((len(starts), 0))
        return log.time[starts], empty, empty, empty, sample_s, log.joint_pos[samples]
    estimate = StateEstimate(log)
    position, speed = estimate.at(starts)
    std = np.tile(np.concatenate(estimate.errors()), (len(starts), 1))
    return log.time[starts], position, speed, std, sample_s, log.joint_pos[samples]


def _poses(
    log: RobotLog, starts: npt.NDArray[np.int64], window_s: float, touches: npt.NDArray[np.bool_]
) -> tuple[Array, ...]:
    """Return the windows of one recording with poses; empty without usable ones."""
    if log.base is None:
        raise LogError(f"log {log.name}: has no pose of the base")
    wanted = [
        start
        for start, samples in ((start, _samples(log, start, window_s)) for start in starts.tolist())
        if touches[start : samples[-1] + 1].any() and in_motion(log.base, np.append(start, samples))
    ]
    found = pose_starts(log, log.base, np.array(wanted, dtype=np.int64))
    if not len(found.samples):
        return ()
    start_s, position, speed, std, sample_s, target = _part(log, found.samples, window_s)
    joints = position.shape[1]
    samples = np.stack([_samples(log, start, window_s) for start in found.samples.tolist()])
    measured = measured_coordinates(log.base, found.quat, samples)
    return (
        start_s,
        np.hstack([found.coordinates, position]),
        np.hstack([found.velocity, speed]),
        np.hstack([found.std[:, :6], std[:, :joints], found.std[:, 6:], std[:, joints:]]),
        sample_s,
        np.concatenate([measured, target], axis=-1),
        found.quat,
        log.base.quat[samples],
    )


def _without_window(log: RobotLog, window_s: float, effort_limits: Sequence[float], *, poses: bool) -> str:
    """Say why a recording has no window, and what to do."""
    contact = ", with contact and motion and without an impact at its start," if poses else ""
    period_s, share = float(np.median(np.diff(log.time))), len(_impossible(log, effort_limits)) / len(log.time)
    way = "record longer, or use a shorter `window_s`"
    if not period_s <= GAP_LIMIT * window_s:
        way = f"its samples are {1e3 * period_s:.3g} ms apart, use a longer `window_s`"
    beyond = f"; {share:.0%} of its efforts are beyond the joint's limit: are they in N·m, or N?" if share > 0.0 else ""
    return (
        f"log {log.name}: {log.duration_s:.3g} s long, no window of {window_s:g} s{contact} without a spike or a gap "
        f"of more than {1e3 * GAP_LIMIT * window_s:.0f} ms in it; {way}{beyond}"
    )


def _impossible(log: RobotLog, effort_limits: Sequence[float]) -> npt.NDArray[np.int64]:
    """Return samples with a measured effort beyond the joint's limit, which must be a measurement error."""
    if log.joint_effort is None or not effort_limits:
        return np.zeros(0, dtype=np.int64)
    # A limit of 0 means unknown.
    limits = np.array([limit or np.inf for limit in effort_limits])
    return np.flatnonzero((np.abs(log.joint_effort) > EFFORT_MARGIN * limits).any(axis=1))


def _starts(
    log: RobotLog, window_s: float, stride_s: float, impossible: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the samples at which the windows of a recording start."""
    time = log.time
    last = time[-1] - window_s - MARGIN_S
    # 1e-9 s: rounding must neither lose the last window nor move a start to the next sample.
    wanted = np.arange(MARGIN_S, last + 1e-9, stride_s)
    starts = np.unique(np.searchsorted(time, wanted - 1e-9))
    starts = starts[time[starts] <= last + 1e-9]
    gaps = np.diff(time)
    columns = (spike_samples(column) for column in log.joint_pos.T)
    spikes = np.unique(np.concatenate([*columns, impossible, impossible_poses(log.base)]))
    keep: list[int] = []
    for start in starts:
        end = int(np.searchsorted(time, time[start] + window_s, side="right"))
        whole = end - start >= MIN_SAMPLES and float(gaps[start : end - 1].max()) <= GAP_LIMIT * window_s
        if whole and not ((spikes >= start) & (spikes < end)).any():
            keep.append(int(start))
    return np.array(keep, dtype=np.int64)


def _samples(log: RobotLog, start: int, window_s: float) -> npt.NDArray[np.int64]:
    """Return the compared samples of a window, including its last; slow recordings repeat samples."""
    # Open-loop errors grow with time, so the last sample is always compared.
    end = int((log.time <= log.time[start] + window_s + 1e-9).sum()) - 1
    return np.round(np.linspace(start + (end - start) / SAMPLES, end, SAMPLES)).astype(np.int64)
