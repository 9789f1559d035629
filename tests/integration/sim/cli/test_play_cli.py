"""`physai play`, from its arguments to its files."""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import pytest
from onnx import TensorProto, helper
from tests.support.opengl import has_opengl, needs_opengl

from physai.sdk.base.errors import ContractMismatchError, DeviceError, PhysaiError, TaskError, UnknownNameError
from physai.sdk.policy.header import PolicyHeader
from physai.service.cli.play import command
from physai.sim.playback.recordings.recording_reader import read_recording
from physai.sim.playback.rendering import NO_OPENGL
from physai.sim.tasks.registry import load_task

TASK_FILE = """
import dataclasses, signal
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import RewardTerm
from tests.support.opengl import has_opengl, needs_opengl

def interrupted(view):
    if abs(view.episode_time[0] - 0.3) < 1e-6:
        signal.raise_signal(signal.SIGINT)
    return view.joint_pos[:, 0] * 0.0

def make_task():
    return dataclasses.replace(load_task("cartpole-swingup"), name="mine", rewards={REWARDS})
"""


def run(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


def play_json(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    assert run(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


def write_policy(path: Path, *, force: float, origin: dict[str, str] | None = None) -> Path:
    """A cart-pole policy that pushes with one force."""
    header = PolicyHeader(load_task("cartpole-swingup").contract, {}, origin or {})
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in part.items()]
        for part in (header.inputs, header.outputs)
    )
    constants = [
        helper.make_tensor("zero", TensorProto.FLOAT, [2, 1], [0.0, 0.0]),
        helper.make_tensor("force", TensorProto.FLOAT, [1, 1], [force]),
    ]
    nodes = [
        helper.make_node("MatMul", ["joint_vel", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "force"], ["joint_effort_target"]),
    ]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(model, header.metadata())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def frame_count(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


@needs_opengl
def test_one_run_films_records_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    film, recording = tmp_path / "a.mp4", tmp_path / "a.mcap"
    size = ("--width", "160", "--height", "120", "--fps", "10")
    report = play_json(
        capsys, "ur10e-reach", "--agent", "random", "--video", film, *size, "--record", recording, "--duration-s", "0.8"
    )
    assert frame_count(film) == 8
    (episode,) = read_recording(recording).episodes
    assert episode.time_s[-1] == pytest.approx(0.8)
    (outcome,) = report.pop("episodes")
    assert episode.outcome == outcome
    assert outcome.keys() == {
        "episode", "seed", "ended", "length_s", "return", "judged", "succeeded", "success", "metrics"
    }  # fmt: skip
    assert (outcome["ended"], outcome["success"]) == ("stopped", None)
    assert report == {
        "task": "ur10e-reach",
        "played_by": "random",
        "fingerprint": load_task("ur10e-reach").contract.fingerprint,
        "seed": 0,
        "randomised": True,
        "criterion": "within 2 cm and 0.1 rad when 4 s are over",
        "judged": 0,
        "succeeded": 0,
        "interrupted": False,
        "video": str(film),
        "record": str(recording),
    }


def test_the_table_counts_successes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("go2-velocity", "--record", tmp_path / "a.mcap", "--nominal", "--seed", "1") == 0
    header, row, _, verdict, file = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "episode", "succeeded", "ended", "length", "[s]", "return", "velocity_error_m_s", "yaw_rate_error_rad_s"
    ]  # fmt: skip
    assert row.split()[2:6] == ["of", "3", "time", "12.00"]
    succeeded = row.split()[1]
    assert verdict.startswith(f"go2-velocity, zero: {succeeded} of 3 succeeded (within 0.3 m/s")
    assert file == f"record  {tmp_path / 'a.mcap'}"


def test_a_duration_takes_as_many_episodes_as_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = play_json(capsys, "cartpole-swingup", "--record", tmp_path / "a.mcap", "--duration-s", "15")
    assert [episode["ended"] for episode in report["episodes"]] == ["time", "stopped"]
    assert [episode["length_s"] for episode in report["episodes"]] == pytest.approx([10.0, 5.0])


def test_a_run_folder_plays_its_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_policy(tmp_path / "run" / "export" / "policy.onnx", force=10.0, origin={"task": "cartpole-swingup"})
    report = play_json(capsys, tmp_path / "run", "--record", tmp_path / "a.mcap", "--episodes", "2", "--nominal")
    assert report["played_by"] == str(tmp_path / "run" / "export" / "policy.onnx")
    assert [episode["ended"] for episode in report["episodes"]] == ["failure", "failure"]
    recording = read_recording(tmp_path / "a.mcap")
    assert (recording.episodes[0].targets["joint_effort_target"] == 10.0).all()
    assert recording.metadata["played_by"] == report["played_by"]


def test_a_policy_of_another_origin_plays_its_contract_s_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = write_policy(tmp_path / "policy.onnx", force=1.0)
    report = play_json(capsys, policy, "--record", tmp_path / "a.mcap", "--duration-s", "0.1")
    assert report["task"] == "cartpole-swingup"
    with pytest.raises(ContractMismatchError):
        run(policy, "--task", "ur10e-reach", "--record", tmp_path / "a.mcap")


def test_ctrl_c_finishes_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The task itself sends the signal, 0.3 s into its first episode."""
    (tmp_path / "mine.py").write_text(TASK_FILE.replace("REWARDS", '"x": RewardTerm(term=interrupted, weight=1.0)'))
    words = ["--record", tmp_path / "a.mcap", "--episodes", "5", "--json"]
    if has_opengl():
        words += ["--video", tmp_path / "a.mp4", "--width", "160", "--height", "120", "--fps", "10"]
    before = signal.getsignal(signal.SIGINT)
    assert run(tmp_path / "mine.py", *words) == 130
    assert signal.getsignal(signal.SIGINT) is before
    report = json.loads(capsys.readouterr().out)
    assert report["interrupted"] is True
    assert [episode["ended"] for episode in report["episodes"]] == ["stopped"]
    (episode,) = read_recording(tmp_path / "a.mcap").episodes
    assert episode.outcome is not None
    assert episode.time_s[-1] == pytest.approx(0.3)
    if has_opengl():
        assert frame_count(tmp_path / "a.mp4") == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--episodes", "0"], "--episodes must lie in 1 … 100000, got 0"),
        (["--seed", "-1"], "--seed must lie in 0"),
        (["--duration-s", "nan"], "--duration-s must be above 0 and at most 86400 s, got nan"),
        (["--duration-s", "0"], "got 0.0"),
        (["--fps", "inf"], "--fps must lie in 1 … 120 frames per second, got inf"),
        (["--width", "15"], "--width must lie in 16 … 4096 pixels, got 15"),
        (["--height", "5000"], "--height must lie in 16 … 4096 pixels, got 5000"),
        (["--video", "a.avi"], r"--video a\.avi: the file name must end in \.mp4"),
        (["--record", "a.bag"], r"the file name must end in \.mcap"),
        (["--record", "nowhere/a.mcap"], r"--record nowhere/a\.mcap: cannot be written: No such file"),
        (["--record", "a.mcap", "--task", "x"], "is already a task; omit --task x"),
        (["--record", "a.mcap", "--agent", "hodl"], "no agent named 'hodl'; did you mean hold"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PhysaiError, match=message):
        run("cartpole-swingup", *words)
    assert list(tmp_path.iterdir()) == []


def test_an_older_file_survives_a_request_that_fails(tmp_path: Path) -> None:
    kept = tmp_path / "a.mcap"
    kept.write_text("old")
    with pytest.raises(UnknownNameError, match="did you mean cartpole-swingup"):
        run("cartpole", "--record", kept)
    assert kept.read_text() == "old"


def test_what_is_neither_task_nor_policy_gets_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match=r"nowhere/policy\.onnx is neither a run folder nor an exported policy"):
        run("nowhere/policy.onnx")
    with pytest.raises(PhysaiError, match="physai export"):
        run(tmp_path)
    policy = write_policy(tmp_path / "policy.onnx", force=0.0)
    with pytest.raises(PhysaiError, match="is a policy; --agent zero needs a task"):
        run(policy, "--agent", "zero")
    with pytest.raises(TaskError, match="does not exist"):
        run("nowhere.py", "--record", tmp_path / "a.mcap")


def test_without_a_display_the_way_out_is_a_film(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(DeviceError, match=r"no display on this machine; film it: --video play\.mp4"):
        run("cartpole-swingup")


def test_a_display_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":7654")
    with pytest.raises(DeviceError, match=r"no window can be opened on display ':7654'; film it"):
        run("cartpole-swingup")


def test_without_opengl_a_film_is_refused_in_one_line(tmp_path: Path) -> None:
    """A graphics device that is not there, and no other way allowed."""
    words = ["play", "cartpole-swingup", "--video", "a.mp4"]
    program = f"import sys; from physai.sdk.cli.main import main; sys.exit(main({words!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "MUJOCO_GL": "egl", "MUJOCO_EGL_DEVICE_ID": "99"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"physai: error: {NO_OPENGL}\n")
    assert list(tmp_path.iterdir()) == []


def test_playing_needs_no_torch(tmp_path: Path) -> None:
    write_policy(tmp_path / "policy.onnx", force=1.0)
    words = ["play", "policy.onnx", "--record", "a.mcap", "--duration-s", "0.1"]
    program = (
        f"import sys; from physai.sdk.cli.main import main; code = main({words!r}); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(read_recording(tmp_path / "a.mcap").episodes) == 1
