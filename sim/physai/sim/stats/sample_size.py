"""Sample size planning: how many episodes a comparison needs."""

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from physai.sim.stats.statistics import MAX_TRIALS, CountError, require_share

Array = npt.NDArray[np.float64]

MAX_PLANNED = 100_000
"""Greatest number of episodes per arm that is planned for."""

_NEGLIGIBLE = 1e-13
"""Outcomes with a smaller probability are omitted from sums."""


def episodes_per_arm(rate: float, margin: float, *, confidence: float = 0.95, power: float = 0.8) -> int:
    """Episodes per arm needed to show non-inferiority of an equally good candidate, without shared seeds.

    The smallest number for which Newcombe's interval of the difference of two independent rates lies above -margin
    with probability `power` or more if both arms succeed at `rate`. The probability is exact, a sum over both
    binomials. 90 % success and five points need 573 episodes, the number that PhySim Gate states
    (github.com/kiyeonjeon21/physim-gate, release 0.2.0). Shared seeds need far fewer: `physai.sim.stats.paired`.

    Raises:
        CountError: an argument is not between 0 and 1, or more than MAX_PLANNED episodes are needed.
    """
    for name, value in (("rate", rate), ("margin", margin), ("confidence", confidence), ("power", power)):
        require_share(name, value)
    normal = NormalDist()
    z = normal.inv_cdf(0.5 + 0.5 * confidence) + normal.inv_cdf(power)
    # Start below the large-sample approximation: power is not monotone in the number of episodes.
    guess = 2.0 * rate * (1.0 - rate) * (max(z, 0.0) / margin) ** 2
    if not guess <= MAX_PLANNED:
        raise CountError(f"a margin of {margin} needs about {guess:.3g} episodes per arm, the maximum is {MAX_PLANNED}")
    count = max(1, math.floor(0.8 * guess))
    while not non_inferiority_power(count, rate, margin, confidence=confidence) >= power:
        count += 1
        if count > MAX_PLANNED:
            raise CountError(f"a margin of {margin} needs more than {MAX_PLANNED} episodes per arm")
    return count


def non_inferiority_power(episodes: int, rate: float, margin: float, *, confidence: float = 0.95) -> float:
    """Probability that Newcombe's interval of the difference lies above -margin when both arms succeed at `rate`.

    Raises:
        CountError: a number is out of range.
    """
    if not 1 <= episodes <= MAX_TRIALS:
        raise CountError(f"episodes must lie in 1 … {MAX_TRIALS}, got {episodes}")
    for name, value in (("rate", rate), ("margin", margin), ("confidence", confidence)):
        require_share(name, value)
    counts, weights = _binomial(episodes, rate)
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    shares, spread = counts / episodes, z * z / episodes
    centre = (shares + 0.5 * spread) / (1.0 + spread)
    half = np.sqrt(spread * (shares * (1.0 - shares) + 0.25 * spread)) / (1.0 + spread)
    below, above = shares - (centre - half), (centre + half) - shares
    # Rows: the candidate's successes; columns: the baseline's.
    lower = shares[:, None] - shares - np.hypot(below[:, None], above)
    return float(weights @ (lower > -margin) @ weights)


def _binomial(trials: int, rate: float) -> tuple[Array, Array]:
    """Counts of successes with a probability above _NEGLIGIBLE, and their probabilities."""
    counts = np.arange(trials + 1)
    logs = np.array([math.lgamma(k + 1.0) for k in range(trials + 1)])
    probabilities = np.exp(
        logs[-1] - logs - logs[::-1] + counts * math.log(rate) + (trials - counts) * math.log1p(-rate)
    )
    likely = probabilities > _NEGLIGIBLE
    return counts[likely].astype(np.float64), probabilities[likely]
