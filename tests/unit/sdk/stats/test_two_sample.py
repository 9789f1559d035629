"""Tests of recorded runs against simulated data sets: by hand, and their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.stats.two_sample import (
    centred,
    detectable_rate_difference,
    detectable_shift,
    excess_distances,
    rank_p_value,
    rate_difference_p_value,
)


def test_the_rank_counts_the_recorded_data_set_itself() -> None:
    assert rank_p_value(np.array([3.0, 1.0, 2.0, 0.0])) == 1 / 4
    assert rank_p_value(np.array([3.0, 3.0, 5.0, 0.0])) == 3 / 4
    assert rank_p_value(np.array([0.0, 1.0, 2.0, 3.0])) == 1.0


@given(st.integers(0, 2**32 - 1), st.integers(5, 40))
def test_among_exchangeable_data_sets_p_values_are_those_of_a_permutation(seed: int, count: int) -> None:
    """Whichever data set is the recorded one, the p-values of distinct statistics are 1/n, 2/n, … 1."""
    values = np.random.default_rng(seed).normal(size=count)
    found = sorted(rank_p_value(np.roll(values, shift)) for shift in range(count))
    assert found == pytest.approx([(k + 1) / count for k in range(count)])


def test_centred_leaves_a_value_out_of_its_own_mean() -> None:
    """3 is 2 from the mean 1 of 0 and 2; 0 is 2.5 from that of 3 and 2."""
    assert centred(np.array([3.0, 0.0, 2.0])) == pytest.approx([2.0, 2.5, 0.5])


def test_centred_of_one_value_is_zero() -> None:
    assert centred(np.array([3.0])) == pytest.approx([0.0])


def test_a_detectable_shift_by_hand() -> None:
    """Of 41 statistics 0 … 4 with p ≤ 2/42, one may be greater: 3.9. Four of five deviations -2 … 2 exceed -1.2."""
    statistics, deviations = np.linspace(0.0, 4.0, 41), np.linspace(-2.0, 2.0, 41)
    assert detectable_shift(statistics, deviations, 0.05, 0.8) == pytest.approx(3.9 + 1.2)


def test_too_few_data_sets_detect_nothing() -> None:
    """18 data sets and the recorded one: no p-value is below 1/19 > 0.05."""
    assert detectable_shift(np.ones(18), np.zeros(18), 0.05, 0.8) is None
    assert detectable_shift(np.ones(19), np.zeros(19), 0.05, 0.8) == pytest.approx(1.0)
    assert detectable_shift(np.zeros(0), np.zeros(0), 0.05, 0.8) is None


@given(st.integers(0, 2**32 - 1))
def test_a_detectable_shift_is_found_with_its_power(seed: int) -> None:
    """Of data sets shifted by it, four of five have statistics beyond what the test rejects."""
    values = np.random.default_rng(seed).gamma(2.0, size=60)
    deviations = values - values.mean()
    shift = detectable_shift(deviations, deviations, 0.05, 0.8)
    assert shift is not None
    # p ≤ 0.05: at most two of the others are greater or equal.
    found = [(1 + (deviations >= deviation + shift + 1e-9).sum()) / 61 <= 0.05 for deviation in deviations]
    assert np.mean(found) >= 0.78


def test_excess_distances_of_points_by_hand() -> None:
    """Points 0, 1, 3 on a line. From 0: (1 + 3)/2 - 2; from 1: (1 + 2)/2 - 3; from 3: (3 + 2)/2 - 1."""
    points = np.array([0.0, 1.0, 3.0])
    distances = np.abs(points[:, None] - points)
    assert excess_distances(distances) == pytest.approx([0.0, -1.5, 1.5])


def test_a_data_set_apart_has_its_distance_as_excess() -> None:
    points = np.array([5.0, 0.0, 0.0, 0.0, 0.0])
    assert excess_distances(np.abs(points[:, None] - points))[0] == pytest.approx(5.0)


@given(st.integers(0, 2**32 - 1), st.integers(3, 20))
def test_excess_distances_follow_the_order_of_the_data_sets(seed: int, count: int) -> None:
    points = np.random.default_rng(seed).normal(size=(count, 2))
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    order = np.random.default_rng(seed + 1).permutation(count)
    expected = excess_distances(distances)[order]
    assert excess_distances(distances[np.ix_(order, order)]) == pytest.approx(expected)
    # They weigh against each other: none is apart from all without the others being close.
    assert np.sum(excess_distances(distances)) == pytest.approx(0.0, abs=1e-9)


def test_success_by_hand() -> None:
    """0 of 5 under a rate of at least 0.9638, the lower Clopper-Pearson end for 100 of 100: 2 · 0.0362⁵."""
    lower = 0.025 ** (1 / 100)
    expected = 2 * (1 - lower) ** 5
    assert rate_difference_p_value(0, 5, np.ones(100)) == pytest.approx(expected, rel=1e-9)
    assert rate_difference_p_value(5, 5, np.ones(100)) == 1.0


def test_draws_that_end_alike_count_as_one_trial_each() -> None:
    """A rate of one half from 2000 runs of 20 draws is known no better than from 20 trials."""
    apart = np.repeat([0.0, 1.0], 10)
    alike = np.full(2000, 0.5)
    assert rate_difference_p_value(8, 8, apart) > 0.05 > rate_difference_p_value(8, 8, alike)


def test_what_a_number_of_trials_shows_by_hand() -> None:
    """A twin that always succeeds is contradicted by one failure: 1 - r⁵ ≥ 0.8 from r = 0.2^(1/5) = 0.7248 on."""
    found = detectable_rate_difference(5, 1.0, 0.05, 0.8)
    assert found == pytest.approx(1.0 - 0.2 ** (1 / 5), abs=0.005)
    assert detectable_rate_difference(5, 0.0, 0.05, 0.8) == pytest.approx(found)


def test_three_trials_show_nothing_about_a_rate_of_one_half() -> None:
    """Not even 0 of 3 is unlikely enough: 2 · 1/8."""
    assert detectable_rate_difference(3, 0.5, 0.05, 0.8) is None


@given(st.integers(1, 30), st.floats(0.0, 1.0))
def test_more_significance_needs_greater_differences(trials: int, rate: float) -> None:
    mild, strict = (detectable_rate_difference(trials, rate, level, 0.8) for level in (0.05, 0.01))
    assert strict is None or (mild is not None and mild <= strict + 1e-9)
