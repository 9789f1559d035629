"""Commands between the steps of a plan, and the turn from one plan into the next."""

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from physai.sdk.safety.plan.path import PlannedPath

STEPS = np.array([[0.0], [1.0], [4.0]])
"""Second difference: 2."""


def values(path: PlannedPath, *times: float) -> list[float]:
    return path.at(np.array(times))[:, 0].tolist()


@pytest.mark.parametrize(
    ("interpolation", "expected"),
    [
        # By hand; the spline passes step 1 at 1 + 2/8 and, half way between steps 1 and 2, at their mean.
        ("linear", [0.0, 0.0, 0.5, 1.0, 2.5, 4.0, 4.0]),
        ("hold", [0.0, 0.0, 0.0, 1.0, 1.0, 4.0, 4.0]),
        ("quadratic", [0.0, 0.0, 0.5, 1.25, 2.5, 4.0, 4.0]),
    ],
)
def test_values_between_the_steps_and_beyond_them(
    interpolation: Literal["linear", "hold", "quadratic"], expected: list[float]
) -> None:
    path = PlannedPath(STEPS, 0.5, 10.0, interpolation)
    assert values(path, 9.0, 10.0, 10.25, 10.5, 10.75, 11.0, 12.0) == pytest.approx(expected)


@given(arrays(np.float64, st.tuples(st.integers(2, 12), st.just(2)), elements=st.floats(-3.0, 3.0)))
def test_a_spline_accelerates_no_more_than_its_steps_and_stays_between_them(steps: np.ndarray) -> None:
    step_s, fine = 0.05, 0.05 / 64
    path = PlannedPath(steps, step_s, 0.0, "quadratic")
    times = np.arange(0.0, (len(steps) - 1) * step_s + fine / 2, fine)
    found = path.at(times)
    greatest = np.abs(np.diff(steps, n=2, axis=0)).max(axis=0, initial=0.0) / step_s**2
    assert (np.abs(np.diff(found, n=2, axis=0)).max(axis=0) / fine**2 <= greatest + 1e-6).all()
    fastest = np.abs(np.diff(steps, axis=0)).max(axis=0) / step_s
    assert (np.abs(np.diff(found, axis=0)).max(axis=0) / fine <= fastest + 1e-6).all()
    assert (found.min(axis=0) >= steps.min(axis=0) - 1e-9).all()
    assert (found.max(axis=0) <= steps.max(axis=0) + 1e-9).all()


def test_a_path_turns_into_the_next_over_the_blend() -> None:
    old = PlannedPath.constant(np.array([1.0]))
    new = PlannedPath(np.array([[3.0], [3.0]]), 1.0, 0.0, "linear", from_s=2.0, blend_s=4.0, before=old)
    # w(1/4) = 3/16 - 2/64 = 0.15625.
    assert values(new, 0.0, 2.0, 3.0, 4.0, 6.0, 9.0) == pytest.approx([1.0, 1.0, 1.3125, 2.0, 3.0, 3.0])


def test_without_a_blend_it_turns_at_once() -> None:
    old = PlannedPath.constant(np.array([1.0]))
    new = PlannedPath(np.array([[3.0], [3.0]]), 1.0, 0.0, "linear", from_s=2.0, before=old)
    assert values(new, 1.999, 2.0) == [1.0, 3.0]


def test_what_was_replaced_long_ago_is_forgotten_and_what_still_counts_is_not() -> None:
    first = PlannedPath.constant(np.array([1.0]))
    second = PlannedPath(np.array([[2.0], [2.0]]), 1.0, 0.0, "linear", from_s=1.0, blend_s=1.0, before=first)
    third = PlannedPath(np.array([[3.0], [3.0]]), 1.0, 0.0, "linear", from_s=5.0, blend_s=1.0, before=second)
    assert third.since(1.5) == third
    assert third.since(2.0).before == second.since(9.0)
    assert third.since(6.0).before is None
    times = np.linspace(2.0, 8.0, 50)
    assert np.array_equal(third.since(2.0).at(times), third.at(times))
