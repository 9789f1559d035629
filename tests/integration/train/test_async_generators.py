"""`physai train --staleness`: on real Ray with a process that is killed, a trainer that is killed, and its options."""

import csv
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from physai.sdk.cli.main import main
from physai.sim.tasks.registry import load_task
from physai.sim.workers.cluster import connected
from physai.train.bench import cluster_async
from physai.train.cli.verb import verb_command
from physai.train.cluster.async_collector import AsyncCollector
from physai.train.cluster.launch import chunk_config
from physai.train.cluster.ray_executor import RayExecutor
from physai.train.config import TrainConfig
from physai.train.runners.checkpoint import CHECKPOINT_FILE, read_checkpoint
from physai.train.runners.run_config import RunTaskSource, load_config
from physai.train.runners.runner import Trainer

CONFIG = TrainConfig(
    num_envs=32, horizon=8, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1, staleness=2, segments=2
)
SMALL = ["horizon=8", "epochs=1", "minibatches=2", "hidden=16,16", "num_threads=1", "stop_at_success=none"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]
NEW = ["train", "cartpole-swingup", "--num-envs", "32", "--device", "cpu", *OPTIONS]
ASYNC = ["--generators", "2", "--staleness", "2"]


@pytest.mark.slow
def test_an_actor_that_dies_costs_no_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    torch.set_num_threads(1)
    task = load_task("cartpole-swingup")
    with connected("local", processors=2) as ray:
        executor = RayExecutor(ray, RunTaskSource(task="cartpole-swingup"), chunk_config(CONFIG))
        trainer = Trainer(
            task,
            CONFIG,
            source=lambda learner: AsyncCollector(task, CONFIG, learner, executor, generators=2, background=True),
        )
        collector: Any = trainer.collector
        stats = [trainer.train_iteration() for _ in range(3)]
        os.kill(executor.processes[1][1], signal.SIGKILL)
        while collector.replaced == 0 or len(stats) < 8:
            assert len(stats) < 2000, "the loss was never noticed"
            stats.append(trainer.train_iteration())
        collector.close()
    assert collector.replaced == 1
    admission = collector.admission
    assert (admission.dropped, admission.refused) == (0, 0)
    assert sum(admission.learned.values()) == len(stats) * 4
    assert trainer.env_steps == len(stats) * 32 * 8
    assert all(one.asynchronous["staleness_max"] <= 2.0 for one in stats)
    # All chunks that a generator's worlds were stepped for, up to the last one learned from, were learned from.
    assert collector._position == [admission.learned[which] for which in range(2)]


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
