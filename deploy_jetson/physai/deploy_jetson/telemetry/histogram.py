"""Percentiles of a whole run in constant memory: a log-linear histogram, like HdrHistogram.

Every power of two is divided into `1 << PRECISION_BITS` buckets of equal width, so values are known to within 0.4 %,
and exactly below 512 ns. Source of the layout: https://hdrhistogram.org, "HdrHistogram design".
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
import numpy.typing as npt

PRECISION_BITS = 8
# Relative error bound of a percentile: half a bucket.
RELATIVE_ERROR = 2.0 ** -(PRECISION_BITS + 1)

# Values of 2^37 ns (137 s) and more share the last bucket; the maximum is kept exactly.
MAX_BITS = 37

_LINEAR = 1 << PRECISION_BITS
_BUCKETS = (MAX_BITS - PRECISION_BITS + 1) << PRECISION_BITS

Nanoseconds = npt.NDArray[np.int64]


class Histogram:
    """Counts of durations [ns]; one thread writes, any thread may read."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self.count = 0
        """Number of values."""
        self.total_ns = 0
        """Exact sum [ns]."""
        self.max_ns = 0
        """Exact maximum [ns]."""

    def add(self, values_ns: Nanoseconds) -> None:
        """Add durations; negative ones count as 0."""
        if not len(values_ns):
            return
        # The age of a sample whose stamp lies in the future is negative.
        values = np.maximum(values_ns, 0)
        # Not `counts[buckets] += 1`, which counts a bucket that occurs twice only once.
        np.add.at(self._counts, _bucket(values), 1)
        self.count += len(values)
        self.total_ns += int(values.sum())
        self.max_ns = max(self.max_ns, int(values.max()))

    def quantiles_ns(self, shares: Sequence[float]) -> list[float]:
        """Return the quantile of each share, within `RELATIVE_ERROR` [ns]; NaN without values."""
        sums = self._counts.cumsum()
        count, longest = int(sums[-1]), float(self.max_ns)
        if not count:
            return [float("nan") for _ in shares]
        # The nearest rank: the smallest value with at least that share of all values at or below it.
        ranks = [max(1, ceil(share * count)) for share in shares]
        buckets = np.searchsorted(sums, ranks).tolist()
        return [
            longest if rank >= count else min(_middle(bucket), longest)
            for rank, bucket in zip(ranks, buckets, strict=True)
        ]

    def cumulative(self, bounds_ns: npt.ArrayLike) -> list[int]:
        """Return the number of values below each bound, followed by the number of all values.

        Args:
            bounds_ns: powers of two, or three times a power of two, of at least 512 ns; these are edges of buckets, so
                the counts are exact.
        """
        sums = np.concatenate([[0], self._counts.cumsum()])
        return [*sums[_bucket(np.asarray(bounds_ns, np.int64))].tolist(), int(sums[-1])]


def _bucket(values: Nanoseconds) -> npt.NDArray[np.intp]:
    """Return the index of each value's bucket."""
    clipped = np.minimum(values, (1 << MAX_BITS) - 1)
    # frexp returns the number of bits; exact, since a float64 represents every integer up to 2^53.
    bits = np.frexp(clipped.astype(np.float64))[1].astype(np.int64)
    # Values of up to PRECISION_BITS bits have a bucket each, at shift -1.
    shift = np.maximum(bits - 1 - PRECISION_BITS, -1)
    coarse = (shift << PRECISION_BITS) + (clipped >> np.maximum(shift, 0))
    return np.where(shift >= 0, coarse, clipped).astype(np.intp)


def _middle(bucket: int) -> float:
    """Return the middle of a bucket's values [ns]."""
    if bucket < 2 * _LINEAR:
        return float(bucket)
    shift = (bucket >> PRECISION_BITS) - 1
    lowest = (bucket - (shift << PRECISION_BITS)) << shift
    # The middle halves the largest possible error.
    return lowest + 0.5 * ((1 << shift) - 1)
