"""e-BH: its arithmetic by hand, and its bound over many fleets of simulated monitors."""

import math

import numpy as np
import pytest

from physai.sdk.stats.e_values import e_benjamini_hochberg
from physai.sdk.stats.statistics import CountError


def log(*values: float) -> list[float]:
    return [math.log(value) if value > 0.0 else -math.inf for value in values]


def test_the_largest_e_values_are_rejected_as_by_hand() -> None:
    # K = 4 at 10 %: one alone needs 40, each of two 20, each of three 13.4.
    assert e_benjamini_hochberg(log(39.0, 1.0, 0.0, 2.0), 0.1) == ()
    assert e_benjamini_hochberg(log(41.0, 1.0, 0.0, 2.0), 0.1) == (0,)
    assert e_benjamini_hochberg(log(1.0, 21.0, 0.0, 21.0), 0.1) == (1, 3)
    assert e_benjamini_hochberg(log(14.0, 14.0, 0.0, 14.0), 0.1) == (0, 1, 3)


def test_a_small_e_value_is_carried_by_no_larger_one() -> None:
    assert e_benjamini_hochberg(log(1e9, 1.0, 1.0, 1.0), 0.1) == (0,)


def test_logarithms_beyond_the_largest_float_are_ordered() -> None:
    assert e_benjamini_hochberg([2000.0, -2000.0, math.inf, -math.inf], 0.1) == (0, 2)


def test_no_hypothesis_is_none_rejected() -> None:
    assert e_benjamini_hochberg([], 0.1) == ()


@pytest.mark.parametrize("share", [0.0, 1.0, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(CountError, match="share must lie between 0 and 1"):
        e_benjamini_hochberg([1.0], share)


def test_an_e_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(CountError, match="e-value 1 of 2 is not a number"):
        e_benjamini_hochberg([0.0, math.nan], 0.1)


def test_false_discoveries_stay_below_the_bound_though_all_hypotheses_depend() -> None:
    """The same draw makes every e-value: 1/u has an infinite expectation, 0.5/√u one of 1."""
    draws = 0.5 / np.sqrt(np.random.default_rng(3).uniform(size=4000))
    shares = [float(len(e_benjamini_hochberg([math.log(one)] * 50, 0.1)) > 0) for one in draws.tolist()]
    # All 50 or none: the share of false discoveries is 1 or 0. 0.5/√u ≥ 10 with a probability of 0.0025.
    assert 0.0 < np.mean(shares) <= 0.01
