"""Paired comparison of two policies in the same episodes.

With shared seeds only discordant episodes carry information: `worse` counts those in which only the baseline
succeeded, `better` those in which only the candidate succeeded. The drop is the difference of the success rates,
baseline minus candidate: P(worse) - P(better).
"""

import math
from typing import Literal

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.stats.sequential import boundary
from physai.sdk.stats.statistics import CountError, rate_p_value, require_counts, require_share

# Large bets are efficient if pairs rarely differ, small ones if they often do. Averaging over seven bets costs at most
# ln 7 of log evidence compared with the best of them.
BETS = (0.95, *(2.0**-k for k in range(1, 7)))
"""Bets that `log_wealth` averages over, as fractions of the greatest bet."""


def mcnemar_exact(
    worse: int, better: int, *, alternative: Literal["two-sided", "worse", "better"] = "two-sided"
) -> float:
    """Exact p-value of equal success rates (McNemar, Psychometrika 12, 1947, in its binomial form).

    Under the null hypothesis a discordant pair is equally likely to be worse or better.

    Args:
        worse: pairs in which only the baseline succeeded.
        better: pairs in which only the candidate succeeded.
        alternative: the alternative hypothesis: the candidate is `worse`, `better`, or `two-sided`.

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


def anytime_drop(worse: int, better: int, pairs: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the drop in success rate that is valid at every number of pairs simultaneously.

    It contains the margins rejected by neither side of a `PairedTest` with error rate (1 - confidence) / 2.

    Raises:
        CountError: more discordant pairs than pairs, or the confidence is out of range.
    """
    _require_pairs(worse, better, pairs)
    require_share("confidence", confidence)
    # Each side of the interval may miss with probability (1 - confidence) / 2, so the wealth must
    # reach 2 / (1 - confidence).
    enough = math.log(2.0) - math.log1p(-confidence)

    def upper(fewer: int, more: int) -> float:
        return boundary(lambda margin: log_wealth(fewer, more, pairs, margin) >= enough, -1.0, 1.0)

    return -upper(better, worse), upper(worse, better)


def log_wealth(worse: int, better: int, pairs: int, margin: float) -> float:
    """Log wealth of a betting test against the hypothesis that the drop is at least `margin`.

    It increases with the margin and depends on the counts only, not on their order.
    """
    # With x = 1 for a worse pair, -1 for a better one and 0 otherwise, each pair multiplies the wealth by
    # 1 + b (m - x) / (1 - m). If the drop is at least the margin m, no bet b in [0, 1) has a positive expected gain, so
    # the wealth averaged over BETS is a non-negative supermartingale that starts at 1 (Waudby-Smith, Ramdas: Estimating
    # means of bounded random variables by betting, JRSS B 86, 2024).
    same = pairs - worse - better
    # Avoids dividing by zero at a margin of 1, where a single pair that is not worse is conclusive evidence.
    room = max(1.0 - margin, 1e-300)
    logs: list[float] = []
    for bet in BETS:
        stake = bet / room
        log = worse * math.log1p(-bet) + better * math.log1p(stake * (margin + 1.0)) + same * math.log1p(stake * margin)
        logs.append(log)
    # Log-sum-exp, shifted by the greatest term against overflow.
    greatest = max(logs)
    return greatest + math.log(sum(math.exp(log - greatest) for log in logs) / len(BETS))


class PairedTest:
    """Sequential test of non-inferiority: is the drop in success rate below a margin?

    PASS when drops of the margin or more are rejected, FAIL when drops of the margin or less are. Each is wrong with
    probability at most alpha under optional stopping.
    """

    def __init__(self, margin: float, *, alpha: float = 0.05) -> None:
        """Initialises a test without data.

        Args:
            margin: smallest relevant drop, 0.05 for five percentage points.
            alpha: upper bound of the probability of a wrong PASS, and of a wrong FAIL.

        Raises:
            CountError: margin or alpha does not lie between 0 and 1.
        """
        require_share("margin", margin)
        require_share("alpha", alpha)
        self.margin, self.alpha = margin, alpha
        self.worse = self.better = self.pairs = 0
        self._outcome = VerdictOutcome.INCONCLUSIVE
        self._max_log_wealth = 0.0

    def add(self, worse: int, better: int, pairs: int) -> VerdictOutcome:
        """Adds a batch and updates the outcome; the first decision is final.

        Args:
            worse: pairs in which only the baseline succeeded.
            better: pairs in which only the candidate succeeded.
            pairs: all pairs of the batch.

        Raises:
            CountError: more discordant pairs than pairs.
        """
        _require_pairs(worse, better, pairs)
        self.worse += worse
        self.better += better
        self.pairs += pairs
        below = log_wealth(self.worse, self.better, self.pairs, self.margin)
        above = log_wealth(self.better, self.worse, self.pairs, -self.margin)
        # The greatest wealth so far counts: by Ville's inequality its reciprocal is a p-value under optional stopping.
        self._max_log_wealth = max(self._max_log_wealth, below)
        if self._outcome is VerdictOutcome.INCONCLUSIVE:
            enough = -math.log(self.alpha)
            if below >= enough:
                self._outcome = VerdictOutcome.PASS
            elif above >= enough:
                self._outcome = VerdictOutcome.FAIL
        return self._outcome

    @property
    def outcome(self) -> VerdictOutcome:
        return self._outcome

    @property
    def p_value(self) -> float:
        """Anytime-valid p-value of the hypothesis that the drop is at least the margin."""
        return math.exp(-self._max_log_wealth)


def _require_pairs(worse: int, better: int, pairs: int) -> None:
    if min(worse, better) < 0:
        raise CountError(f"{worse} worse and {better} better pairs: counts must not be negative")
    require_counts(worse + better, pairs)
