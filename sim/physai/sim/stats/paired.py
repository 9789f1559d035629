"""Two policies in the same episodes: is the candidate as good as the baseline?

With the same seeds only the episodes in which the two differ carry information: `worse` counts those in which the
baseline succeeded and the candidate failed, `better` the others way round. The drop is the difference of the success
rates, baseline less candidate: P(worse) - P(better).
"""

import math
from typing import Literal

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sim.stats.sequential import boundary
from physai.sim.stats.statistics import CountError, clopper_pearson, rate_p_value, require_counts, require_share

BETS = (0.95, *(2.0**-k for k in range(1, 7)))
"""Shares of the greatest bet `PairedTest` averages over. Large ones win where pairs hardly ever differ, small ones
where they often do; averaging costs as much as ln 7 of evidence at most."""


def mcnemar_exact(
    worse: int, better: int, *, alternative: Literal["two-sided", "worse", "better"] = "two-sided"
) -> float:
    """Exact p-value of "both policies succeed equally often" (McNemar, Psychometrika 12, 1947, in its binomial form).

    Each pair that differs is then as likely to be worse as better.

    Args:
        worse: pairs in which only the baseline succeeded.
        better: pairs in which only the candidate succeeded.
        alternative: what rejecting shows: that the candidate is `worse`, `better`, or that they differ.

    Raises:
        CountError: a count is negative or too large.
    """
    require_counts(worse, worse + better)
    pairs = worse + better
    if alternative == "worse":
        return rate_p_value(worse, pairs, 0.5, alternative="greater")
    if alternative == "better":
        return rate_p_value(better, pairs, 0.5, alternative="greater")
    return min(1.0, 2.0 * rate_p_value(min(worse, better), pairs, 0.5, alternative="less"))


def paired_drop(worse: int, better: int, pairs: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the drop in success rate for a number of pairs fixed beforehand.

    P(worse) and P(better) each lie in their Clopper-Pearson interval, which misses with half of 1 - confidence; so the
    drop lies between the differences of opposite ends. Guaranteed for any number of pairs and any rates, and therefore
    wider than approximate intervals (Tango, Statistics in Medicine 17, 1998).

    Raises:
        CountError: more pairs differ than there are, or the confidence is out of range.
    """
    _require_pairs(worse, better, pairs)
    require_share("confidence", confidence)
    half = 0.5 + 0.5 * confidence
    low_worse, high_worse = clopper_pearson(worse, pairs, confidence=half)
    low_better, high_better = clopper_pearson(better, pairs, confidence=half)
    return low_worse - high_better, high_worse - low_better


def anytime_drop(worse: int, better: int, pairs: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the drop in success rate that holds at every number of pairs at once.

    The margins neither side of a `PairedTest` of error rate (1 - confidence) / 2 has rejected.

    Raises:
        CountError: more pairs differ than there are, or the confidence is out of range.
    """
    _require_pairs(worse, better, pairs)
    require_share("confidence", confidence)
    enough = math.log(2.0) - math.log1p(-confidence)

    def upper(fewer: int, more: int) -> float:
        return boundary(lambda margin: log_wealth(fewer, more, pairs, margin) >= enough, -1.0, 1.0)

    return -upper(better, worse), upper(worse, better)


def log_wealth(worse: int, better: int, pairs: int, margin: float) -> float:
    """Logarithm of the evidence that the drop is below `margin`.

    Whoever believes in a drop below the margin m bets a share of his wealth on every pair; x is 1 for a worse pair, -1
    for a better one, else 0, and his wealth is multiplied by 1 + b (m - x) / (1 - m). If the drop is m or more, no bet
    b in [0, 1) gains on average, so the wealth, averaged over BETS, is a non-negative supermartingale that starts at
    1 (Waudby-Smith, Ramdas: Estimating means of bounded random variables by betting, JRSS B 86, 2024). It grows with
    the margin, and depends on the counts alone, not on their order.
    """
    same = pairs - worse - better
    # At a margin of 1 every pair must be worse, and a single other one is all the evidence there can be.
    room = max(1.0 - margin, 1e-300)
    logs: list[float] = []
    for bet in BETS:
        stake = bet / room
        log = worse * math.log1p(-bet) + better * math.log1p(stake * (margin + 1.0)) + same * math.log1p(stake * margin)
        logs.append(log)
    greatest = max(logs)
    return greatest + math.log(sum(math.exp(log - greatest) for log in logs) / len(BETS))


class PairedTest:
    """Sequential test of non-inferiority: is the drop in success rate below a margin?

    PASS when a drop of the margin or more is rejected, FAIL when one of the margin or less is, each wrong with
    probability of at most alpha however often one looks and whenever one stops.
    """

    def __init__(self, margin: float, *, alpha: float = 0.05) -> None:
        """A test that has seen no pairs.

        Args:
            margin: smallest drop that matters, 0.05 for five points.
            alpha: greatest probability of a wrong PASS, and of a wrong FAIL.

        Raises:
            CountError: margin or alpha does not lie between 0 and 1.
        """
        require_share("margin", margin)
        require_share("alpha", alpha)
        self.margin, self.alpha = margin, alpha
        self.worse = self.better = self.pairs = 0
        self._outcome = VerdictOutcome.INCONCLUSIVE
        self._most = 0.0

    def add(self, worse: int, better: int, pairs: int) -> VerdictOutcome:
        """Counts a batch and looks once; the first decision stays, whatever comes after it.

        Args:
            worse: pairs in which only the baseline succeeded.
            better: pairs in which only the candidate succeeded.
            pairs: all pairs of the batch.

        Raises:
            CountError: more pairs differ than there are.
        """
        _require_pairs(worse, better, pairs)
        self.worse += worse
        self.better += better
        self.pairs += pairs
        below = log_wealth(self.worse, self.better, self.pairs, self.margin)
        above = log_wealth(self.better, self.worse, self.pairs, -self.margin)
        self._most = max(self._most, below)
        if self._outcome is VerdictOutcome.INCONCLUSIVE:
            enough = -math.log(self.alpha)
            if below >= enough:
                self._outcome = VerdictOutcome.PASS
            elif above >= enough:
                self._outcome = VerdictOutcome.FAIL
        return self._outcome

    @property
    def outcome(self) -> VerdictOutcome:
        """What is known so far."""
        return self._outcome

    @property
    def p_value(self) -> float:
        """Of the hypothesis that the drop is the margin or more; valid whenever it is looked at."""
        return math.exp(-self._most)


def _require_pairs(worse: int, better: int, pairs: int) -> None:
    if min(worse, better) < 0:
        raise CountError(f"{worse} worse and {better} better pairs: neither can be negative")
    require_counts(worse + better, pairs)
