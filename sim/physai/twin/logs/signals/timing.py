"""Statistics of the sampling period."""

from dataclasses import dataclass

import numpy as np

from physai.twin.logs.robot_log import Array, LogError

GAP_FACTOR = 5.0
"""A period longer than this many median periods is a gap with missing samples."""


@dataclass(frozen=True)
class PeriodStatistics:
    """Statistics of the periods between samples [s]."""

    median_s: float
    p99_s: float
    min_s: float
    max_s: float
    std_s: float
    gaps: int
    """Number of periods longer than `GAP_FACTOR` medians."""

    @property
    def rate_hz(self) -> float:
        """Sampling rate from the median period [Hz]."""
        return 1.0 / self.median_s


def period_statistics(time: Array) -> PeriodStatistics:
    """Compute the statistics of the periods between samples.

    Args:
        time: time of each sample [s], shape (n,), strictly ascending, n ≥ 2.

    Raises:
        LogError: there are fewer than two samples, or time is not ascending.
    """
    periods = np.diff(time)
    if not (len(periods) > 0 and bool((periods > 0.0).all())):
        raise LogError(f"periods need at least two samples of ascending time, got {len(time)} samples")
    median = float(np.median(periods))
    return PeriodStatistics(
        median_s=median,
        p99_s=float(np.quantile(periods, 0.99)),
        min_s=float(periods.min()),
        max_s=float(periods.max()),
        std_s=float(periods.std()),
        gaps=int((periods > GAP_FACTOR * median).sum()),
    )
