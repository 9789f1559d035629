"""What counts of successes say about a success rate, and what many such statements say together.

Clopper-Pearson is the interval a verdict rests on, Wilson the one a plot shows. Both hold for a number of trials that
was fixed beforehand; whoever looks while trials still run needs `physai.sim.stats.sequential`.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

from physai.sdk.base.errors import PhysaiError

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
    require_counts(successes, trials)
    require_share("confidence", confidence)
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


def wilson(successes: int, trials: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Approximate two-sided confidence interval of a success rate, for display (Wilson, JASA 22, 1927).

    The rates p with |k/n - p| <= z sqrt(p (1 - p) / n). Narrower than Clopper-Pearson; its coverage is near the
    confidence on average over rates, not for each.

    Raises:
        CountError: the counts or the confidence are out of range.
    """
    require_counts(successes, trials)
    require_share("confidence", confidence)
    if trials == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    rate, spread = successes / trials, z * z / trials
    centre = (rate + 0.5 * spread) / (1.0 + spread)
    half = math.sqrt(spread * (rate * (1.0 - rate) + 0.25 * spread)) / (1.0 + spread)
    # At 0 and n the bounds are 0 and 1 exactly, but for the last digit.
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == trials else centre + half)


def newcombe(first: tuple[int, int], second: tuple[int, int], *, confidence: float = 0.95) -> tuple[float, float]:
    """Approximate confidence interval of the difference of two independent rates, first less second.

    Method 10 of Newcombe, Statistics in Medicine 17, 1998: the Wilson limits of both, added in squares.

    Args:
        first: successes and trials of one arm.
        second: successes and trials of the other; episodes of its own, not the same seeds.
        confidence: probability of covering the true difference, nearly.

    Raises:
        CountError: counts or confidence are out of range, or an arm has no trials.
    """
    if not (first[1] > 0 and second[1] > 0):
        raise CountError(f"both arms need trials, got {first[1]} and {second[1]}")
    low_1, high_1 = wilson(*first, confidence=confidence)
    low_2, high_2 = wilson(*second, confidence=confidence)
    rate_1, rate_2 = first[0] / first[1], second[0] / second[1]
    difference = rate_1 - rate_2
    return (
        difference - math.hypot(rate_1 - low_1, high_2 - rate_2),
        difference + math.hypot(high_1 - rate_1, rate_2 - low_2),
    )


def zero_failure_bound(trials: int, *, confidence: float = 0.95) -> float:
    """Greatest failure rate that trials without any failure leave possible: 1 - (1 - confidence)^(1 / trials).

    One-sided and exact: at that rate no failure in so many trials has probability 1 - confidence. 59 trials give
    5 %, 299 give 1 %, 2 995 give 0.1 %. Without trials it is 1.

    Raises:
        CountError: the count or the confidence is out of range.
    """
    require_counts(0, trials)
    require_share("confidence", confidence)
    return 1.0 if trials == 0 else -math.expm1(math.log1p(-confidence) / trials)


def zero_failure_trials(rate: float, *, confidence: float = 0.95) -> int:
    """Fewest trials whose bound without any failure is at most `rate`: ceil(ln(1 - confidence) / ln(1 - rate)).

    Raises:
        CountError: a number does not lie between 0 and 1, or more than MAX_TRIALS are needed.
    """
    require_share("rate", rate)
    require_share("confidence", confidence)
    trials = math.log1p(-confidence) / math.log1p(-rate)
    if not trials <= MAX_TRIALS:
        raise CountError(
            f"a failure rate of {rate} takes {trials:.3g} trials to exclude, at most {MAX_TRIALS} are allowed"
        )
    # One digit of rounding must not ask for a trial more.
    return max(1, math.ceil(trials * (1.0 - 1e-12)))


def rate_p_value(successes: int, trials: int, rate: float, *, alternative: Literal["greater", "less"]) -> float:
    """Exact one-sided binomial p-value.

    Args:
        successes: how many trials succeeded.
        trials: how many there were, fixed beforehand.
        rate: the hypothesis to reject.
        alternative: what rejecting it shows, that the true rate is `greater` or `less`.

    Returns:
        Probability of so many successes or more (`greater`), or of so few or fewer (`less`), at that rate.

    Raises:
        CountError: counts or rate are out of range.
    """
    require_counts(successes, trials)
    require_share("rate", rate)
    if alternative == "less":
        return _tail(trials - successes, trials, 1.0 - rate)
    return _tail(successes, trials, rate)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """p-values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979), in the order given.

    Rejecting every hypothesis whose adjusted value is at most alpha rejects any true one with probability of at most
    alpha, however the tests depend on each other: the i-th smallest of m is multiplied by m - i + 1, and no adjusted
    value is below that of a smaller p-value.

    A verdict that passes only if all of its gates do needs no such correction to pass (a false PASS takes a false
    answer of every gate that ought to block). It needs one for whatever is claimed as soon as a single test rejects:
    that some gate fails, that some perturbation is harmful.

    Raises:
        CountError: a p-value does not lie in [0, 1].
    """
    for p in p_values:
        if not 0.0 <= p <= 1.0:
            raise CountError(f"a p-value lies in [0, 1], got {p}")
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = greatest
    return tuple(adjusted)


def _tail(successes: int, trials: int, rate: float) -> float:
    """P(X ≥ successes) for a binomial X of any rate in (0, 1)."""
    if successes == 0:
        return 1.0
    if rate <= successes / trials:
        return min(1.0, upper_tail(successes, trials, rate))
    return max(0.0, 1.0 - upper_tail(trials - successes + 1, trials, 1.0 - rate))


def require_counts(successes: int, trials: int) -> None:
    """Raises CountError unless 0 <= successes <= trials <= MAX_TRIALS."""
    if not 0 <= successes <= trials <= MAX_TRIALS:
        raise CountError(
            f"{successes} successes of {trials} trials: there are 0 to {MAX_TRIALS} trials, and no more successes"
        )


def require_share(name: str, value: float) -> None:
    """Raises CountError unless the value lies between 0 and 1, both excluded."""
    if not (math.isfinite(value) and 0.0 < value < 1.0):
        raise CountError(f"{name} must lie between 0 and 1, got {value}")
