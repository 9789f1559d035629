"""Prediction-powered rates: numbers by hand, laws, refusals, and coverage and width over seeded runs."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.stats.prediction_powered import (
    MIN_PAIRS,
    WIDEST,
    PredictionPoweredError,
    PredictionPoweredRate,
    prediction_powered_interval,
)
from physai.sdk.stats.statistics import CountError, clopper_pearson

Outcomes = np.ndarray[Any, np.dtype[np.bool_]]


def outcomes(successes: int, failures: int) -> Outcomes:
    return np.arange(successes + failures) < successes


def table(both: int, robot: int, replay: int, neither: int) -> tuple[Outcomes, Outcomes]:
    """Field and replay outcomes with so many pairs of each kind."""
    counts = (both, robot, replay, neither)
    return np.repeat([True, True, False, False], counts), np.repeat([True, False, True, False], counts)


small = st.integers(0, 12)
tables = st.tuples(small, small, small, small).filter(lambda counts: sum(counts) >= MIN_PAIRS)
twins = st.tuples(st.integers(0, 40), st.integers(0, 40)).filter(lambda counts: sum(counts) >= MIN_PAIRS)


def test_by_hand() -> None:
    """16 pairs succeed in both, 4 in neither; the twin succeeds in 45 of 60.

    With ¾ of a pair of each disagreement, both means are 16.75 / 21.5 = 67/86, var = 67·19 / 86² = 1273/7396 and
    cov = 64/86 - (67/86)² = 1015/7396. N / (n + N) is ¾: λ = ¾ · 1015/1273, and the rate is 0.8 + λ (0.75 - 0.8).
    """
    found = prediction_powered_interval(*table(16, 0, 0, 4), outcomes(45, 15))
    ratio = 1015 / 1273
    assert found.power == pytest.approx(0.75 * ratio)
    assert found.rate == pytest.approx(0.8 - 0.05 * 0.75 * ratio)
    assert found.effective == pytest.approx(20 / (1.0 - 0.75 * ratio**2))
    # 38.2 episodes, of which 29.3 succeed: between the exact intervals of 29 and of 30 of 38.
    successes = 38 * found.rate
    for end, (fewer, more) in enumerate(zip(clopper_pearson(29, 38), clopper_pearson(30, 38), strict=True)):
        assert found.interval[end] == pytest.approx(fewer + (successes - 29) * (more - fewer))
    assert (found.field_rate, found.field_interval) == (0.8, pytest.approx(clopper_pearson(16, 20)))
    assert (found.correlation.value, found.correlation.high) == (pytest.approx(1.0), pytest.approx(1.0))
    assert (found.pairs, found.simulated, found.remark) == (20, 60, "")


def test_the_posterior_of_the_correlation() -> None:
    """Against draws of the four cells from their Dirichlet posterior with Jeffreys' prior."""
    found = prediction_powered_interval(*table(40, 2, 3, 15), outcomes(700, 300)).correlation
    cells = np.random.default_rng(7).dirichlet([40.5, 2.5, 3.5, 15.5], 200_000)
    y, f = cells[:, 0] + cells[:, 1], cells[:, 0] + cells[:, 2]
    low, high = np.quantile((cells[:, 0] - y * f) / np.sqrt(y * (1 - y) * f * (1 - f)), [0.025, 0.975])
    assert (found.low, found.high) == (pytest.approx(low, abs=0.02), pytest.approx(high, abs=0.02))
    # The coefficient of a table of four cells: (40·15 - 2·3) / √(42·18·43·17).
    assert found.value == pytest.approx(594 / math.sqrt(42 * 18 * 43 * 17))


@settings(max_examples=60, deadline=None)
@given(tables, twins)
def test_the_interval_contains_its_estimate_and_lies_in_the_unit_interval(
    counts: tuple[int, int, int, int], twin: tuple[int, int]
) -> None:
    found = prediction_powered_interval(*table(*counts), outcomes(*twin))
    assert 0.0 <= found.interval[0] <= found.rate <= found.interval[1] <= 1.0
    assert found.width_ratio <= WIDEST
    rho = found.correlation
    if rho.value is not None and rho.low is not None and rho.high is not None:
        assert -1.0 <= rho.low <= rho.value <= rho.high <= 1.0


@settings(max_examples=60, deadline=None)
@given(tables, twins)
def test_exchanging_success_and_failure_mirrors_it(counts: tuple[int, int, int, int], twin: tuple[int, int]) -> None:
    field, replayed = table(*counts)
    one = prediction_powered_interval(field, replayed, outcomes(*twin))
    other = prediction_powered_interval(~field, ~replayed, ~outcomes(*twin))
    assert other.rate == pytest.approx(1.0 - one.rate)
    assert other.interval == pytest.approx((1.0 - one.interval[1], 1.0 - one.interval[0]))
    assert other.power == pytest.approx(one.power)


@settings(max_examples=30, deadline=None)
@given(tables)
def test_replays_that_contradict_the_robot_count_for_nothing(counts: tuple[int, int, int, int]) -> None:
    """The sign of ρ changes with the replays; a twin that fails where the robot succeeds is never used."""
    field, replayed = table(*counts)
    agree = prediction_powered_interval(field, replayed, outcomes(30, 30))
    contradict = prediction_powered_interval(field, ~replayed, outcomes(30, 30))
    if agree.correlation.value is None or contradict.correlation.value is None:
        return
    assert contradict.correlation.value == pytest.approx(-agree.correlation.value)
    if agree.correlation.value >= 0.0:
        assert contradict.power == 0.0
        assert contradict.interval == contradict.field_interval


def test_counts_are_never_pooled() -> None:
    """100 of 100 in the twin are no evidence about a robot that its replays do not predict."""
    found = prediction_powered_interval(*table(18, 12, 12, 8), outcomes(600, 400))
    assert found.correlation.value == pytest.approx(0.0)
    assert found.interval == found.field_interval == pytest.approx(clopper_pearson(30, 50))


def test_an_unfailing_robot_and_an_unfailing_twin_are_worth_the_field_episodes_alone() -> None:
    found = prediction_powered_interval(outcomes(50, 0), outcomes(50, 0), outcomes(2000, 0))
    assert found.correlation.value is None
    assert (found.rate, found.interval) == (1.0, clopper_pearson(50, 50))


def test_agreement_in_all_pairs_is_no_certainty() -> None:
    """50 pairs without a disagreement leave one in 20 pairs open: the rate is known to ± 0.045 at best."""
    found = prediction_powered_interval(*table(25, 0, 0, 25), outcomes(50_000, 50_000))
    assert found.correlation.value == pytest.approx(1.0)
    assert found.interval[1] - found.interval[0] >= 0.09


def test_replays_of_other_conditions_are_not_used() -> None:
    """Chosen recordings whose replays fail more often than the twin does would raise the rate."""
    field, replayed = table(25, 5, 0, 20)
    found = prediction_powered_interval(field, replayed, outcomes(1900, 100))
    assert "replays succeed at 50.0% and the twin's own episodes at 95.0%" in found.remark
    assert (found.rate, found.power, found.interval) == (0.6, 0.0, found.field_interval)


def test_bounded_numbers_count_as_binary_outcomes_of_their_mean() -> None:
    """Outcomes of 0.25 and 0.75: same centre, and the interval is no narrower than that of the binary ones, scaled."""
    field, replayed = table(30, 3, 2, 15)
    whole = prediction_powered_interval(field, replayed, outcomes(700, 300))
    parts = [np.where(one, 0.75, 0.25) for one in (field, replayed, outcomes(700, 300))]
    part = prediction_powered_interval(parts[0], parts[1], parts[2])
    assert part.field_rate == pytest.approx(0.25 + 0.5 * whole.field_rate)
    assert part.correlation.value == pytest.approx(whole.correlation.value)
    assert part.interval[0] <= 0.25 + 0.5 * whole.interval[0]
    assert part.interval[1] >= 0.25 + 0.5 * whole.interval[1]


@pytest.mark.parametrize(
    ("field", "replayed", "simulated", "words"),
    [
        (
            outcomes(19, 0),
            outcomes(19, 0),
            outcomes(50, 0),
            r"field: outcomes of shape \(19,\); give one list of 20 to",
        ),
        (outcomes(30, 0), outcomes(29, 0), outcomes(50, 0), "30 field outcomes and 29 of replays"),
        (outcomes(30, 0), outcomes(30, 0), outcomes(9, 0), r"simulated: outcomes of shape \(9,\)"),
        (outcomes(30, 0)[None], outcomes(30, 0), outcomes(50, 0), r"field: outcomes of shape \(1, 30\)"),
        (np.full(30, np.nan), outcomes(30, 0), outcomes(50, 0), "field: outcome 0 is nan; give numbers in"),
        (outcomes(30, 0), np.append(np.ones(29), 1.5), outcomes(50, 0), "replayed: outcome 29 is 1.5"),
        (outcomes(30, 0), outcomes(30, 0), np.append(np.ones(49), -0.1), "simulated: outcome 49 is -0.1"),
    ],
)
def test_outcomes_that_cannot_be_combined_are_refused(field: Any, replayed: Any, simulated: Any, words: str) -> None:
    with pytest.raises(PredictionPoweredError, match=words):
        prediction_powered_interval(field, replayed, simulated)


def test_a_confidence_beyond_its_range_is_refused() -> None:
    with pytest.raises(CountError, match="confidence must lie between 0 and 1, got 95"):
        prediction_powered_interval(*table(20, 0, 0, 5), outcomes(20, 20), confidence=95)


RUNS, PAIRS, SIMULATED = 1000, 50, 2000


def cells(rate: float, twin_rate: float, rho: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Probabilities of both, robot only, replay only, neither."""
    both = rate * twin_rate + rho * math.sqrt(rate * (1.0 - rate) * twin_rate * (1.0 - twin_rate))
    return np.array([both, rate - both, twin_rate - both, 1.0 - rate - twin_rate + both])


def simulate(rate: float, twin_rate: float, rho: float) -> list[PredictionPoweredRate]:
    rng = np.random.default_rng(20)
    pairs = rng.multinomial(PAIRS, cells(rate, twin_rate, rho), size=RUNS)
    twin = rng.binomial(SIMULATED, twin_rate, size=RUNS)
    return [
        prediction_powered_interval(*table(*counts), outcomes(alone, SIMULATED - alone))
        for counts, alone in zip(pairs.tolist(), twin.tolist(), strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.2, 0.4, 0.6, 0.8, 0.9])
@pytest.mark.parametrize(("rate", "twin_rate"), [(0.7, 0.7), (0.9, 0.9), (0.97, 0.97), (0.9, 0.91), (0.5, 0.55)])
def test_intervals_cover_and_are_narrower_where_replays_predict(rate: float, twin_rate: float, rho: float) -> None:
    """At least 93 % of 1,000 runs each; the twin's own rate may be off.

    Width: at most 0.8 of the exact interval at ρ = 0.8, on average; at most 1.1 in each run.
    """
    found = simulate(rate, twin_rate, rho)
    coverage = np.mean([one.interval[0] <= rate <= one.interval[1] for one in found])
    widths = np.array([(np.ptp(one.interval), np.ptp(one.field_interval)) for one in found])
    ratio = widths[:, 0].mean() / widths[:, 1].mean()
    print(f"\nrate {rate} twin {twin_rate} ρ {rho}: coverage {coverage:.3f}, width {ratio:.3f} of exact")
    assert coverage >= 0.93
    assert (widths[:, 0] / widths[:, 1]).max() <= WIDEST
    assert ratio <= (0.8 if rho >= 0.8 else 1.0 + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.4, 0.8, 0.9])
def test_intervals_of_the_correlation_cover(rho: float) -> None:
    found = [one.correlation for one in simulate(0.8, 0.8, rho)]
    known = [one for one in found if one.low is not None and one.high is not None]
    coverage = np.mean([one.low <= rho <= one.high for one in known if one.low is not None and one.high is not None])
    print(f"\nρ {rho}: coverage {coverage:.3f}")
    assert len(known) == RUNS
    assert coverage >= 0.92
