"""Bootstrap intervals of replay errors, resampling whole stretches of a recording."""

import numpy as np
import numpy.typing as npt

from physai.twin.model.twin_file import Interval

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

RESAMPLES = 2000
CONFIDENCE = 0.95


class Resamples:
    """Bootstrap samples of the windows, in whole stretches of their recordings."""

    def __init__(self, groups: Indices, stretches: Indices, seed: int) -> None:
        """Draw the resamples; equal arguments give equal ones, so that two scores can be paired.

        Args:
            groups: index of each window's recording, shape (W,).
            stretches: index of the stretch in which each window starts, shape (W,).
            seed: seed of the draw.
        """
        # Errors within a window and of overlapping windows are correlated, so a bootstrap over samples would give
        # intervals many times too narrow. The clusters are stretches of a recording (moving blocks: Kuensch, Annals of
        # Statistics 17, 1989).
        pairs, self._cluster = np.unique(np.stack([groups, stretches], axis=1), axis=0, return_inverse=True)
        self._cluster = self._cluster.reshape(-1)
        rng = np.random.default_rng(seed)
        self._counts = np.zeros((RESAMPLES, len(pairs)))
        # Each recording keeps its number of stretches: the interval describes replays of recordings like these, not the
        # variation between recordings. Those of one stretch each, such as throws, are resampled among each other.
        alone = np.bincount(pairs[:, 0])[pairs[:, 0]] == 1
        owners = np.where(alone, -1, pairs[:, 0])
        for owner in np.unique(owners):
            members = np.flatnonzero(owners == owner)
            share = np.full(len(members), 1.0 / len(members))
            self._counts[:, members] = rng.multinomial(len(members), share, size=RESAMPLES)

    def rmse(self, squared: Array) -> Array:
        """Return the root mean square error of every resample, (W, J) to (RESAMPLES, J)."""
        sums = np.stack([np.bincount(self._cluster, column) for column in squared.T], axis=1)
        return np.sqrt(self._counts @ sums / (self._counts @ np.bincount(self._cluster))[:, None])


def interval(value: float, draws: Array) -> Interval:
    """Return the percentile interval of resampled values with the value of the original sample."""
    tail = 0.5 * (1.0 - CONFIDENCE)
    lo, hi = np.quantile(draws, [tail, 1.0 - tail])
    return Interval(value=value, lo=float(lo), hi=float(hi))
