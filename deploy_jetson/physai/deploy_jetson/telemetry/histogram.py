"""Percentiles of a whole run in constant memory: a log-linear histogram, like HdrHistogram.

Every power of two is divided into `1 << PRECISION_BITS` buckets of one width, so a value is known to within 0.4 % of
itself, and exactly below 512 ns. Source of the layout: https://hdrhistogram.org, "HdrHistogram design".
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
import numpy.typing as npt

PRECISION_BITS = 8
RELATIVE_ERROR = 2.0 ** -(PRECISION_BITS + 1)
"""Greatest error of a percentile, as a share of it: half a bucket."""

MAX_BITS = 37
"""Values of 2^37 ns, 137 s, and more share the last bucket; the greatest of all is kept exactly."""

_LINEAR = 1 << PRECISION_BITS
_BUCKETS = (MAX_BITS - PRECISION_BITS + 1) << PRECISION_BITS

Nanoseconds = npt.NDArray[np.int64]


class Histogram:
    """Counts of durations [ns]; one thread writes, any may read."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self.count = 0
        """Values taken so far."""
        self.total_ns = 0
        """Their sum, exactly [ns]."""
        self.max_ns = 0
        """The greatest of them, exactly [ns]."""

    def add(self, values_ns: Nanoseconds) -> None:
        """Takes durations; those below 0 count as 0."""
        if not len(values_ns):
            return
        values = np.maximum(values_ns, 0)
        np.add.at(self._counts, _bucket(values), 1)
        self.count += len(values)
        self.total_ns += int(values.sum())
        self.max_ns = max(self.max_ns, int(values.max()))

    def quantiles_ns(self, shares: Sequence[float]) -> list[float]:
        """For each share the least value that is not exceeded by that share of all, within `RELATIVE_ERROR` [ns].

        NaN where there are no values.
        """
        sums = self._counts.cumsum()
        count, longest = int(sums[-1]), float(self.max_ns)
        if not count:
            return [float("nan") for _ in shares]
        ranks = [max(1, ceil(share * count)) for share in shares]
        found = np.searchsorted(sums, ranks).tolist()
        return [
            longest if rank >= count else min(_middle(bucket), longest)
            for rank, bucket in zip(ranks, found, strict=True)
        ]

    def cumulative(self, bounds_ns: npt.ArrayLike) -> list[int]:
        """How many values lie below each bound, and last how many there are.

        Args:
            bounds_ns: powers of two, or three times a power of two, 512 and more: these are edges of buckets, so that
                the counts are exact.
        """
        sums = np.concatenate([[0], self._counts.cumsum()])
        return [*sums[_bucket(np.asarray(bounds_ns, np.int64))].tolist(), int(sums[-1])]


def _bucket(values: Nanoseconds) -> npt.NDArray[np.intp]:
    """Number of each value's bucket."""
    clipped = np.minimum(values, (1 << MAX_BITS) - 1)
    # Exact: a float64 holds every integer up to 2^53, and frexp says how many bits it has.
    bits = np.frexp(clipped.astype(np.float64))[1].astype(np.int64)
    shift = np.maximum(bits - 1 - PRECISION_BITS, -1)
    coarse = (shift << PRECISION_BITS) + (clipped >> np.maximum(shift, 0))
    return np.where(shift >= 0, coarse, clipped).astype(np.intp)


def _middle(bucket: int) -> float:
    """The middle of a bucket's values [ns]."""
    if bucket < 2 * _LINEAR:
        return float(bucket)
    shift = (bucket >> PRECISION_BITS) - 1
    lowest = (bucket - (shift << PRECISION_BITS)) << shift
    return lowest + 0.5 * ((1 << shift) - 1)
