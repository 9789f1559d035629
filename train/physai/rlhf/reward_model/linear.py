"""Reward models that weigh a few of the numbers with names: logistic regression with an L1 penalty.

P[first preferred] = σ(w · (x̄(first) - x̄(second))) with the mean x̄ of each number over a segment, on the scale of its
spread over segments. The loss is the mean cross entropy plus λ Σ |w|, so that what no answer needs has no weight
(Tibshirani 1996). λ is the one of `PENALTIES` that predicts best what was left out, in `FOLDS` parts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize  # pyright: ignore[reportMissingTypeStubs]

Floats = npt.NDArray[np.float64]
PENALTIES = (0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
FOLDS = 5
MAX_WEIGHT = 20.0
"""Bound of each weight; the least penalty alone bounds their sum by ln 2 / 0.005 = 139."""
MIN_SPREAD = 1e-3
"""Spread over segments, relative to that over steps, below which a number is taken as constant."""


@dataclass(frozen=True)
class LinearFit:
    """Weights of `FOLDS` members for K numbers, and what they predict; each left out another part of the answers."""

    weights: Floats
    """Of each number's mean over a segment, on the scale of its spread over segments, (FOLDS, K)."""
    known: Floats
    """Weight of what is known already, (FOLDS,)."""
    advantage: Floats
    """w · (x̄(first) - x̄(second)) of each answer, by the member that left it out, (n,)."""
    penalty: float


def fit_linear(
    difference: Floats, target: Floats, *, pair: npt.NDArray[np.int64], known: Floats | None, seed: int
) -> LinearFit:
    """Fits the members.

    Args:
        difference: x̄(first) - x̄(second) of each answer, (n, K).
        target: how much of the preference the first has, (n,).
        pair: which pair each answer is about, at least `FOLDS` different ones, numbered from 0, (n,); answers to the
            same pair are left out together.
        known: how much more the first is worth by what is known already, (n,); see `physai.rlhf.reward_model.fit`.
        seed: of what is left out together.
    """
    size = difference.shape[1]
    columns = difference if known is None else np.concatenate([difference, known[:, None]], axis=1)
    part = np.random.default_rng(seed).permutation(int(pair.max()) + 1)[pair] % FOLDS
    best, found, members = np.inf, None, np.zeros((FOLDS, columns.shape[1]))
    for penalty in PENALTIES:
        # Each begins where a greater penalty ended.
        members = np.stack(
            [_solve(columns[part != fold], target[part != fold], penalty, members[fold]) for fold in range(FOLDS)]
        )
        advantage = np.einsum("nk,nk->n", columns, members[part])
        loss = float(_cross_entropy(advantage, target).mean())
        if loss < best:
            best = loss
            weights = members[:, size] if known is not None else np.zeros(FOLDS)
            found = LinearFit(members[:, :size], weights, advantage, penalty)
    assert found is not None
    return found


def _cross_entropy(advantage: Floats, target: Floats) -> Floats:
    return np.logaddexp(0.0, advantage) - target * advantage


def _solve(columns: Floats, target: Floats, penalty: float, start: Floats) -> Floats:
    """Argmin of the mean cross entropy + Σ penalty |w|; w is a difference of two parts that are not negative."""
    count, size = columns.shape

    def objective(parts: Floats) -> tuple[float, Floats]:
        advantage = columns @ (parts[:size] - parts[size:])
        slope = columns.T @ (0.5 + 0.5 * np.tanh(0.5 * advantage) - target) / count
        value = float(_cross_entropy(advantage, target).mean() + penalty * parts.sum())
        return value, np.concatenate([slope + penalty, penalty - slope])

    begun = np.concatenate([np.maximum(start, 0.0), np.maximum(-start, 0.0)])
    bounds = [(0.0, MAX_WEIGHT)] * (2 * size)
    # scipy has no stubs.
    library: Any = optimize
    ended: Any = library.minimize(objective, begun, jac=True, method="L-BFGS-B", bounds=bounds)
    parts: Floats = ended.x
    return parts[:size] - parts[size:]
