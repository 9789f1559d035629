"""Estimate the lag of a robot's efforts behind its commands."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from weakref import WeakKeyDictionary

import numpy as np

from physai.twin.logs.robot_log import Array, RobotLog
from physai.twin.logs.signals.lag_fit import LagEstimate, LagFit

MAX_LAG_SAMPLES = 12_000
"""Maximum number of samples for an estimate: those in which the command changes most."""

_MIN_SAMPLES = 50

COPY = 1e-3
"""Greatest difference of a copy, as a share of the command's range. No sensor of effort is as exact."""

_FLOOR_S = 1e-4
"""Minimum standard deviation of an estimate [s]: half the lag difference between two motors of the same model."""


def estimate_lag(time: Array, command: Array, measured: Array, *, seed: int = 0) -> LagEstimate | None:
    """Estimate the lag of a measured series behind a command of the same kind, such as effort and commanded effort.

    Args:
        time: time of each sample [s], shape (n,), strictly ascending.
        command: command sent at that time and held until the next, shape (n,).
        measured: measurement at that time, shape (n,).
        seed: seed of the bootstrap.

    Returns:
        The estimate; None if either series is constant, one is a copy of the other, or there are fewer than 50 samples.
    """
    excited = _most_excited(command)
    time, command, measured = time[excited], command[excited], measured[excited]
    # One column under two names, perhaps rounded, shows no motor.
    copied = is_copy(command, measured)
    if len(time) < _MIN_SAMPLES or np.ptp(command) == 0.0 or np.ptp(measured) == 0.0 or copied:
        return None
    fit = LagFit(time, command, measured)
    return fit.estimate(seed) if fit.has_quick_changes else None


def is_copy(command: Array, measured: Array) -> bool:
    """Whether two series of one unit are the same but for rounding, shape (n,) each."""
    return bool(np.abs(command - measured).max() <= COPY * np.ptp(command))


def _most_excited(command: Array) -> slice:
    """Return the window of `MAX_LAG_SAMPLES` in which the command changes most."""
    count = min(MAX_LAG_SAMPLES, len(command))
    # Cumulative sums give the change within every candidate window at once.
    changes = np.concatenate([[0.0, 0.0], np.cumsum(np.square(np.diff(command)))])
    starts = np.arange(0, len(command) - count + 1, max(1, count // 8))
    best = int(starts[(changes[starts + count] - changes[starts + 1]).argmax()])
    return slice(best, best + count)


def command_lag(log: RobotLog) -> tuple[LagEstimate | None, ...]:
    """Estimate the lag of measured behind commanded effort for each joint.

    None for a joint that is not driven, and for all joints if the command is not an effort or efforts are not measured.
    """
    # The response to a position command is the servo's motion, not its delay.
    if log.command_kind != "joint_effort" or log.joint_effort is None:
        return (None,) * len(log.joint_names)
    if log not in _KNOWN:
        _KNOWN[log] = tuple(
            estimate_lag(log.time, log.command[:, joint], log.joint_effort[:, joint])
            for joint in range(len(log.joint_names))
        )
    return _KNOWN[log]


# A calibration asks several times, and an estimate takes up to a second.
_KNOWN: WeakKeyDictionary[RobotLog, tuple[LagEstimate | None, ...]] = WeakKeyDictionary()


@dataclass(frozen=True)
class LagSummary:
    """Combined lag of several joints and recordings."""

    mean_s: float
    """Inverse-variance weighted mean [s]."""
    p99_s: float
    """99th percentile, from the spread and the uncertainty of the estimates [s]."""
    estimates: int
    """Number of estimates."""


def lag_summary(estimates: Iterable[LagEstimate | None]) -> LagSummary | None:
    """Combine the identified estimates, weighted by inverse variance; None without any."""
    known = [estimate for estimate in estimates if estimate is not None and estimate.identified]
    if not known:
        return None
    # A 95 % interval of a normal distribution is 2 · 1.96 standard deviations wide.
    spread = [max((e.upper_s - e.lower_s) / 3.92, _FLOOR_S) for e in known]
    # The mixture of one normal distribution per estimate, each represented by 500 equally likely values.
    levels = [(i + 0.5) / 500.0 for i in range(500)]
    drawn: list[tuple[float, float]] = []
    for estimate, std in zip(known, spread, strict=True):
        distribution = NormalDist(estimate.lag_s, std)
        drawn += [(distribution.inv_cdf(level), 1.0 / (std * std)) for level in levels]
    total = sum(weight for _, weight in drawn)
    mean = sum(lag * weight for lag, weight in drawn) / total
    # The 99th percentile of the mixture: walk down from the greatest value until 1 % of the weight lies above.
    above, p99 = 0.0, mean
    for lag, weight in sorted(drawn, reverse=True):
        above, p99 = above + weight, lag
        if above >= 0.01 * total:
            break
    return LagSummary(mean_s=mean, p99_s=p99, estimates=len(known))
