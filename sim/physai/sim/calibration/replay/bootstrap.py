"""Intervals of replay errors: whole stretches of a recording are resampled, never single samples."""

import numpy as np
import numpy.typing as npt

from physai.sim.twin.record import Interval

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

RESAMPLES = 2000
CONFIDENCE = 0.95


class Resamples:
    """How often each window occurs in each bootstrap sample.

    Errors of one window rise and fall together, and so do those of windows that overlap: a bootstrap over samples
    would give intervals many times too narrow. Stretches of a recording are the clusters (moving blocks: Kuensch,
    Annals of Statistics 17, 1989). Each recording keeps its number of stretches: the interval answers how well a twin
    replays recordings like these, not how recordings differ.
    """

    def __init__(self, groups: Indices, stretches: Indices, seed: int) -> None:
        """Draws the resamples; equal arguments give equal ones, which is what pairs two scores.

        Args:
            groups: number of the recording of each window, shape (W,).
            stretches: number of the stretch of its recording each window starts in, shape (W,).
            seed: of the draw.
        """
        pairs, self._cluster = np.unique(np.stack([groups, stretches], axis=1), axis=0, return_inverse=True)
        self._cluster = self._cluster.reshape(-1)
        rng = np.random.default_rng(seed)
        self._counts = np.zeros((RESAMPLES, len(pairs)))
        for group in np.unique(groups):
            members = np.flatnonzero(pairs[:, 0] == group)
            share = np.full(len(members), 1.0 / len(members))
            self._counts[:, members] = rng.multinomial(len(members), share, size=RESAMPLES)

    def rmse(self, squared: Array) -> Array:
        """Root mean square error of every resample, (W, J) to (RESAMPLES, J)."""
        sums = np.stack([np.bincount(self._cluster, column) for column in squared.T], axis=1)
        return np.sqrt(self._counts @ sums / (self._counts @ np.bincount(self._cluster))[:, None])


def interval(value: float, draws: Array) -> Interval:
    """Percentile interval of resampled values around the value of the sample itself."""
    tail = 0.5 * (1.0 - CONFIDENCE)
    lo, hi = np.quantile(draws, [tail, 1.0 - tail])
    return Interval(value=value, lo=float(lo), hi=float(hi))
