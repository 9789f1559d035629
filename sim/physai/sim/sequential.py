"""Statements about a success rate that hold however often one looks, so that a test may stop when it knows.

An interval for a fixed number of trials does not bear looking: a Clopper-Pearson bound that is looked at after every
trial until it suits will sooner or later suit. What bears it are likelihood ratios. Under the hypothesis they argue
against they are non-negative supermartingales that start at 1, and such a process ever reaches 1 / alpha with
probability of at most alpha (Ville, 1939; Ramdas, Grünwald, Vovk, Shafer: Game-theoretic statistics and safe
anytime-valid inference, Statistical Science 38, 2023).
"""

import math
from collections.abc import Callable

from physai.sdk.verdict import Outcome
from physai.sim.statistics import CountError, require_counts, require_share


class Sprt:
    """Sequential probability ratio test of a success rate (Wald, Annals of Mathematical Statistics 16, 1945).

    After s successes and f failures the log likelihood ratio is

        L = s ln(p1 / p0) + f ln((1 - p1) / (1 - p0)).

    PASS as soon as L >= ln(1 / alpha): the rate is above p0. FAIL as soon as L <= ln(beta): it is below p1. With
    Wald's own, slightly nearer boundaries ln((1 - beta) / alpha) and ln(beta / (1 - alpha)) only the sum of both error
    rates is bounded. With these each error has at most its own probability, after any number of looks, and just as
    well if the test is cut short: undecided is INCONCLUSIVE. A rate between p0 and p1 may get either answer.
    """

    def __init__(self, p0: float, p1: float, *, alpha: float = 0.05, beta: float = 0.05) -> None:
        """A test that has seen nothing.

        Args:
            p0: a rate that must not pass; nor must any lower one.
            p1: a rate that must not fail; nor must any higher one.
            alpha: greatest probability of PASS at p0 or below.
            beta: greatest probability of FAIL at p1 or above.

        Raises:
            CountError: a number does not lie between 0 and 1, or p0 is not below p1.
        """
        for name, value in (("p0", p0), ("p1", p1), ("alpha", alpha), ("beta", beta)):
            require_share(name, value)
        if not p0 < p1:
            raise CountError(f"p0 must be below p1, got {p0} and {p1}")
        self.p0, self.p1 = p0, p1
        self._success, self._failure = math.log(p1 / p0), math.log1p(-p1) - math.log1p(-p0)
        self._accept, self._reject = -math.log(alpha), math.log(beta)
        self.successes = self.trials = 0
        self._outcome = Outcome.INCONCLUSIVE

    def add(self, successes: int, trials: int = 1) -> Outcome:
        """Counts a batch and looks once; the first decision stays, whatever comes after it.

        Raises:
            CountError: more successes than trials.
        """
        require_counts(successes, trials)
        self.successes += successes
        self.trials += trials
        if self._outcome is Outcome.INCONCLUSIVE:
            ratio = self.log_ratio
            if ratio >= self._accept:
                self._outcome = Outcome.PASS
            elif ratio <= self._reject:
                self._outcome = Outcome.FAIL
        return self._outcome

    @property
    def log_ratio(self) -> float:
        """ln(likelihood at p1 / likelihood at p0) of everything counted."""
        return self.successes * self._success + (self.trials - self.successes) * self._failure

    @property
    def outcome(self) -> Outcome:
        """What is known so far."""
        return self._outcome


def anytime_rate(successes: int, trials: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of a success rate that holds at every number of trials at once.

    The rates p at which the mixture of all rates, weighted by Beta(1/2, 1/2), is less than 1 / (1 - confidence) times
    as likely as p: B(s + 1/2, f + 1/2) / B(1/2, 1/2) < p^s (1 - p)^f / (1 - confidence) (Robbins, Annals of
    Mathematical Statistics 41, 1970). That all intervals of a run cover the true rate has at least the confidence;
    the price is an interval 1.2 to 1.8 times as wide as Clopper-Pearson's of ten to a thousand trials.

    Raises:
        CountError: the counts or the confidence are out of range.
    """
    require_counts(successes, trials)
    require_share("confidence", confidence)
    failures = trials - successes
    mixture = _log_beta(successes + 0.5, failures + 0.5) - _log_beta(0.5, 0.5)

    def excluded(rate: float) -> bool:
        likelihood = _xlogy(successes, rate) + _xlogy(failures, 1.0 - rate)
        return mixture - likelihood >= -math.log1p(-confidence)

    best = successes / trials if trials else 0.5
    lower = 0.0 if not excluded(0.0) else 1.0 - boundary(lambda x: excluded(1.0 - x), 1.0 - best, 1.0)
    upper = 1.0 if not excluded(1.0) else boundary(excluded, best, 1.0)
    return lower, upper


def boundary(beyond: Callable[[float], bool], inside: float, outside: float) -> float:
    """Where a monotone condition sets in, to the last bit: the first number in (inside, outside] that is beyond."""
    low, high = inside, outside
    while low < (middle := 0.5 * (low + high)) < high:
        if beyond(middle):
            high = middle
        else:
            low = middle
    return high


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _xlogy(count: int, rate: float) -> float:
    """Count · ln(rate), 0 where the count is."""
    if count == 0:
        return 0.0
    return count * math.log(rate) if rate > 0.0 else -math.inf
