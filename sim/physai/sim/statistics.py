"""What counts of successes say about a success rate."""

import math

from physai.sdk.errors import PhysaiError

MAX_TRIALS = 10**7


class CountError(PhysaiError):
    """Counts or a confidence level that cannot be."""


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided confidence interval of a success rate (Clopper, Pearson, Biometrika 26, 1934).

    The lower bound is the rate at which so many successes or more have probability (1 - confidence) / 2, the upper
    bound the rate at which so few or fewer have. It holds for independent trials.

    Args:
        successes: how many trials succeeded.
        trials: how many there were; without any the interval is [0, 1].
        confidence: probability of covering the true rate, at least.

    Raises:
        CountError: the counts or the confidence are out of range.
    """
    if not 0 <= successes <= trials <= MAX_TRIALS:
        raise CountError(
            f"{successes} successes of {trials} trials: there are 0 to {MAX_TRIALS} trials, and no more successes"
        )
    if not (math.isfinite(confidence) and 0.0 < confidence < 1.0):
        raise CountError(f"confidence must lie between 0 and 1, got {confidence}")
    tail = 0.5 * (1.0 - confidence)
    return _lower_bound(successes, trials, tail), 1.0 - _lower_bound(trials - successes, trials, tail)


def _lower_bound(successes: int, trials: int, tail: float) -> float:
    """The rate p at which P(X ≥ successes) = tail < 1/2, by bisection to the last bit."""
    if successes == 0:
        return 0.0
    # A binomial whose mean is a whole number has it for its median: at the observed rate P(X ≥ successes) ≥ 1/2.
    low, high = 0.0, successes / trials
    while low < (middle := 0.5 * (low + high)) < high:
        if upper_tail(successes, trials, middle) < tail:
            low = middle
        else:
            high = middle
    return low


def upper_tail(successes: int, trials: int, rate: float) -> float:
    """P(X ≥ successes) for a binomial X of a rate in (0, 1) that is at most successes / trials.

    Above the mean the terms fall, so the sum ends where they no longer count.
    """
    term = total = math.exp(
        math.lgamma(trials + 1)
        - math.lgamma(successes + 1)
        - math.lgamma(trials - successes + 1)
        + successes * math.log(rate)
        + (trials - successes) * math.log1p(-rate)
    )
    for count in range(successes, trials):
        term *= (trials - count) / (count + 1) * (rate / (1.0 - rate))
        total += term
        if term <= 1e-17 * total:
            break
    return total
