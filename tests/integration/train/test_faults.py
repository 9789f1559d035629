"""Training on a Ray cluster whose nodes, head and links die: the same numbers, or a clear end."""

import csv
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.ray_nodes import RayNodes, processes_of_session, ray_nodes

from physai.cluster.generators import ray_executor
from physai.cluster.generators.collector import ClusterCollector
from physai.cluster.generators.ray_executor import RayGenerators
from physai.compute.ray.cluster import ClusterError, connected
from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task
from physai.train.api.demo_drive import verb_command
from physai.train.runners.checkpoint import CHECKPOINT_FILE, read_checkpoint
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig

TASK = "cartpole-swingup"
CONFIG = TrainConfig(num_envs=48, horizon=6, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1)
GENERATORS = 3
SMALL = ["horizon=6", "epochs=1", "minibatches=2", "hidden=16,16", "num_threads=1", "stop_at_success=none"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
NEW = ["train", TASK, "--num-envs", "48", "--device", "cpu", *OPTIONS]


def weights(trainer: Trainer) -> list[Any]:
    return [as_numbers(tensor) for tensor in (*trainer.learner.parameters(), *trainer.learner.buffers())]


def as_numbers(tensor: Any) -> Any:
    return tensor.tolist()


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
        self.executor = RayGenerators(ray, RunTaskSource(task=TASK), CONFIG)

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
            # Nodes need the processors to start, and what is trained meanwhile is trained again without them.
            time.sleep(0.05)
        raise AssertionError("not met in 2000 iterations")


@contextmanager
def training(nodes: RayNodes) -> Generator[Training]:
    with connected(nodes.address, processors=1) as ray:
        one = Training(ray)
        yield one
        one.executor.close()


@pytest.mark.slow
def test_nodes_die_and_join_while_training(monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr(ray_executor, "START_S", 5.0)
        for node in nodes.nodes[1:]:
            nodes.kill(node)
        with pytest.raises(ClusterError, match=r"no generator could start within .*the cluster has 1 node with 0 proc"):
            one.trainer.train_iteration()


class Learner:
    """`physai train` in a process, which ends with an error and a checkpoint when something else ends."""

    def __init__(self, folder: Path, address: str, prefix: Sequence[str] = ()) -> None:
        self.run, self._log = folder / "run", folder / "errors"
        self._words, self._prefix = ["--generators", "2", "--iterations", "100000", "--ray", address], prefix
        self._begin([*NEW, "--out", str(self.run), "--set", "checkpoint_every_s=1"])

    def _begin(self, words: Sequence[str]) -> None:
        with self._log.open("wb") as errors:
            command = verb_command([*words, *self._words], torch=True)
            self._process = subprocess.Popen([*self._prefix, *command], stdout=errors, stderr=errors)

    def kill_and_resume(self, after: Callable[[], None]) -> None:
        self._process.kill()
        self._process.wait()
        after()
        self._begin(["train", "--resume", str(self.run), "--device", "cpu"])

    def until_iteration(self, number: int) -> None:
        while not (self.run / CHECKPOINT_FILE).exists() or read_checkpoint(self.run)["iteration"] < number:
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.1)

    def end(self, *, at_once: bool = False) -> str:
        """Waits for the end; what it says on one line.

        Args:
            at_once: Ray may end the process itself, with its own code, while it uses the object store.
        """
        code = self._process.wait(timeout=120.0)
        end = time.monotonic() + 30.0
        while "with --resume" not in (said := " ".join(self._log.read_text().split())) and time.monotonic() < end:
            time.sleep(0.1)
        assert (code == 2 or (at_once and code == 1), "Traceback" in said) == (True, False), (code, said)
        assert said.count("then continue from the last checkpoint with --resume") == 1
        return said

    def assert_resumes_as_undisturbed(self, folder: Path, *, was_due: bool = False) -> None:
        """And the checkpoint has the last iteration that was reported, unless only those that were due were saved."""
        reached = int(read_checkpoint(self.run)["iteration"])
        with (self.run / "progress.csv").open(newline="") as file:
            reported = [int(float(row["iteration"])) for row in csv.DictReader(file)]
        assert reported[:reached] == [*range(1, reached + 1)]
        assert was_due or len(reported) == reached
        assert main(["train", "--resume", str(self.run), "--iterations", str(reached + 2), "--device", "cpu"]) == 0
        assert main([*NEW, "--iterations", str(reached + 2), "--out", str(folder)]) == 0
        assert collected(self.run) == collected(folder)


def collected(folder: Path) -> dict[str, Any]:
    state = read_checkpoint(folder)
    return {name: tensor.tolist() for name, tensor in {**state["graph"], **state["ppo"]}.items()}


def command_line(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def until_no_generators(nodes: RayNodes) -> None:
    found = True
    while found:
        of_ray = [pid for node in nodes.nodes for pid in processes_of_session(node.process.pid)]
        found = any("GeneratorActor" in command_line(pid) for pid in of_ray)
        time.sleep(0.1)


@pytest.mark.slow
def test_a_learner_and_then_the_head_die(tmp_path: Path) -> None:
    with ray_nodes((1, 1)) as nodes:
        learner = Learner(tmp_path, nodes.address)
        learner.until_iteration(3)
        learner.kill_and_resume(lambda: until_no_generators(nodes))
        learner.until_iteration(int(read_checkpoint(learner.run)["iteration"]) + 1)
        nodes.kill(nodes.nodes[0])
        assert "Ray's process on this computer ended" in learner.end(at_once=True)
    learner.assert_resumes_as_undisturbed(tmp_path / "undisturbed", was_due=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("whole", [False, True], ids=["the head", "all of Ray on the trainer's computer"])
def test_a_head_that_is_stopped(whole: bool, tmp_path: Path) -> None:
    """For a moment, then for long; when it goes on, nothing that it does is learned from."""
    with ray_nodes((0, 1, 1)) as nodes:
        learner = Learner(tmp_path, nodes.address)
        learner.until_iteration(3)
        with nodes.stopped(nodes.nodes[0], whole=whole):
            time.sleep(5.0)
        learner.until_iteration(int(read_checkpoint(learner.run)["iteration"]) + 2)
        with nodes.stopped(nodes.nodes[0], whole=whole):
            said = learner.end()
            silent = "Ray's process on this computer" if whole else "its head"
            assert re.search(
                rf"of the cluster \S+, {silent} has not answered for [23]\d s: it ended or is stopped", said
            ), said
        until_no_generators(nodes)
    learner.assert_resumes_as_undisturbed(tmp_path / "undisturbed", was_due=whole)


@pytest.mark.exhaustive
def test_links_that_fail(tmp_path: Path) -> None:
    """Between hosts of their own, with the learner on the head's side of the link, then on the other."""
    with ray_nodes((0, 1, 1), hosts=True) as nodes:
        with training(nodes) as one:
            one.until(lambda: len(one.hosts) == 2)
            collector: Any = one.trainer.collector
            # Orders for the host are under way, or it has them and cannot answer.
            nodes.cut(nodes.nodes[2])
            one.until(lambda: collector.replaced >= 1)
            nodes.heal(nodes.nodes[2])
            lost = collector.replaced
            for _ in range(20):
                one.trainer.train_iteration()
            assert collector.replaced == lost
            reached = one.trainer.iteration
            assert one.trainer.env_steps == reached * 48 * 6
            assert weights(one.trainer) == weights(undisturbed(reached))
        learner = Learner(tmp_path, nodes.address, nodes.prefix(nodes.nodes[1]))
        learner.until_iteration(3)
        nodes.cut(nodes.nodes[1])
        assert f"of the cluster {nodes.address}, its head has not answered for 2" in learner.end()
    learner.assert_resumes_as_undisturbed(tmp_path / "undisturbed")


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_harm_in_any_order_changes_no_number(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are killed and stopped, nodes die and join, at any moment of an iteration."""
    monkeypatch.setattr(ray_executor, "LEAST_PATIENCE_S", 5.0)
    monkeypatch.setattr(ray_executor, "START_S", 30.0)
    chance = random.Random(seed)
    done = Counter[str]()
    with ray_nodes((0, 1, 1)) as nodes, training(nodes) as one:

        def harm() -> None:
            workers, hosts = nodes.nodes[1:], sorted(one.hosts)
            kinds = ["kill", "stop"] * bool(hosts) + ["lose"] * (len(workers) > 1) + ["join"] * (len(workers) < 3)
            kind = chance.choice(kinds)
            done[kind] += 1
            if kind == "join":
                nodes.start(cpus=chance.choice((1, 2)))
            elif kind == "lose":
                nodes.kill(chance.choice(workers))
            else:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(hosts), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[kind])

        for _ in range(12):
            timer = threading.Timer(chance.uniform(0.0, 0.1), harm)
            timer.start()
            for _ in range(chance.randrange(1, 6)):
                one.trainer.train_iteration()
            timer.join()
        # Nodes that are still starting would be killed twice.
        nodes.await_all()
        reached = one.trainer.iteration
        assert one.trainer.env_steps == reached * 48 * 6
        assert weights(one.trainer) == weights(undisturbed(reached))
    assert sum(done.values()) == 12
    assert len(done) >= 3, done
