"""Training settings: what is parsed, what is refused."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.base.errors import PhysaiError, UnknownNameError
from physai.sim.tasks.registry import load_task
from physai.train.settings.config import (
    ConfigError,
    TrainConfig,
    describe_settings,
    read_settings,
    with_options,
    with_settings,
)
from physai.train.settings.presets import PRESETS, preset_for, settings_of

DEFAULT = TrainConfig()


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("overlap", "true", True),
        ("overlap", "False", False),
        ("num_envs", "12", 12),
        ("learning_rate", "3e-4", 3e-4),
        ("gae_lambda", "1", 1.0),
        ("hidden", "32", (32,)),
        ("hidden", "128, 64,32", (128, 64, 32)),
        ("schedule", "fixed", "fixed"),
        ("actor", "gru", "gru"),
        ("activation", "relu", "relu"),
        ("stop_at_success", "0.9", 0.9),
        ("stop_at_success", "none", None),
        ("checkpoint_every_s", "0", 0.0),
    ],
)
def test_an_option_is_parsed_by_its_type(key: str, text: str, value: Any) -> None:
    config = with_options(DEFAULT, {key: text})
    assert getattr(config, key) == value
    assert type(getattr(config, key)) is type(value)


def test_settings_are_read_under_their_old_names() -> None:
    changed = with_options(TrainConfig(), {"control_repeat": "3", "promising_success": "0.25"})
    assert (changed.action_repeat, changed.eval_min_success) == (3, 0.25)


def test_other_settings_stay() -> None:
    changed = with_options(TrainConfig(seed=7, hidden=(4,)), {"horizon": "3"})
    assert changed == TrainConfig(seed=7, hidden=(4,), horizon=3)


def test_a_threshold_that_is_set_may_be_taken_away() -> None:
    assert with_options(TrainConfig(stop_at_success=0.9), {"stop_at_success": "none"}).stop_at_success is None


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("overlap", "yes", "option overlap=yes: expected true or false"),
        ("overlap", "1", "option overlap=1: expected true or false"),
        ("num_envs", "many", "option num_envs=many: expected int"),
        ("num_envs", "1.5", r"option num_envs=1\.5: expected int"),
        ("learning_rate", "fast", "option learning_rate=fast: expected float"),
        ("hidden", "64,big", "option hidden=64,big: expected"),
        ("hidden", "", "option hidden=: expected"),
        ("schedule", "linear", "option schedule=linear: expected .*adaptive.*fixed"),
        ("stop_at_success", "soon", "option stop_at_success=soon: expected float"),
    ],
)
def test_text_of_another_type_is_refused(key: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        with_options(DEFAULT, {key: text})
    assert "<class" not in str(caught.value)


def test_an_unknown_option_gets_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="no training option named 'learning_rat'; did you mean learning_rate"):
        with_options(DEFAULT, {"learning_rat": "1"})


FLOATS = (
    "learning_rate",
    "desired_kl",
    "min_learning_rate",
    "max_learning_rate",
    "discount_s",
    "gae_lambda",
    "clip",
    "entropy_weight",
    "value_weight",
    "max_grad_norm",
    "initial_std",
    "stop_at_success",
    "eval_min_success",
    "checkpoint_every_s",
)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-0.5"])
@pytest.mark.parametrize("key", FLOATS)
def test_numbers_no_run_can_have_are_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} must .*, got {float(text)}"):
        with_options(DEFAULT, {key: text})


COUNTS = ("num_envs", "horizon", "epochs", "minibatches", "action_repeat", "iterations", "gru_size")


@pytest.mark.parametrize("text", ["0", "-3", "1000000001"])
@pytest.mark.parametrize("key", COUNTS)
def test_counts_are_bounded(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}`? must .*, got {text}"):
        with_options(DEFAULT, {key: text})


@pytest.mark.parametrize("key", ["num_threads", "curriculum_iterations"])
def test_a_negative_count_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} must .*, got -1"):
        with_options(DEFAULT, {key: "-1"})


@pytest.mark.parametrize("hidden", [(), (0,), (64, -1), (8193,)])
def test_widths_are_bounded(hidden: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="hidden must be"):
        TrainConfig(hidden=hidden)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": "1048577"}, "`num_envs` must be at most 1048576, got 1048577"),
        ({"action_repeat": "10001"}, "`action_repeat` must be at most 10000"),
        ({"gru_size": "8193"}, "`gru_size` must be at most 8192"),
        ({"num_envs": "1024", "horizon": "262145"}, r"got 1024 · 262145 = 268436480 samples per update"),
        ({"hidden": "8192,8192,8192,2"}, "134234112 weights, at most 134217728"),
    ],
)
def test_what_fits_no_memory_is_refused(options: dict[str, str], message: str) -> None:
    """8192 · 8192 · 2 + 8192 · 2 weights."""
    with pytest.raises(ConfigError, match=message):
        with_options(TrainConfig(), options)


@pytest.mark.parametrize("text", ["x" * 100_000, "a\nb", "\x1b[2J"])
@pytest.mark.parametrize("key", ["num_envs", "schedule", "hidden", "overlap", "clip"])
def test_a_hostile_value_is_shown_in_one_short_line(key: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_settings(TrainConfig(), {key: text}, source="settings.yaml")
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


def test_more_minibatches_than_units_are_refused() -> None:
    with pytest.raises(ConfigError, match="minibatches 9 exceed the 8 units"):
        TrainConfig(num_envs=2, horizon=4, minibatches=9)
    with pytest.raises(ConfigError, match="minibatches 4 exceed the 2 units"):
        TrainConfig(num_envs=2, horizon=4, minibatches=4, actor="gru")


def test_shards_are_equal_shares_of_the_worlds() -> None:
    with pytest.raises(ConfigError, match="`num_envs` 6 cannot be divided into 4 equal shards"):
        TrainConfig(num_envs=6, shards=4)
    with pytest.raises(ConfigError, match="minibatches 4 exceed the 3 units"):
        TrainConfig(num_envs=6, shards=2, minibatches=4, actor="gru")
    with pytest.raises(ConfigError, match="`shards` must be at least 1"):
        TrainConfig(shards=0)


def test_a_single_sample_has_no_spread_to_normalise_by() -> None:
    with pytest.raises(ConfigError, match="at least 2 samples"):
        TrainConfig(num_envs=1, horizon=1, minibatches=1)


def test_bounds_of_the_learning_rate_must_be_in_order() -> None:
    with pytest.raises(ConfigError, match=r"min_learning_rate 0\.02 exceeds max_learning_rate 0\.01"):
        TrainConfig(min_learning_rate=0.02)


def test_without_a_curriculum_weights_have_their_final_values() -> None:
    assert DEFAULT.curriculum(0.0, 0.0) == 1.0


def test_a_curriculum_waits_for_success_and_keeps_what_it_reached() -> None:
    config = TrainConfig(curriculum_iterations=4, curriculum_success=0.8)
    share, passed = 0.0, list[float]()
    for success in (0.5, 0.8, 0.9, 0.1, 1.0, 1.0, 1.0):
        share = config.curriculum(share, success)
        passed.append(share)
    assert passed == [0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.0]


@given(st.integers(0, 100), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_curriculum_lies_between_0_and_1_and_never_goes_back(
    length: int, needed: float, share: float, success: float
) -> None:
    config = TrainConfig(curriculum_iterations=length, curriculum_success=needed)
    assert share <= config.curriculum(share, success) <= 1.0


def test_discount_is_1_over_e_after_its_time() -> None:
    assert TrainConfig(discount_s=2.0).gamma(0.01) == pytest.approx(math.exp(-0.005))
    assert TrainConfig(discount_s=2.0).gamma(0.01) ** 200 == pytest.approx(1.0 / math.e)


@given(st.integers(1, 50), st.floats(0.001, 0.1))
def test_holding_an_action_leaves_the_discount_per_second(repeat: int, control_dt: float) -> None:
    once, held = TrainConfig().gamma(control_dt), TrainConfig(action_repeat=repeat).gamma(control_dt)
    assert held == pytest.approx(once**repeat)


def test_help_names_every_setting_with_its_value_here_and_its_default() -> None:
    text = describe_settings(TrainConfig(num_envs=64, hidden=(32, 16)))
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines()[1:]}
    assert set(lines) == set(vars(DEFAULT))
    assert lines["num_envs"] == ["64", "1024", "int", "Worlds", "simulated", "together"]
    assert lines["hidden"][:2] == ["32,16", "64,64"]
    assert "<class" not in text
    assert "typing" not in text


def test_a_file_names_the_same_settings_as_set(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("hidden: [32, 16]\nlearning_rate: 3e-4\nstop_at_success: null\noverlap: true\ndiscount_s: 2\n")
    config = with_settings(TrainConfig(stop_at_success=0.9), read_settings(file), source=str(file))
    assert config == with_options(
        DEFAULT, {"hidden": "32,16", "learning_rate": "3e-4", "overlap": "true", "discount_s": "2"}
    )
    assert isinstance(config.discount_s, float)
    file.write_text("# nothing\n")
    assert read_settings(file) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("discount: 2.0", "no training option named 'discount'; did you mean discount_s"),
        ("num_envs: 1.5", "num_envs: expected int, got 1.5"),
        ("num_envs: true", "num_envs: expected int, got True"),
        ("overlap: 1", "overlap: expected true or false, got 1"),
        ("overlap: maybe", "overlap=maybe: expected true or false"),
        ("hidden: 64", "hidden: expected int,int,…, got 64"),
        ("hidden: [64, big]", "hidden: expected int,int,…"),
        ("hidden: []", "hidden must be one or more widths"),
        ("discount_s: .nan", "discount_s must be a positive number .* got nan"),
        ("gae_lambda: .inf", "gae_lambda must lie in .*got inf"),
        ("discount_s: null", "discount_s: expected float, got None"),
        ("discount_s: {a: 1}", "discount_s: expected float"),
        ("discount_s: 18446744073709551615", "discount_s: expected float"),
        ("- 1", r"expected lines such as"),
        ("a: [", "not YAML"),
        ("num_envs: 1\nnum_envs: 2", "occurs twice"),
    ],
)
def test_a_bad_file_is_refused_with_its_name(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(PhysaiError, match=message) as caught:
        with_settings(DEFAULT, read_settings(file), source=str(file))
    assert str(caught.value).startswith(str(file))


def test_a_task_carries_its_settings() -> None:
    task = replace(load_task("cartpole-swingup"), training={"discount_s": 3, "hidden": (16,)})
    assert settings_of(task, "mine.py") == TrainConfig(discount_s=3.0, hidden=(16,))
    # Those of the built-in task are below its own.
    assert settings_of(task, "cartpole-swingup").num_envs == 512
    with pytest.raises(UnknownNameError, match="task cartpole-swingup: no training option named 'epoch'; did you mean"):
        settings_of(replace(task, training={"epoch": 3}), "mine.py")
    with pytest.raises(ConfigError, match=r"task cartpole-swingup: clip must be .* got nan"):
        settings_of(replace(task, training={"clip": float("nan")}), "mine.py")


def test_presets() -> None:
    assert preset_for("cartpole-swingup") is PRESETS["cartpole-swingup"]
    assert preset_for("pendubot-swingup", "realaigym-v2") is PRESETS["pendubot-swingup:realaigym-v2"]
    assert preset_for("pendubot-swingup", "unknown") is PRESETS["pendubot-swingup"]
    assert preset_for("mine.py") == DEFAULT
