"""`physai train --generators`: on real Ray with a process that is killed, and by the command line."""

import json
import os
import re
import shlex
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import torch

from physai.cluster.generators import ray_executor
from physai.cluster.generators.collector import ClusterCollector
from physai.cluster.generators.ray_executor import RayGenerators
from physai.compute.ray import cluster
from physai.compute.ray.cluster import connected
from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task
from physai.train.collectors.devices import choose_engine
from physai.train.runners.checkpoint import read_checkpoint
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import RunTaskSource, load_config
from physai.train.settings.config import TrainConfig

CONFIG = TrainConfig(num_envs=40, horizon=6, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1)
SMALL = ["horizon=6", "epochs=1", "minibatches=2", "hidden=16,16", "num_threads=1", "stop_at_success=none"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
NEW = ["train", "cartpole-swingup", "--num-envs", "40", "--device", "cpu", *OPTIONS]


def weights(trainer: Trainer) -> list[Any]:
    return [as_numbers(tensor) for tensor in (*trainer.learner.parameters(), *trainer.learner.buffers())]


def as_numbers(tensor: Any) -> Any:
    return tensor.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("harm", [signal.SIGKILL, signal.SIGSTOP])
def test_an_actor_that_dies_or_stalls_changes_no_weight(
    harm: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    # A busy machine may take longer for a chunk, too: that costs another replacement, and no weight.
    monkeypatch.setattr(ray_executor, "LEAST_PATIENCE_S", 5.0)
    torch.set_num_threads(1)
    task = load_task("cartpole-swingup")
    alone = Trainer(task, CONFIG)
    for _ in range(4):
        alone.train_iteration()
    with connected("local", processors=2) as ray:
        executor = RayGenerators(ray, RunTaskSource(task="cartpole-swingup"), CONFIG)
        together = Trainer(
            task, CONFIG, source=lambda learner: ClusterCollector(task, CONFIG, learner, executor, generators=2)
        )
        assert isinstance(together.collector, ClusterCollector)
        for iteration in range(4):
            if iteration == 2:
                os.kill(executor.processes[1][1], harm)
            together.train_iteration()
        executor.close()
        assert together.collector.replaced >= 1
    assert weights(together) == weights(alone)
    assert capfd.readouterr().out == "", "Ray wrote where results belong"
    assert not (tmp_path / ".ray").exists(), "Ray wrote a token into the home folder"


def collected(folder: Path) -> dict[str, Any]:
    state = read_checkpoint(folder)
    return {name: as_numbers(tensor) for name, tensor in {**state["graph"], **state["ppo"]}.items()}


def test_a_run_may_change_its_generators(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main([*NEW, "--iterations", "4", "--out", str(whole)]) == 0
    assert main([*NEW, "--iterations", "2", "--out", str(parts), "--generators", "2"]) == 0
    assert json.loads((parts / "config.json").read_text())["provenance"]["generators"] == "2"
    assert main(["train", "--resume", str(parts), "--iterations", "3", "--device", "cpu"]) == 0
    assert main(["train", "--resume", str(parts), "--iterations", "4", "--device", "cpu", "--generators", "1"]) == 0
    assert collected(parts) == collected(whole)


def test_the_planned_command_runs_where_there_is_a_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a run without generators would learn on the GPU, one with them is on processors, as the plan says."""
    pytest.importorskip("mujoco_warp")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_engine("auto") == "warp"
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text("nodes: [{name: dgx, cpus: 2, gpus: 8}, {name: rack, cpus: 3}]")
    assert main(["cluster", "plan", "cartpole-swingup", "--num-envs", "32", "--nodes", str(nodes)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^rack +trainer, \d generators?$", said, re.M)
    words = shlex.split(said.strip().splitlines()[-1])[1:]
    words.remove("--ray")
    words.remove("auto")
    run = tmp_path / "run"
    assert main([*words, *OPTIONS, "--iterations", "1", "--out", str(run)]) == 0
    assert load_config(run)[1].engine == "mujoco"


@pytest.mark.parametrize("named_by", ["option", "environment"])
def test_an_address_at_which_nothing_listens(
    named_by: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Port 1 is reserved."""
    pytest.importorskip("ray")
    if named_by == "environment":
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    address = {"option": "127.0.0.1:1", "environment": "auto"}[named_by]
    assert main([*NEW, "--out", str(tmp_path / "run"), "--generators", "2", "--ray", address]) == 2
    assert "--ray 127.0.0.1:1: no cluster answers there within 10 s" in capsys.readouterr().err.replace("\n", " ")


def test_options_that_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run")]
    for options, words in (
        (["--ray"], "--ray auto is for generators; add --generators K"),
        (["--generators", "2", "--gpus", "2"], "--generators work for one process that learns, not for 2"),
        (["--generators", "9"], "--generators 9, but 40 worlds are 2 blocks of 16"),
        (["--generators", "2", "--set", "overlap=true"], "overlap is true; start the run with --set overlap=false"),
        (
            ["--generators", "2", "--ray", "reach"],
            "'reach' is no address; write --ray auto, or put 'reach' before --ray",
        ),
        (["--generators", "2", "--ray", "ray://head:10001"], "expected auto, local, or HOST:PORT"),
    ):
        assert main([*NEW, *out, *options]) == 2
        assert words in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_a_head_that_is_stopped_is_refused_as_one_that_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel accepts connections for it, which says nothing."""
    pytest.importorskip("ray")
    monkeypatch.setattr(cluster, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        address = f"127.0.0.1:{stopped.getsockname()[1]}"
        assert main([*NEW, "--out", str(tmp_path / "run"), "--generators", "2", "--ray", address]) == 2
    said = capsys.readouterr().err.replace("\n", " ")
    assert f"--ray {address}: no cluster answers there within 0.5 s: timed out" in said
