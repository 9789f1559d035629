"""Two-sample tests of recorded runs against simulated data sets of the same size.

A data set is one run per recording, all with one draw of the twin's parameters. If the twin is right, the recorded data
set is exchangeable with the simulated ones, so that the rank of any statistic among theirs is an exact p-value,
whatever the distribution of the runs and however few there are (Besag and Clifford, Biometrika 76, 1989).
"""

import math

import numpy as np
import numpy.typing as npt

from physai.sdk.stats.statistics import clopper_pearson, rate_p_value, require_counts, require_share

Array = npt.NDArray[np.float64]

_RATE_STEPS = 200
"""Resolution of a detectable difference between rates."""
_LEAST_RATE = 1e-12


def rank_p_value(statistics: Array) -> float:
    """Return the share of data sets whose statistic is at least that of the first; it counts itself.

    Args:
        statistics: of the recorded data set, then of the simulated ones, shape (1 + K,); inf is above all others.
    """
    return float((statistics >= statistics[0]).mean())


def centred(values: Array) -> Array:
    """Return the distance of each value from the mean of the others, shape (n,); inf for a value that is not finite."""
    finite = np.isfinite(values)
    count, total = int(finite.sum()), float(values[finite].sum())
    if count < 2:
        return np.where(finite, 0.0, np.inf)
    others = (total - np.where(finite, values, 0.0)) / (count - 1)
    return np.where(finite, np.abs(values - others), np.inf)


def detectable_shift(statistics: Array, deviations: Array, significance: float, power: float) -> float | None:
    """Return the shift of the recorded data set that a rank test would find with some power; None if none.

    The least statistic with which the test rejects, and what chance may take from a shift: the quantile of the
    deviations that they exceed with the power.

    Args:
        statistics: of the simulated data sets, shape (K,).
        deviations: of the simulated data sets from their mean, in the direction of the shift, shape (K,).
        significance: greatest p-value with which the test rejects.
        power: probability of rejecting.
    """
    # p = (1 + number of greater ones) / (K + 1).
    allowed = int(significance * (len(statistics) + 1) * (1.0 + 1e-12)) - 1
    if allowed < 0:
        return None
    limit = float(np.sort(statistics)[::-1][allowed])
    return max(0.0, limit - float(np.quantile(deviations, 1.0 - power)))


def excess_distances(distances: Array) -> Array:
    """Return how much further each data set is from the others than these are from each other, shape (G,).

    0 on average for equal distributions; for points, their distance. Of a rank test's use, only the order matters, so
    that it is as good a statistic as the energy distance (Székely and Rizzo, Journal of Statistical Planning and
    Inference 143, 2013), which needs several runs from one start.

    Args:
        distances: between data sets, shape (G, G), symmetric, zero on the diagonal; at least three data sets.
    """
    count, rows, total = len(distances), distances.sum(axis=1), float(distances.sum())
    return rows / (count - 1) - (total - 2.0 * rows) / ((count - 1) * (count - 2))


def rate_difference_p_value(successes: int, trials: int, rates: Array) -> float:
    """Return the exact two-sided p-value of recorded successes under the twin's rate, which is itself uncertain.

    The null hypothesis is the rate nearest to the recorded one in the twin's 95 % interval (Clopper-Pearson with the
    draws as trials, which assumes that all runs of a draw end alike).

    Args:
        successes: recorded.
        trials: recorded.
        rates: success rate of each draw of the twin, shape (K,).

    Raises:
        CountError: counts out of range.
    """
    require_counts(successes, trials)
    lower, upper = clopper_pearson(round(float(rates.mean()) * len(rates)), len(rates))
    rate = min(max(successes / trials, lower), upper)
    return _two_sided(successes, trials, rate)


def _two_sided(successes: int, trials: int, rate: float) -> float:
    # At the ends, and where 1 - rate would round to one of them, there is a single possible outcome.
    if not _LEAST_RATE < rate < 1.0 - _LEAST_RATE:
        return float(successes == round(rate) * trials)
    tails = (rate_p_value(successes, trials, rate, alternative=side) for side in ("greater", "less"))
    return min(1.0, 2.0 * min(tails))


def detectable_rate_difference(trials: int, rate: float, significance: float, power: float) -> float | None:
    """Return the least difference from which on every rate would be told from `rate` with some power; None if none.

    A rate that differs by less than that in the one direction, but is the end of the range, is not counted.

    Raises:
        CountError: an argument is out of range.
    """
    require_counts(0, trials)
    require_share("significance", significance)
    rejected = [k for k in range(trials + 1) if trials and _two_sided(k, trials, rate) < significance]
    sides: list[float] = []
    for room, sign in ((rate, -1.0), (1.0 - rate, 1.0)):
        found = [step for step in range(1, _RATE_STEPS + 1) if room * step / _RATE_STEPS > 0.0]
        least = None
        for step in reversed(found):
            if not _chance(rejected, trials, rate + sign * room * step / _RATE_STEPS) >= power:
                break
            least = room * step / _RATE_STEPS
        if least is not None:
            sides.append(least)
        elif room >= 0.5:
            return None
    return max(sides, default=None)


def _chance(counts: list[int], trials: int, rate: float) -> float:
    """Probability that a binomial is one of these counts."""
    return sum(math.comb(trials, k) * rate**k * (1.0 - rate) ** (trials - k) for k in counts)
