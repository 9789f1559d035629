"""Sweep files: what they may say, what is drawn, and when trials are compared."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.cluster.sweep.plan import Asha, Distribution, SweepError, load_sweep, setting_text
from physai.sdk.base.errors import PhysaiError

GOOD = """
parameters:
  learning_rate: {loguniform: [3e-4, 1e-2]}
  hidden: {choice: [[16, 16], "32,32"]}
  entropy_weight: {uniform: [0, 0.02]}
  epochs: {ints: [1, 3]}
trials: 50
seeds: [0, 7]
budget: {iterations: 9}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return path


def test_points_lie_in_their_ranges_and_are_drawn_once(tmp_path: Path) -> None:
    sweep = load_sweep(written(tmp_path, GOOD))
    points = sweep.points()
    assert points == load_sweep(written(tmp_path, GOOD)).points()
    assert len(points) == 50
    assert all(3e-4 <= float(point["learning_rate"]) <= 1e-2 for point in points)
    assert all(0.0 <= float(point["entropy_weight"]) <= 0.02 for point in points)
    assert {point["hidden"] for point in points} == {"16,16", "32,32"}
    assert {point["epochs"] for point in points} == {"1", "2", "3"}
    other = load_sweep(written(tmp_path, GOOD + "draw_seed: 1\n")).points()
    assert other != points


@given(st.floats(1e-6, 1e6), st.floats(1.001, 1e3), st.integers(0, 2**32))
def test_logarithms_are_uniform_between_the_bounds(low: float, ratio: float, seed: int) -> None:
    kind = Distribution(loguniform=(low, low * ratio))
    drawn = kind.draw(np.random.default_rng(seed))
    assert low <= float(drawn) <= low * ratio
    assert kind.holds(drawn)


def test_no_number_leaves_its_bounds_when_it_is_written() -> None:
    """In six digits, all numbers of this range would be 1."""
    kind = Distribution(uniform=(0.9999996, 0.9999999))
    drawn = {kind.draw(np.random.default_rng(seed)) for seed in range(20)}
    assert len(drawn) == 20
    assert all(0.9999996 <= float(text) <= 0.9999999 for text in drawn)


def test_half_of_the_drawn_values_lie_below_the_geometric_mean() -> None:
    """Of [1e-4, 1] that is 0.01; of 1,000 values 500 ± 4 standard deviations of √(1000/4)."""
    random = np.random.default_rng(3)
    kind = Distribution(loguniform=(1e-4, 1.0))
    below = sum(float(kind.draw(random)) < 0.01 for _ in range(1000))
    assert abs(below - 500) < 64


def test_rungs_are_the_grace_period_times_powers_of_the_reduction() -> None:
    assert Asha(grace_period=2, reduction=3).rungs(20.0) == (2.0, 6.0, 18.0)
    # The end of the budget is no rung: nothing is left to stop.
    assert Asha(grace_period=2, reduction=3).rungs(18.0) == (2.0, 6.0)
    assert Asha(grace_period=2, reduction=3).rungs(2.5) == (2.0,)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("trials: 50", "trails: 50", "no entry named 'trails'; did you mean trials or"),
        ("{iterations: 9}", "{iteration: 9}", "no entry of budget named 'iteration'; did you mean iterations?"),
        ("loguniform", "loguniforn", "no kind of learning_rate named 'loguniforn'; did you mean loguniform"),
        ("[3e-4, 1e-2]", "[1e-2, 3e-4]", "loguniform: bounds must ascend, got 0.01 and 0.0003"),
        ("[3e-4, 1e-2]", "[0, 1e-2]", "loguniform: bounds must be positive, got 0.0"),
        ("[3e-4, 1e-2]", "[.nan, 1e-2]", "parameters.learning_rate.loguniform"),
        ("[3e-4, 1e-2]", "[true, 1e-2]", "expected a number, got True"),
        ("[3e-4, 1e-2]", "[a, 1e-2]", "expected a number, got 'a'"),
        ("{ints: [1, 3]}", "{ints: [1, 3], uniform: [0, 1]}", "got uniform, ints"),
        ("{ints: [1, 3]}", "{}", "expected one of choice, uniform, loguniform and ints, got none"),
        ("[1, 3]", "[1.5, 3]", "parameters.epochs.ints"),
        ("[16, 16]", "{a: 1}", "parameters.hidden.choice"),
        ("trials: 50", "trials: 0", "trials"),
        ("trials: 50", "trials: 5001", "5001 trials with 2 seeds each: at most 10000 in all"),
        ("[0, 7]", "[7, 7]", "one is named twice in 7, 7"),
        ("{iterations: 9}", "{}", "expected either iterations or seconds, got None and None"),
        ("{iterations: 9}", "{iterations: 9, seconds: 1}", "got 9 and 1.0"),
        ("{iterations: 9}", "{iterations: 9}\nasha: {grace_period: 9}", "9 must be less than the budget of 9"),
        ("{iterations: 9}", "{iterations: 9}\nasha: {grace_period: 1, reduction: 1}", "asha.reduction"),
        ("{iterations: 9}", "{iterations: 9}\nasha: {grace_period: 5e-324}", "asha.grace_period"),
        ("epochs:", "2026-01-01:", "a name is no text: keys must be str"),
        ("[16, 16]", "{2026-01-01: 1}", "a name is no text: keys must be str"),
        ("epochs:", "seed:", "parameters.seed: given by `seeds`"),
        ("epochs:", "iterations:", "parameters.iterations: given by `budget`"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in GOOD
    with pytest.raises(PhysaiError) as caught:
        load_sweep(written(tmp_path, GOOD.replace(old, new, 1)))
    assert words in str(caught.value)


@pytest.mark.parametrize("content", ["", "a", "[1]", "{", "x: !!python/object:os.system {}", "a: &a [*a]"])
def test_files_that_are_no_sweep(content: str, tmp_path: Path) -> None:
    with pytest.raises(SweepError):
        load_sweep(written(tmp_path, content))


def test_settings_as_text() -> None:
    assert setting_text("hidden", [64, 64]) == "64,64"
    assert setting_text("overlap", True) == "true"
    assert setting_text("stop_at_success", None) == "none"
    assert setting_text("learning_rate", 3e-4) == "0.0003"
    for value in ({"a": 1}, "a b", "", [[1]]):
        with pytest.raises(SweepError, match="hidden: expected a number, word or list of numbers"):
            setting_text("hidden", value)
