"""Tests of recorded runs against simulated data sets: by hand, and their laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sim.stats.two_sample import (
    centred,
    detectable_rate_shift,
    detectable_shift,
    excess_distances,
    outcome_ratios,
    rank_p_value,
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


def test_outcome_ratios_by_hand() -> None:
    """4 of 9 data sets succeed: chance 4.5/10, at s = 0.95 that of success 0.45 + 0.95·0.55, of failure 1 - 0.0225."""
    outcomes = np.array([[1.0]] * 4 + [[0.0]] * 5)
    found = outcome_ratios(outcomes)
    assert found[:4] == pytest.approx(math.log(0.9725 / 0.45))
    assert found[4:] == pytest.approx(math.log(0.9775 / 0.55))


def test_a_failure_where_all_others_succeed_weighs_most() -> None:
    """Two runs: one always succeeds, the other every other time. To fail the first is odd, the second not."""
    others = np.array([[1.0, 0.0], [1.0, 1.0]] * 30)
    first, second = (outcome_ratios(np.vstack([[one], others])) for one in ((0.0, 1.0), (1.0, 0.0)))
    assert rank_p_value(first) == 1 / 61
    assert rank_p_value(second) > 0.4


@given(st.integers(0, 2**32 - 1), st.integers(2, 30), st.integers(1, 8))
def test_outcome_ratios_follow_the_order_of_the_data_sets(seed: int, count: int, runs: int) -> None:
    random = np.random.default_rng(seed)
    outcomes = (random.random((count, runs)) < random.random(runs)).astype(np.float64)
    order = random.permutation(count)
    assert np.array_equal(outcome_ratios(outcomes[order]), outcome_ratios(outcomes)[order])
    assert (outcome_ratios(outcomes) >= 0.0).all()
    # Success and failure are treated alike.
    assert outcome_ratios(1.0 - outcomes) == pytest.approx(outcome_ratios(outcomes), abs=1e-6)


def test_a_right_twin_is_rarely_rejected_by_its_outcomes() -> None:
    """Data sets with chances of their own robot each, the recorded one among them: p ≤ 0.05 in 5 % at most."""
    rejected = 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        robots = np.clip(0.7 + 0.2 * random.normal(size=(41, 1)) + np.linspace(-0.3, 0.3, 6), 0.0, 1.0)
        rejected += rank_p_value(outcome_ratios((random.random((41, 6)) < robots).astype(np.float64))) <= 0.05
    # 20 expected at most; 33 would have a probability below 0.4 %.
    assert rejected <= 32


def test_what_a_number_of_runs_shows_by_hand() -> None:
    """A twin that always succeeds is contradicted by one failure: 1 - r⁵ ≥ 0.8 from r = 0.2^(1/5) = 0.7248 on."""
    found = detectable_rate_shift(np.ones((120, 5)), 0.05 / 3, 0.8)
    assert found == pytest.approx(1.0 - 0.2 ** (1 / 5), abs=0.03)
    assert detectable_rate_shift(np.zeros((120, 5)), 0.05 / 3, 0.8) == pytest.approx(found)


def test_a_detectable_rate_shift_is_found_with_its_power() -> None:
    """Robots that succeed less often by it, tested one by one as in a comparison."""
    random = np.random.default_rng(0)
    chances = np.array([1.0, 1.0, 0.95, 0.9, 0.8, 0.7, 0.5, 0.2])
    outcomes = (random.random((120, 8)) < chances).astype(np.float64)
    shift = detectable_rate_shift(outcomes, 0.05 / 3, 0.8)
    assert shift is not None
    lower = chances * (1.0 - shift / outcomes.mean())
    p_values = [rank_p_value(outcome_ratios(np.vstack([random.random((1, 8)) < lower, outcomes]))) for _ in range(400)]
    # The share that is found, 80 % or more, has a standard deviation of 2 %.
    assert np.mean(np.array(p_values) <= 0.05 / 3) >= 0.74


def test_few_runs_or_data_sets_show_nothing() -> None:
    """Of one run at one half, either outcome is likely; of 58 data sets, no p-value is below 1/59 > 0.05/3."""
    assert detectable_rate_shift(np.array([[0.0], [1.0]] * 60), 0.05 / 3, 0.8) is None
    assert detectable_rate_shift(np.ones((58, 8)), 0.05 / 3, 0.8) is None
    assert detectable_rate_shift(np.ones((59, 8)), 0.05 / 3, 0.8) is not None
