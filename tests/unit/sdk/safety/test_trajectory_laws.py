"""Laws of commanded positions, held against sums that are added up one control period at a time."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from physai.sdk.safety import trajectory
from physai.sdk.safety.limits import UNLIMITED

changes = st.floats(1e-5, 1.0)
"""Greatest change of a step per control period: 12 rad/s² at 20 ms are 0.0048 rad."""

rooms = st.floats(0.0, 3.0)


def way(step: float, change: float) -> float:
    """How far a joint travels that makes this step and then brakes, added up."""
    return math.fsum(ways(step, change))


def ways(step: float, change: float) -> list[float]:
    found: list[float] = []
    while step > 0.0:
        found.append(step)
        step -= change
    return found


def largest(room: float, change: float) -> float:
    return float(trajectory.largest_step(np.array([room]), np.array([change]))[0])


@given(room=rooms, change=changes)
def test_the_largest_step_just_fits_into_the_room(room: float, change: float) -> None:
    step = largest(room, change)
    assert way(step, change) == pytest.approx(room, rel=1e-9, abs=1e-12)
    assert way(step + 1e-6, change) > room


@given(step=st.floats(1e-6, 0.5), change=changes)
def test_the_largest_step_is_the_inverse_of_the_way(step: float, change: float) -> None:
    assume(step / change < 5000)
    assert largest(way(step, change), change) == pytest.approx(step, rel=1e-6, abs=1e-12)


@given(periods=st.integers(1, 200), change=changes)
def test_the_inverse_is_continuous_where_one_more_period_begins(periods: int, change: float) -> None:
    """Room for exactly n, n - 1, … 1 times the change; a rounding decides between two formulas that agree."""
    room = change * periods * (periods + 1) / 2
    near = [largest(room * factor, change) for factor in (1.0 - 1e-12, 1.0, 1.0 + 1e-12)]
    assert near == pytest.approx([periods * change] * 3, rel=1e-9)


@given(room=st.floats(-3.0, 3.0))
def test_without_a_limit_on_acceleration_the_room_is_the_step(room: float) -> None:
    assert largest(room, UNLIMITED) == room


@given(room=st.floats(-3.0, 0.0), change=changes)
def test_outside_the_bound_the_way_back_is_the_step(room: float, change: float) -> None:
    assert largest(room, change) == room


@given(step=st.floats(-0.5, 0.5), change=changes)
def test_the_braking_distance_is_the_way_after_the_step(step: float, change: float) -> None:
    assume(abs(step) / change < 5000)
    after = float(trajectory.braking_distance(np.array([step]), np.array([change]))[0])
    expected = math.fsum(ways(abs(step), change)[1:])
    assert after == pytest.approx(math.copysign(expected, step), rel=1e-9, abs=1e-12)


@given(step=st.floats(-0.5, 0.5), change=changes)
def test_a_braking_joint_comes_to_rest_as_fast_as_it_may(step: float, change: float) -> None:
    assume(abs(step) / change < 2000)
    now, travelled, periods = np.array([step]), 0.0, 0
    expected = float(trajectory.braking_distance(now, np.array([change]))[0])
    while now[0] != 0.0:
        before, now = now, trajectory.brake(now, np.array([change]))
        assert abs(before[0] - now[0]) <= change * (1.0 + 1e-12)
        assert now[0] * step >= 0.0
        travelled, periods = travelled + float(now[0]), periods + 1
    assert periods <= math.ceil(abs(step) / change) + 1
    assert travelled == pytest.approx(expected, rel=1e-6, abs=1e-9)


@dataclass
class Joint:
    """A joint whose commanded position keeps its limits."""

    position: float
    lower: float
    upper: float
    speed: float
    change: float
    step: float = 0.0

    def limited(self, wanted: float) -> float:
        limited = trajectory.limited_step(
            *(np.array([value]) for value in (wanted, self.step, self.position)),
            lower=np.array([self.lower]),
            upper=np.array([self.upper]),
            speed=np.array([self.speed]),
            change=np.array([self.change]),
        )
        return float(limited[0])

    def make(self, step: float) -> None:
        self.position += step
        self.step = step


@st.composite
def joints(draw: st.DrawFn) -> Joint:
    """Steps of at most a third of the range, reached within at most some hundred periods; some without a limit."""
    lower = draw(st.floats(-3.0, 0.0))
    upper = lower + draw(st.sampled_from([0.0, 1e-3, 0.5, 3.0, 6.0]))
    change = draw(changes | st.just(UNLIMITED))
    speed = draw(st.floats(1e-3, 1.0) | st.just(UNLIMITED))
    return Joint(lower + draw(st.floats(0.0, 1.0)) * (upper - lower), lower, upper, speed, change)


wants = st.lists(
    st.floats(-10.0, 10.0) | st.floats(-0.05, 0.05) | st.sampled_from([-1e9, 1e9]), min_size=1, max_size=60
)


@given(joint=joints(), targets=wants, repeat=st.integers(1, 20))
def test_limits_hold_for_ever(joint: Joint, targets: list[float], repeat: int) -> None:
    """From any state that the rule has made itself, whatever is wanted; and a joint that brakes stays inside, too."""
    for wanted in targets:
        for _ in range(repeat):
            before, step = joint.step, joint.limited(wanted - joint.position)
            assert abs(step) <= joint.speed
            assert abs(step - before) <= joint.change * (1.0 + 1e-9) + 1e-15
            joint.make(step)
            assert joint.lower - 1e-9 <= joint.position <= joint.upper + 1e-9
    rest = joint.position + float(trajectory.braking_distance(np.array([joint.step]), np.array([joint.change]))[0])
    assert joint.lower - 1e-9 <= rest <= joint.upper + 1e-9


@given(joint=joints(), targets=wants, share=st.floats(0.0, 1.0))
def test_the_nearest_allowed_step_is_taken(joint: Joint, targets: list[float], share: float) -> None:
    """A step that keeps every limit, by the sum added up, is taken as it is; and no limit is stricter than it says."""
    for wanted in targets:
        joint.make(joint.limited(wanted - joint.position))
    least, most = (joint.limited(wanted) for wanted in (-1e12, 1e12))
    assert least <= most
    inside = least + share * (most - least)
    assert joint.limited(inside) == pytest.approx(inside, rel=1e-12, abs=1e-15)
    assume(joint.change < UNLIMITED)
    step = most + 1e-6
    too_far = joint.position + way(step, joint.change) > joint.upper + 1e-12
    assert too_far or step > joint.speed or step > joint.step + joint.change


@given(joint=joints(), targets=wants)
def test_joints_are_symmetric(joint: Joint, targets: list[float]) -> None:
    """The same limits in both directions."""
    mirror = Joint(-joint.position, -joint.upper, -joint.lower, joint.speed, joint.change)
    for wanted in targets:
        step, other = joint.limited(wanted - joint.position), mirror.limited(-wanted - mirror.position)
        assert step == -other
        joint.make(step)
        mirror.make(other)
