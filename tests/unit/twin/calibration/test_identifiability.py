"""What recordings say about parameters, by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.twin.calibration.fit.identifiability import Linearisation, covariance, identified
from physai.twin.calibration.replay.bootstrap import Resamples, interval


def test_a_parameter_must_halve_its_prior() -> None:
    """The posterior of information h is 1/(h + 1): below 0.25, half the standard deviation, from h = 3 on."""
    assert identified(np.array([[2.9]])).tolist() == []
    assert identified(np.array([[3.1]])).tolist() == [0]


def test_of_two_that_only_matter_together_the_better_known_returns_to_its_prior() -> None:
    """Effects 10·a + 1·b per prior unit cannot be told apart; b, whose prior says more, is given up."""
    effect = np.array([[10.0, 1.0]])
    assert identified(effect.T @ effect).tolist() == [0]
    assert identified(np.diag([100.0, 100.0])).tolist() == [0, 1]


def test_the_sandwich_by_hand() -> None:
    """Four windows of other recordings, J = 1 each, residuals ±1: H = 4, B = 4·4/(4 - 1), of four stretches."""
    linear = Linearisation(
        residual=np.array([[1.0], [-1.0], [1.0], [-1.0]]),
        jacobian=np.ones((4, 1, 1)),
        log_index=np.arange(4),
        start_s=np.zeros(4),
    )
    found = covariance(linear, np.array([0]))
    assert found[0, 0] == pytest.approx((4.0 / 3.0 * 4.0 * few(1.0 / 4.0) + 1.0) / (4.0 + 1.0) ** 2)


def few(share: float) -> float:
    """Square of Kiefer and Vogelsang's critical value over the normal one."""
    return ((1.96 + 2.9694 * share + 0.416 * share**2 - 0.5324 * share**3) / 1.96) ** 2


def test_neighbouring_windows_that_err_together_count_as_fewer() -> None:
    """Windows of one recording half a second apart share half their gradients: B = 4 + 2·0.5·3 = 7 for equal signs."""

    def variance(start_s: list[float]) -> float:
        linear = Linearisation(np.ones((4, 1)), np.ones((4, 1, 1)), np.zeros(4, dtype=np.int64), np.array(start_s))
        return float(covariance(linear, np.array([0]))[0, 0])

    far, near = variance([0.0, 2.0, 4.0, 6.0]), variance([0.0, 0.5, 1.0, 1.5])
    assert far == pytest.approx((4.0 / 3.0 * 4.0 * few(1.0 / 6.0) + 1.0) / 25.0)
    assert near == pytest.approx((4.0 / 3.0 * 7.0 * few(1.0 / 1.5) + 1.0) / 25.0)


def test_a_long_recording_leaves_the_sandwich_and_silence_the_prior() -> None:
    """A thousand windows 10 s apart: 10 000 stretches; H = B = 1000, so the variance is 1/1000. None: 1."""
    moments = np.arange(0.0, 10_000.0, 10.0, dtype=np.float64)
    linear = Linearisation(np.ones((1000, 1)), np.ones((1000, 1, 1)), np.zeros(1000, dtype=np.int64), moments)
    assert covariance(linear, np.array([0]))[0, 0] == pytest.approx(1e-3, rel=0.01)
    mute = Linearisation(np.ones((9, 1)), np.zeros((9, 1, 1)), np.zeros(9, dtype=np.int64), moments[:9])
    assert covariance(mute, np.array([0]))[0, 0] == pytest.approx(1.0)


def test_what_is_not_identified_keeps_its_prior_and_pulls_at_the_rest() -> None:
    """Effects 10·a + 2·b in five windows: an error of one prior unit of b would have moved a by -100/(500 + 1)."""
    jacobian = np.tile(np.array([10.0, 2.0]), (5, 1))[:, None, :]
    linear = Linearisation(np.zeros((5, 1)), jacobian, np.arange(5), np.zeros(5))
    found = covariance(linear, np.array([0]))
    assert found[1, 1] == 1.0
    assert found[0, 1] == pytest.approx(-100.0 / 501.0)
    assert found[0, 0] == pytest.approx((100.0 / 501.0) ** 2 + 1.0 / 501.0**2)


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**31))
def test_covariances_are_covariances(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    linear = Linearisation(
        random.normal(size=(12, 3)), 3.0 * random.normal(size=(12, 3, 4)), np.arange(12) // 6, random.uniform(0, 5, 12)
    )
    found = covariance(linear, np.arange(count))
    np.testing.assert_allclose(found, found.T)
    assert np.linalg.eigvalsh(found).min() > -1e-9


def test_equal_errors_leave_nothing_to_resample() -> None:
    resamples = Resamples(np.zeros(10, dtype=np.int64), np.arange(10), 0)
    draws = resamples.rmse(np.full((10, 2), 0.04))
    np.testing.assert_allclose(draws, 0.2)
    found = interval(0.2, draws[:, 0])
    assert (found.lo, found.value, found.hi) == pytest.approx((0.2, 0.2, 0.2))


def test_a_bootstrap_by_hand() -> None:
    """Two stretches of errors 0 and 1: both resampled twice or once, root mean square 0, sqrt(1/2) or 1."""
    draws = Resamples(np.zeros(2, dtype=np.int64), np.arange(2), 3).rmse(np.array([[0.0], [1.0]]))
    values, counts = np.unique(draws.round(6), return_counts=True)
    np.testing.assert_allclose(values, [0.0, 0.707107, 1.0])
    np.testing.assert_allclose(counts / len(draws), [0.25, 0.5, 0.25], atol=0.05)


def test_windows_of_a_stretch_are_drawn_together_and_recordings_keep_their_share() -> None:
    """Errors differ between the two recordings only, so no resample differs from another."""
    groups = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    draws = Resamples(groups, np.array([0, 0, 1, 1, 0, 0, 1, 1]), 5).rmse(groups[:, None].astype(np.float64))
    np.testing.assert_allclose(draws, np.sqrt(0.5))


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_equal_seeds_pair_two_scores(seed: int) -> None:
    groups, stretches = np.zeros(20, dtype=np.int64), np.arange(20) // 2
    squared = np.random.default_rng(seed).uniform(0.0, 1.0, (20, 1))
    first, second = (Resamples(groups, stretches, seed).rmse(squared) for _ in range(2))
    np.testing.assert_array_equal(first, second)
