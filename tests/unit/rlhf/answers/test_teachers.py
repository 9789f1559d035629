"""The six teachers of B-Pref."""

import math

import numpy as np
import pytest

from physai.rlhf.answers.preferences import parse_taste, rewards_of
from physai.rlhf.answers.segment import PreferenceError
from physai.rlhf.answers.teachers import TEACHERS, Scale, Teacher, scale_of, teacher
from physai.sdk.base.errors import PhysaiError, UnknownNameError

SCALE = Scale(lowest=0.0, mean=10.0)
LOW, HIGH = np.array([1.0, 2.0]), np.array([2.0, 2.0])


def share_of_second(asked: Teacher, first: np.ndarray, second: np.ndarray, count: int = 4000) -> float:
    rng = np.random.default_rng(0)
    return sum(asked.answer(first, second, SCALE, rng) == "second" for _ in range(count)) / count


def test_perfect_takes_the_greater_sum_always() -> None:
    assert share_of_second(TEACHERS["perfect"], LOW, HIGH, 50) == 1.0
    assert share_of_second(TEACHERS["perfect"], HIGH, LOW, 50) == 0.0


def test_noisy_takes_it_with_the_probability_of_bradley_and_terry() -> None:
    # β = 1 and sums 3 and 4: σ(1) = 0.7311; three standard deviations of 4000 draws are 0.021.
    assert share_of_second(TEACHERS["noisy"], LOW, HIGH) == pytest.approx(1.0 / (1.0 + math.exp(-1.0)), abs=0.021)


def test_myopic_looks_at_the_end() -> None:
    # Undiscounted 4 against 3.9; with γ = 0.9 the first is 0.9 · 3 + 1 = 3.7, the second 0.9 · 1 + 2.9 = 3.8.
    first, second = np.array([3.0, 1.0]), np.array([1.0, 2.9])
    assert share_of_second(TEACHERS["perfect"], first, second, 20) == 0.0
    assert share_of_second(TEACHERS["myopic"], first, second, 20) == 1.0


def test_mistaken_turns_a_tenth_around() -> None:
    assert share_of_second(TEACHERS["mistaken"], LOW, HIGH) == pytest.approx(0.9, abs=0.015)


def test_skipping_and_equal_have_thresholds_relative_to_the_present_policy() -> None:
    # δ = 0.1 · 10 = 1: sums 0.9 and 0.5 are skipped, 3 and 3.9 are equal, 3 and 4 are not.
    rng = np.random.default_rng(0)
    skipping, equal = TEACHERS["skipping"], TEACHERS["equal"]
    assert skipping.answer(np.array([0.9]), np.array([0.5]), SCALE, rng) == "cannot_tell"
    assert skipping.answer(np.array([0.9]), np.array([1.5]), SCALE, rng) == "second"
    assert equal.answer(np.array([3.0]), np.array([3.9]), SCALE, rng) == "equal"
    assert equal.answer(np.array([3.0]), np.array([4.0]), SCALE, rng) == "second"


def test_scale_counts_from_the_lowest_sum() -> None:
    assert scale_of([-4.0, 0.0, 2.0], [0.0, 2.0]) == Scale(lowest=-4.0, mean=5.0)


def test_parameters_are_checked() -> None:
    assert teacher("noisy", {"beta": 5.0}) == Teacher(beta=5.0)
    with pytest.raises(UnknownNameError, match="perfekt"):
        teacher("perfekt")
    with pytest.raises(UnknownNameError, match="betta"):
        teacher("noisy", {"betta": 1.0})
    for name in ("beta", "gamma", "eps_mistake", "eps_skip", "eps_equal"):
        for value in (-0.1, math.nan):
            with pytest.raises(PreferenceError, match=name):
                teacher("perfect", {name: value})


def test_a_taste_is_a_weighted_sum_of_named_terms() -> None:
    names = ("reward", "joint_speed", "elbow_height")
    taste = parse_taste("elbow_height=2, joint_speed=-0.5", names)
    assert parse_taste({"elbow_height": 2, "joint_speed": -0.5}, names) == taste
    terms = np.array([[9.0, 4.0, 1.0], [9.0, 2.0, 3.0]], np.float32)
    assert rewards_of(terms, names, taste).tolist() == [0.0, 5.0]


@pytest.mark.parametrize("text", ["", "speed=1", "joint_speed", "joint_speed=fast", "joint_speed=nan"])
def test_bad_tastes_are_refused(text: str) -> None:
    with pytest.raises(PhysaiError):
        parse_taste(text, ("reward", "joint_speed"))
