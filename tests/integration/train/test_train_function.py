"""`physai.train.train` does from Python what `physai train` does."""

from pathlib import Path
from typing import Any

import pytest

from physai.cluster import Generators
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.main import main
from physai.train import TrainConfig, TrainingRun, export, train, train_seeds
from physai.train.runs.run_config import load_config

TASK = "cartpole-swingup"
SMALL = {"num_envs": 96, "horizon": 8, "minibatches": 1, "hidden": "8"}


def policy_bytes(run: Path) -> bytes:
    """The exported graph of a run, without the metadata, which names the run."""
    import onnx

    export(run)
    model = onnx.ModelProto()
    model.ParseFromString((run / "export" / "policy.onnx").read_bytes())
    return model.graph.SerializeToString()


def trained(out: Path, **options: object) -> TrainingRun:
    settings = {name: value for name, value in SMALL.items() if name not in options}
    return train(TASK, out, settings=settings, **options)  # pyright: ignore[reportArgumentType]


def test_the_verb_and_the_function_learn_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    assert main(["train", TASK, "--out", str(tmp_path / "verb"), "--iterations", "2", "--seed", "5", *words]) == 0
    run = trained(tmp_path / "function", iterations=2, seed=5)
    assert (run.iterations, run.run, run.leads, run.interrupted) == (2, tmp_path / "function", True, False)
    assert policy_bytes(tmp_path / "verb") == policy_bytes(tmp_path / "function")


def test_the_function_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trained(tmp_path / "quiet", iterations=1)
    assert capfd.readouterr() == ("", "")
    said: list[str] = []
    trained(tmp_path / "shown", iterations=1, say=said.append)
    assert "iteration 1 " in capfd.readouterr().err


def test_an_argument_that_train_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match="no argument named 'devise'; did you mean device"):
        train_seeds("0..1", TASK, tmp_path, devise="cpu")


def test_a_resumed_run_is_the_run_that_was_not_interrupted(tmp_path: Path) -> None:
    trained(tmp_path / "whole", iterations=3, seed=1)
    trained(tmp_path / "parts", iterations=2, seed=1)
    resumed = train(resume=tmp_path / "parts", iterations=3)
    assert resumed.iterations == 3
    assert policy_bytes(tmp_path / "whole") == policy_bytes(tmp_path / "parts")


def test_generators_give_what_one_process_gives(tmp_path: Path) -> None:
    trained(tmp_path / "one", iterations=2)
    run = trained(tmp_path / "three", iterations=2, generators=Generators(3))
    assert run.totals == {}
    assert load_config(tmp_path / "three")[2]["generators"] == "3"
    assert policy_bytes(tmp_path / "one") == policy_bytes(tmp_path / "three")


def test_stale_generators_say_what_became_of_their_chunks(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", iterations=2, generators=Generators(2), staleness=1)
    assert run.totals["asynchronous"]["dropped"] == 0


def test_a_teacher_and_initial_weights(tmp_path: Path) -> None:
    said: list[str] = []
    trained(tmp_path / "first", iterations=1)
    export(tmp_path / "first")
    trained(tmp_path / "taught", iterations=1, teacher=tmp_path / "first", say=said.append)
    trained(tmp_path / "second", iterations=1, init_from=tmp_path / "first")
    assert said[0].startswith(f"training {TASK} on cpu with engine mujoco, 96 worlds, seed 0, into ")
    assert load_config(tmp_path / "taught")[2]["teacher"] == str(tmp_path / "first")
    assert load_config(tmp_path / "second")[2]["init_from"] == str(tmp_path / "first")


def test_settings_go_over_a_configuration(tmp_path: Path) -> None:
    config = TrainConfig(num_envs=16, horizon=8, minibatches=1, hidden=(8,), iterations=5)
    train(TASK, tmp_path / "run", config=config, iterations=1, settings={"learning_rate": 1e-3})
    kept = load_config(tmp_path / "run")[1]
    assert (kept.iterations, kept.learning_rate, kept.num_envs) == (1, 1e-3, 16)


@pytest.mark.slow
def test_ranks_give_their_result_to_the_process_that_started_them(tmp_path: Path) -> None:
    config = TrainConfig(num_envs=16, horizon=8, minibatches=1, hidden=(8,), iterations=2, num_threads=1)
    run = train(TASK, tmp_path / "run", config=config, device="cpu", gpus=2)
    assert (run.run, run.task, run.iterations, run.env_steps) == (tmp_path / "run", TASK, 2, 2 * 2 * 16 * 8)
    assert load_config(tmp_path / "run")[1] == config
    with pytest.raises(PhysaiError, match=r"missing\.onnx"):
        train(TASK, tmp_path / "taught", config=config, device="cpu", gpus=2, teacher=tmp_path / "missing.onnx")


def test_seeds_are_runs_that_are_not_repeated(tmp_path: Path) -> None:
    options: dict[str, Any] = {"settings": SMALL, "iterations": 1}
    said: list[str] = []
    first = train_seeds([3, 1], TASK, tmp_path, **options)
    assert [run.run for run in first.runs] == [tmp_path / "seed-3", tmp_path / "seed-1"]
    assert not first.interrupted
    second = train_seeds("0..1", TASK, tmp_path, **options, say=said.append)
    assert [run.run for run in second.runs] == [tmp_path / "seed-0"]
    assert f"{tmp_path / 'seed-1'} has ended" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_budget_s": float("nan")}, "`time_budget_s` must be a positive number of seconds, got nan"),
        ({"staleness": 1}, "staleness is 1, which takes generators"),
        ({"generators": Generators(0)}, "0"),
        ({"settings": {"learning_rat": 1}}, "learning_rat"),
        ({"preset": "none such"}, "none such"),
        ({"model": "nothing.xml"}, "nothing.xml"),
        ({"device": "tpu"}, "tpu"),
        ({"engine": "bullet"}, "bullet"),
    ],
)
def test_what_is_refused_leaves_no_run(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(PhysaiError, match=message):
        train(TASK, tmp_path / "run", **options)  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_its_settings(tmp_path: Path) -> None:
    trained(tmp_path / "run", iterations=1)
    with pytest.raises(PhysaiError, match=r"leave out `seed`, `settings` learning_rate=0\.1 or start a new run"):
        train(resume=tmp_path / "run", seed=3, settings={"learning_rate": 0.1})
    with pytest.raises(PhysaiError, match="run"):
        trained(tmp_path / "run", iterations=1)
    with pytest.raises(PhysaiError, match=r"^name a task to train"):
        train()
