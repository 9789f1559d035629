"""Estimate of each change from one block of a recording, with its uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from physai.drift.equations.log_equations import Rows

Array = npt.NDArray[np.float64]

SWEEPS = 3
"""Fits after which the noise of each channel is estimated anew."""
NOISE_SHARE = 3e-3
"""Minimum noise of a channel, as a share of its applied effort."""
NOISE_FIRST = 0.05
"""The same before the first fit."""
SPACED = 4.0
"""Largest factor on variances for errors that are alike at neighbouring moments."""
LEAST_FREE = 0.1
"""Least share of a channel's equations that counts as not used up by the posterior."""
LEAST_WEIGHT = 1e-4
"""Least inverse variance of a change that a block says anything of."""
MIN_EQUATIONS = 15
"""Minimum number of valid equations of a block."""


@dataclass(frozen=True)
class BlockEstimate:
    """Sums of one block for each of D changes, each alone: amount is `pull` / `weight`."""

    pull: Array
    """Shape (D,)."""
    weight: Array
    """Inverse variance of the amount, noise and the twin's posterior together, shape (D,)."""
    noise: Array
    """Standard deviation of the amount by noise alone, shape (D,)."""
    twin: Array
    """Standard deviation of the amount by the twin's posterior alone, shape (D,)."""
    unexplained: Array
    """Root mean square effort that no change and no robot of the posterior explains, shape (C,)."""
    equations: int

    @property
    def amount(self) -> Array:
        """Most likely amount of each change, alone, shape (D,)."""
        return self.pull / np.maximum(self.weight, 1e-300)

    @property
    def std(self) -> Array:
        """Standard deviation of each amount, shape (D,)."""
        return 1.0 / np.sqrt(np.maximum(self.weight, 1e-300))


def estimate(rows: Rows) -> BlockEstimate | None:
    """Fit each change alone; None if too few equations hold.

    Errors of the twin that its posterior allows are part of the noise: what a robot of the posterior could do is no
    change. Forces at the feet are eliminated.
    """
    known = rows.known.astype(np.float64)
    if not int(known.sum()) >= MIN_EQUATIONS:
        return None
    level = np.maximum(rows.floor, NOISE_SHARE * rows.applied)
    noise = np.maximum(rows.floor, NOISE_FIRST * rows.applied)
    parts = (rows.residual[..., None], rows.changes, rows.own, rows.zeros, rows.posterior)
    stacked = np.concatenate(parts, axis=2) * known[..., None]
    widths = [part.shape[2] for part in parts]
    # Products of all columns, per channel (C, N, N): noise only scales them, unless contact mixes the channels.
    products, counts = _products(stacked), known.sum(axis=0)
    factor, fit = 1.0, None
    for _ in range(SWEEPS):
        white, scaled = stacked / noise[:, None], products / noise[:, None, None] ** 2
        if rows.contact.shape[2]:
            kept = _without_contact(rows.contact * (known / noise)[..., None])
            white = kept @ white
            scaled, counts = _products(white), np.einsum("tcc,tc->c", kept, known)
        fit = _Fit(scaled.sum(axis=0) / factor, widths)
        left = fit.left
        # What the posterior explains of the noise is missing from it.
        spent = np.einsum("cnm,nm->c", scaled, fit.spent) / factor
        free = np.maximum(np.maximum(counts - spent, LEAST_FREE * counts), 1.0)
        squares = np.maximum(np.einsum("n,cnm,m->c", left, scaled, left), 0.0)
        noise = np.maximum(noise * np.sqrt(squares / free), level)
        factor = _alike(white @ left)
    assert fit is not None
    return fit.estimate(noise, int(known.sum()))


def _products(columns: Array) -> Array:
    """Return the products of all pairs of N columns per channel, (T, C, N) to (C, N, N)."""
    channels = np.ascontiguousarray(columns.swapaxes(0, 1))
    return channels.swapaxes(1, 2) @ channels


def _without_contact(pushed: Array) -> Array:
    """Return the projections that remove forces at the feet from whitened equations, (T, C, 3·K) to (T, C, C)."""
    left, size, _ = np.linalg.svd(pushed, full_matrices=False)
    left = left * (size > 1e-9 * np.maximum(size.max(axis=1, keepdims=True), 1e-300))[:, None]
    return np.eye(pushed.shape[1]) - left @ left.swapaxes(1, 2)


def _alike(left: Array) -> float:
    """Return the factor on variances for residuals (T, C) that are correlated between neighbouring moments."""
    together, alone = float((left[1:] * left[:-1]).sum()), float((left**2).sum())
    correlation = min(max(together / max(alone, 1e-300), 0.0), 0.9)
    return min((1.0 + correlation) / (1.0 - correlation), SPACED)


class _Fit:
    """Generalised least squares of whitened rows with the covariance 1 + A·A', each change alone.

    It works on the products of the columns: residual, D changes, differences between recordings, zeros, and the twin's
    posterior.
    """

    def __init__(self, products: Array, widths: Sequence[int]) -> None:
        """Fit.

        Args:
            products: of all pairs of columns, shape (N, N).
            widths: number of columns of each kind.
        """
        edges = np.cumsum([0, *widths])
        changes, own, zeros, posterior = (slice(int(low), int(high)) for low, high in pairwise(edges[1:]))
        # A calibration fits the zeros of its recordings together with the twin: a robot of the posterior has the zeros
        # that suit it, and differs from the twin by what these do not make up for.
        spread = np.zeros((len(products), widths[2] + widths[4]))
        spread[own, : widths[2]] = np.eye(widths[2])
        spread[posterior, widths[2] :] = np.eye(widths[4])
        both = products[zeros, zeros] + np.eye(widths[3])
        spread[zeros, widths[2] :] = -np.linalg.solve(both, products[zeros, posterior])
        across = products @ spread
        gram = spread.T @ across
        # (1 + A·A')^-1 = 1 - A·(1 + A'·A)^-1·A'
        inner = np.linalg.inv(gram + np.eye(len(gram)))
        weighted = inner @ across[changes].T
        self.weight = np.diagonal(products[changes, changes]) - np.einsum("dp,pd->d", across[changes], weighted)
        pull = products[changes, 0] - weighted.T @ across[0]
        # Rounding makes something of changes that have no effect.
        self.weight = np.where(self.weight < LEAST_WEIGHT, 0.0, self.weight)
        self.pull = np.where(self.weight == 0.0, 0.0, pull)
        safe = np.maximum(self.weight, 1e-300)
        best = int(np.argmax(self.pull**2 / safe))
        self.left = np.zeros(len(products))
        """Combination of columns that the best single change and the likeliest robot of the posterior leave."""
        self.left[0], self.left[changes.start + best] = 1.0, -self.pull[best] / safe[best]
        self.left -= spread @ (inner @ (across.T @ self.left))
        self.spent = spread @ inner @ spread.T
        """Whose product with those of a channel is the number of its rows that the posterior takes."""
        moved = across[changes].T - gram @ weighted
        self._twin = np.linalg.norm(moved, axis=0) / safe
        self._noise = np.sqrt(np.maximum(self.weight - (moved**2).sum(axis=0), 0.0)) / safe

    def estimate(self, noise: Array, equations: int) -> BlockEstimate:
        """Return the sums of the fit."""
        return BlockEstimate(
            pull=self.pull,
            weight=self.weight,
            noise=self._noise,
            twin=self._twin,
            unexplained=noise,
            equations=equations,
        )
