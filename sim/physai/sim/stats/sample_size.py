"""How many episodes a statement takes, asked before they are played."""

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from physai.sim.stats.statistics import MAX_TRIALS, CountError, require_share

Array = npt.NDArray[np.float64]

MAX_PLANNED = 100_000
"""Most episodes per arm that are planned for."""

_NEGLIGIBLE = 1e-13
"""Outcomes less likely than this are left out of a sum of probabilities."""


def episodes_per_arm(rate: float, margin: float, *, confidence: float = 0.95, power: float = 0.8) -> int:
    """Episodes per arm to show that an equally good candidate is no worse than `margin`, without shared seeds.

    The smallest number with which Newcombe's interval of the difference of two independent rates lies above -margin
    with probability of at least `power`, both arms succeeding at `rate`. The probability is exact, a sum over both
    binomials. 90 % success and five points take 573 episodes, the number PhySim Gate names
    (github.com/kiyeonjeon21/physim-gate, release 0.2.0). The same seeds in both arms take far fewer:
    `physai.sim.stats.paired`.

    Raises:
        CountError: a number does not lie between 0 and 1, or more than MAX_PLANNED episodes are needed.
    """
    for name, value in (("rate", rate), ("margin", margin), ("confidence", confidence), ("power", power)):
        require_share(name, value)
    normal = NormalDist()
    z = normal.inv_cdf(0.5 + 0.5 * confidence) + normal.inv_cdf(power)
    # Large-sample number of two equal binomials; power rises in small steps back and forth, so begin well below.
    guess = 2.0 * rate * (1.0 - rate) * (max(z, 0.0) / margin) ** 2
    if not guess <= MAX_PLANNED:
        raise CountError(
            f"a margin of {margin} takes some {guess:.3g} episodes per arm, at most {MAX_PLANNED} are planned"
        )
    count = max(1, math.floor(0.8 * guess))
    while not non_inferiority_power(count, rate, margin, confidence=confidence) >= power:
        count += 1
        if count > MAX_PLANNED:
            raise CountError(f"a margin of {margin} takes more than {MAX_PLANNED} episodes per arm")
    return count


def non_inferiority_power(episodes: int, rate: float, margin: float, *, confidence: float = 0.95) -> float:
    """Probability that Newcombe's interval of the difference lies above -margin when both arms succeed at `rate`.

    Raises:
        CountError: a number is out of range.
    """
    if not 1 <= episodes <= MAX_TRIALS:
        raise CountError(f"there are 1 to {MAX_TRIALS} episodes, got {episodes}")
    for name, value in (("rate", rate), ("margin", margin), ("confidence", confidence)):
        require_share(name, value)
    counts, weights = _likely(episodes, rate)
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    shares, spread = counts / episodes, z * z / episodes
    centre = (shares + 0.5 * spread) / (1.0 + spread)
    half = np.sqrt(spread * (shares * (1.0 - shares) + 0.25 * spread)) / (1.0 + spread)
    below, above = shares - (centre - half), (centre + half) - shares
    # Rows: the candidate's successes; columns: the baseline's.
    lower = shares[:, None] - shares - np.hypot(below[:, None], above)
    return float(weights @ (lower > -margin) @ weights)


def _likely(trials: int, rate: float) -> tuple[Array, Array]:
    """Counts of successes that are not negligibly rare, and their probabilities."""
    counts = np.arange(trials + 1)
    logs = np.array([math.lgamma(k + 1.0) for k in range(trials + 1)])
    probabilities = np.exp(
        logs[-1] - logs - logs[::-1] + counts * math.log(rate) + (trials - counts) * math.log1p(-rate)
    )
    likely = probabilities > _NEGLIGIBLE
    return counts[likely].astype(np.float64), probabilities[likely]
