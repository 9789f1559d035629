"""`physai train` with the worlds where the policy learns, on Warp's and torch's CPU devices."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task
from physai.train.collectors.devices import choose_device, choose_engine
from physai.train.runners.checkpoint import CHECKPOINT_FILE
from physai.train.runners.runner import Trainer
from physai.train.settings.config import TrainConfig

pytest.importorskip("mujoco_warp")
from benchmarks.gpu.counting import OperationCounter

SMALL = ["--engine", "warp", "--device", "cpu", "--num-envs", "8", "--set", "horizon=4", "--set", "minibatches=2"]


def train(*arguments: str) -> int:
    return main(["train", *arguments])


def weights(folder: Path) -> dict[str, Any]:
    return torch.load(folder / CHECKPOINT_FILE, weights_only=True)["graph"]


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit_and_exports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train("cartpole-swingup", *SMALL, "--iterations", "4", "--out", str(whole), "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["iterations"] == 4
    assert "on cpu with engine warp, 8 worlds" in said.err
    assert train("cartpole-swingup", *SMALL, "--iterations", "2", "--out", str(parts)) == 0
    assert train("--resume", str(parts), "--iterations", "4") == 0
    for name, value in weights(whole).items():
        assert torch.equal(weights(parts)[name], value), name
    assert json.loads((parts / "config.json").read_text())["config"]["engine"] == "warp"
    assert main(["export", str(parts), "--out", str(tmp_path / "policy.onnx")]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cuda"], "torch finds no GPU"),
        (["--device", "cuda:1", "--engine", "mujoco"], "torch finds no GPU"),
        (["--device", "gpu"], "--device gpu: expected auto, cpu, cuda or cuda:N"),
        (["--device", "cuda:-1"], "expected auto, cpu, cuda or cuda:N"),
        (["--engine", "warp", "--set", "overlap=true"], "overlap is for the CPU"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_it_cannot_do_is_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("cartpole-swingup", *arguments, "--out", str(tmp_path / "run")) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_keeps_its_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert train("cartpole-swingup", *SMALL, "--iterations", "1", "--out", str(run)) == 0
    assert train("--resume", str(run), "--engine", "mujoco") != 0
    assert "leave out --engine" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_engine_is_mujoco() -> None:
    assert (choose_engine("auto"), choose_engine("cpu")) == ("mujoco", "mujoco")
    assert (choose_device("auto", "warp"), choose_device("auto", "mujoco")) == ("cpu", "cpu")


def counted(name: str, horizon: int) -> OperationCounter:
    config = TrainConfig(num_envs=4, horizon=horizon, minibatches=1, hidden=(8,), engine="warp")
    trainer = Trainer(load_task(name), config)
    rollout = trainer.new_rollout()
    trainer.collector.collect(rollout)
    with OperationCounter() as counter:
        trainer.collector.collect(rollout)
    return counter


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole-swingup", "ur10e-reach", "go2-velocity"])
def test_no_step_of_a_rollout_waits_or_copies_from_the_host(name: str) -> None:
    """Policy, physics, rewards, resets, storage and statistics; the host looks once, after the last step."""
    short, long = counted(name, 2), counted(name, 5)
    assert long.torch_kernels > short.torch_kernels + 3 * 100
    assert long.waits == short.waits
    assert long.uploads == short.uploads


@pytest.mark.exhaustive
def test_what_is_learned_in_warp_succeeds_in_mujoco(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A few minutes on Warp's CPU device; runs end by an evaluation, which is in MuJoCo."""
    options = [
        "--engine",
        "warp",
        "--device",
        "cpu",
        "--time-budget-s",
        "1200",
        "--json",
        "--out",
        str(tmp_path / "run"),
    ]
    assert train("cartpole-swingup", *options) == 0
    assert json.loads(capsys.readouterr().out)["success"] >= 0.97
