"""E-values: evidence against many hypotheses at once, with a bound on the share of false discoveries.

An e-value is a number that is never negative, and whose expectation is at most 1 if its hypothesis is true. Unlike
p-values, e-values need no assumption about how they depend on each other: robots that share a twin, a task or a season
do depend.
"""

import math
from collections.abc import Sequence

from physai.sdk.stats.statistics import CountError, require_share


def e_benjamini_hochberg(log_e: Sequence[float], share: float) -> tuple[int, ...]:
    """Return the hypotheses that are rejected, in ascending order: the e-BH procedure.

    Of K e-values, the k largest are rejected, for the greatest k whose k-th largest is at least K / (share·k). The
    expected share of true hypotheses among those rejected is then at most `share`, whatever the e-values' dependence
    (Wang and Ramdas, "False discovery rate control with e-values", Journal of the Royal Statistical Society B 84,
    2022).

    Args:
        log_e: natural logarithm of each hypothesis's e-value; -inf for an e-value of 0.
        share: bound of the false discovery rate, between 0 and 1.

    Raises:
        CountError: a logarithm is not a number, or the share does not lie between 0 and 1.
    """
    require_share("share", share)
    for number, value in enumerate(log_e):
        if math.isnan(value):
            raise CountError(f"e-value {number} of {len(log_e)} is not a number; give -inf for an e-value of 0")
    order = sorted(range(len(log_e)), key=lambda number: -log_e[number])
    count = 0
    for k, number in enumerate(order, start=1):
        if log_e[number] >= math.log(len(log_e) / (share * k)):
            count = k
    return tuple(sorted(order[:count]))
