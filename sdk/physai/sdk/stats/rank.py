"""Prediction of scores on the robot by scores in simulation: correlation, rank correlation and MMRV.

MMRV is the mean maximum rank violation of SIMPLER (Li et al., Evaluating Real-World Robot Manipulation Policies in
Simulation, CoRL 2024). It is not symmetric: exchanging `real` and `sim` changes it, so both are keyword arguments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import PhysaiError

Array = NDArray[np.float64]

MIN_POLICIES = 3
"""Two policies are always perfectly correlated."""
RESAMPLES, PARTS = 4000, 40


class RankError(PhysaiError):
    """Scores cannot be compared."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Scores of a policy in trials.

    Attributes:
        score: mean over trials; for trials that succeed or fail, the success rate.
        trials: number of trials; None if only their mean is known.
        values: score of each trial, shape (trials,); None if only their mean is known, or all are 0 or 1.
    """

    score: float
    trials: int | None = None
    values: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A statistic and the percentiles of its bootstrap distribution; all None where it is undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class RankValidity:
    """Agreement of two sets of scores.

    Attributes:
        pearson: linear correlation, in [-1, 1]; undefined if all scores of one side are equal.
        spearman: correlation of the ranks, ties by their mean rank, in [-1, 1].
        mmrv: mean over policies of the greatest real difference that the simulation orders wrongly, at least 0.
        resampled: what the intervals resample, `trials` or `policies`.
    """

    pearson: Estimate
    spearman: Estimate
    mmrv: Estimate
    resampled: str


def pearson(*, real: Array, sim: Array) -> Array:
    """Linear correlation of the last axis; NaN where all scores of one side are equal."""
    a, b = real - real.mean(axis=-1, keepdims=True), sim - sim.mean(axis=-1, keepdims=True)
    # Scores that differ by rounding only count as equal.
    tiny = 1e-12 * (np.abs(real).max(axis=-1) * np.abs(sim).max(axis=-1) + 1e-300)
    norm = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(norm > tiny, np.clip((a * b).sum(axis=-1) / norm, -1.0, 1.0), np.nan)


def spearman(*, real: Array, sim: Array) -> Array:
    """Correlation of the ranks on the last axis; NaN where all scores of one side are equal."""
    return pearson(real=_ranks(real), sim=_ranks(sim))


def _ranks(scores: Array) -> Array:
    """Ranks from 1 on the last axis; equal scores get their mean rank."""
    lower = (scores[..., None, :] < scores[..., :, None]).sum(axis=-1)
    equal = (scores[..., None, :] == scores[..., :, None]).sum(axis=-1)
    return lower + 0.5 * (equal + 1.0)


def mmrv(*, real: Array, sim: Array) -> Array:
    """Mean maximum rank violation of the last axis, in units of the real scores.

    (1/n) Σᵢ maxⱼ |realᵢ - realⱼ| [(simᵢ < simⱼ) ≠ (realᵢ < realⱼ)]
    """
    gap = np.abs(real[..., :, None] - real[..., None, :])
    violated = (sim[..., :, None] < sim[..., None, :]) != (real[..., :, None] < real[..., None, :])
    return (gap * violated).max(axis=-1).mean(axis=-1)


def rank_validity(
    *, real: Sequence[Trials], sim: Sequence[Trials], confidence: float = 0.95, seed: int = 0, policies: bool = False
) -> RankValidity:
    """Compare the scores of the same policies, in the same order, on the robot and in simulation.

    Intervals show what the number of trials leaves open for these policies, if it is known: scores of trials are
    resampled, and success rates drawn from Beta(successes + 1/2, failures + 1/2), because resampling 10 successes of 10
    trials would never give a failure. Otherwise, or with `policies`, they show what the choice of policies leaves open.

    Args:
        real: scores on the robot.
        sim: scores in simulation.
        confidence: share of the bootstrap distribution within the intervals.
        seed: of the bootstrap.
        policies: resample policies although trials are known.

    Raises:
        RankError: fewer than three policies, or lists of different length.
    """
    if len(real) != len(sim) or len(real) < MIN_POLICIES:
        raise RankError(
            f"{len(real)} policies on the robot and {len(sim)} in simulation: ranks need the same policies in both, "
            f"at least {MIN_POLICIES}"
        )
    scores = np.array([t.score for t in real]), np.array([t.score for t in sim])
    rng = np.random.default_rng(seed)
    known = all(t.trials is not None for t in (*real, *sim)) and not policies
    if known:
        drawn = _drawn(real, rng), _drawn(sim, rng)
    else:
        chosen = rng.integers(len(real), size=(RESAMPLES, len(real)))
        drawn = scores[0][chosen], scores[1][chosen]

    def estimate(statistic: Callable[..., Array]) -> Estimate:
        value = float(statistic(real=scores[0], sim=scores[1]))
        if not np.isfinite(value):
            return Estimate(value=None)
        # In parts, because ranks need memory for each pair of policies.
        parts = zip(np.array_split(drawn[0], PARTS), np.array_split(drawn[1], PARTS), strict=True)
        samples = np.concatenate([statistic(real=a, sim=b) for a, b in parts])
        # A draw of policies with equal scores has no correlation.
        samples = samples[np.isfinite(samples)]
        tail = 0.5 * (1.0 - confidence)
        low, high = np.quantile(samples, [tail, 1.0 - tail])
        return Estimate(value=value, low=float(low), high=float(high))

    return RankValidity(
        pearson=estimate(pearson),
        spearman=estimate(spearman),
        mmrv=estimate(mmrv),
        resampled="trials" if known else "policies",
    )


def _drawn(policies: Sequence[Trials], rng: np.random.Generator) -> Array:
    """Scores that as many trials could have given, shape (RESAMPLES, number of policies)."""
    columns: list[Array] = []
    for policy in policies:
        if policy.values is not None:
            weights = rng.multinomial(
                len(policy.values), np.full(len(policy.values), 1.0 / len(policy.values)), RESAMPLES
            )
            columns.append(weights @ policy.values / len(policy.values))
        else:
            trials = policy.trials or 0
            successes = policy.score * trials
            columns.append(rng.beta(successes + 0.5, trials - successes + 0.5, RESAMPLES))
    return np.stack(columns, axis=1)
