"""Success rate on the robot from few recorded episodes, their replays in a twin, and many episodes of the twin alone.

Prediction-powered inference with power tuning (Angelopoulos, Duchi, Zrnic: PPI++, arXiv 2311.01453; for robots SureSim,
arXiv 2510.04354). Counts are never pooled: the twin's episodes count only as far as replays agree with the robot.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError
from physai.sdk.stats.rank import Estimate, pearson
from physai.sdk.stats.statistics import clopper_pearson, require_share, wilson

Array = npt.NDArray[np.float64]
Outcomes = Array | npt.NDArray[np.bool_]

MIN_PAIRS = 20
"""Fewest pairs, and fewest simulated episodes: the coverage of the interval was measured from 20 on. With fewer, the
interval of the correlation covers almost all of [-1, 1]."""
MAX_OUTCOMES = 100_000
WIDEST = 1.1
"""Greatest width of the interval, as a multiple of that of the field episodes alone."""

_CORNERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
_JEFFREYS = np.full(4, 0.5)
"""Weights of pairs at the corners of the unit square, where recorded ones have 1: Jeffreys' prior of binary pairs."""
_DISAGREEMENTS = 0.75 * np.array([0.0, 1.0, 1.0, 0.0])
"""Weights of pairs added to those recorded before λ and ρ are taken. With 0.5, intervals miss a rate in 8 % of cases
where twin and robot hardly ever disagree; with 1 they are wider without need."""
_SHIFTED = 0.99
"""Confidence of the intervals that must be disjoint for replays and simulated episodes to differ."""
_DRAWS, _PART = 4000, 1 << 20


class PredictionPoweredError(PhysaiError):
    """Outcomes of episodes cannot be combined."""


@dataclass(frozen=True, kw_only=True)
class PredictionPoweredRate:
    """Success rate on the robot, and the share of the twin's episodes in it.

    Attributes:
        rate: estimate of the success rate on the robot.
        interval: its confidence interval.
        field_rate: mean outcome of the field episodes.
        field_interval: confidence interval from the field episodes alone: that of Clopper and Pearson.
        correlation: ρ of a field outcome and the outcome of its replay, with its interval; all None if one of them is
            the same in all pairs.
        power: the tuned λ, weight of the twin's episodes; 0 if they are not used.
        effective: number of independent binary field episodes whose exact interval this is.
        pairs: number of field episodes, each with its replay.
        simulated: number of episodes of the twin alone.
        confidence: of the intervals.
        remark: reason for which the twin's episodes are not used; empty if they are.
    """

    rate: float
    interval: tuple[float, float]
    field_rate: float
    field_interval: tuple[float, float]
    correlation: Estimate
    power: float
    effective: float
    pairs: int
    simulated: int
    confidence: float
    remark: str = ""

    @property
    def width_ratio(self) -> float:
        """Width of the interval, as a multiple of that of the field episodes alone."""
        return _width(self.interval) / _width(self.field_interval)


def prediction_powered_interval(
    field: Outcomes, replayed: Outcomes, simulated: Outcomes, confidence: float = 0.95
) -> PredictionPoweredRate:
    """Estimate the success rate on the robot from field episodes, their replays, and further episodes of the twin.

    The estimate is mean(field) + λ (mean(simulated) - mean(replayed)), with λ = cov / var(replayed) · N / (n + N). Its
    variance is that of mean(field) times 1 - ρ² N / (n + N). The interval is that of Clopper and Pearson for as many
    binary episodes as have this variance (Korn and Graubard, Survey Methodology 24, 1998), because the normal
    approximation covers a rate of 0.97 in fewer than 80 % of cases at n = 50. To λ and ρ, three quarters of a pair
    count that only the robot passes, and as much of one that only the replay passes: agreement in one or two failures
    is no certainty.

    The field episodes decide alone if the replays and the simulated episodes are significantly not of one distribution,
    or if the interval would be wider than theirs by a tenth. A negative correlation counts as none.

    Args:
        field: outcome of each field episode, a random sample: bool, or numbers in [0, 1], shape (n,).
        replayed: outcome of its replay in the twin, shape (n,).
        simulated: outcomes of the twin under conditions drawn from the same distribution, independent, shape (N,).
        confidence: of all intervals.

    Raises:
        PredictionPoweredError: fewer than MIN_PAIRS pairs or simulated episodes, other lengths, or a value that is not
            a number in [0, 1].
        CountError: the confidence does not lie between 0 and 1.
    """
    require_share("confidence", confidence)
    y, f, s = _checked("field", field), _checked("replayed", replayed), _checked("simulated", simulated)
    n, more = len(y), len(s)
    if len(f) != n:
        raise PredictionPoweredError(f"{n} field outcomes and {len(f)} of replays; give the replay of each episode")
    pairs, weights = np.vstack([np.stack([y, f], axis=1), _CORNERS]), np.append(np.ones(n), _DISAGREEMENTS)
    (var_y, cov), (_, var_f) = np.cov(pairs, rowvar=False, aweights=weights, ddof=0).tolist()
    cov, share = max(cov, 0.0), more / (n + more)
    power, effective = cov / var_f * share, n / (1.0 - cov * cov / (var_y * var_f) * share)
    field_rate = float(y.mean())
    rate = min(max(field_rate + power * float(s.mean() - f.mean()), 0.0), 1.0)
    alone, interval = _interval(field_rate, n, confidence), _interval(rate, effective, confidence)
    remark = _difference(f, s)
    if not remark and _width(interval) > WIDEST * _width(alone):
        remark = "the field episodes alone have the narrower interval"
    if remark:
        rate, interval, power, effective = field_rate, alone, 0.0, float(n)
    return PredictionPoweredRate(
        rate=rate,
        interval=interval,
        field_rate=field_rate,
        field_interval=alone,
        correlation=_correlation(y, f, confidence),
        power=power,
        effective=effective,
        pairs=n,
        simulated=more,
        confidence=confidence,
        remark=remark,
    )


def _checked(name: str, outcomes: Outcomes) -> Array:
    values = np.asarray(outcomes, dtype=np.float64)
    if values.ndim != 1 or not MIN_PAIRS <= len(values) <= MAX_OUTCOMES:
        raise PredictionPoweredError(
            f"{name}: outcomes of shape {values.shape}; give one list of {MIN_PAIRS} to {MAX_OUTCOMES} outcomes: with "
            "fewer, the interval is not known to cover"
        )
    wrong = np.flatnonzero(~((values >= 0.0) & (values <= 1.0)))
    if len(wrong):
        raise PredictionPoweredError(f"{name}: outcome {wrong[0]} is {values[wrong[0]]}; give numbers in [0, 1]")
    return values


def _interval(rate: float, effective: float, confidence: float) -> tuple[float, float]:
    """Exact interval for a number of successes that need not be whole: between those of its neighbours."""
    trials = math.floor(effective)
    successes = rate * trials
    fewer = min(math.floor(successes), trials - 1)
    part = successes - fewer
    (low, high), (next_low, next_high) = (
        clopper_pearson(count, trials, confidence=confidence) for count in (fewer, fewer + 1)
    )
    return low + part * (next_low - low), high + part * (next_high - high)


def _width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def _difference(replayed: Array, simulated: Array) -> str:
    """Why the two samples of the twin are not of one distribution; empty if they may be."""
    rates = float(replayed.mean()), float(simulated.mean())
    first, second = (
        wilson(round(float(outcomes.sum())), len(outcomes), confidence=_SHIFTED) for outcomes in (replayed, simulated)
    )
    if first[0] <= second[1] and second[0] <= first[1]:
        return ""
    return (
        f"replays succeed at {rates[0]:.1%} and the twin's own episodes at {rates[1]:.1%}: they are not of the same "
        "conditions"
    )


def _correlation(y: Array, f: Array, confidence: float) -> Estimate:
    """Correlation with percentiles of its posterior: the Bayesian bootstrap, with the corners as prior."""
    value = float(pearson(real=y, sim=f))
    if not math.isfinite(value):
        return Estimate(value=None)
    rng = np.random.default_rng(0)
    distinct, counts = np.unique(np.stack([y, f], axis=1), axis=0, return_counts=True)
    points = np.vstack([distinct, _CORNERS])
    shapes = np.append(counts, _JEFFREYS)
    draws: list[Array] = []
    # In parts, because each draw has a weight for each distinct pair.
    for part in np.array_split(np.arange(_DRAWS), 1 + _DRAWS * len(shapes) // _PART):
        weights = rng.standard_gamma(shapes, size=(len(part), len(shapes)))
        weights /= weights.sum(axis=1, keepdims=True)
        mean_y, mean_f, mean_yy, mean_ff, mean_yf = (
            weights @ column
            for column in (*points.T, points[:, 0] ** 2, points[:, 1] ** 2, points[:, 0] * points[:, 1])
        )
        norm = np.sqrt((mean_yy - mean_y**2) * (mean_ff - mean_f**2))
        draws.append((mean_yf - mean_y * mean_f) / norm)
    tail = 0.5 * (1.0 - confidence)
    low, high = np.quantile(np.concatenate(draws), [tail, 1.0 - tail]).tolist()
    # Perfect agreement of all pairs is an end of the range.
    return Estimate(value=value, low=min(low, value), high=max(high, value))
