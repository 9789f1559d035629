"""Training on a Ray cluster whose nodes, head and links die: the same numbers, or a clear end."""

import csv
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.ray_nodes import RayNodes, ray_nodes

from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task
from physai.sim.workers.cluster import ClusterError, connected
from physai.train.cli.verb import verb_command
from physai.train.cluster import ray_executor
from physai.train.cluster.collector import ClusterCollector
from physai.train.cluster.ray_executor import RayExecutor
from physai.train.config import TrainConfig
from physai.train.runners.checkpoint import CHECKPOINT_FILE, read_checkpoint
from physai.train.runners.run_config import RunTaskSource
from physai.train.runners.runner import Trainer

TASK = "cartpole-swingup"
CONFIG = TrainConfig(num_envs=48, horizon=6, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1)
GENERATORS = 3
SMALL = ["horizon=6", "epochs=1", "minibatches=2", "hidden=16,16", "num_threads=1", "stop_at_success=none"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
NEW = ["train", TASK, "--num-envs", "48", "--device", "cpu", *OPTIONS]


def weights(trainer: Trainer) -> list[Any]:
    return [tensor.tolist() for tensor in (*trainer.learner.parameters(), *trainer.learner.buffers())]


def undisturbed(iterations: int) -> Trainer:
    trainer = Trainer(load_task(TASK), CONFIG)
    for _ in range(iterations):
        trainer.train_iteration()
    return trainer


class Training:
    """A trainer with generators on a cluster."""

    def __init__(self, ray: Any) -> None:
        torch.set_num_threads(1)
        task = load_task(TASK)
        self.executor = RayExecutor(ray, RunTaskSource(task=TASK), CONFIG)

        def source(learner: Any) -> ClusterCollector:
            return ClusterCollector(task, CONFIG, learner, self.executor, generators=GENERATORS)

        self.trainer = Trainer(task, CONFIG, source=source)

    @property
    def hosts(self) -> set[int]:
        """Processes that have worlds."""
        return {pid for _, pid in self.executor.processes.values()}

    def until(self, met: Callable[[], bool]) -> None:
        """Trains until a condition is met after an iteration."""
        for _ in range(2000):
            self.trainer.train_iteration()
            if met():
                return
        raise AssertionError("not met in 2000 iterations")


@contextmanager
def training(nodes: RayNodes) -> Generator[Training]:
    with connected(nodes.address, processors=1) as ray:
        one = Training(ray)
        yield one
        one.executor.close()


@pytest.mark.slow
def test_nodes_die_and_join_while_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "START_S", 5.0)
    with ray_nodes((0, 1, 2)) as nodes, training(nodes) as one:
        one.until(lambda: len(one.hosts) == GENERATORS)
        nodes.kill(nodes.nodes[2])
        one.until(lambda: len(one.hosts) == 1)
        lost: Any = one.trainer.collector
        assert 1 <= lost.replaced <= 4
        nodes.start(cpus=2)
        one.until(lambda: len(one.hosts) == GENERATORS)
        reached = one.trainer.iteration
        assert one.trainer.env_steps == reached * 48 * 6
        assert weights(one.trainer) == weights(undisturbed(reached))
        for node in nodes.nodes[1:]:
            nodes.kill(node)
        with pytest.raises(ClusterError, match=r"no generator could start within .*the cluster has 1 node with 0 proc"):
            one.trainer.train_iteration()


def collected(folder: Path) -> dict[str, Any]:
    state = read_checkpoint(folder)
    return {name: tensor.tolist() for name, tensor in {**state["graph"], **state["ppo"]}.items()}


def iterations(folder: Path) -> list[int]:
    with (folder / "progress.csv").open(newline="") as file:
        return [int(float(row["iteration"])) for row in csv.DictReader(file)]


def until_iteration(process: "subprocess.Popen[bytes]", folder: Path, number: int) -> None:
    while not (folder / CHECKPOINT_FILE).exists() or read_checkpoint(folder)["iteration"] < number:
        assert process.poll() is None, "training ended"
        time.sleep(0.1)


def assert_resumes_as_undisturbed(run: Path, folder: Path) -> None:
    """After an error the checkpoint has the last iteration that was reported."""
    reached = int(read_checkpoint(run)["iteration"])
    assert iterations(run) == [*range(1, reached + 1)]
    assert main(["train", "--resume", str(run), "--iterations", str(reached + 2), "--device", "cpu"]) == 0
    assert main([*NEW, "--iterations", str(reached + 2), "--out", str(folder)]) == 0
    assert collected(run) == collected(folder)


@pytest.mark.slow
def test_a_head_that_dies_ends_training_with_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = [*NEW, "--generators", "2", "--iterations", "100000", "--out", str(run)]
    arguments += ["--set", "checkpoint_every_s=1"]
    with ray_nodes((1, 1)) as nodes:
        command = verb_command([*arguments, "--ray", nodes.address], torch=True)
        errors = (tmp_path / "errors").open("wb+")
        process = subprocess.Popen(command, stdout=errors, stderr=errors)
        until_iteration(process, run, 3)
        nodes.kill(nodes.nodes[0])
        code = process.wait(timeout=120.0)
        said = (tmp_path / "errors").read_text()
    assert (code, "Traceback" in said) == (2, False), said
    assert "then continue from the last checkpoint with --resume" in said.replace("\n", " ")
    assert_resumes_as_undisturbed(run, tmp_path / "undisturbed")
