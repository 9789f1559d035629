"""`physai logs check`, as it is typed."""

import json
from collections.abc import Callable
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sdk.cli.main import main
from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import LogError
from physai.twin.logs.picture import draw
from physai.twin.logs.quality import check_raw
from physai.twin.logs.reader import read_raw

Motion = dict[str, NDArray[np.float64]]
CsvWriter = Callable[..., Path]

ROBOT = """
<mujoco model="arm">
  <compiler autolimits="true"/>
  <worldbody>
    <body><joint name="shoulder" axis="0 1 0" range="-2 2.5"/><geom size="0.1"/>
      <body pos="0 0 1"><joint name="elbow" axis="0 1 0" range="-2 2.5"/><geom size="0.1"/></body></body>
  </worldbody>
  <actuator>
    <motor name="shoulder" joint="shoulder" ctrlrange="-5 5"/><motor name="elbow" joint="elbow" ctrlrange="-5 5"/>
  </actuator>
</mujoco>
"""


@pytest.fixture
def robot(tmp_path: Path) -> str:
    path = tmp_path / "arm.xml"
    path.write_text(ROBOT.replace("-2 2.5", "-115 144"))
    return str(path)


def test_a_sound_recording(write: CsvWriter, motion: Motion, robot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "check", str(write(motion, name="swing.csv")), "--model", robot]) == 0
    out = capsys.readouterr().out
    assert "swing: usable for calibration" in out
    assert "1000 samples in 1.998 s, 500 Hz (period 2.000 ms" in out
    assert "shoulder  -1 … 1" in out
    assert "rad, rad/s, N·m (slide joints: m, m/s, N)" in out
    assert out.endswith("1 of 1 recording usable for calibration\n")


def test_names_in_json_do_not_steer_the_terminal(
    write: CsvWriter, motion: Motion, robot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of control characters JSON itself escapes those below a space only; U+202E turns the text around."""
    path = write(motion, name="swing.csv")
    evil = path.rename(path.with_name("\x9b2J\u202eswing.csv"))
    assert main(["logs", "check", str(evil), "--model", robot, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert str(evil) in json.dumps(json.loads(out), ensure_ascii=False)


def test_a_defect_is_exit_code_1(
    write: CsvWriter, motion: Motion, robot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(motion, name="good.csv")
    motion["q2"][5] = np.nan
    bad = write(motion, name="bad.csv")
    assert main(["logs", "check", str(good), str(bad), "--model", robot]) == 1
    out = capsys.readouterr().out
    assert "bad: NOT usable for calibration" in out
    assert "defect   finite  joint_pos of elbow is missing" in out
    assert "→ remove these rows" in out
    assert "1 of 2 recordings usable for calibration" in out


def test_what_cannot_be_read_is_exit_code_2_and_the_rest_is_judged(
    write: CsvWriter, motion: Motion, robot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write(motion, name="swing.csv")
    (good.parent / "empty.csv").write_text("")
    files = [str(good), str(good.parent / "empty.csv"), "none.csv"]
    assert main(["logs", "check", *files, "--model", robot]) == 2
    out = capsys.readouterr().out
    assert "swing: usable for calibration" in out
    assert "unreadable: " in out
    assert "empty.csv: the file is empty" in out
    assert "none.csv: no such file" in out
    assert "1 of 3 recordings usable for calibration" in out


def test_without_a_robot_the_maps_joints_are_judged_without_limits(
    write: CsvWriter, motion: Motion, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write({**motion, "q1": motion["q1"] * 3, "v1": motion["v1"] * 3})
    assert main(["logs", "check", str(path)]) == 0
    assert "Robot limits were not checked" in capsys.readouterr().out


def test_the_robot_that_a_map_names_is_taken(
    write: CsvWriter, motion: Motion, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(motion)
    column_map = path.with_name("columns.yaml")
    text = column_map.read_text().replace("shoulder", "joint1").replace("elbow", "joint2")
    column_map.write_text(f"robot: double_pendulum\n{text}")
    assert main(["logs", "check", str(path)]) == 0
    out = capsys.readouterr().out
    assert "joint2" in out
    assert "limits" not in out


def test_json_holds_everything(
    write: CsvWriter, motion: Motion, robot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    motion["e1"][500] = 40.0
    path = write(motion, name="swing.csv")
    assert main(["logs", "check", str(path), "none.csv", "--model", robot, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["usable"] is False
    assert document["unreadable"] == [{"source": "none.csv", "error": "none.csv: no such file"}]
    (log,) = document["logs"]
    assert (log["name"], log["usable"], log["samples"]) == ("swing", True, 1000)
    assert log["periods"]["median_s"] == pytest.approx(0.002)
    spike = next(finding for finding in log["findings"] if finding["check"] == "spike")
    assert (spike["severity"], spike["joint"], spike["samples"]) == ("warning", "shoulder", [500])
    assert [joint["name"] for joint in log["joints"]] == ["shoulder", "elbow"]
    assert log["joints"][1]["noise_std"]["joint_pos"] >= 0.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "nosuch"], "no robot named 'nosuch'"),
        (["--columns", "none.yaml"], "none.yaml: no such column map"),
        (["--picture", "a.gif"], "a.gif: the file name must end in .png, .svg or .pdf"),
        (["--picture", "/no/such/a.png"], "does not exist"),
    ],
)
def test_bad_options_are_one_line(
    write: CsvWriter, motion: Motion, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["logs", "check", str(write(motion)), *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("physai: error:")
    assert message in error
    assert "Traceback" not in error


def test_help_names_the_formats_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "check", "--help"]) == 0
    out = capsys.readouterr().out
    for word in ("CSV", "Parquet", "MCAP", "ROS 2", "--columns", "--picture", "0 usable for calibration"):
        assert word in out


def test_a_picture_shows_the_recording(write: CsvWriter, motion: Motion, robot: str, tmp_path: Path) -> None:
    motion["e1"][500] = 40.0
    target = tmp_path / "out.png"
    assert main(["logs", "check", str(write(motion)), "--model", robot, "--picture", str(target)]) == 0
    pixels = matplotlib.image.imread(target)
    assert pixels.shape[1] == 1500
    # White ground, and lines in the colours of measurement (31, 95, 168) and command (224, 130, 20).
    for colour, least in (((255, 255, 255), 0.5), ((31, 95, 168), 1e-3), ((224, 130, 20), 1e-3)):
        near = np.abs(pixels[..., :3] * 255 - colour).max(axis=-1) < 50
        assert near.mean() > least


def test_several_pictures_are_named_after_their_recordings(
    write: CsvWriter, motion: Motion, robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write(motion, name="a.csv")
    motion["q1"] = motion["q1"] + 0.01
    second = write(motion, name="b.csv")
    main(["logs", "check", str(first), str(second), "--model", robot, "--picture", str(tmp_path / "out.svg")])
    assert {path.name for path in tmp_path.glob("*.svg")} == {"out-a.svg", "out-b.svg"}
    assert "out-b.svg" in capsys.readouterr().out


def test_a_picture_of_a_defective_recording_of_many_joints(write: CsvWriter, tmp_path: Path) -> None:
    t = np.arange(50) * 0.01
    names = [f"j{i}" for i in range(12)]
    columns = {"t": t, **{name: np.sin(t + i) for i, name in enumerate(names)}}
    columns["j3"][4] = np.nan
    joints = "\n".join(f"  {name}: {{joint_pos: {name}, command: {name}}}" for name in names)
    path = write(columns, column_map=f"time: t\ncommand_kind: joint_pos\njoints:\n{joints}\n")
    draw(check_raw(read_raw(path, None)), tmp_path / "out.png")
    assert (tmp_path / "out.png").stat().st_size > 10_000


def test_a_picture_that_cannot_be_written_is_an_error(
    write: CsvWriter, motion: Motion, arm: RobotSpec, tmp_path: Path
) -> None:
    with pytest.raises(LogError, match="cannot be written"):
        draw(check_raw(read_raw(write(motion), arm)), tmp_path / "none" / "out.png")
