"""Anytime-valid tests and intervals for a success rate, which may stop as soon as they decide.

Fixed-sample intervals are invalid under optional stopping: a Clopper-Pearson bound checked after every trial will
eventually exclude the true rate. Likelihood ratios stay valid. Under the null hypothesis they are non-negative
supermartingales that start at 1 and ever reach 1 / alpha with probability at most alpha (Ville, 1939; Ramdas, Grünwald,
Vovk, Shafer: Game-theoretic statistics and safe anytime-valid inference, Statistical Science 38, 2023).
"""

import math
from collections.abc import Callable

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.stats.statistics import CountError, require_counts, require_share


class Sprt:
    """Sequential probability ratio test of a success rate (Wald, Annals of Mathematical Statistics 16, 1945).

    After s successes and f failures the log likelihood ratio is

        L = s ln(p1 / p0) + f ln((1 - p1) / (1 - p0)).

    PASS as soon as L >= ln(1 / alpha): the rate is above p0. FAIL as soon as L <= ln(beta): it is below p1. Otherwise
    INCONCLUSIVE. A rate between p0 and p1 may get either answer.
    """

    def __init__(self, p0: float, p1: float, *, alpha: float = 0.05, beta: float = 0.05) -> None:
        """Initialises a test without data.

        Args:
            p0: rates up to this one must not pass.
            p1: rates from this one must not fail.
            alpha: upper bound of the probability of PASS at p0 or below; 0 for a test that never passes.
            beta: upper bound of the probability of FAIL at p1 or above; 0 for a test that never fails.

        Raises:
            CountError: an argument is not between 0 and 1, or p0 is not below p1.
        """
        for name, value in (("p0", p0), ("p1", p1)):
            require_share(name, value)
        for name, value in (("alpha", alpha), ("beta", beta)):
            if value != 0.0:
                require_share(name, value)
        if not p0 < p1:
            raise CountError(f"p0 must be below p1, got {p0} and {p1}")
        self.p0, self.p1 = p0, p1
        self._success, self._failure = math.log(p1 / p0), math.log1p(-p1) - math.log1p(-p0)
        # These bounds limit each error probability separately, under optional stopping. Wald's slightly tighter bounds
        # ln((1 - beta) / alpha) and ln(beta / (1 - alpha)) limit only their sum.
        self._accept = -math.log(alpha) if alpha else math.inf
        self._reject = math.log(beta) if beta else -math.inf
        self.successes = self.trials = 0
        self._outcome = VerdictOutcome.INCONCLUSIVE

    def add(self, successes: int, trials: int = 1) -> VerdictOutcome:
        """Adds a batch and updates the outcome; the first decision is final.

        Raises:
            CountError: more successes than trials.
        """
        require_counts(successes, trials)
        self.successes += successes
        self.trials += trials
        if self._outcome is VerdictOutcome.INCONCLUSIVE:
            ratio = self.log_ratio
            if ratio >= self._accept:
                self._outcome = VerdictOutcome.PASS
            elif ratio <= self._reject:
                self._outcome = VerdictOutcome.FAIL
        return self._outcome

    @property
    def log_ratio(self) -> float:
        """ln(likelihood at p1 / likelihood at p0)."""
        return self.successes * self._success + (self.trials - self.successes) * self._failure

    @property
    def outcome(self) -> VerdictOutcome:
        return self._outcome


class RateTest:
    """Sequential test whether a success rate is above (PASS) or below (FAIL) a target.

    Runs two `Sprt`, against "at most the target" and "at least the target". Each is wrong with probability at most
    alpha under optional stopping; policies near the target stay INCONCLUSIVE.
    """

    def __init__(self, target: float, margin: float, *, alpha: float) -> None:
        """Initialises a test without data.

        Args:
            target: success rate to exceed.
            margin: distance from the target for which the test is most efficient.
            alpha: upper bound of the probability of a wrong PASS, and of a wrong FAIL.

        Raises:
            CountError: an argument is not between 0 and 1.
        """
        for name, value in (("target", target), ("margin", margin), ("alpha", alpha)):
            require_share(name, value)
        self.target, self.alpha = target, alpha
        # Stay off 0 and 1, where a single episode would decide the test.
        self._high = min(target + margin, 1.0 - (1.0 - target) / 3.0)
        self._low = max(target - margin, target / 3.0)
        self._above = Sprt(target, self._high, alpha=alpha, beta=0.0)
        self._below = Sprt(self._low, target, alpha=0.0, beta=alpha)
        self._max_log_ratio = 0.0

    def add(self, successes: int, trials: int) -> None:
        """Adds a batch and updates the outcome.

        Raises:
            CountError: more successes than trials.
        """
        self._above.add(successes, trials)
        self._below.add(successes, trials)
        self._max_log_ratio = max(self._max_log_ratio, self._above.log_ratio)

    @property
    def successes(self) -> int:
        return self._above.successes

    @property
    def trials(self) -> int:
        return self._above.trials

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value of the hypothesis that the rate is at most the target."""
        return math.exp(-self._max_log_ratio)

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """Anytime-valid confidence interval of the rate, see `anytime_rate`."""
        return anytime_rate(self.successes, self.trials, confidence=confidence)

    @property
    def outcome(self) -> VerdictOutcome:
        if self._above.outcome is VerdictOutcome.PASS:
            return VerdictOutcome.PASS
        # The lower test never passes, as its alpha is 0; it contributes FAIL or INCONCLUSIVE.
        return self._below.outcome

    @property
    def fewest_to_pass(self) -> int:
        """Number of episodes after which the test passes if all succeed."""
        return math.ceil(-math.log(self.alpha) / math.log(self._high / self.target))

    @property
    def fewest_to_fail(self) -> int:
        """Number of episodes after which the test fails if none succeeds."""
        return math.ceil(-math.log(self.alpha) / math.log((1.0 - self._low) / (1.0 - self.target)))

    @property
    def least_rate(self) -> float:
        """Rate above which more episodes lead to PASS: the expected growth of the likelihood ratio is zero there."""
        gain, loss = math.log(self._high / self.target), math.log((1.0 - self.target) / (1.0 - self._high))
        return loss / (gain + loss)

    @property
    def more_to_pass(self) -> int | None:
        """Further episodes needed to pass at the observed rate; None if no number suffices."""
        rate = self.successes / max(1, self.trials)
        gain = rate * math.log(self._high / self.target)
        gain += (1.0 - rate) * math.log((1.0 - self._high) / (1.0 - self.target))
        return math.ceil((-math.log(self.alpha) - self._above.log_ratio) / gain) if gain > 0.0 else None


def anytime_rate(successes: int, trials: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of a success rate that is valid at every number of trials simultaneously.

    For ten to a thousand trials it is 1.2 to 1.8 times as wide as the Clopper-Pearson interval.

    Raises:
        CountError: the counts or the confidence are out of range.
    """
    require_counts(successes, trials)
    require_share("confidence", confidence)
    # The interval contains the rates p that the Beta(1/2, 1/2) mixture likelihood ratio does not reject:
    # B(s + 1/2, f + 1/2) / B(1/2, 1/2) < p^s (1 - p)^f / (1 - confidence) (Robbins, Annals of Mathematical Statistics
    # 41, 1970).
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
    """The first number in (inside, outside] that fulfils a monotone condition, by bisection to the last bit."""
    low, high = inside, outside
    # The loop ends when no float lies between the two.
    while low < (middle := 0.5 * (low + high)) < high:
        if beyond(middle):
            high = middle
        else:
            low = middle
    return high


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _xlogy(count: int, rate: float) -> float:
    """Count · ln(rate), with 0 · ln(0) = 0."""
    if count == 0:
        return 0.0
    return count * math.log(rate) if rate > 0.0 else -math.inf
