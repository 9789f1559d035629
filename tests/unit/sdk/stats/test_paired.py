"""Paired comparisons: hand-computed cases, and coverage by exact enumeration of all outcomes."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.stats.paired import PairedTest, anytime_drop, log_wealth, mcnemar_exact
from physai.sdk.stats.statistics import CountError

PASS, FAIL, INCONCLUSIVE = VerdictOutcome


@st.composite
def pair_counts(draw: st.DrawFn) -> tuple[int, int, int]:
    pairs = draw(st.integers(0, 300))
    worse = draw(st.integers(0, pairs))
    return worse, draw(st.integers(0, pairs - worse)), pairs


def outcomes(pairs: int, p_worse: float, p_better: float) -> Iterator[tuple[int, int, float]]:
    """Every count of worse and better pairs, and its probability."""
    for worse in range(pairs + 1):
        for better in range(pairs - worse + 1):
            same = pairs - worse - better
            ways = math.comb(pairs, worse) * math.comb(pairs - worse, better)
            yield worse, better, ways * p_worse**worse * p_better**better * (1.0 - p_worse - p_better) ** same


RATES = [(0.0, 0.0), (0.05, 0.0), (0.1, 0.1), (0.3, 0.05), (0.5, 0.5), (0.2, 0.7), (1.0, 0.0)]


def test_mcnemar_by_hand() -> None:
    """One of ten: P(X ≤ 1 | 10, 1/2) = 11/1024, twice that two-sided. Two of two: 1/4, 1/2."""
    assert mcnemar_exact(1, 9) == pytest.approx(22 / 1024, rel=1e-12)
    assert mcnemar_exact(9, 1, alternative="worse") == pytest.approx(11 / 1024, rel=1e-12)
    assert mcnemar_exact(9, 1, alternative="better") == pytest.approx(1023 / 1024, rel=1e-12)
    assert mcnemar_exact(2, 0) == 0.5
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(4, 4) == 1.0


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_does_not_mind_which_is_which(worse: int, better: int) -> None:
    assert mcnemar_exact(worse, better) == mcnemar_exact(better, worse)
    assert mcnemar_exact(worse, better, alternative="worse") == mcnemar_exact(better, worse, alternative="better")
    assert mcnemar_exact(worse + 1, better, alternative="worse") <= mcnemar_exact(worse, better, alternative="worse")


@given(pair_counts())
def test_the_interval_holds_the_observed_drop_and_mirrors(counts: tuple[int, int, int]) -> None:
    worse, better, pairs = counts
    low, high = anytime_drop(worse, better, pairs)
    observed = (worse - better) / max(1, pairs)
    assert -1.0 <= low <= observed + 1e-12
    assert observed - 1e-12 <= high <= 1.0
    assert anytime_drop(better, worse, pairs) == pytest.approx((-high, -low), abs=1e-12)


@given(pair_counts())
def test_one_more_worse_pair_raises_both_bounds(counts: tuple[int, int, int]) -> None:
    worse, better, pairs = counts
    low, high = anytime_drop(worse, better, pairs + 1)
    more = anytime_drop(worse + 1, better, pairs + 1)
    assert more[0] >= low - 1e-12
    assert more[1] >= high - 1e-12


@given(pair_counts(), st.floats(-0.99, 0.98), st.floats(0.0, 0.01))
def test_evidence_grows_with_the_margin(counts: tuple[int, int, int], margin: float, step: float) -> None:
    assert log_wealth(*counts, margin + step) >= log_wealth(*counts, margin) - 1e-9


@pytest.mark.parametrize("rates", RATES)
def test_wealth_does_not_grow_on_average_where_the_drop_is_the_margin(rates: tuple[float, float]) -> None:
    """The law that makes looking harmless: the mean over all outcomes is at most what one starts with."""
    drop = rates[0] - rates[1]
    mean = sum(p * math.exp(log_wealth(w, b, 12, drop)) for w, b, p in outcomes(12, *rates) if p > 0.0)
    assert mean <= 1.0 + 1e-9


def error_rate(
    margin: float, alpha: float, p_worse: float, p_better: float, *, most: int, wrong: VerdictOutcome
) -> float:
    """Exact probability that a test that looks after every pair ever gives the wrong answer."""
    alive = {(0, 0): 1.0}
    error = 0.0
    for pairs in range(1, most + 1):
        following: dict[tuple[int, int], float] = {}
        for (worse, better), p in alive.items():
            for step, chance in (((1, 0), p_worse), ((0, 1), p_better), ((0, 0), 1.0 - p_worse - p_better)):
                state = worse + step[0], better + step[1]
                following[state] = following.get(state, 0.0) + p * chance
        alive = {}
        for (worse, better), p in following.items():
            test = PairedTest(margin, alpha=alpha)
            outcome = test.add(worse, better, pairs)
            if outcome is wrong:
                error += p
            elif outcome is INCONCLUSIVE and p > 0.0:
                alive[worse, better] = p
    return error


@pytest.mark.parametrize(("p_worse", "p_better"), [(0.2, 0.0), (0.3, 0.1), (0.6, 0.4)])
def test_looking_after_every_pair_keeps_both_error_rates(p_worse: float, p_better: float) -> None:
    """At a drop of exactly the margin neither answer may come more often than alpha."""
    for wrong in (PASS, FAIL):
        assert error_rate(0.2, 0.1, p_worse, p_better, most=30, wrong=wrong) <= 0.1


def test_equal_policies_pass_and_a_broken_one_fails() -> None:
    equal = PairedTest(0.05)
    # A bet of 0.95 wins 1 + 0.95 · 0.05 / 0.95 = 1.05 per pair: 1.05^102 > 20 · 7, and the other bets help a little.
    assert equal.add(0, 0, 90) is INCONCLUSIVE
    assert equal.p_value > 0.05
    assert equal.add(0, 0, 12) is PASS
    assert equal.p_value <= 0.05
    broken = PairedTest(0.05)
    assert broken.add(20, 0, 20) is FAIL
    assert broken.add(0, 0, 10_000) is FAIL


@given(pair_counts(), st.floats(0.01, 0.5), st.floats(0.01, 0.2))
def test_test_and_interval_agree(counts: tuple[int, int, int], margin: float, alpha: float) -> None:
    low, high = anytime_drop(*counts, confidence=1.0 - 2.0 * alpha)
    outcome = PairedTest(margin, alpha=alpha).add(*counts)
    if outcome is PASS:
        assert high <= margin + 1e-9
    elif outcome is FAIL:
        assert low >= margin - 1e-9
    else:
        assert low - 1e-9 <= margin <= high + 1e-9


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(CountError, match="5 successes of 4 trials"):
        anytime_drop(3, 2, 4)
    with pytest.raises(CountError, match="-1 worse and 2 better"):
        PairedTest(0.05).add(-1, 2, 4)
    with pytest.raises(CountError, match="margin must lie between 0 and 1"):
        PairedTest(0.0)
    with pytest.raises(CountError, match="-1 successes"):
        mcnemar_exact(-1, 0)
