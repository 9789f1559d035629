"""Runs as `physai train` starts them: what ends them and what they leave behind."""

import csv
import importlib
import json
import os
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract
from physai.train import train
from physai.train.algorithms.ppo import UpdateStats
from physai.train.runners import eval_scheduler, session
from physai.train.runners.checkpoint import read_checkpoint
from physai.train.runners.reporting import CsvSink
from physai.train.runners.runner import IterationStats, Trainer
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import ConfigError, TrainConfig

Captured = pytest.CaptureFixture[str]

CONFIG = TrainConfig(
    num_envs=8,
    horizon=4,
    epochs=1,
    minibatches=2,
    hidden=(8, 8),
    num_threads=1,
    iterations=1000,
    checkpoint_every_s=1e6,
)
SETTINGS = ["num_envs=8", "horizon=4", "epochs=1", "minibatches=2", "hidden=8,8", "num_threads=1"]
OPTIONS = [part for setting in (*SETTINGS, "stop_at_success=none") for part in ("--set", setting)]


def trainer(**changes: Any) -> Trainer:
    return Trainer(RunTaskSource(task="cartpole-swingup").load(), replace(CONFIG, **changes))


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "progress.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def logged(folder: Path) -> list[int]:
    return [int(row["iteration"]) for row in rows(folder)]


class CutOffError(BaseException):
    """The end of a process before its first iteration was done."""


class CutOff(Trainer):
    """A trainer whose process ends in its first iteration."""

    def train_iteration(self) -> IterationStats:
        raise CutOffError


class SendAt:
    """Sends this process a signal when an iteration is done."""

    def __init__(self, iteration: int, number: signal.Signals) -> None:
        self.iteration, self.number = iteration, number
        self.closed = False

    def write(self, stats: IterationStats) -> None:
        if stats.iteration == self.iteration:
            os.kill(os.getpid(), self.number)

    def close(self) -> None:
        self.closed = True


class TestEnd:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_ends_after_the_iteration_with_a_checkpoint(self, number: signal.Signals, tmp_path: Path) -> None:
        before = signal.getsignal(number)
        sink = SendAt(3, number)
        outcome = session.run(trainer(), tmp_path, extra_sinks=[sink])
        assert outcome.reason == "stopped by a signal; continue with --resume"
        assert (outcome.iterations, outcome.env_steps, outcome.success) == (3, 3 * 8 * 4, None)
        assert read_checkpoint(tmp_path)["iteration"] == 3
        assert logged(tmp_path) == [1, 2, 3]
        assert sink.closed
        assert signal.getsignal(number) is before

    def test_a_second_interrupt_does_not_wait(self) -> None:
        with session.stop_on_signal() as request:
            os.kill(os.getpid(), signal.SIGINT)
            assert request.requested
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

    def test_a_time_budget(self, tmp_path: Path) -> None:
        outcome = session.run(trainer(), tmp_path, time_budget_s=1e-6)
        assert outcome.iterations == 1
        assert outcome.reason == "time budget of 1e-06 s used"

    def test_a_budget_counts_the_time_of_iterations_that_a_kill_lost(self, tmp_path: Path) -> None:
        session.run(trainer(iterations=1), tmp_path)
        kept = (tmp_path / "checkpoint.pt").read_bytes()
        session.run(trainer(iterations=3), tmp_path, resume=True)
        lost = float(rows(tmp_path)[-1]["seconds"])
        (tmp_path / "checkpoint.pt").write_bytes(kept)
        # A second kill, before the first row: the log was begun anew, and tells nothing of the lost iterations.
        with pytest.raises(CutOffError):
            session.run(CutOff(trainer().task, CONFIG), tmp_path, resume=True)
        assert logged(tmp_path) == [1]
        outcome = session.run(trainer(), tmp_path, resume=True, time_budget_s=lost)
        assert (outcome.iterations, outcome.seconds) == (1, lost)

    def test_a_used_budget_trains_no_further(self, tmp_path: Path) -> None:
        session.run(trainer(iterations=2), tmp_path)
        spent = read_checkpoint(tmp_path)["seconds"]
        for _ in range(2):
            outcome = session.run(trainer(), tmp_path, resume=True, time_budget_s=spent)
            # The log has seven digits, and may say a little more than the checkpoint.
            assert (outcome.iterations, outcome.seconds) == (2, pytest.approx(spent, rel=1e-6))
            assert outcome.reason == (
                f"time budget of {spent:g} s used; {spent:.0f} s of training before this session count, so give more"
            )
        assert logged(tmp_path) == [1, 2]

    def test_all_iterations(self, tmp_path: Path) -> None:
        outcome = session.run(trainer(iterations=2), tmp_path)
        assert (outcome.iterations, outcome.reason) == (2, "all iterations done")

    def test_success_without_exploration(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A threshold that even an untrained policy reaches, judged as soon as the first iteration."""
        monkeypatch.setattr(eval_scheduler, "EPISODES", 2)
        outcome = session.run(trainer(stop_at_success=0.0, iterations=3), tmp_path)
        assert (outcome.iterations, outcome.success) == (1, 0.0)
        assert outcome.reason == "0.0% success without exploration"

    def test_a_threshold_out_of_reach_does_not_end_it(self, tmp_path: Path) -> None:
        outcome = session.run(trainer(stop_at_success=0.9, iterations=3), tmp_path)
        assert (outcome.iterations, outcome.reason) == (3, "all iterations done")


class TestFiles:
    def test_the_log_goes_on_after_a_resume_without_repeating_iterations(self, tmp_path: Path) -> None:
        """Iterations 3 and 4 are lost with the process; the resumed run writes them once more, not twice."""
        session.run(trainer(iterations=2), tmp_path)
        checkpoint = (tmp_path / "checkpoint.pt").read_bytes()
        session.run(trainer(iterations=4), tmp_path, resume=True)
        (tmp_path / "checkpoint.pt").write_bytes(checkpoint)
        first = rows(tmp_path)
        session.run(trainer(iterations=5), tmp_path, resume=True)
        assert logged(tmp_path) == [1, 2, 3, 4, 5]
        again = rows(tmp_path)
        assert again[:2] == first[:2]
        assert [row["reward_per_s"] for row in again[:4]] == [row["reward_per_s"] for row in first]

    def test_a_fresh_run_starts_a_fresh_log(self, tmp_path: Path) -> None:
        (tmp_path / "progress.csv").write_text("iteration,junk\n1,2\n")
        session.run(trainer(iterations=1), tmp_path)
        assert logged(tmp_path) == [1]
        assert "junk" not in rows(tmp_path)[0]

    def test_metrics_that_come_later_get_a_column(self, tmp_path: Path) -> None:
        """A task's metrics exist once the first episode is judged, long after the first line of the log."""
        none = IterationStats(
            iteration=1,
            env_steps=32,
            seconds=0.5,
            steps_per_s=64.0,
            reward_per_s=1.0,
            success=0.0,
            learning_rate=1e-3,
            action_std=1.0,
            update=UpdateStats(),
        )
        sink = CsvSink(tmp_path, 0)
        for number, metrics in enumerate([{}, {"error_m": 0.25}, {}, {"error_m": 0.125, "late": 2.0}]):
            sink.write(replace(none, iteration=number + 1, metrics=metrics))
        sink.close()
        assert logged(tmp_path) == [1, 2, 3, 4]
        assert [row["metrics/error_m"] for row in rows(tmp_path)] == ["", "0.25", "", "0.125"]
        assert [row["metrics/late"] for row in rows(tmp_path)] == ["", "", "", "2"]
        assert {row["env_steps"] for row in rows(tmp_path)} == {"32"}

    @pytest.mark.parametrize("damage", [b"\0" * 600, b"2,\xff\n", b"2" + b",7" * 40 + b"\n", b"x" * 200_000])
    def test_a_run_continues_after_its_log_was_damaged(self, damage: bytes, tmp_path: Path) -> None:
        """A power cut takes the log's last blocks; the checkpoint is on the disk."""
        session.run(trainer(iterations=2), tmp_path)
        with (tmp_path / "progress.csv").open("ab") as file:
            file.write(damage)
        session.run(trainer(iterations=3), tmp_path, resume=True)
        assert logged(tmp_path) == [1, 2, 3]
        assert (tmp_path / "learning_curve.png").is_file()

    def test_tensorboard_events_can_be_read(self, tmp_path: Path) -> None:
        session.run(trainer(iterations=3), tmp_path)
        module: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
        events = module.EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        rewards = events.Scalars("run/reward_per_s")
        assert [event.step for event in rewards] == [1, 2, 3]
        logged = [float(row["reward_per_s"]) for row in rows(tmp_path)]
        assert [event.value for event in rewards] == pytest.approx(logged, rel=1e-5)

    def test_the_learning_curve_is_a_picture(self, tmp_path: Path) -> None:
        session.run(trainer(iterations=2), tmp_path)
        data = (tmp_path / "learning_curve.png").read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert data.endswith(b"IEND\xaeB`\x82")


def interrupt_after_first_iteration(folder: Path) -> threading.Thread:
    """Presses Ctrl-C once the log has its first line."""

    def watch() -> None:
        for _ in range(6000):
            path = folder / "progress.csv"
            if path.is_file() and path.read_text().count("\n") >= 2:
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


class TestCommand:
    def test_the_outcome_as_json(self, tmp_path: Path, capsys: Captured) -> None:
        folder = tmp_path / "run"
        arguments = ["train", "cartpole-swingup", "--out", str(folder), "--iterations", "2", "--seed", "3", "--json"]
        assert main([*arguments, *OPTIONS]) == 0
        printed = capsys.readouterr()
        outcome = json.loads(printed.out)
        assert outcome["run"] == str(folder)
        assert outcome["contract"] == load_contract(folder / "contract.json").fingerprint
        assert (outcome["iterations"], outcome["env_steps"], outcome["success"]) == (2, 64, None)
        assert outcome["reason"] == "all iterations done"
        assert f"next: physai export {folder}" in printed.err
        assert json.loads((folder / "config.json").read_text())["config"]["seed"] == 3

    def test_an_interrupt_exits_with_130_and_can_be_resumed(self, tmp_path: Path, capsys: Captured) -> None:
        folder = tmp_path / "run"
        watcher = interrupt_after_first_iteration(folder)
        assert main(["train", "cartpole-swingup", "--out", str(folder), "--iterations", "100000", *OPTIONS]) == 130
        watcher.join()
        reached = read_checkpoint(folder)["iteration"]
        assert logged(folder) == list(range(1, reached + 1))
        assert "stopped by a signal" in capsys.readouterr().err
        assert main(["train", "--resume", str(folder), "--iterations", str(reached + 2)]) == 0
        assert logged(folder) == list(range(1, reached + 3))


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one iteration."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "cartpole-swingup", "--out", str(folder), "--iterations", "1", *OPTIONS]) == 0
    return folder


class TestRefusal:
    """Bad input is one line on stderr and exit code 2, and leaves nothing behind."""

    def refused(self, arguments: list[str], capsys: Captured) -> str:
        capsys.readouterr()
        assert main(["train", *arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err

    def test_a_folder_that_holds_a_run(self, run_folder: Path, capsys: Captured) -> None:
        before = (run_folder / "checkpoint.pt").read_bytes()
        message = self.refused(["cartpole-swingup", "--out", str(run_folder), *OPTIONS], capsys)
        assert f"{run_folder} already holds a run; continue it with --resume {run_folder}" in message
        assert (run_folder / "checkpoint.pt").read_bytes() == before

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            (["--num-envs", "4"], "--num-envs"),
            (["--seed", "0"], "--seed"),
            (["--set", "clip=0.1"], "--set clip=0.1"),
            (["--out", "elsewhere"], "--out"),
            (["--preset", "realaigym-v2"], "--preset"),
        ],
    )
    def test_other_settings_for_a_resumed_run(
        self, run_folder: Path, options: list[str], named: str, capsys: Captured
    ) -> None:
        message = self.refused(["--resume", str(run_folder), *options], capsys)
        assert f"a resumed run keeps its settings; leave out {named} or start a new run" in message

    def test_resuming_with_another_task_prints_the_difference(self, run_folder: Path, capsys: Captured) -> None:
        capsys.readouterr()
        assert main(["train", "pendubot-swingup", "--resume", str(run_folder)]) == 2
        message = capsys.readouterr().err
        assert "cartpole" in message
        assert "double_pendulum" in message

    def test_resuming_what_is_no_run(self, tmp_path: Path, capsys: Captured) -> None:
        assert "is not a run folder" in self.refused(["--resume", str(tmp_path)], capsys)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_a_gpu_that_is_not_used(self, tmp_path: Path, capsys: Captured) -> None:
        message = self.refused(["cartpole-swingup", "--device", "cuda", "--out", str(tmp_path / "run")], capsys)
        assert "--device cuda: " in message
        assert "use --device cpu" in message

    def test_an_unknown_task(self, tmp_path: Path, capsys: Captured) -> None:
        message = self.refused(["cartpole-swing", "--out", str(tmp_path / "run")], capsys)
        assert "did you mean cartpole-swingup" in message
        assert list(tmp_path.iterdir()) == []

    def test_no_task(self, capsys: Captured) -> None:
        message = self.refused([], capsys)
        assert "name a task to train" in message
        assert "--resume RUN" in message

    @pytest.mark.parametrize("budget", ["0", "-1"])
    def test_a_budget_that_is_no_time(self, budget: str, capsys: Captured) -> None:
        message = self.refused(["cartpole-swingup", "--time-budget-s", budget], capsys)
        assert "--time-budget-s must be a positive number of seconds" in message

    @pytest.mark.parametrize(
        ("option", "expected"),
        [
            ("learning_rat=1", "did you mean learning_rate"),
            ("clip", "--set takes KEY=VALUE, got 'clip'"),
            ("clip=nan", "clip must be a positive number up to 1e+09, got nan"),
            ("horizon=soon", "option horizon=soon: expected int"),
        ],
    )
    def test_a_setting_that_is_none(self, option: str, expected: str, tmp_path: Path, capsys: Captured) -> None:
        folder = tmp_path / "run"
        assert expected in self.refused(["cartpole-swingup", "--out", str(folder), "--set", option], capsys)
        assert not folder.exists()

    @pytest.mark.parametrize("extra", [[], ["--num-envs", "32"], ["--device", "cpu"]])
    def test_groups_without_a_whole_episode(self, extra: list[str], tmp_path: Path, capsys: Captured) -> None:
        words = ["--set", "advantage=grpo", "--out", str(tmp_path / "run"), *extra]
        assert "set horizon=500" in self.refused(["cartpole-swingup", *words], capsys)
        assert list(tmp_path.iterdir()) == []

    def test_weights_of_another_robot(self, run_folder: Path, tmp_path: Path, capsys: Captured) -> None:
        words = ["--init-from", str(run_folder), "--out", str(tmp_path / "new"), "--num-envs", "8"]
        assert main(["train", "pendubot-swingup", *words]) == 2
        assert "are for other observations or actions" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []

    def test_an_output_that_is_a_file(self, tmp_path: Path, capsys: Captured) -> None:
        (tmp_path / "run").write_text("")
        message = self.refused(["cartpole-swingup", "--out", str(tmp_path / "run"), *OPTIONS], capsys)
        assert "cannot write run folder" in message


def test_what_python_cannot_train_leaves_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set horizon=500"):
        train("cartpole-swingup", tmp_path / "run", config=replace(CONFIG, advantage="grpo", group=4))
    assert list(tmp_path.iterdir()) == []


def test_the_settings_can_be_listed(capsys: Captured) -> None:
    assert main(["train", "--set", "help"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"learning_rate +0\.001 +0\.001 +float +Initial step size of Adam", printed)
    assert re.search(r"schedule +adaptive +adaptive +adaptive or fixed", printed)
