"""Statistics of success rates: published values, and the equations that define them in exact arithmetic."""

import math
from fractions import Fraction
from statistics import NormalDist

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from physai.sdk.stats.statistics import (
    MAX_TRIALS,
    CountError,
    clopper_pearson,
    holm,
    rate_p_value,
    upper_tail,
    wilson,
    zero_failure_bound,
    zero_failure_trials,
)

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
        (0, MAX_TRIALS + 1, 0.95, f"<= trials <= {MAX_TRIALS}"),
        (1, 2, 1.0, "between 0 and 1, got 1.0"),
        (1, 2, math.nan, "got nan"),
    ],
)
def test_impossible_counts_are_refused(successes: int, trials: int, confidence: float, message: str) -> None:
    with pytest.raises(CountError, match=message):
        clopper_pearson(successes, trials, confidence=confidence)


@pytest.mark.parametrize(
    ("successes", "trials", "lower", "upper"),
    [
        # z² = 3.841459: (1 + z²/2n ± z sqrt(z²/4n²)) / (1 + z²/n) at k = n is [1 / (1 + z²/n), 1].
        (10, 10, 1.0 / 1.3841459, 1.0),
        (0, 10, 0.0, 0.3841459 / 1.3841459),
        # centre (0.5 + 0.01920730) / 1.03841459 = 0.5; half sqrt(0.03841459 (0.25 + 0.00960365)) / 1.03841459.
        (50, 100, 0.403832, 0.596168),
        (8, 10, 0.4902, 0.9433),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_intervals(successes: int, trials: int, lower: float, upper: float) -> None:
    assert wilson(successes, trials) == pytest.approx((lower, upper), abs=5e-5)


@given(counts, confidences)
def test_wilson_bounds_solve_the_score_equation(count: tuple[int, int], confidence: float) -> None:
    """|k/n - p| = z sqrt(p (1 - p) / n) at both ends."""
    successes, trials = count
    z = NormalDist().inv_cdf(0.5 + 0.5 * confidence)
    for bound in wilson(successes, trials, confidence=confidence):
        assert 0.0 <= bound <= 1.0
        expected = z * math.sqrt(bound * (1.0 - bound) / trials)
        assert abs(successes / trials - bound) == pytest.approx(expected, abs=1e-9)


@given(counts, confidences)
def test_wilson_mirrors_and_grows(count: tuple[int, int], confidence: float) -> None:
    successes, trials = count
    low, high = wilson(successes, trials, confidence=confidence)
    mirrored = wilson(trials - successes, trials, confidence=confidence)
    assert mirrored == pytest.approx((1.0 - high, 1.0 - low), abs=1e-12)
    more = wilson(successes + 1, trials + 1, confidence=confidence)
    assert more[0] >= low - 1e-12
    assert more[1] >= high - 1e-12


@pytest.mark.parametrize(("trials", "bound"), [(59, 0.0495), (299, 0.00997), (2995, 0.0009997), (0, 1.0), (1, 0.95)])
def test_no_failure_in_so_many_trials(trials: int, bound: float) -> None:
    assert zero_failure_bound(trials) == pytest.approx(bound, rel=2e-3)


@pytest.mark.parametrize(("rate", "trials"), [(0.05, 59), (0.01, 299), (0.001, 2995), (0.95, 1), (0.5, 5)])
def test_trials_that_exclude_a_failure_rate(rate: float, trials: int) -> None:
    """0.95^59 = 0.0485 < 0.05 < 0.95^58 = 0.0511; 0.5^5 = 1/32 < 0.05 < 1/16."""
    assert zero_failure_trials(rate) == trials


@given(st.floats(1e-4, 0.99), confidences)
def test_the_two_agree(rate: float, confidence: float) -> None:
    trials = zero_failure_trials(rate, confidence=confidence)
    assert zero_failure_bound(trials, confidence=confidence) <= rate * (1.0 + 1e-9)
    if trials > 1:
        assert zero_failure_bound(trials - 1, confidence=confidence) > rate * (1.0 - 1e-9)


@given(st.integers(1, 10_000), confidences)
def test_no_failure_is_a_one_sided_clopper_pearson_bound(trials: int, confidence: float) -> None:
    upper = clopper_pearson(0, trials, confidence=2.0 * confidence - 1.0 + 1e-15)[1]
    assert zero_failure_bound(trials, confidence=confidence) == pytest.approx(upper, rel=1e-6)


@given(counts, st.floats(0.01, 0.99))
def test_p_values_against_exact_arithmetic(count: tuple[int, int], rate: float) -> None:
    successes, trials = count
    exact = Fraction(rate)
    more = float(exact_tail(successes, trials, exact))
    fewer = float(1 - exact_tail(successes + 1, trials, exact))
    assert rate_p_value(successes, trials, rate, alternative="greater") == pytest.approx(more, rel=1e-9, abs=1e-13)
    assert rate_p_value(successes, trials, rate, alternative="less") == pytest.approx(fewer, rel=1e-9, abs=1e-13)


def test_a_p_value_by_hand() -> None:
    """P(X ≥ 9 | 10, 1/2) = (10 + 1) / 1024."""
    assert rate_p_value(9, 10, 0.5, alternative="greater") == pytest.approx(11 / 1024, rel=1e-12)
    assert rate_p_value(1, 10, 0.5, alternative="less") == pytest.approx(11 / 1024, rel=1e-12)
    assert rate_p_value(0, 10, 0.5, alternative="greater") == 1.0


@given(counts, st.floats(0.05, 0.95), st.floats(0.001, 0.2))
def test_bound_and_p_value_agree(count: tuple[int, int], rate: float, alpha: float) -> None:
    """The lower bound lies above a rate exactly if that rate is rejected at half of what the interval leaves out."""
    successes, trials = count
    p = rate_p_value(successes, trials, rate, alternative="greater")
    assume(abs(p - alpha) > 1e-9)
    assert (clopper_pearson(successes, trials, confidence=1.0 - 2.0 * alpha)[0] > rate) == (p < alpha)


def test_holm_by_hand() -> None:
    """Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04; the last is raised to 0.06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([]) == ()
    assert holm([0.4]) == (0.4,)
    assert holm([0.6, 0.9]) == (1.0, 1.0)


p_lists = st.lists(st.floats(0.0, 1.0), max_size=12)


@given(p_lists)
def test_holm_lies_between_no_correction_and_bonferroni(p_values: list[float]) -> None:
    for p, adjusted in zip(p_values, holm(p_values), strict=True):
        assert p <= adjusted <= min(1.0, len(p_values) * p) or adjusted == pytest.approx(p)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [holm(p_values)[i] for i in order]
    assert adjusted == sorted(adjusted)


@given(p_lists, st.floats(0.001, 0.2))
def test_holm_is_closed_testing_with_bonferroni(p_values: list[float], alpha: float) -> None:
    """A hypothesis is rejected exactly if every set that holds it is, by its smallest p-value times its size."""
    m = len(p_values)
    assume(m <= 7)
    sets = [[i for i in range(m) if bits >> i & 1] for bits in range(1, 1 << m)]
    rejected = {i for i in range(m) if all(min(p_values[j] for j in s) * len(s) <= alpha for s in sets if i in s)}
    assert {i for i, adjusted in enumerate(holm(p_values)) if adjusted <= alpha} == rejected


@given(st.permutations(range(6)), st.lists(st.floats(0.0, 1.0), min_size=6, max_size=6))
def test_holm_does_not_mind_the_order(order: list[int], p_values: list[float]) -> None:
    straight = holm(p_values)
    assert holm([p_values[i] for i in order]) == tuple(straight[i] for i in order)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_holm_refuses_what_is_no_p_value(p: float) -> None:
    with pytest.raises(CountError, match=r"in \[0, 1\], got"):
        holm([0.5, p])


def test_bad_numbers_are_refused_everywhere() -> None:
    with pytest.raises(CountError, match="confidence must lie"):
        wilson(1, 2, confidence=math.nan)
    with pytest.raises(CountError, match="0 successes of -1 trials"):
        zero_failure_bound(-1)
    with pytest.raises(CountError, match=r"rate must lie between 0 and 1, got 0\.0"):
        zero_failure_trials(0.0)
    with pytest.raises(CountError, match=r"needs 3e\+09 trials"):
        zero_failure_trials(1e-9)
    with pytest.raises(CountError, match=r"rate must lie between 0 and 1, got 1\.5"):
        rate_p_value(1, 2, 1.5, alternative="less")
