"""Clopper-Pearson intervals: published values, and the equations that define them in exact arithmetic."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sim.statistics import MAX_TRIALS, CountError, clopper_pearson, upper_tail

counts = st.integers(1, 80).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials)))
confidences = st.floats(0.5, 0.999)


@pytest.mark.parametrize(
    ("successes", "trials", "lower", "upper"),
    [
        (10, 10, 0.6915, 1.0),
        (8, 10, 0.4439, 0.9748),
        (0, 59, 0.0, 0.0606),
        (0, 10, 0.0, 0.3085),
        (50, 100, 0.3983, 0.6017),
        (1, 1, 0.025, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_known_intervals(successes: int, trials: int, lower: float, upper: float) -> None:
    low, high = clopper_pearson(successes, trials)
    assert low == pytest.approx(lower, abs=5e-5)
    assert high == pytest.approx(upper, abs=5e-5)


def test_without_failure_the_bound_is_a_power() -> None:
    """P(no failure in n) = p^n = 2.5 %."""
    for trials in (1, 59, 299, 100_000):
        assert clopper_pearson(trials, trials)[0] == pytest.approx(0.025 ** (1.0 / trials), rel=1e-12)


def exact_tail(successes: int, trials: int, rate: Fraction) -> Fraction:
    return sum(
        (math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(successes, trials + 1)),
        start=Fraction(0),
    )


@given(counts, st.floats(0.01, 1.0))
def test_the_tail_against_exact_arithmetic(count: tuple[int, int], share: float) -> None:
    successes, trials = count
    rate = share * max(successes, 0.5) / (trials + 1)
    assert upper_tail(successes, trials, rate) == pytest.approx(
        float(exact_tail(successes, trials, Fraction(rate))), rel=1e-11
    )


@given(counts, confidences)
def test_the_bounds_solve_their_equations(count: tuple[int, int], confidence: float) -> None:
    successes, trials = count
    low, high = clopper_pearson(successes, trials, confidence=confidence)
    tail = 0.5 * (1.0 - confidence)
    assert 0.0 <= low <= successes / trials <= high <= 1.0
    if successes > 0:
        assert float(exact_tail(successes, trials, Fraction(low))) == pytest.approx(tail, rel=1e-9)
    if successes < trials:
        few = 1 - exact_tail(successes + 1, trials, Fraction(high))
        assert float(few) == pytest.approx(tail, rel=1e-9)


@given(counts)
def test_failures_mirror_successes(count: tuple[int, int]) -> None:
    successes, trials = count
    low, high = clopper_pearson(successes, trials)
    assert clopper_pearson(trials - successes, trials) == pytest.approx((1.0 - high, 1.0 - low), abs=1e-15)


@given(counts)
def test_one_more_success_moves_both_bounds_up(count: tuple[int, int]) -> None:
    successes, trials = count
    low, high = clopper_pearson(successes, trials)
    more = clopper_pearson(successes + 1, trials + 1)
    assert more[0] >= low
    assert more[1] >= high


def test_more_confidence_is_a_wider_interval() -> None:
    wide, narrow = clopper_pearson(8, 10, confidence=0.99), clopper_pearson(8, 10, confidence=0.9)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_many_trials() -> None:
    """The normal approximation holds there: p ± 1.96 sqrt(p (1 - p) / n)."""
    low, high = clopper_pearson(MAX_TRIALS // 4, MAX_TRIALS)
    half = 1.959964 * math.sqrt(0.25 * 0.75 / MAX_TRIALS)
    assert low == pytest.approx(0.25 - half, abs=2e-7)
    assert high == pytest.approx(0.25 + half, abs=2e-7)


@pytest.mark.parametrize(
    ("successes", "trials", "confidence", "message"),
    [
        (11, 10, 0.95, "11 successes of 10 trials"),
        (-1, 10, 0.95, "-1 successes"),
        (0, MAX_TRIALS + 1, 0.95, f"0 to {MAX_TRIALS} trials"),
        (1, 2, 1.0, "between 0 and 1, got 1.0"),
        (1, 2, math.nan, "got nan"),
    ],
)
def test_impossible_counts_are_refused(successes: int, trials: int, confidence: float, message: str) -> None:
    with pytest.raises(CountError, match=message):
        clopper_pearson(successes, trials, confidence=confidence)
