"""`physai runs sweep` on real Ray Tune: trials are ordinary runs, survive kills, and are not run again."""

import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from physai.cluster.sweep.folder import SweepBase, SweepFolder, SweepTrial
from physai.cluster.sweep.plan import load_sweep
from physai.compute.ray.cluster import connected
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.cli.main import main
from physai.train.runners.checkpoint import read_checkpoint
from physai.train.runs.summary import load_summary

SWEEP = """
parameters:
  learning_rate: {choice: [0.0001, 0.01]}
trials: 2
seeds: [3]
budget: {iterations: 100}
metric: reward_per_s
asha: {grace_period: 5, reduction: 20}
"""
RUNG = 5
SMALL = ["num_envs=16", "horizon=8", "epochs=1", "minibatches=2", "hidden=8", "checkpoint_every_s=0"]
OPTIONS = [part for setting in SMALL for part in ("--set", setting)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One Ray for the module: it takes seconds to start."""
    pytest.importorskip("ray.tune")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        with connected("local", processors=2):
            yield


def sweep_file(folder: Path, text: str = SWEEP) -> str:
    path = folder / "sweep.yaml"
    path.write_text(text)
    return str(path)


def weights(run: Path) -> dict[str, Any]:
    return {name: tensor.tolist() for name, tensor in read_checkpoint(run)["graph"].items()}


def kill_the_training_of(run: Path) -> threading.Thread:
    """SIGKILL for the process that trains in a run folder, once it has saved an iteration."""

    def kill() -> None:
        while not (run / "progress.csv").exists() or not load_summary(run).progress.env_steps:
            time.sleep(0.01)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and str(run).encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
                return

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def by_hand(folder: Path, rate: str, iterations: int) -> Path:
    """The same run without a sweep."""
    run = folder / f"{rate}-{iterations}"
    words = ["--set", "num_threads=1", "--set", f"learning_rate={rate}", "--seed", "3", "--iterations", str(iterations)]
    assert main(["train", "cartpole-swingup", "--out", str(run), "--device", "cpu", *OPTIONS, *words]) == 0
    return run


def drawn_in_this_order(folder: Path, rates: list[str]) -> str:
    """A sweep file whose seed draws the rates in this order."""
    for seed in range(100):
        path = sweep_file(folder, f"{SWEEP}draw_seed: {seed}\n")
        if [point["learning_rate"] for point in load_sweep(Path(path)).points()] == rates:
            return path
    raise AssertionError(rates)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_trials_are_runs_that_survive_kills_and_stop_early_and_are_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate that is behind at the rung comes second, so it has to stop there; which one it is, runs by hand say."""
    out = tmp_path / "sweep"
    at_rung = {
        rate: load_summary(by_hand(tmp_path, rate, RUNG)).progress.reward_per_s[-1] for rate in ("0.0001", "0.01")
    }
    rates = sorted(at_rung, key=lambda rate: at_rung[rate], reverse=True)
    over = drawn_in_this_order(tmp_path, rates)
    first, second = (out / "trials" / f"000{number}-seed-3" for number in range(2))
    killed = kill_the_training_of(first)
    assert main(["runs", "sweep", "cartpole-swingup", "--over", over, "--out", str(out), *OPTIONS]) == 0
    killed.join()
    log = (out / "logs" / f"{first.name}.log").read_text()
    assert re.findall(r'^physai train .*"(out|resume)": ', log, re.MULTILINE) == ["out", "resume"]
    assert weights(first) == weights(by_hand(tmp_path, rates[0], 100))
    state = {"format_version": 1, "stopped": {second.name: float(RUNG)}, "failed": {}}
    assert json.loads((out / "state.json").read_text()) == state

    # As a sweep that was killed before its second trial began: that is compared with the first one again.
    shutil.rmtree(second)
    (out / "state.json").unlink()
    capsys.readouterr()
    assert main(["runs", "sweep", "--resume", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (out / "logs" / f"{first.name}.log").read_text() == log
    assert json.loads((out / "state.json").read_text()) == state
    assert said["complete"]
    found = [(point["number"], point["trials"][0]["state"], point["trials"][0]["time"]) for point in said["points"]]
    assert found == [(0, "ended", 100.0), (1, "stopped", float(RUNG))]
    assert said["points"][1]["mean"] == at_rung[rates[1]]
    assert said["best"] == str(first)
    assert weights(out / "best") == weights(first)
    assert (out / "best" / "export" / "policy.onnx").stat().st_size > 0
    assert not list(out.glob(".tune-*"))


def test_what_cannot_be_swept_is_refused_before_ray_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    over, out = sweep_file(tmp_path), str(tmp_path / "sweep")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(SWEEP.replace("learning_rate", "learning_rat"))
    far = tmp_path / "far.yaml"
    far.write_text(SWEEP.replace("[0.0001, 0.01]", "[-1]"))
    new = ["runs", "sweep", "cartpole-swingup", "--out", out]
    for words, message in (
        ([*new, "--over", str(wrong)], "no training option named 'learning_rat'; did you mean learning_rate"),
        ([*new, "--over", str(far)], "trial 0 (learning_rate -1): learning_rate must be a positive number"),
        ([*new, "--over", over, "--set", "learning_rate=1"], "learning_rate is given by"),
        ([*new, "--over", over, "--set", "seed=1"], "seed is given by"),
        ([*new, "--over", over, "--ray", "ray://x"], "expected auto, local, or HOST:PORT"),
        (["runs", "sweep", "cartpole-swngup", "--over", over], "did you mean"),
        (["runs", "sweep", "cartpole-swingup"], "name a task and a file"),
        (["runs", "sweep", "--resume", str(tmp_path)], "it has no sweep.json"),
    ):
        assert main(words) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "sweep").exists()


TASK_FILE = """
from pathlib import Path
from physai.sim.tasks.registry import load_task

Path(__file__).with_name("executed").touch()


def make_task():
    return load_task("cartpole-swingup")
"""


def stopped_sweep(folder: Path, base: SweepBase) -> SweepFolder:
    """A sweep whose trials have all been stopped, so that continuing it trains nothing."""
    sweep = SweepFolder.new(folder, base, load_sweep(Path(sweep_file(folder.parent))))
    for trial in sweep.trials:
        sweep.note_stopped(trial.name, 5.0)
    return sweep


def test_a_run_folder_that_only_the_sweep_names_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    (tmp_path / "task.py").write_text(TASK_FILE)
    words = [str(tmp_path / "task.py"), "--out", str(tmp_path / "run"), *OPTIONS, "--iterations", "1"]
    assert main(["train", *words]) == 0
    executed = tmp_path / "run" / "task" / "source" / "executed"
    sweep = stopped_sweep(tmp_path / "sweep", SweepBase(task=str(tmp_path / "run")))
    assert main(["runs", "sweep", "--resume", str(sweep.path)]) == 2
    assert "no file is opened because another file names it" in capsys.readouterr().err
    assert not executed.exists()
    # The user may name it.
    assert main(["runs", "sweep", str(tmp_path / "run"), "--resume", str(sweep.path)]) == 1
    assert executed.exists()


def test_a_continued_sweep_runs_the_file_that_was_named_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    recorded, named = tmp_path / "recorded.py", tmp_path / "named.py"
    named.write_text(TASK_FILE)
    recorded.write_text("raise SystemExit('another file')")
    base = SweepBase(task=str(recorded), hashes={"task": sha256_hex(named.read_bytes())})
    sweep = stopped_sweep(tmp_path / "sweep", base)
    found: list[str] = []

    def note(folder: SweepFolder, options: Any, **_: Any) -> bool:
        for trial in folder.trials:
            assert isinstance(trial, SweepTrial)
            found.extend(one.task for one in options(trial))
        return True

    monkeypatch.setattr("physai.cluster.sweep.tuner.run_trials", note)
    assert main(["runs", "sweep", str(named), "--resume", str(sweep.path)]) == 1
    # Of two trials, to begin and to continue each.
    assert found == [str(named)] * 4
