"""The whole path of a free body on the command line: record, check, calibrate, replay, and wrong twins that show."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.support.tossed_cube import CUBE

from physai.sdk.cli.main import main
from physai.sim.robots import load_robot
from physai.twin.claims.claims import contradiction
from physai.twin.model.twin import load_twin


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_from_throws_to_a_credible_twin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    robot, folder, twin = tmp_path / "cube.xml", tmp_path / "throws", tmp_path / "twin.json"
    robot.write_text(CUBE)
    assert main(["sim", "record", str(robot), "-o", str(folder), "--recordings", "12", "--seed", "3"]) == 0
    logs = [str(path) for path in sorted(folder.glob("*.csv"))]
    assert len(logs) == 12
    capsys.readouterr()
    assert main(["logs", "check", *logs, "--model", str(robot)]) == 0
    assert "12 of 12 recordings usable for calibration" in capsys.readouterr().out
    words = ["sim", "calibrate", str(robot), *logs, "-o", str(twin), "--budget-steps", "8000000", "--json"]
    assert main([*words, "--report", str(tmp_path)]) == 0
    record = printed(capsys)
    assert record["credible"] is True
    page = (tmp_path / "report.html").read_text()
    assert "base.position" in page
    assert "base.rotation" in page
    fitted = load_twin(twin)
    assert fitted.joint_names == ()
    assert contradiction(fitted, load_robot(robot)) == ""
    assert {p.name for p in fitted.parameters if p.identified} >= {"cube.sliding_friction", "cube.restitution"}
    # What a pose never shows: all forces on a free body are proportional to its mass.
    assert next(p for p in fitted.parameters if p.name == "cube.mass").value == 0.37
    assert main(["sim", "replay", str(twin), *logs, "--against", str(robot), "--json"]) == 0
    score = printed(capsys)
    rmse, against = score["rmse"], score["against"]
    for name in ("base.position", "base.rotation"):
        assert rmse[name]["value"] < 0.5 * against[f"rmse.{name}"]["value"]
        assert math.isfinite(rmse[name]["hi"])


def test_what_cannot_be_thrown_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    robot = tmp_path / "cube.xml"
    robot.write_text(CUBE.replace('<geom name="floor" type="plane" size="2 2 0.1"/>', ""))
    assert main(["sim", "record", str(robot), "-o", str(tmp_path / "throws")]) == 2
    assert "touches nothing within 1 s; give its file a floor" in capsys.readouterr().err
    assert not (tmp_path / "throws").exists()
    robot.write_text(CUBE)
    for duration in ("0.1", "0"):
        assert main(["sim", "record", str(robot), "-o", str(tmp_path / "throws"), "--duration-s", duration]) == 2
        assert f"--duration-s must be in 0.5 … 600 for a throw, got {duration}" in capsys.readouterr().err
    commands = tmp_path / "commands.csv"
    commands.write_text("time\n0\n0.004\n")
    assert main(["sim", "record", str(robot), "-o", str(tmp_path / "throws"), "--commands", str(commands)]) == 2
    assert "robot cube has no joints that --commands could drive" in capsys.readouterr().err


def test_replayed_throws_are_printed_without_offsets_of_encoders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    robot, folder = tmp_path / "cube.xml", tmp_path / "throws"
    robot.write_text(CUBE)
    assert main(["sim", "record", str(robot), "-o", str(folder), "--recordings", "2"]) == 0
    logs = [str(path) for path in sorted(folder.glob("*.csv"))]
    capsys.readouterr()
    assert main(["sim", "replay", str(robot), *logs]) == 0
    said = capsys.readouterr().out
    assert "base.rotation" in said
    assert "offset" not in said


def test_a_free_body_is_shown_checked_and_trained_on_by_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    robot = tmp_path / "cube.xml"
    robot.write_text(CUBE)
    assert main(["robots", "show", str(robot)]) == 0
    assert "joints (0)" in capsys.readouterr().out
    assert main(["robots", "check", str(robot)]) == 0
    assert capsys.readouterr().err == "dropping cube\n"
    for task in ("reach", "velocity"):
        assert main(["train", task, "--model", str(robot), "--out", str(tmp_path / task)]) == 2
        assert capsys.readouterr().err.startswith("physai")
