"""Two-sample tests of recorded runs against simulated data sets of the same size.

A data set is one run per recording, all with one draw of the twin's parameters. If the twin is right, the recorded data
set is exchangeable with the simulated ones, so that the rank of any statistic among theirs is an exact p-value,
whatever the distribution of the runs and however few there are (Besag and Clifford, Biometrika 76, 1989).
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_RATE_STEPS = 50
"""Resolution of a detectable difference between rates, as a share of the greatest."""
_SHARES = tuple(0.05 * step for step in range(1, 20))
_POWER_SETS = 500
"""Least number of data sets by which a power is estimated: within 0.018, one standard deviation."""
_DIGITS = 9


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


def outcome_ratios(outcomes: Array) -> Array:
    """Return how much better each data set's outcomes are explained by other success rates than by the common ones.

    The logarithm of the greatest likelihood ratio in a family of alternatives: all runs succeed less often, with the
    chances p·(1 - s), or more often, with p + s·(1 - p), for shares s of 5 % to 95 %. Runs that almost always end alike
    weigh most. Of independent runs with known chances p and a known s it would be the most powerful statistic (Neyman
    and Pearson, Philosophical Transactions A 231, 1933). The chances are those of all data sets together, so that the
    statistics of exchangeable data sets are exchangeable.

    Args:
        outcomes: 1 for success and 0 for failure, G data sets of L runs, shape (G, L).
    """
    # Equal data sets must have equal statistics, which rounding does not grant.
    return np.round(_ratios(outcomes, _chances(outcomes.sum(axis=0), len(outcomes))), _DIGITS)


def _ratios(outcomes: Array, chances: Array) -> Array:
    # 0 is among the alternatives: no shift.
    best = np.zeros(len(outcomes))
    for share in _SHARES:
        for other in (chances * (1.0 - share), chances + share * (1.0 - chances)):
            gain, loss = np.log(other / chances), np.log((1.0 - other) / (1.0 - chances))
            best = np.maximum(best, np.where(outcomes > 0.5, gain, loss).sum(axis=1))
    return best


def _chances(successes: Array, count: int) -> Array:
    """Return success rates, never 0 or 1: Jeffreys' estimate."""
    return (successes + 0.5) / (count + 1.0)


def detectable_rate_shift(outcomes: Array, significance: float, power: float, seed: int = 0) -> float | None:
    """Return the difference of success rates from which on a rank test of `outcome_ratios` finds each; None if none.

    Data sets with a difference are those simulated in which a share of all successes, or of all failures, is turned
    into the other. A direction in which the test finds no difference is not counted if its room is less than one half:
    a twin that nearly always succeeds need not tell a robot that always does.

    Args:
        outcomes: of the simulated data sets, shape (K, L).
        significance: greatest p-value with which the test rejects.
        power: probability of rejecting.
        seed: of the choice of runs that end otherwise.
    """
    # p = (1 + number of others that are as great) / (K + 1).
    count = len(outcomes)
    allowed = int(significance * (count + 1) * (1.0 + 1e-12)) - 1
    if allowed < 0:
        return None
    successes, rate = outcomes.sum(axis=0), float(outcomes.mean())
    limit = float(np.sort(np.round(_ratios(outcomes, _chances(successes, count)), _DIGITS))[::-1][allowed])
    repeated = np.tile(outcomes, (max(1, -(-_POWER_SETS // count)), 1))
    uniform = np.random.default_rng(seed).random(repeated.shape)
    sides: list[float] = []
    for room, ends_as in ((rate, 0.0), (1.0 - rate, 1.0)):
        least = None
        for step in range(_RATE_STEPS, 0, -1):
            shifted = np.where(uniform < step / _RATE_STEPS, ends_as, repeated)
            # Its own outcomes count towards the chances, which makes it look less odd; those of the others barely move.
            found = np.round(_ratios(shifted, _chances(successes + shifted, count + 1)), _DIGITS)
            if not room or not (found > limit).mean() >= power:
                break
            least = room * step / _RATE_STEPS
        if least is not None:
            sides.append(least)
        elif room >= 0.5:
            return None
    return max(sides, default=None)
