"""The histogram against numpy's percentiles of the same values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from physai.deploy_jetson.telemetry.histogram import MAX_BITS, RELATIVE_ERROR, Histogram

DURATIONS = arrays(np.int64, st.integers(1, 300), elements=st.integers(0, (1 << MAX_BITS) - 1))


def filled(*parts: np.ndarray) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.add(part)
    return histogram


@given(DURATIONS, st.floats(0.0, 1.0))
def test_a_percentile_is_right_to_a_fiftieth_of_a_percent(values: np.ndarray, share: float) -> None:
    exact = float(np.quantile(values, share, method="inverted_cdf"))
    assert filled(values).quantiles_ns([share])[0] == pytest.approx(exact, rel=RELATIVE_ERROR, abs=0.5)


@given(DURATIONS)
def test_the_greatest_the_sum_and_the_number_are_exact(values: np.ndarray) -> None:
    histogram = filled(values)
    assert histogram.quantiles_ns([1.0])[0] == histogram.max_ns == values.max()
    assert (histogram.total_ns, histogram.count) == (int(values.sum()), len(values))


@given(DURATIONS, st.integers(0, 300))
def test_values_may_come_in_parts(values: np.ndarray, cut: int) -> None:
    whole, parts = filled(values), filled(values[:cut], values[cut:])
    shares = (0.0, 0.5, 0.99, 1.0)
    assert whole.quantiles_ns(shares) == parts.quantiles_ns(shares)


@given(DURATIONS)
def test_counts_below_an_edge_are_exact(values: np.ndarray) -> None:
    bounds = [bound for exponent in range(9, MAX_BITS - 1) for bound in (1 << exponent, 3 << (exponent - 1))]
    counts = filled(values).cumulative(bounds)
    assert counts == [*(int((values < bound).sum()) for bound in bounds), len(values)]


def test_known_numbers() -> None:
    # 1 … 1000: half of them are at most 500, 99 % at most 990, which lies in the bucket 990 … 991.
    histogram = filled(np.arange(1, 1001))
    assert histogram.quantiles_ns((0.5, 0.99, 0.999, 1.0)) == [500.0, 990.5, 998.5, 1000.0]


def test_what_is_out_of_range() -> None:
    histogram = filled(np.array([-5, 1 << 50]))
    assert histogram.quantiles_ns((0.5, 1.0)) == [0.0, float(1 << 50)]
    assert histogram.cumulative([512]) == [1, 2]


def test_nothing_has_no_percentiles() -> None:
    histogram = filled(np.zeros(0, np.int64))
    assert math.isnan(histogram.quantiles_ns([0.5])[0])
    assert histogram.cumulative([512]) == [0, 0]
