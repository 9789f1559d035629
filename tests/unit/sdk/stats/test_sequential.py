"""Statements that bear looking: their error rates by exact enumeration of every path, not by chance."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.stats.sequential import Sprt, anytime_rate, boundary
from physai.sdk.stats.statistics import CountError, clopper_pearson

PASS, FAIL, INCONCLUSIVE = VerdictOutcome


def decisions(
    decide: Callable[[int, int], VerdictOutcome], rate: float, *, most: int, batch: int = 1
) -> dict[VerdictOutcome, float]:
    """Exact probability of each end of a test that looks after every batch, and is cut short after `most` trials."""
    alive = np.ones(1)
    found = dict.fromkeys(VerdictOutcome, 0.0)
    for trials in range(1, most + 1):
        alive = np.append(alive * (1.0 - rate), 0.0) + np.append(0.0, alive * rate)
        if trials % batch:
            continue
        for successes in np.flatnonzero(alive > 0.0).tolist():
            outcome = decide(successes, trials)
            if outcome is not INCONCLUSIVE:
                found[outcome] += float(alive[successes])
                alive[successes] = 0.0
    found[INCONCLUSIVE] = float(alive.sum())
    return found


def sprt(p0: float, p1: float, alpha: float, beta: float) -> Callable[[int, int], VerdictOutcome]:
    return lambda successes, trials: Sprt(p0, p1, alpha=alpha, beta=beta).add(successes, trials)


def test_the_ratio_by_hand() -> None:
    """ln(0.9 / 0.6) = 0.405465, ln(0.1 / 0.4) = -1.386294; ln 20 = 2.995732 is passed by the eighth success."""
    test = Sprt(0.6, 0.9, alpha=0.05, beta=0.05)
    assert [test.add(1) for _ in range(7)] == [INCONCLUSIVE] * 7
    assert test.log_ratio == pytest.approx(7 * 0.4054651, abs=1e-6)
    assert test.add(1) is PASS
    failing = Sprt(0.6, 0.9, alpha=0.05, beta=0.05)
    assert [failing.add(0), failing.add(0), failing.add(0)] == [INCONCLUSIVE, INCONCLUSIVE, FAIL]
    assert failing.log_ratio == pytest.approx(-3 * 1.3862944, abs=1e-6)


def test_the_first_decision_stays() -> None:
    test = Sprt(0.6, 0.9)
    assert test.add(20, 20) is PASS
    assert test.add(0, 100) is PASS
    assert (test.successes, test.trials, test.outcome) == (20, 120, PASS)


@pytest.mark.parametrize(
    ("p0", "p1", "alpha", "beta", "most", "batch"),
    [(0.5, 0.8, 0.05, 0.1, 60, 1), (0.8, 0.95, 0.05, 0.05, 150, 1), (0.8, 0.95, 0.05, 0.05, 150, 8)],
)
def test_stopping_early_keeps_both_error_rates(
    p0: float, p1: float, alpha: float, beta: float, most: int, batch: int
) -> None:
    decide = sprt(p0, p1, alpha, beta)
    for rate in (p0, 0.9 * p0, 0.5 * p0):
        assert decisions(decide, rate, most=most, batch=batch)[PASS] <= alpha
    for rate in (p1, p1 + 0.5 * (1.0 - p1)):
        assert decisions(decide, rate, most=most, batch=batch)[FAIL] <= beta
    bad, good = (decisions(decide, rate, most=most, batch=batch) for rate in (p0, p1))
    # The rates are not kept by never deciding.
    assert bad[FAIL] > 0.8
    assert good[PASS] > 0.8


def test_looking_at_a_fixed_sample_bound_does_not_keep_it() -> None:
    """The enumeration can tell: a 95 % lower bound that is looked at after each of 60 trials errs far more often."""

    @cache
    def naive(successes: int, trials: int) -> VerdictOutcome:
        return PASS if clopper_pearson(successes, trials, confidence=0.9)[0] > 0.5 else INCONCLUSIVE

    assert decisions(naive, 0.5, most=60)[PASS] > 0.1
    once = decisions(lambda s, n: naive(s, n) if n == 60 else INCONCLUSIVE, 0.5, most=60)
    assert once[PASS] <= 0.05


@pytest.mark.parametrize(("rate", "confidence"), [(0.5, 0.9), (0.9, 0.9), (0.97, 0.95), (0.2, 0.8)])
def test_all_anytime_intervals_of_a_run_hold_the_rate(rate: float, confidence: float) -> None:
    def misses(successes: int, trials: int) -> VerdictOutcome:
        low, high = anytime_rate(successes, trials, confidence=confidence)
        return INCONCLUSIVE if low <= rate <= high else FAIL

    assert decisions(misses, rate, most=60)[FAIL] <= 1.0 - confidence


def test_an_anytime_interval_by_hand() -> None:
    """Of one success: B(3/2, 1/2) / B(1/2, 1/2) = 1/2, so p is excluded where 1/2 >= 20 p: from 1/40 down."""
    assert anytime_rate(1, 1) == (pytest.approx(0.025, rel=1e-12), 1.0)
    assert anytime_rate(0, 1) == (0.0, pytest.approx(0.975, rel=1e-12))
    assert anytime_rate(0, 0) == (0.0, 1.0)


counts = st.integers(1, 400).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials)))


@given(counts, st.floats(0.5, 0.999))
def test_anytime_intervals_are_wider_than_fixed_ones_but_not_much(count: tuple[int, int], confidence: float) -> None:
    successes, trials = count
    low, high = anytime_rate(successes, trials, confidence=confidence)
    fixed = clopper_pearson(successes, trials, confidence=confidence)
    assert 0.0 <= low <= successes / trials <= high <= 1.0
    assert high - low <= 4.0 * (fixed[1] - fixed[0])
    wide = anytime_rate(successes, trials, confidence=0.5 + 0.5 * confidence)
    assert wide[0] <= low
    assert high <= wide[1]


@given(counts)
def test_anytime_intervals_follow_the_counts(count: tuple[int, int]) -> None:
    successes, trials = count
    low, high = anytime_rate(successes, trials)
    assert anytime_rate(trials - successes, trials) == pytest.approx((1.0 - high, 1.0 - low), abs=1e-12)
    more = anytime_rate(successes + 1, trials + 1)
    less = anytime_rate(successes, trials + 1)
    assert more[0] >= low - 1e-12
    assert less[1] <= high + 1e-12


def test_many_trials_narrow_the_interval() -> None:
    low, high = anytime_rate(900_000, 1_000_000)
    assert 0.898 < low < 0.9 < high < 0.902


@given(st.floats(0.05, 0.9), st.floats(0.01, 0.3), st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_batches_count_as_what_they_hold(p0: float, gap: float, successes: list[int]) -> None:
    p1 = p0 + gap
    assume(p1 < 0.99)
    test = Sprt(p0, p1)
    for batch in successes:
        test.add(batch, 5)
    whole = Sprt(p0, p1)
    whole.add(sum(successes), 5 * len(successes))
    assert test.log_ratio == pytest.approx(whole.log_ratio, abs=1e-9)


def test_a_boundary_is_found_to_the_last_bit() -> None:
    edge = 1.0 / 3.0
    assert boundary(lambda x: x >= edge, 0.0, 1.0) == edge
    assert boundary(lambda x: False, 0.0, 1.0) == 1.0


@pytest.mark.parametrize(
    ("p0", "p1", "alpha", "message"),
    [
        (0.9, 0.8, 0.05, r"p0 must be below p1, got 0\.9 and 0\.8"),
        (0.0, 0.8, 0.05, "p0 must lie between 0 and 1"),
        (0.5, 1.0, 0.05, "p1 must lie between 0 and 1"),
        (0.5, 0.8, math.nan, "alpha must lie between 0 and 1, got nan"),
    ],
)
def test_impossible_tests_are_refused(p0: float, p1: float, alpha: float, message: str) -> None:
    with pytest.raises(CountError, match=message):
        Sprt(p0, p1, alpha=alpha)


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(CountError, match="3 successes of 2 trials"):
        Sprt(0.5, 0.8).add(3, 2)
    with pytest.raises(CountError, match="3 successes of 2 trials"):
        anytime_rate(3, 2)
