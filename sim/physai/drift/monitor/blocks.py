"""Blocks of a recording: stretches that are judged one by one, and why some say nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from physai.drift.equations.estimate import BlockEstimate, estimate
from physai.drift.equations.frame import Frame
from physai.drift.equations.log_equations import LogEquations
from physai.drift.equations.motion import half_width
from physai.drift.monitor.lengths import BLOCK_S
from physai.twin.logs import RobotLog
from physai.twin.logs.checks.channels import spike_samples

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

SPACING = 0.75
"""Time between moments in half widths of the parabolas: closer ones share their errors."""
SPACING_MIN_S = 0.04
MOVES = 0.01
"""Least motion of a command within a block, as a share of the joint's effort limit, or in rad or m."""
WORK_SPEED, WORK_SHARE = 0.05, 0.6
"""Speed of a joint in motion [rad/s or m/s], and the least share of a block in which some joint has it."""
GAP = 1.5
"""Greatest span of a parabola's samples, in what it takes at the recording's rate."""
INFORMATIVE = 2.0
"""Greatest standard deviation of an amount of which a block says anything, in steps of the change."""

Reason = Literal["usable", "no motion commanded", "mostly at rest", "unexplained", "says nothing", "too slow"]


@dataclass(frozen=True)
class Block:
    """One block of a recording."""

    log: int
    """Index of the recording."""
    start_s: float
    """In the recording's time [s]."""
    reason: Reason
    estimate: BlockEstimate | None = None
    known: npt.NDArray[np.bool_] | None = None
    """Changes of which it says anything, shape (D,)."""

    @property
    def usable(self) -> bool:
        """Whether it says anything of any change."""
        return self.reason == "usable"


def blocks_of(frame: Frame, logs: Sequence[RobotLog]) -> Iterator[Block]:
    """Yield the blocks of recordings in their order."""
    for number, log in enumerate(logs):
        half_s = half_width(log)
        if half_s is None:
            yield from (Block(number, start, "too slow") for start in _starts(log))
            continue
        good = _good(log)
        equations: LogEquations | None = None
        spacing = max(SPACING_MIN_S, SPACING * half_s)
        for start in _starts(log):
            if not _commanded(frame, log, start):
                yield Block(number, start, "no motion commanded")
                continue
            samples = _moments(log, start, half_s, spacing, good)
            if len(samples) < 0.5 * BLOCK_S / spacing or not _at_work(log, samples, half_s):
                yield Block(number, start, "mostly at rest")
                continue
            if equations is None:
                equations = LogEquations(frame, log)
            yield _judged(frame, equations, number, start, samples)


def _judged(frame: Frame, equations: LogEquations, number: int, start: float, samples: Indices) -> Block:
    rows = equations.rows(samples)
    found = estimate(rows)
    if found is None:
        return Block(number, start, "mostly at rest")
    if (found.unexplained > equations.limits(rows)).any():
        return Block(number, start, "unexplained", found)
    steps = np.array([change.step for change in frame.changes])
    known = found.std <= INFORMATIVE * steps
    return Block(number, start, "usable" if known.any() else "says nothing", found, known)


def _starts(log: RobotLog) -> list[float]:
    return [float(start) for start in np.arange(int(log.duration_s / BLOCK_S + 1e-9)) * BLOCK_S]


def _good(log: RobotLog) -> npt.NDArray[np.bool_]:
    """Return the samples without spikes, shape (n,)."""
    good = np.ones(len(log.time), bool)
    for column in log.joint_pos.T:
        good[spike_samples(column)] = False
    return good


def _commanded(frame: Frame, log: RobotLog, start: float) -> bool:
    """Whether commands ask for motion in a block: what holds still, and is pushed, says nothing of the robot."""
    inside = (log.time >= start) & (log.time < start + BLOCK_S)
    if int(inside.sum()) < 2 or not log.joint_names:
        return False
    reach = np.ptp(log.command[inside], axis=0)
    if log.command_kind == "joint_effort":
        reach = reach / np.array([joint.effort_limit or 1.0 for joint in frame.robot.spec.joints])
    return bool((reach > MOVES).any())


def _at_work(log: RobotLog, samples: Indices, half_s: float) -> bool:
    """Whether a robot moves most of the time: one that holds a pose, and is pushed now and then, is not at work."""
    reach = int(half_s / float(np.median(np.diff(log.time))))
    low, high = samples - reach, samples + reach
    speed = np.abs(log.joint_pos[high] - log.joint_pos[low]) / (log.time[high] - log.time[low])[:, None]
    return float((speed > WORK_SPEED).any(axis=1).mean()) >= WORK_SHARE


def _moments(log: RobotLog, start: float, half_s: float, spacing: float, good: npt.NDArray[np.bool_]) -> Indices:
    """Return the samples of a block that have whole parabolas around them."""
    first = max(start + 0.5 * spacing, half_s)
    wanted = np.arange(first, min(start + BLOCK_S, log.duration_s - half_s), spacing)
    samples = np.unique(np.searchsorted(log.time, wanted))
    reach = int(half_s / float(np.median(np.diff(log.time))))
    samples = samples[(samples >= reach) & (samples < len(log.time) - reach)]
    low, high = samples - reach, samples + reach
    whole = log.time[high] - log.time[low] <= GAP * 2.0 * half_s
    bad = np.concatenate([[0], np.cumsum(~good)])
    return samples[whole & (bad[high + 1] == bad[low])]
