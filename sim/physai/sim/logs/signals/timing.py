"""How regular a robot's loop was."""

from dataclasses import dataclass

import numpy as np

from physai.sim.logs.robot_log import Array, LogError

GAP_FACTOR = 5.0
"""A period longer than this many median periods is a gap: samples are missing there."""


@dataclass(frozen=True)
class PeriodStatistics:
    """How far apart the samples of a recording are [s]."""

    median_s: float
    """Median period."""
    p99_s: float
    """Period that 1 % of the periods exceed."""
    min_s: float
    """Shortest period."""
    max_s: float
    """Longest period."""
    std_s: float
    """Standard deviation of the periods."""
    gaps: int
    """Periods longer than `GAP_FACTOR` medians."""

    @property
    def rate_hz(self) -> float:
        """Samples per second, from the median period."""
        return 1.0 / self.median_s


def period_statistics(time: Array) -> PeriodStatistics:
    """Statistics of the periods between the samples.

    Args:
        time: of each sample [s], shape (n,), strictly ascending, n at least 2.

    Raises:
        LogError: fewer than two samples, or time does not ascend.
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
