"""Estimates of one block, against least squares by hand."""

import numpy as np
import numpy.typing as npt
import pytest

from physai.drift.equations.estimate import estimate
from physai.drift.equations.log_equations import Rows

Array = npt.NDArray[np.float64]
COUNT = 400


def rows(residual: Array, change: Array, *, posterior: float = 0.0, floor: float = 0.1) -> Rows:
    """Equations of one channel and one change; the posterior may move the robot along the same column."""
    column = change[:, None, None]
    nothing = np.zeros((COUNT, 1, 0))
    return Rows(
        time_s=np.arange(COUNT, dtype=np.float64),
        residual=residual[:, None],
        changes=column,
        posterior=posterior * column,
        zeros=nothing,
        own=nothing,
        known=np.ones((COUNT, 1), bool),
        contact=nothing,
        applied=np.ones(1),
        floor=np.array([floor]),
    )


def test_an_amount_and_its_error_are_those_of_least_squares() -> None:
    rng = np.random.default_rng(3)
    change, noise = rng.standard_normal(COUNT), 0.5 * rng.standard_normal(COUNT)
    found = estimate(rows(0.2 * change + noise, change))
    assert found is not None
    slope = float(change @ (0.2 * change + noise) / (change @ change))
    assert found.amount[0] == pytest.approx(slope, abs=1e-9)
    # 0.5 of noise over √Σj², at most √1.2 more for what chance makes alike between neighbours.
    expected = 0.5 / float(np.linalg.norm(change))
    assert expected * 0.9 <= found.std[0] <= expected * 1.2
    assert found.unexplained[0] == pytest.approx(0.5, rel=0.1)


def test_what_the_posterior_allows_is_no_certainty() -> None:
    rng = np.random.default_rng(3)
    change = rng.standard_normal(COUNT)
    found = estimate(rows(0.2 * change, change, posterior=0.3))
    assert found is not None
    # 300 standard deviations of noise, and less than one of the posterior.
    assert found.std[0] == pytest.approx(0.3, rel=0.02)
    assert found.twin[0] == pytest.approx(0.3, rel=0.02)
    assert found.noise[0] < 0.01


def test_errors_that_last_count_as_fewer() -> None:
    rng = np.random.default_rng(3)
    change = rng.standard_normal(COUNT)
    white = rng.standard_normal(COUNT)
    slow = np.repeat(rng.standard_normal(COUNT // 8), 8)
    one, other = estimate(rows(white, change)), estimate(rows(slow, change))
    assert one is not None
    assert other is not None
    assert other.std[0] > 1.8 * one.std[0]


def test_too_few_equations_say_nothing() -> None:
    block = rows(np.ones(COUNT), np.ones(COUNT))
    block.known[10:] = False
    assert estimate(block) is None


def test_a_change_without_an_effect_gets_no_amount() -> None:
    found = estimate(rows(np.ones(COUNT), 1e-12 * np.ones(COUNT)))
    assert found is not None
    assert (found.pull[0], found.weight[0]) == (0.0, 0.0)
    assert found.std[0] > 1e100
