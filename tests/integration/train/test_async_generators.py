"""`physai train --staleness`: on real Ray with a process that is killed, a trainer that is killed, and its options."""

import csv
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.cluster import cluster_async
from tests.support.ray_nodes import ray_nodes

from physai.cluster.generators import ray_executor
from physai.cluster.generators.async_collector import AsyncCollector
from physai.cluster.generators.generator import ChunkRequest, RolloutGenerator, pack
from physai.cluster.generators.launch import chunk_config
from physai.cluster.generators.ray_executor import RayGenerators
from physai.cluster.placement.world_split import equal_shares
from physai.compute.ray.cluster import ClusterError, connected
from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task
from physai.train.api.demo_drive import verb_command
from physai.train.runners.checkpoint import CHECKPOINT_FILE, read_checkpoint
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import RunTaskSource, load_config
from physai.train.settings.config import TrainConfig

CONFIG = TrainConfig(
    num_envs=32, horizon=8, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1, staleness=2, segments=2
)
SMALL = ["horizon=8", "epochs=1", "minibatches=2", "hidden=16,16", "num_threads=1", "stop_at_success=none"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
NEW = ["train", "cartpole-swingup", "--num-envs", "32", "--device", "cpu", *OPTIONS]
ASYNC = ["--generators", "2", "--staleness", "2"]


class Training:
    """A trainer whose generators play on, on a cluster."""

    def __init__(self, ray: Any) -> None:
        torch.set_num_threads(1)
        self.task = load_task("cartpole-swingup")
        self.executor = RayGenerators(ray, RunTaskSource(task="cartpole-swingup"), chunk_config(CONFIG))

        def source(learner: Any) -> AsyncCollector:
            return AsyncCollector(self.task, CONFIG, learner, self.executor, generators=2, background=True)

        self.trainer = Trainer(self.task, CONFIG, source=source)
        self.collector: Any = self.trainer.collector
        self.stats: list[Any] = []

    def train(self, iterations: int = 1) -> None:
        for _ in range(iterations):
            self.stats.append(self.trainer.train_iteration())

    def until(self, met: Callable[[], bool]) -> None:
        while not met():
            assert len(self.stats) < 5000, "not met in 5000 iterations"
            self.train()

    def assert_each_step_counts_once(self) -> None:
        admission, count = self.collector.admission, len(self.stats)
        assert (admission.dropped, admission.refused) == (0, 0)
        assert sum(admission.learned.values()) == count * 4
        assert self.trainer.env_steps == count * 32 * 8
        assert all(one.asynchronous["staleness_max"] <= 2.0 for one in self.stats)
        # All chunks that a generator's worlds were stepped for, up to the last one learned from, were learned from.
        learned = [admission.learned[which] for which in range(2)]
        assert self.collector._position == learned
        # And its worlds stand where so many chunks lead, by the exploration noise that they have used.
        for which, (share, worlds) in enumerate(equal_shares(CONFIG.num_envs, 2)):
            alone = RolloutGenerator(self.task, chunk_config(CONFIG), share, worlds, num_threads=1, state=None)
            for number in range(learned[which]):
                alone.collect(ChunkRequest(number, 1.0), pack(self.trainer.learner))
            assert alone.state["generator"].tolist() == self.collector._learned[which]["generator"].tolist()


@pytest.mark.slow
def test_an_actor_that_dies_costs_no_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    with connected("local", processors=2) as ray:
        one = Training(ray)
        one.train(3)
        os.kill(one.executor.processes[1][1], signal.SIGKILL)
        one.until(lambda: one.collector.replaced >= 1 and len(one.stats) >= 8)
        one.collector.close()
    assert one.collector.replaced == 1
    one.assert_each_step_counts_once()


@pytest.mark.exhaustive
def test_nodes_that_die_cost_no_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_nodes((0, 1, 1)) as nodes, connected(nodes.address, processors=1) as ray:
        one = Training(ray)
        one.until(lambda: len({pid for _, pid in one.executor.processes.values()}) == 2)
        nodes.kill(nodes.nodes[2])
        one.until(lambda: one.collector.replaced >= 1)
        # Both generators go on, in the process that is left.
        reached = dict(one.collector.admission.learned)
        one.until(lambda: all(one.collector.admission.learned[which] > reached[which] + 4 for which in range(2)))
        one.assert_each_step_counts_once()
        monkeypatch.setattr(ray_executor, "START_S", 5.0)
        nodes.kill(nodes.nodes[1])
        with pytest.raises(ClusterError, match=r"no generator could start within .*the cluster has 1 node with 0 proc"):
            one.train(5000)
        one.assert_each_step_counts_once()
        one.collector.close()


@pytest.mark.slow
def test_a_trainer_that_is_killed_resumes_and_counts_each_iteration_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = [*NEW, *ASYNC, "--iterations", "100000", "--out", str(run), "--set", "checkpoint_every_s=0.2"]
    process = subprocess.Popen(verb_command(arguments, torch=True), stderr=subprocess.DEVNULL)
    while process.poll() is None and not (run / CHECKPOINT_FILE).exists():
        pass
    while process.poll() is None and int(read_checkpoint(run)["iteration"]) < 5:
        pass
    assert process.poll() is None
    process.kill()
    process.wait()
    reached = int(read_checkpoint(run)["iteration"])
    assert int(read_checkpoint(run)["collector"]["version"]) == reached
    words = ["train", "--resume", str(run), "--generators", "1", "--iterations", str(reached + 4), "--device", "cpu"]
    assert main(words) == 0
    state = read_checkpoint(run)
    assert state["iteration"] == reached + 4
    assert state["env_steps"] == (reached + 4) * 32 * 8
    assert int(state["collector"]["version"]) == reached + 4
    with (run / "progress.csv").open(newline="") as file:
        iterations = [float(row["iteration"]) for row in csv.DictReader(file)]
    assert iterations == [float(n) for n in range(1, reached + 5)]


def test_what_a_run_reports_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main([*NEW, *ASYNC, "--set", "segments=2", "--iterations", "4", "--out", str(run), "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert outcome["asynchronous"]["dropped"] == 0.0
    assert outcome["asynchronous"]["share_0"] == 0.5
    assert (load_config(run)[1].staleness, load_config(run)[1].segments) == (2, 2)
    with (run / "progress.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[-1]["asynchronous/staleness_max"]) == 1.0
    assert float(rows[-1]["asynchronous/behaviour_kl"]) > 0.0
    assert {f"asynchronous/{name}" for name in ("importance_capped", "waited_s", "share_1")} <= rows[-1].keys()
    for words, message in (
        (["--resume", str(run)], "the run's staleness is 2, which takes generators; add --generators 1 or more"),
        (["--resume", str(run), *ASYNC], "a resumed run keeps its settings; leave out --staleness"),
    ):
        assert main(["train", *words, "--device", "cpu"]) == 2
        assert message in capsys.readouterr().err.replace("\n", " ")


def test_options_that_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run")]
    for options, words in (
        (["--staleness", "1"], "--staleness 1 is for generators; add --generators K"),
        (["--staleness", "-1", "--generators", "1"], "staleness must lie in [0, 1000] updates, got -1"),
        (["--set", "staleness=2"], "the run's staleness is 2, which takes generators"),
        ([*ASYNC, "--num-envs", "40"], "40 worlds are not 2 such of blocks of 16; simulate --num-envs 32"),
    ):
        assert main([*NEW, *out, *options]) == 2
        assert words in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_the_measured_worlds_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wait per step of all worlds, and nothing else is changed."""
    waited: list[float] = []
    monkeypatch.setattr(cluster_async.time, "sleep", waited.append)
    source = cluster_async.WaitingSource(task=cluster_async.TASK, waits_s=(0.1, 0.2), wait_s=0.2)
    reports: list[Any] = []
    for task in (source.load(), load_task(cluster_async.TASK)):
        trainer = Trainer(task, TrainConfig(num_envs=16, horizon=8, minibatches=2, hidden=(8,), num_threads=1))
        reports.append(trainer.train_iteration().update)
    assert waited == [0.2] * 8
    assert reports[0] == reports[1]
