"""How late a robot's efforts follow its commands."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from physai.sim.logs.robot_log import Array, RobotLog
from physai.sim.logs.signals.lag_fit import LagEstimate, LagFit

MAX_LAG_SAMPLES = 12_000
"""The lag is estimated from at most so many samples, those in which the command changes most."""

_MIN_SAMPLES = 50

_FLOOR_S = 1e-4
"""An interval is never taken for narrower than this: half of what a lag differs by between two motors of a kind."""


def estimate_lag(time: Array, command: Array, measured: Array, *, seed: int = 0) -> LagEstimate | None:
    """Lag of a measured series behind a command of the same kind, such as effort behind commanded effort.

    Args:
        time: of each sample [s], shape (n,), strictly ascending.
        command: what was sent at that time and held until the next, shape (n,).
        measured: what was measured at that time, shape (n,).
        seed: of the bootstrap.

    Returns:
        None where either series is constant or the recording has fewer than 50 samples.
    """
    lively = _liveliest(command)
    time, command, measured = time[lively], command[lively], measured[lively]
    if len(time) < _MIN_SAMPLES or np.ptp(command) == 0.0 or np.ptp(measured) == 0.0:
        return None
    fit = LagFit(time, command, measured)
    return fit.estimate(seed) if fit.has_quick_changes else None


def _liveliest(command: Array) -> slice:
    """Where the command changes most, over `MAX_LAG_SAMPLES`."""
    count = min(MAX_LAG_SAMPLES, len(command))
    changes = np.concatenate([[0.0, 0.0], np.cumsum(np.square(np.diff(command)))])
    starts = np.arange(0, len(command) - count + 1, max(1, count // 8))
    best = int(starts[(changes[starts + count] - changes[starts + 1]).argmax()])
    return slice(best, best + count)


def command_lag(log: RobotLog) -> tuple[LagEstimate | None, ...]:
    """Lag of measured effort behind commanded effort for each joint.

    None for a joint that is not driven, and for all joints where the command is no effort or none was measured:
    what follows a position command is the servo's motion, not its delay.
    """
    if log.command_kind != "joint_effort" or log.joint_effort is None:
        return (None,) * len(log.joint_names)
    return tuple(
        estimate_lag(log.time, log.command[:, joint], log.joint_effort[:, joint])
        for joint in range(len(log.joint_names))
    )


@dataclass(frozen=True)
class LagSummary:
    """The lag of several joints and recordings together."""

    mean_s: float
    """Mean, the surer an estimate the more it counts [s]."""
    p99_s: float
    """Lag that 1 % exceed, by how sure each estimate is and how far they differ [s]."""
    estimates: int
    """Number of estimates it is made of."""


def lag_summary(estimates: Iterable[LagEstimate | None]) -> LagSummary | None:
    """Mean and 99 % of the identified estimates, each counted by the inverse square of its interval; None without any.

    Each estimate stands for a normal distribution with its interval; the 99 % are those of their mixture.
    """
    known = [estimate for estimate in estimates if estimate is not None and estimate.identified]
    if not known:
        return None
    spread = [max((e.upper_s - e.lower_s) / 3.92, _FLOOR_S) for e in known]
    levels = [(i + 0.5) / 500.0 for i in range(500)]
    drawn: list[tuple[float, float]] = []
    for estimate, std in zip(known, spread, strict=True):
        distribution = NormalDist(estimate.lag_s, std)
        drawn += [(distribution.inv_cdf(level), 1.0 / (std * std)) for level in levels]
    total = sum(weight for _, weight in drawn)
    mean = sum(lag * weight for lag, weight in drawn) / total
    above, p99 = 0.0, mean
    for lag, weight in sorted(drawn, reverse=True):
        above, p99 = above + weight, lag
        if above >= 0.01 * total:
            break
    return LagSummary(mean_s=mean, p99_s=p99, estimates=len(known))
