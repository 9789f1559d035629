"""Checkpoints: a run that was interrupted ends with the very weights of one that was not."""

import csv
import io
import os
import random
import resource
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from physai.sdk.base.errors import CheckpointError, ContractMismatchError
from physai.sdk.base.files import write_atomic
from physai.train.collectors.collector import Collector
from physai.train.runners.checkpoint import (
    CHECKPOINT_FILE,
    learned_on,
    load_run,
    read_checkpoint,
    restore_checkpoint,
    save_checkpoint,
)
from physai.train.runners.runner import Trainer
from physai.train.runs.run_config import CONFIG_FILE, RunTaskSource, load_config, run_contract, save_config
from physai.train.settings.config import TrainConfig

SOURCE = RunTaskSource(task="cartpole-swingup")
CONFIG = TrainConfig(num_envs=8, horizon=4, epochs=2, minibatches=2, hidden=(8, 8), gru_size=4, num_threads=1)


def trainer(config: TrainConfig = CONFIG, iterations: int = 0, source: RunTaskSource = SOURCE) -> Trainer:
    result = Trainer(source.load(), config)
    for _ in range(iterations):
        result.train_iteration()
    return result


def assert_same(left: Any, right: Any, where: str = "") -> None:
    """Equal to the last bit, at every depth."""
    assert type(left) is type(right), where
    if isinstance(left, dict):
        items = cast(dict[str, Any], left)
        assert items.keys() == right.keys(), where
        for key, value in items.items():
            assert_same(value, right[key], f"{where}/{key}")
    elif isinstance(left, Tensor):
        assert left.dtype == right.dtype, where
        assert torch.equal(left.nan_to_num(), right.nan_to_num()), where
    elif not where.endswith("seconds"):
        assert left == right, where


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder whose checkpoint is two iterations old."""
    run = trainer(iterations=2)
    save_config(tmp_path, SOURCE, CONFIG, run.task.contract)
    save_checkpoint(run, tmp_path)
    return tmp_path


@contextmanager
def files_limited_to(size: int) -> Generator[None]:
    """No file of this process grows beyond `size` bytes: writing fails half way, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestResume:
    @pytest.mark.parametrize("overlap", [False, True])
    @pytest.mark.parametrize("actor", ["mlp", "gru"])
    def test_a_resumed_run_ends_with_the_same_bits(self, actor: Any, overlap: bool, tmp_path: Path) -> None:
        """The worlds, memories, generators, optimiser and statistics are all in the checkpoint."""
        config = replace(CONFIG, actor=actor, overlap=overlap)
        whole, resumed = tmp_path / "whole", tmp_path / "resumed"
        whole.mkdir()
        resumed.mkdir()
        save_checkpoint(trainer(config, 7), whole)
        save_checkpoint(trainer(config, 3), resumed)
        for _ in range(2):  # twice, so that what a restored trainer saves is put to the test too
            continued = trainer(config)
            restore_checkpoint(continued, resumed)
            for _ in range(2):
                continued.train_iteration()
            save_checkpoint(continued, resumed)
        assert_same(read_checkpoint(resumed), read_checkpoint(whole))
        assert read_checkpoint(whole)["iteration"] == 7

    def test_saving_changes_nothing(self, tmp_path: Path) -> None:
        run = trainer(iterations=1)
        save_checkpoint(run, tmp_path)
        before = read_checkpoint(tmp_path)
        save_checkpoint(run, tmp_path)
        assert_same(read_checkpoint(tmp_path), before)

    def test_training_time_is_kept(self, folder: Path) -> None:
        continued = trainer()
        restore_checkpoint(continued, folder)
        assert continued.seconds == read_checkpoint(folder)["seconds"] > 0.0

    def test_diverged_episodes_are_counted_on(self, tmp_path: Path) -> None:
        run = trainer()
        assert isinstance(run.collector, Collector)
        run.collector.env.view.qvel[0] = float("nan")
        assert run.train_iteration().diverged_episodes == 1
        save_checkpoint(run, tmp_path)
        continued = trainer()
        restore_checkpoint(continued, tmp_path)
        assert continued.train_iteration().diverged_episodes == 1
        assert isinstance(continued.collector, Collector)
        continued.collector.env.view.qvel[:2] = float("nan")
        assert continued.train_iteration().diverged_episodes == 3

    def test_no_file_is_left_beside_the_checkpoint(self, folder: Path) -> None:
        assert sorted(path.name for path in folder.iterdir()) == [CHECKPOINT_FILE, CONFIG_FILE, "contract.json"]


class TestFullDisk:
    def test_the_old_checkpoint_stays(self, folder: Path) -> None:
        old = (folder / CHECKPOINT_FILE).read_bytes()
        run = trainer(iterations=3)
        names = set(folder.iterdir())
        with (
            files_limited_to(len(old) // 2),
            pytest.raises(CheckpointError, match=r"cannot save checkpoint in .*: .*; the previous one is kept"),
        ):
            save_checkpoint(run, folder)
        assert (folder / CHECKPOINT_FILE).read_bytes() == old
        assert set(folder.iterdir()) == names
        continued = trainer()
        restore_checkpoint(continued, folder)
        assert continued.iteration == 2

    def test_the_first_checkpoint_has_none_before_it(self, tmp_path: Path) -> None:
        run = trainer()
        with files_limited_to(100), pytest.raises(CheckpointError, match="there is no previous one"):
            save_checkpoint(run, tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_folder_that_is_gone(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="No such file or directory"):
            save_checkpoint(trainer(), tmp_path / "gone")


class TestDamage:
    """A flipped length, a cut, an empty file, another file: always one CheckpointError."""

    @pytest.mark.parametrize("keep", [0.0, 0.01, 0.5, 0.99])
    def test_a_truncated_checkpoint(self, folder: Path, keep: float) -> None:
        path = folder / CHECKPOINT_FILE
        data = path.read_bytes()
        path.write_bytes(data[: int(keep * len(data))])
        with pytest.raises(CheckpointError, match="damaged"):
            restore_checkpoint(trainer(), folder)
        with pytest.raises(CheckpointError, match="damaged"):
            load_run(folder)

    @pytest.mark.parametrize("content", [b"hello", b"PK\x03\x04", b"\x80\x02.", bytes(1000)])
    def test_garbage(self, folder: Path, content: bytes) -> None:
        (folder / CHECKPOINT_FILE).write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged"):
            restore_checkpoint(trainer(), folder)

    def test_code_in_a_checkpoint_is_not_run(self, folder: Path, tmp_path: Path) -> None:
        marker = tmp_path / "was-run"

        class Evil:
            def __reduce__(self) -> tuple[Any, tuple[str]]:
                return os.mkdir, (str(marker),)

        torch.save({"format_version": 1, "contract": Evil()}, folder / CHECKPOINT_FILE)
        with pytest.raises(CheckpointError, match="damaged") as caught:
            read_checkpoint(folder)
        assert not marker.exists()
        # torch's own message proposes to load it with weights_only=False, which runs the code.
        assert "weights_only" not in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_weights_of_another_size_are_one_line(self, folder: Path) -> None:
        """Torch gives a line to every tensor that does not fit."""
        state = read_checkpoint(folder)
        state["graph"] = {name: torch.zeros(3, 3) for name in state["graph"]}
        torch.save(state, folder / CHECKPOINT_FILE)
        for load in (lambda: restore_checkpoint(trainer(), folder), lambda: load_run(folder)):
            with pytest.raises(CheckpointError, match="does not fit") as caught:
                load()
            assert str(caught.value).isprintable()
            assert len(str(caught.value)) < 600 + len(str(folder))

    def test_a_compressed_checkpoint_is_not_unpacked(self, folder: Path) -> None:
        """Zeros are a thousand times smaller in a zip: 3 MB would fill a computer's memory."""
        path = folder / CHECKPOINT_FILE
        with zipfile.ZipFile(path) as archive:
            files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        for method, refused in ((zipfile.ZIP_STORED, False), (zipfile.ZIP_DEFLATED, True)):
            with zipfile.ZipFile(path, "w", method) as archive:
                for name, data in files.items():
                    archive.writestr(name, data)
            with pytest.raises(CheckpointError, match="damaged") if refused else nullcontext():
                read_checkpoint(folder)

    @pytest.mark.parametrize("value", [torch.zeros(1, 1, 1), torch.zeros(7, 7), 5, None])
    def test_averages_of_other_weights_are_refused(self, folder: Path, value: Any) -> None:
        state = read_checkpoint(folder)
        state["optimizer"]["state"][0]["exp_avg"] = value
        torch.save(state, folder / CHECKPOINT_FILE)
        with pytest.raises(CheckpointError, match="does not fit this configuration"):
            restore_checkpoint(trainer(), folder)

    def test_a_run_of_a_gpu_is_not_continued_on_the_processor(self, folder: Path) -> None:
        """The random numbers of a GPU have a state of 16 bytes."""
        state = read_checkpoint(folder)
        assert learned_on(state) == "cpu"
        state["generator"] = torch.zeros(16, dtype=torch.uint8)
        assert learned_on(state) == "cuda"
        torch.save(state, folder / CHECKPOINT_FILE)
        with pytest.raises(CheckpointError, match=r"it learned on cuda.* add `device` cuda, or begin a new run"):
            restore_checkpoint(trainer(), folder)

    def test_a_checkpoint_sets_nothing_of_the_optimiser_but_its_state(self, folder: Path) -> None:
        state = read_checkpoint(folder)
        state["optimizer"]["param_groups"][0].update(betas=5, eps="x", weight_decay=0.5)
        torch.save(state, folder / CHECKPOINT_FILE)
        restored = trainer()
        own = {**restored.learner.ppo.optimizer.param_groups[0]}
        restore_checkpoint(restored, folder)
        found = restored.learner.ppo.optimizer.param_groups[0]
        assert (found["betas"], found["eps"], found["weight_decay"]) == (own["betas"], own["eps"], own["weight_decay"])

    @pytest.mark.parametrize("state", [[1, 2], {}, 3])
    def test_another_torch_file(self, folder: Path, state: Any) -> None:
        torch.save(state, folder / CHECKPOINT_FILE)
        with pytest.raises(CheckpointError, match="damaged"):
            restore_checkpoint(trainer(), folder)

    def test_another_version(self, folder: Path) -> None:
        torch.save({"format_version": 99}, folder / CHECKPOINT_FILE)
        with pytest.raises(CheckpointError, match="format version 99, this physai reads 1"):
            restore_checkpoint(trainer(), folder)

    @pytest.mark.parametrize(
        "key", ["contract", "iteration", "seconds", "graph", "ppo", "optimizer", "generator", "collector", "pending"]
    )
    def test_a_missing_part(self, folder: Path, key: str) -> None:
        self.rewrite(folder, key, None, delete=True)
        with pytest.raises(CheckpointError, match=key):
            restore_checkpoint(trainer(), folder)

    @pytest.mark.parametrize("key", ["contract", "graph", "optimizer", "generator", "collector", "learning_rate"])
    def test_a_part_of_another_type(self, folder: Path, key: str) -> None:
        self.rewrite(folder, key, [1.5])
        with pytest.raises(CheckpointError, match=r"does not fit|has no contract"):
            restore_checkpoint(trainer(), folder)

    def rewrite(self, folder: Path, key: str, value: Any, *, delete: bool = False) -> None:
        state = read_checkpoint(folder)
        state[key] = value
        if delete:
            del state[key]
        data = io.BytesIO()
        torch.save(state, data)
        write_atomic(folder / CHECKPOINT_FILE, data.getvalue())

    def test_no_checkpoint(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"has no checkpoint\.pt"):
            restore_checkpoint(trainer(), tmp_path)


class TestMismatch:
    def test_another_contract_is_refused_with_what_differs(self, folder: Path) -> None:
        other = trainer(source=RunTaskSource(task="pendubot-swingup"))
        before = [parameter.detach().clone() for parameter in other.graph.parameters()]
        with pytest.raises(ContractMismatchError) as caught:
            restore_checkpoint(other, folder)
        message = str(caught.value)
        assert "the checkpoint's contract" in message
        assert "cartpole" in message
        assert "double_pendulum" in message
        for parameter, old in zip(other.graph.parameters(), before, strict=True):
            assert torch.equal(parameter, old)

    @pytest.mark.parametrize(
        "changes", [{"hidden": (8,)}, {"hidden": (16, 8)}, {"actor": "gru"}, {"num_envs": 16}, {"num_envs": 1}]
    )
    def test_another_size_is_refused(self, folder: Path, changes: dict[str, Any]) -> None:
        with pytest.raises(CheckpointError, match="does not fit"):
            restore_checkpoint(trainer(replace(CONFIG, **changes)), folder)


class TestRunFolder:
    def test_what_a_run_was_told_comes_back(self, tmp_path: Path) -> None:
        source = RunTaskSource(task="pendubot-swingup", preset="realaigym-v2")
        config = replace(CONFIG, actor="gru", stop_at_success=0.5, overlap=True, learning_rate=1e-300, seed=5)
        contract = SOURCE.load().contract
        save_config(tmp_path / "deep" / "run", source, config, contract)
        assert load_config(tmp_path / "deep" / "run")[:2] == (source, config)
        assert run_contract(tmp_path / "deep" / "run") == contract

    def test_provenance_names_seed_and_versions(self, folder: Path) -> None:
        provenance = load_config(folder)[2]
        assert provenance["seed"] == "0"
        assert provenance["version.torch"] == torch.__version__

    def test_the_policy_of_a_run(self, folder: Path) -> None:
        run = load_run(folder)
        trained = trainer(iterations=2).graph
        assert_same(dict(run.graph.state_dict()), dict(trained.state_dict()))
        assert run.provenance["iteration"] == "2"
        assert run.provenance["task"] == "cartpole-swingup"

    @pytest.mark.parametrize("text", ["", "[]", "[" * 5000, "{}", '{"format_version": 1, "config": 3}', "\xff"])
    def test_a_damaged_configuration(self, folder: Path, text: str) -> None:
        (folder / CONFIG_FILE).write_bytes(text.encode("latin-1"))
        with pytest.raises(CheckpointError, match=r"config\.json: "):
            load_config(folder)

    def test_settings_of_0_1_have_other_names(self, folder: Path) -> None:
        known = load_config(folder)
        text = (folder / CONFIG_FILE).read_text()
        old = text.replace('"action_repeat"', '"control_repeat"').replace('"eval_min_success"', '"promising_success"')
        assert old != text
        (folder / CONFIG_FILE).write_text(old)
        assert load_config(folder) == known

    def test_no_run_folder(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="is not a run folder"):
            load_run(tmp_path)

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CheckpointError, match="cannot write run folder"):
            save_config(tmp_path / "file", SOURCE, CONFIG, SOURCE.load().contract)


RUN = """
import sys, time
from physai.sdk.cli.main import main
from physai.train.runners.runner import Trainer

def held(self, train=Trainer.train_iteration):
    if self.iteration == {last}:
        time.sleep(600.0)
    return train(self)

Trainer.train_iteration = held
sys.exit(main(["train", *sys.argv[1:]]))
"""
SETTINGS = ["num_envs=8", "horizon=4", "minibatches=2", "hidden=8,8", "num_threads=1", "stop_at_success=none"]


def start(arguments: list[str], last: int | None = None) -> subprocess.Popen[bytes]:
    """A run in a process of its own; after its last iteration, if one is given, it stands still."""
    command = [sys.executable, "-c", RUN.format(last=last), *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})


def iterations_logged(folder: Path) -> list[int]:
    path = folder / "progress.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [int(float(row["iteration"])) for row in csv.DictReader(file) if row["seconds"]]


def new_run(folder: Path, iterations: int) -> list[str]:
    options = [part for setting in (*SETTINGS, "checkpoint_every_s=0") for part in ("--set", setting)]
    return ["cartpole-swingup", "--out", str(folder), "--iterations", str(iterations), *options]


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


@pytest.mark.slow
def test_kill_9_at_any_instant_costs_nothing(tmp_path: Path) -> None:
    """Killed three times at random instants and resumed, each time in a new process."""
    iterations, whole, killed = 180, tmp_path / "whole", tmp_path / "killed"
    finish(start(new_run(whole, iterations)))
    delays = random.Random(0)
    for attempt in range(3):
        reached = len(iterations_logged(killed))
        # It must not end while this process, which is to kill it, stands still.
        last = reached + 50
        process = start(["--resume", str(killed)] if attempt else new_run(killed, iterations), last)
        while len(iterations_logged(killed)) < reached + 10 and process.poll() is None:
            time.sleep(0.01)
        time.sleep(delays.uniform(0.0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
    finish(start(["--resume", str(killed)]))
    assert_same(read_checkpoint(killed), read_checkpoint(whole))
    assert iterations_logged(killed) == list(range(1, iterations + 1))
