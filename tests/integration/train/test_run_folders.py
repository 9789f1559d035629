"""A run folder is enough: a task is written, trained, moved to where nothing else of it is, and used there."""

import html
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests.support.foreign_arm import write_foreign_arm

from physai.gates.record import rederive
from physai.sdk.base.errors import TaskError
from physai.sdk.base.formats.canonical import sha256_hex
from physai.sdk.base.formats.onnx_metadata import read_onnx_metadata
from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract
from physai.sdk.evidence.latency import LatencyEvidence, save_evidence
from physai.sdk.evidence.origin import Origin
from physai.sim.robots import load_robot
from physai.train.runners.checkpoint import read_checkpoint
from physai.train.runs.run_config import load_config
from physai.twin.model.twin import nominal_twin, save_twin

Captured = pytest.CaptureFixture[str]
SUPPORT = Path(__file__).parents[2] / "support"
SMALL = ["--num-envs", "16", "--set", "horizon=8", "--set", "minibatches=2", "--iterations", "2"]


def physai(*words: str | Path, code: int = 0) -> None:
    assert main([str(word) for word in words]) == code


def refused(capsys: Captured, *words: str | Path) -> str:
    """The one line that a refused command prints."""
    capsys.readouterr()
    physai(*words, code=2)
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of a new task, in a folder of another computer, which has nothing else of it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    physai("new", "balance")
    physai("train", "balance.py", *SMALL, "--out", "run")
    return carried(home, tmp_path / "other computer")


def carried(home: Path, other: Path) -> Path:
    other.mkdir()
    shutil.move(home / "run", other / "run")
    os.chdir(other)
    shutil.rmtree(home)
    return Path("run")


@pytest.mark.slow
def test_the_road_of_a_new_task(
    moved: Path, capsys: Captured, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # What needs the policy only does not need the task; what needs the task says how to allow it.
    physai("runs", "list", ".")
    message = refused(capsys, "export", moved, "--states", "20")
    assert "read run/task/source/balance.py, then run it with --task run" in message
    message = refused(capsys, "train", "--resume", moved)
    assert "read run/task/source/balance.py and name its folder, run, or another file: physai train TASK" in message

    physai("export", moved, "--task", moved, "--states", "20")
    assert "running run/task/source/balance.py (SHA-256 " in caplog.text
    capsys.readouterr()
    policy = moved / "export" / "policy.onnx"
    kept = json.loads((moved / "task" / "task.json").read_text())
    metadata = read_onnx_metadata(policy)
    assert metadata["physai.provenance.task_sha256"] == kept["files"]["source/balance.py"]
    assert metadata["physai.provenance.task"] == "balance.py"

    assert "--task run" in refused(capsys, "eval", moved)
    physai("eval", moved, "--task", moved, "--episodes", "4", "--json")
    assert json.loads(capsys.readouterr().out)["judged"] == 4

    physai("train", moved, "--resume", moved, "--iterations", "4")
    assert read_checkpoint(moved)["iteration"] == 4

    # Fine-tuning takes the network's settings over.
    physai("train", moved, "--init-from", moved, *SMALL, "--out", "fine", "--set", "learning_rate=1e-4")
    assert load_config(Path("fine"))[1].hidden == (32, 32)
    assert load_config(Path("fine"))[2]["init_from"] == "run"
    capsys.readouterr()
    message = refused(capsys, "train", moved, "--init-from", moved, *SMALL, "--out", "wide", "--set", "hidden=8")
    assert "leave hidden out" in message

    # Nothing passes in a twin that is not calibrated.
    save_evidence(ticks(moved), Path("ticks.json"))
    physai("sim", "validate", moved, "--task", moved, "--latency", "ticks.json", code=2)
    page = (moved / "validation" / "report.html").read_text()
    commands = [html.unescape(text) for text in re.findall(r"<code>(.*?)</code>", page)]
    assert len(commands) >= 2
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "physai"
        physai(*words[1:], "--video", tmp_path / "case.mp4", "--width", "64", "--height", "64")
    assert len({json.dumps(case) for case in shown(moved)}) == len(commands)

    # A validator elsewhere derives the verdict again, from the folder's copy of the task.
    os.rename(moved, "again")
    members = {name: Path("again/export", name).read_bytes() for name in ("policy.onnx", "golden.npz")}
    rederive(Path("again/validation"), members, task="again", replays=1)
    with pytest.raises(TaskError, match="`task` again"):
        rederive(Path("again/validation"), members, replays=1)


@pytest.mark.slow
def test_a_twin_moves_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    save_twin(nominal_twin(load_robot("cartpole")), Path("twin.json"))
    physai("train", "cartpole-swingup", "--twin", "twin.json", *SMALL, "--out", "run")
    run = carried(home, tmp_path / "other")
    physai("export", run, "--states", "20")
    physai("train", "--resume", run, "--iterations", "3")
    assert read_onnx_metadata(run / "export" / "policy.onnx")["physai.provenance.twin_hash"]
    kept = run / "task" / "twin.json"
    kept.write_text(kept.read_text() + " ")
    assert "twin.json was changed after the run began" in refused(capsys, "export", run)


def test_a_mismatch_names_the_version_that_made_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    run = tmp_path / "run"
    physai("train", "cartpole-swingup", *SMALL, "--out", run)
    document = json.loads((run / "config.json").read_text())
    document["provenance"]["version.physai-sdk"] = "0.0.1"
    (run / "config.json").write_text(json.dumps(document))
    physai("export", run, "--states", "20")  # another version alone is no reason to refuse
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    state["contract"] = state["contract"].replace('"deadline_s":0.01', '"deadline_s":0.009')
    torch.save(state, run / "checkpoint.pt")
    capsys.readouterr()
    physai("export", run, code=2)
    printed = capsys.readouterr().err
    assert "timing.deadline_s" in printed
    assert "the run was trained with physai-sdk 0.0.1, this is" in printed


def ticks(run: Path) -> LatencyEvidence:
    contract = load_contract(run / "contract.json")
    return LatencyEvidence(
        policy_sha256=sha256_hex((run / "export" / "policy.onnx").read_bytes()),
        contract_fingerprint=contract.fingerprint,
        origin=Origin(kind="robot", robot=contract.robot.name),
        device="bench",
        runtime="none",
        tick_s=(0.001,) * 10_000,
    )


def shown(run: Path) -> list[str]:
    """Seeds of the worst cases."""
    verdict = json.loads((run / "validation" / "verdict.json").read_text())
    cases = {
        gate["counterexample"]["index"]: gate["counterexample"]
        for gate in verdict["gates"]
        if gate.get("counterexample")
    }
    return [case["episode_seed"] for case in cases.values()]


def test_a_robot_next_to_the_task_moves_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("pusher_task.py", "pusher.xml"):
        shutil.copy(SUPPORT / name, home)
    monkeypatch.chdir(home)
    physai("train", "pusher_task.py", *SMALL, "--out", "run")
    run = carried(home, tmp_path / "other")
    physai("export", run, "--task", run, "--states", "20")


@pytest.mark.slow
def test_a_robot_from_the_command_line_needs_no_name_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A built-in task with a user's robot runs no Python of the folder, so nothing has to be allowed."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    Path("my_arm.xml").write_bytes(load_robot("ur10e").path.read_bytes())
    physai("train", "ur10e-reach", "--robot", "my_arm.xml", *SMALL, "--out", "run")
    run = carried(home, tmp_path / "other")
    physai("export", run, "--states", "20")
    capsys.readouterr()
    physai("eval", run, "--episodes", "2", "--json")
    assert json.loads(capsys.readouterr().out)["task"] == "ur10e-reach"
    physai("train", "--resume", run, "--iterations", "3")
    (run / "task" / "robot.zip").unlink()
    assert "--model FILE" in refused(capsys, "eval", run)


@pytest.mark.slow
def test_an_imported_arm_with_meshes_moves_with_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    urdf = write_foreign_arm(tmp_path)
    # The task takes arms without a gripper.
    urdf.write_text(re.sub(r'<link name="left_finger">.*(?=<transmission)', "", urdf.read_text(), flags=re.DOTALL))
    physai("robots", "import", urdf, "-o", "my_arm", "--json")
    physai("train", "ur10e-reach", "--robot", "my_arm", *SMALL, "--out", "run")
    run = carried(home, tmp_path / "other")
    physai("export", run, "--states", "20")


def test_settings_come_from_the_task_the_file_and_the_options_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    physai("new", "mine")
    Path("settings.yaml").write_text("hidden: [16]\ndiscount_s: 3\n")
    capsys.readouterr()
    physai("train", "mine.py", "--config", "settings.yaml", "--set", "discount_s=4", "--set", "help")
    lines = {line.split()[0]: line.split()[1:3] for line in capsys.readouterr().out.splitlines()}
    assert lines["num_envs"] == ["256", "1024"]
    assert lines["hidden"] == ["16", "64,64"]
    assert lines["discount_s"] == ["4.0", "1.0"]
    Path("settings.yaml").write_text("discont_s: 3\n")
    assert "settings.yaml: no training option named 'discont_s'; did you mean discount_s" in refused(
        capsys, "train", "mine.py", "--config", "settings.yaml"
    )
    text = Path("mine.py").read_text()
    Path("mine.py").write_text(text.replace('"discount_s": 1.0', '"discount_s": float("nan")'))
    assert "task mine: discount_s must be a positive number" in refused(capsys, "train", "mine.py")


def test_seeds_are_runs_like_any_other_and_continue(tmp_path: Path, capsys: Captured) -> None:
    words = ["train", "cartpole-swingup", *SMALL, "--seeds", "0..1", "--out", tmp_path / "both"]
    physai(*words)
    physai("train", "cartpole-swingup", *SMALL, "--seed", "1", "--out", tmp_path / "alone")
    first, second = (read_checkpoint(tmp_path / "both" / f"seed-{seed}")["graph"] for seed in (0, 1))
    alone = read_checkpoint(tmp_path / "alone")["graph"]
    assert all(torch.equal(second[name], alone[name]) for name in alone)
    assert not all(torch.equal(first[name], second[name]) for name in alone)
    # Of an ended and a killed one, the killed one goes on.
    (tmp_path / "both" / "seed-1" / "outcome.json").unlink()
    capsys.readouterr()
    physai(*words)
    printed = capsys.readouterr().err
    assert f"{tmp_path / 'both' / 'seed-0'} has ended" in printed
    assert f"into {tmp_path / 'both' / 'seed-1'}" in printed
    assert "holds a run with learning_rate 0.001, not 0.002" in refused(capsys, *words, "--set", "learning_rate=0.002")


@pytest.mark.slow
def test_a_killed_run_is_whole_where_it_is_moved(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    for name in ("pusher_task.py", "pusher.xml"):
        shutil.copy(SUPPORT / name, tmp_path / "home")
    command = [sys.executable, "-m", "physai.sdk.cli", "train", "pusher_task.py", *SMALL[:-1], "100000"]
    command += ["--set", "checkpoint_every_s=0", "--out", "run"]
    training = subprocess.Popen(command, cwd=tmp_path / "home", stderr=subprocess.DEVNULL)
    progress, deadline = tmp_path / "home" / "run" / "progress.csv", time.monotonic() + 120.0
    while not (progress.is_file() and progress.read_text().count("\n") > 3) and time.monotonic() < deadline:
        time.sleep(0.05)
    training.send_signal(signal.SIGKILL)
    training.wait(timeout=30)
    run = carried(tmp_path / "home", tmp_path / "other")
    done = read_checkpoint(run)["iteration"]
    assert done >= 2
    physai("train", run, "--resume", run, "--iterations", str(done + 2))
    assert read_checkpoint(run)["iteration"] == done + 2
