"""`physai eval` on what a user may point it at."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was exported before it learned anything."""
    from physai.train.runners.checkpoint import save_checkpoint
    from physai.train.runners.runner import Trainer
    from physai.train.runs.run_config import RunTaskSource, save_config
    from physai.train.settings.config import TrainConfig

    folder = tmp_path_factory.mktemp("untrained")
    source = RunTaskSource(task="cartpole-swingup")
    config = TrainConfig(num_envs=8, horizon=4, minibatches=2, hidden=(8,), num_threads=1)
    trainer = Trainer(source.load(), config)
    save_config(folder, source, config, trainer.task.contract)
    save_checkpoint(trainer, folder)
    assert main(["export", str(folder), "--states", "20"]) == 0
    return folder


def refused(arguments: list[str], capsys: Captured) -> str:
    """The one line that a refused `physai eval` prints."""
    capsys.readouterr()
    assert main(["eval", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_a_path_that_is_not_there(tmp_path: Path, capsys: Captured) -> None:
    message = refused([str(tmp_path / "nothing")], capsys)
    assert f"{tmp_path / 'nothing'} is neither a run folder nor an exported policy" in message
    assert "physai train TASK" in message


def test_a_folder_without_an_export_says_how_to_make_one(tmp_path: Path, capsys: Captured) -> None:
    message = refused([str(tmp_path)], capsys)
    assert f"physai export {tmp_path}" in message


def test_a_file_that_is_no_policy(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(b"\x08\x07 not a graph")
    assert str(path) in refused([str(path)], capsys)


def test_a_policy_whose_commands_are_not_finite_says_so(run_folder: Path, tmp_path: Path, capsys: Captured) -> None:
    onnx = pytest.importorskip("onnx")
    broken = tmp_path / "broken"
    shutil.copytree(run_folder / "export", broken)
    model = onnx.load(broken / "policy.onnx")
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.ndim == 2:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full_like(values, np.nan), tensor.name))
    onnx.save(model, broken / "policy.onnx")
    capsys.readouterr()
    assert main(["eval", str(broken), "--episodes", "8"]) == 0
    assert "8 ended because a command was not finite or the physics diverged" in capsys.readouterr().out


def test_a_run_folder_as_json(run_folder: Path, capsys: Captured) -> None:
    capsys.readouterr()
    assert main(["eval", str(run_folder), "--episodes", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    policy = run_folder / "export" / "policy.onnx"
    assert result["policy"] == str(policy)
    assert result["fingerprint"] == load_contract(policy).fingerprint
    assert result["device"] == "cpu"
    assert result["task"] == "cartpole-swingup"
    assert (result["judged"], result["succeeded"], result["success"]) == (3, 0, 0.0)
    # Clopper-Pearson with no success in n: upper bound 1 - 0.025^(1/n).
    assert result["success_interval_95"] == [0.0, pytest.approx(1.0 - 0.025 ** (1 / 3))]
    assert result["diverged_episodes"] == 0


def test_the_policy_file_itself_in_words(run_folder: Path, capsys: Captured) -> None:
    capsys.readouterr()
    policy = run_folder / "export" / "policy.onnx"
    assert main(["eval", str(policy), "--episodes", "2", "--nominal"]) == 0
    assert "cartpole-swingup: 0 of 2 succeeded, 0.0% (95 % interval 0.0% to 84.2%" in capsys.readouterr().out


def test_every_evaluation_plays_the_same_episodes(run_folder: Path, capsys: Captured) -> None:
    capsys.readouterr()
    printed: list[str] = []
    for _ in range(2):
        assert main(["eval", str(run_folder), "--episodes", "2", "--json"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


@pytest.mark.parametrize("episodes", ["0", "-1", "100001"])
def test_a_number_of_episodes_out_of_bounds(run_folder: Path, episodes: str, capsys: Captured) -> None:
    message = refused([str(run_folder), "--episodes", episodes], capsys)
    assert f"--episodes must lie in 1 … 100000, got {episodes}" in message


def test_a_task_with_another_contract(run_folder: Path, capsys: Captured) -> None:
    capsys.readouterr()
    assert main(["eval", str(run_folder), "--task", "pendubot-swingup", "--episodes", "1"]) == 2
    assert "robot" in capsys.readouterr().err


def test_an_unknown_task(run_folder: Path, capsys: Captured) -> None:
    assert "did you mean cartpole-swingup" in refused([str(run_folder), "--task", "cartpole"], capsys)


def test_the_trial_of_the_leaderboards_is_an_example(run_folder: Path, capsys: Captured) -> None:
    message = refused([str(run_folder), "--preset", "realaigym-v2"], capsys)
    assert f"python examples/leaderboard_trial.py {run_folder}" in message
