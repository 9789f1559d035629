"""Confidence intervals and exact tests of success rates, and Holm's correction.

Verdicts use Clopper-Pearson intervals, plots use Wilson's. Both need a number of trials fixed in advance; to look at
results while trials are still running, use `physai.sdk.stats.sequential`.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

from physai.sdk.base.errors import PhysaiError

MAX_TRIALS = 10**7


class CountError(PhysaiError):
    """A count, rate or confidence level is out of range."""


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Exact two-sided confidence interval of a success rate (Clopper, Pearson, Biometrika 26, 1934).

    Assumes independent trials.

    Args:
        successes: number of successful trials.
        trials: number of trials; with 0 trials the interval is [0, 1].
        confidence: minimum probability of covering the true rate.

    Raises:
        CountError: the counts or the confidence are out of range.
    """
    require_counts(successes, trials)
    require_share("confidence", confidence)
    tail = 0.5 * (1.0 - confidence)
    return _lower_bound(successes, trials, tail), 1.0 - _lower_bound(trials - successes, trials, tail)


def _lower_bound(successes: int, trials: int, tail: float) -> float:
    """The rate p at which P(X ≥ successes) = tail < 1/2, by bisection to the last bit."""
    # Not scipy.stats.beta.ppf: importing it takes about a second.
    if successes == 0:
        return 0.0
    # The median of a binomial with integer mean is its mean, so P(X ≥ successes) ≥ 1/2 at the observed rate.
    low, high = 0.0, successes / trials
    # The loop ends when no float lies between the two.
    while low < (middle := 0.5 * (low + high)) < high:
        if upper_tail(successes, trials, middle) < tail:
            low = middle
        else:
            high = middle
    return low


def upper_tail(successes: int, trials: int, rate: float) -> float:
    """P(X ≥ successes) for a binomial X with a rate in (0, 1) of at most successes / trials."""
    # Binomial coefficients overflow beyond about a thousand trials, so the first term is computed by its logarithm.
    term = total = math.exp(
        math.lgamma(trials + 1)
        - math.lgamma(successes + 1)
        - math.lgamma(trials - successes + 1)
        + successes * math.log(rate)
        + (trials - successes) * math.log1p(-rate)
    )
    # Terms decrease above the mean; stop once they no longer change the sum.
    for count in range(successes, trials):
        term *= (trials - count) / (count + 1) * (rate / (1.0 - rate))
        total += term
        if term <= 1e-17 * total:
            break
    return total


def wilson(successes: int, trials: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Approximate two-sided confidence interval of a success rate, for display (Wilson, JASA 22, 1927).

    The rates p with |k/n - p| <= z sqrt(p (1 - p) / n). Narrower than Clopper-Pearson; it has the nominal coverage on
    average over rates, not for every rate.

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
    # Exactly 0 and 1 at the ends, where the formula has a rounding error.
    return (0.0 if successes == 0 else centre - half), (1.0 if successes == trials else centre + half)


def zero_failure_bound(trials: int, *, confidence: float = 0.95) -> float:
    """Exact one-sided upper bound of the failure rate after trials without failure: 1 - (1 - confidence)^(1 / trials).

    At 95 % confidence 59 trials give 5 %, 299 give 1 % and 2 995 give 0.1 %; 0 trials give 1.

    Raises:
        CountError: the count or the confidence is out of range.
    """
    require_counts(0, trials)
    require_share("confidence", confidence)
    return 1.0 if trials == 0 else -math.expm1(math.log1p(-confidence) / trials)


def zero_failure_trials(rate: float, *, confidence: float = 0.95) -> int:
    """Fewest failure-free trials that bound the failure rate by `rate`: ceil(ln(1 - confidence) / ln(1 - rate)).

    Raises:
        CountError: an argument is not between 0 and 1, or more than MAX_TRIALS are needed.
    """
    require_share("rate", rate)
    require_share("confidence", confidence)
    trials = math.log1p(-confidence) / math.log1p(-rate)
    if not trials <= MAX_TRIALS:
        raise CountError(f"excluding a failure rate of {rate} needs {trials:.3g} trials, the maximum is {MAX_TRIALS}")
    # The factor keeps rounding errors from adding a trial.
    return max(1, math.ceil(trials * (1.0 - 1e-12)))


def rate_p_value(successes: int, trials: int, rate: float, *, alternative: Literal["greater", "less"]) -> float:
    """Exact one-sided binomial p-value.

    Args:
        successes: number of successful trials.
        trials: number of trials, fixed in advance.
        rate: the null hypothesis.
        alternative: the alternative hypothesis: the true rate is `greater` or `less`.

    Raises:
        CountError: counts or rate are out of range.
    """
    require_counts(successes, trials)
    require_share("rate", rate)
    if alternative == "less":
        return _tail(trials - successes, trials, 1.0 - rate)
    return _tail(successes, trials, rate)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjusts p-values for multiple testing (Holm, Scandinavian Journal of Statistics 6, 1979); keeps their order.

    Rejecting all hypotheses with an adjusted p-value of at most alpha bounds the family-wise error rate by alpha for
    any dependence between the tests. A conjunction, such as a verdict that passes only if all gates pass, needs no
    correction; a claim that follows from a single rejection does, such as "some gate fails".

    Raises:
        CountError: a p-value is outside [0, 1].
    """
    for p in p_values:
        if not 0.0 <= p <= 1.0:
            raise CountError(f"a p-value must lie in [0, 1], got {p}")
    adjusted = [0.0] * len(p_values)
    # A running maximum keeps the adjusted values in the order of the p-values.
    greatest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = greatest
    return tuple(adjusted)


def _tail(successes: int, trials: int, rate: float) -> float:
    """P(X ≥ successes) for a binomial X with any rate in (0, 1)."""
    if successes == 0:
        return 1.0
    if rate <= successes / trials:
        return min(1.0, upper_tail(successes, trials, rate))
    # `upper_tail` needs terms that decrease. Below the mean only those of the complement do.
    return max(0.0, 1.0 - upper_tail(trials - successes + 1, trials, 1.0 - rate))


def require_counts(successes: int, trials: int) -> None:
    """Raises CountError unless 0 <= successes <= trials <= MAX_TRIALS."""
    if not 0 <= successes <= trials <= MAX_TRIALS:
        raise CountError(f"{successes} successes of {trials} trials: need 0 <= successes <= trials <= {MAX_TRIALS}")


def require_share(name: str, value: float) -> None:
    """Raises CountError unless the value lies between 0 and 1, both excluded."""
    if not (math.isfinite(value) and 0.0 < value < 1.0):
        raise CountError(f"{name} must lie between 0 and 1, got {value}")
