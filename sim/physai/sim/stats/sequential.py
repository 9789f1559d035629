"""Statements about a success rate that hold however often one looks, so that a test may stop when it knows.

An interval for a fixed number of trials does not bear looking: a Clopper-Pearson bound that is looked at after every
trial until it suits will sooner or later suit. What bears it are likelihood ratios. Under the hypothesis they argue
against they are non-negative supermartingales that start at 1, and such a process ever reaches 1 / alpha with
probability of at most alpha (Ville, 1939; Ramdas, Grünwald, Vovk, Shafer: Game-theoretic statistics and safe
anytime-valid inference, Statistical Science 38, 2023).
"""

import math
from collections.abc import Callable

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sim.stats.statistics import CountError, require_counts, require_share


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
            alpha: greatest probability of PASS at p0 or below; 0 for a test that never passes.
            beta: greatest probability of FAIL at p1 or above; 0 for a test that never fails.

        Raises:
            CountError: a number does not lie between 0 and 1, or p0 is not below p1.
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
        self._accept = -math.log(alpha) if alpha else math.inf
        self._reject = math.log(beta) if beta else -math.inf
        self.successes = self.trials = 0
        self._outcome = VerdictOutcome.INCONCLUSIVE

    def add(self, successes: int, trials: int = 1) -> VerdictOutcome:
        """Counts a batch and looks once; the first decision stays, whatever comes after it.

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
        """ln(likelihood at p1 / likelihood at p0) of everything counted."""
        return self.successes * self._success + (self.trials - self.successes) * self._failure

    @property
    def outcome(self) -> VerdictOutcome:
        """What is known so far."""
        return self._outcome


class RateTest:
    """Is a success rate above the target (PASS), below it (FAIL), or not known yet (INCONCLUSIVE)?

    Two `Sprt` run along, one against "at most the target", one against "at least the target". Each is wrong with a
    probability of at most alpha however often one looks, so policies near the target stay undecided instead of being
    called by chance.
    """

    def __init__(self, target: float, margin: float, *, alpha: float) -> None:
        """Plans the test.

        Args:
            target: success rate to exceed.
            margin: the test needs the fewest episodes for policies this much better or worse than the target.
            alpha: greatest probability of a wrong PASS, and of a wrong FAIL.

        Raises:
            CountError: a number does not lie between 0 and 1.
        """
        for name, value in (("target", target), ("margin", margin), ("alpha", alpha)):
            require_share(name, value)
        self.target, self.alpha = target, alpha
        # A rate of 0 or 1 would let one episode decide everything; two thirds of the way there does not.
        self._high = min(target + margin, 1.0 - (1.0 - target) / 3.0)
        self._low = max(target - margin, target / 3.0)
        self._above = Sprt(target, self._high, alpha=alpha, beta=0.0)
        self._below = Sprt(self._low, target, alpha=0.0, beta=alpha)
        self._most = 0.0

    def add(self, successes: int, trials: int) -> None:
        """Counts a batch and looks once.

        Raises:
            CountError: more successes than trials.
        """
        self._above.add(successes, trials)
        self._below.add(successes, trials)
        self._most = max(self._most, self._above.log_ratio)

    @property
    def successes(self) -> int:
        """Episodes that succeeded so far."""
        return self._above.successes

    @property
    def trials(self) -> int:
        """Episodes so far."""
        return self._above.trials

    @property
    def p_value(self) -> float:
        """Of the hypothesis that the rate is at most the target; valid whenever it is looked at."""
        return math.exp(-self._most)

    def interval(self, *, confidence: float = 0.95) -> tuple[float, float]:
        """Confidence interval of the rate that bears having been looked at, see `anytime_rate`."""
        return anytime_rate(self.successes, self.trials, confidence=confidence)

    @property
    def outcome(self) -> VerdictOutcome:
        """What is known so far."""
        if self._above.outcome is VerdictOutcome.PASS:
            return VerdictOutcome.PASS
        return self._below.outcome

    @property
    def fewest_to_pass(self) -> int:
        """Episodes after which the test passes if all succeed."""
        return math.ceil(-math.log(self.alpha) / math.log(self._high / self.target))

    @property
    def fewest_to_fail(self) -> int:
        """Episodes after which the test fails if none succeeds."""
        return math.ceil(-math.log(self.alpha) / math.log((1.0 - self._low) / (1.0 - self.target)))

    @property
    def least_rate(self) -> float:
        """Rate above which playing on leads to PASS: where the expected growth of the likelihood ratio is zero."""
        gain, loss = math.log(self._high / self.target), math.log((1.0 - self.target) / (1.0 - self._high))
        return loss / (gain + loss)

    @property
    def more_to_pass(self) -> int | None:
        """Further episodes that would let it pass at the rate seen so far; None if none would."""
        rate = self.successes / max(1, self.trials)
        gain = rate * math.log(self._high / self.target)
        gain += (1.0 - rate) * math.log((1.0 - self._high) / (1.0 - self.target))
        return math.ceil((-math.log(self.alpha) - self._above.log_ratio) / gain) if gain > 0.0 else None


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
