"""A sequential test of a success rate with three answers: above the target, below it, not known yet."""

import math

from physai.sdk.verdict import Outcome
from physai.sim.sequential import Sprt
from physai.sim.statistics import require_share

_NEVER = 1e-300
"""Error probability of the answer that one of the two tests is not asked for."""


class RateTest:
    """Is a success rate above the target (PASS), below it (FAIL), or not known yet (INCONCLUSIVE)?

    Two of Wald's tests run along, one against "at most the target", one against "at least the target". Each is wrong
    with a probability of at most alpha however often one looks, so policies near the target stay undecided instead of
    being called by chance.
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
        self._above = Sprt(target, self._high, alpha=alpha, beta=_NEVER)
        self._below = Sprt(self._low, target, alpha=_NEVER, beta=alpha)
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

    @property
    def outcome(self) -> Outcome:
        """What is known so far."""
        if self._above.outcome is Outcome.PASS:
            return Outcome.PASS
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
    def more_to_pass(self) -> int | None:
        """Further episodes that would let it pass at the rate seen so far; None if none would."""
        rate = self.successes / max(1, self.trials)
        gain = rate * math.log(self._high / self.target)
        gain += (1.0 - rate) * math.log((1.0 - self._high) / (1.0 - self.target))
        return math.ceil((-math.log(self.alpha) - self._above.log_ratio) / gain) if gain > 0.0 else None
