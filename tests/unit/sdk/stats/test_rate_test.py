"""The sequential test of a success rate: three answers, each wrong as rarely as promised."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sdk.stats.sequential import RateTest, Sprt, anytime_rate
from physai.sdk.stats.statistics import CountError


def after(successes: int, trials: int, *, target: float = 0.8, alpha: float = 0.01) -> RateTest:
    test = RateTest(target, 0.1, alpha=alpha)
    test.add(successes, trials)
    return test


def test_it_passes_fails_or_does_not_know() -> None:
    # ln 100 / ln(0.9 / 0.8) = 39.1; ln 100 / ln(0.3 / 0.2) = 11.4.
    assert after(39, 39).outcome is VerdictOutcome.INCONCLUSIVE
    assert after(40, 40).outcome is VerdictOutcome.PASS
    assert after(0, 11).outcome is VerdictOutcome.INCONCLUSIVE
    assert after(0, 12).outcome is VerdictOutcome.FAIL
    assert after(80, 100).outcome is VerdictOutcome.INCONCLUSIVE
    assert (after(0, 0).fewest_to_pass, after(0, 0).fewest_to_fail) == (40, 12)


def test_the_p_value_is_the_greatest_ratio_seen() -> None:
    test = after(20, 20)
    assert math.isclose(test.p_value, (8 / 9) ** 20)
    test.add(0, 5)
    assert math.isclose(test.p_value, (8 / 9) ** 20)


def test_it_says_how_many_more_would_do() -> None:
    # 95 of 100: each further episode gains 0.95 ln(9/8) + 0.05 ln(1/2) = 0.0772; 100 have gained 7.72 > 4.6.
    test = after(19, 20)
    gain = 0.95 * math.log(9 / 8) + 0.05 * math.log(0.5)
    seen = 19 * math.log(9 / 8) + math.log(0.5)
    assert test.more_to_pass == math.ceil((math.log(100) - seen) / gain)
    assert after(15, 20).more_to_pass is None


def test_it_says_which_rate_would_ever_do() -> None:
    # ln 2 / (ln(9/8) + ln 2): just below it no number of episodes is enough, above it some is.
    assert math.isclose(after(0, 0).least_rate, 0.8548, abs_tol=5e-5)
    assert after(8547, 10_000).more_to_pass is None
    assert after(8549, 10_000).more_to_pass is not None


def test_wrong_answers_are_as_rare_as_promised() -> None:
    """At the target itself neither answer is right; looked at after every batch of 8, for 40 looks."""
    random = np.random.default_rng(3)
    outcomes: list[VerdictOutcome] = []
    for _ in range(1500):
        test = RateTest(0.9, 0.07, alpha=0.05)
        for batch in random.binomial(8, 0.9, 40):
            test.add(int(batch), 8)
            if test.outcome is not VerdictOutcome.INCONCLUSIVE:
                break
        outcomes.append(test.outcome)
    # 1500 trials of probability 0.05: 75 expected, 100 is three standard deviations above.
    assert outcomes.count(VerdictOutcome.PASS) <= 100
    assert outcomes.count(VerdictOutcome.FAIL) <= 100


@given(st.integers(0, 400), st.integers(0, 400), st.floats(0.2, 0.95), st.floats(0.01, 0.3))
def test_more_successes_never_make_it_worse(good: int, bad: int, target: float, margin: float) -> None:
    order = [VerdictOutcome.FAIL, VerdictOutcome.INCONCLUSIVE, VerdictOutcome.PASS]
    test, better = RateTest(target, margin, alpha=0.01), RateTest(target, margin, alpha=0.01)
    test.add(good, good + bad)
    better.add(good + 1, good + 1 + bad)
    assert order.index(better.outcome) >= order.index(test.outcome)
    assert better.p_value <= test.p_value


def test_its_interval_bears_having_looked() -> None:
    """32 of 32: the mixture excludes what is below the rate p with p^32 = 0.05 · B(32.5, 0.5) / B(0.5, 0.5)."""
    test = after(32, 32)
    beta = math.lgamma(32.5) + math.lgamma(0.5) - math.lgamma(33.0) - math.log(math.pi)
    assert test.interval() == anytime_rate(32, 32)
    assert test.interval()[0] == pytest.approx(math.exp((math.log(0.05) + beta) / 32), rel=1e-9)
    assert test.interval()[1] == 1.0


def test_a_test_of_one_side_never_gives_the_other_answer() -> None:
    assert Sprt(0.5, 0.8, alpha=0.0).add(1000, 1000) is VerdictOutcome.INCONCLUSIVE
    assert Sprt(0.5, 0.8, beta=0.0).add(0, 1000) is VerdictOutcome.INCONCLUSIVE
    assert Sprt(0.5, 0.8, alpha=0.0).add(0, 1000) is VerdictOutcome.FAIL
    for wrong in (-0.1, 1.0, math.nan):
        with pytest.raises(CountError, match="alpha must lie between 0 and 1"):
            Sprt(0.5, 0.8, alpha=wrong)


def test_impossible_plans_and_counts_are_refused() -> None:
    with pytest.raises(CountError, match="target must lie between 0 and 1"):
        RateTest(1.0, 0.1, alpha=0.05)
    with pytest.raises(CountError, match="5 successes of 4 trials"):
        RateTest(0.9, 0.05, alpha=0.05).add(5, 4)
