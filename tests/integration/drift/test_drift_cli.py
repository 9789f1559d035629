"""`physai drift` end to end: a simulated pendulum that works with and without a payload, watched by its twin."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from physai.sdk.cli.main import main
from physai.sim.robots import Robot, load_robot
from physai.twin.calibration.stand_in.synthetic_robot import StandIn, excite, write_columns, write_recording
from physai.twin.model.twin import nominal_twin, save_twin
from physai.twin.model.twin_file import SensorNoise
from physai.twin.parameters.models import calibration_model

pytestmark = pytest.mark.slow

SECONDS = 100.0


@pytest.fixture(scope="module")
def pendulum() -> Robot:
    return load_robot("double_pendulum")


@pytest.fixture(scope="module")
def folder(pendulum: Robot, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A twin, and recordings of the robot as it was and with 0.3 kg more at the second link."""
    path = tmp_path_factory.mktemp("drift")
    write_columns(pendulum, path)
    twin = replace(nominal_twin(pendulum), noise=SensorNoise(joint_pos_std=(1e-4, 1e-4)))
    save_twin(replace(twin, folder=str(path)), path / "twin.json")
    for name, added, seed in (("same", 0.0, 1), ("heavy", 0.3, 2)):
        model = calibration_model(pendulum)
        link = model.body("link2").id
        model.body_inertia[link] *= 1.0 + added / model.body_mass[link]
        model.body_mass[link] += added
        mujoco.mj_setConst(model, mujoco.MjData(model))
        robot = StandIn(robot=pendulum, model=model, hidden={}, delay_s=0.0, seed=3)
        write_recording(excite(robot, duration_s=SECONDS, rate_hz=500, seed=seed), pendulum, path / f"{name}.csv")
    return path


def answer(folder: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["drift", *words, "--twin", str(folder / "twin.json"), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_an_unchanged_robot_holds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = answer(folder, str(folder / "same.csv"), capsys=capsys)
    assert (code, found["outcome"], found["steps"]) == (0, "HOLDS", [])


def test_a_payload_is_found_named_and_dated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(folder / "same.csv"), str(folder / "heavy.csv")]
    page = folder / "drift.html"
    code, found = answer(folder, *paths, "--out", str(page), capsys=capsys)
    assert (code, found["outcome"]) == (1, "DRIFTED")
    assert found["named"] == ["link2.mass"]
    parameters = found["parameters"]
    assert parameters["link2.mass"]["amount"] == pytest.approx(0.3, abs=0.05)
    since = found["since"]
    assert since["recording"] == "heavy"
    assert since["time_s"] <= 10.0
    steps = found["steps"]
    commands = [step["command"] for step in steps]
    assert commands[0].startswith(f"physai sim calibrate double_pendulum {folder / 'heavy.csv'} -o ")
    assert commands[1].startswith("physai sim validate policy.onnx --twin ")
    # A folder of its own for each twin: the last renewal's has this one, perhaps, and is not written.
    assert commands[2].endswith(f"--policy BUNDLE --report renewed-{found['twin_hash'][:8]}")
    text = page.read_text(encoding="utf-8")
    assert "DRIFTED" in text
    assert "link2.mass" in text
    assert "<script" not in text


def test_the_answer_for_people_ends_with_the_next_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drift", str(folder / "heavy.csv"), "--twin", str(folder / "twin.json")]) == 1
    out = capsys.readouterr().out
    assert "DRIFTED: mass at link2 +0." in out
    assert "→ recalibrate the twin on recordings since the change\n    physai sim calibrate" in out


def test_a_short_recording_is_no_evidence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (folder / "heavy.csv").read_text(encoding="utf-8").splitlines()
    short = folder / "short.csv"
    short.write_text("\n".join(lines[:10_000]) + "\n", encoding="utf-8")
    code, found = answer(folder, str(short), capsys=capsys)
    assert (code, found["outcome"]) == (2, "NO EVIDENCE")
    short.unlink()


def test_forces_that_no_change_makes_are_no_evidence(
    folder: Path, pendulum: Robot, capsys: pytest.CaptureFixture[str]
) -> None:
    """Something pulls the arm wherever it is, as a hand or a cable does: no payload, and no wear."""
    robot = StandIn(
        robot=pendulum,
        model=calibration_model(pendulum),
        hidden={},
        delay_s=0.0,
        seed=3,
        unmodelled=lambda position, speed: 0.6 * np.sin(7.0 * position + np.array([0.0, 1.0])),
    )
    (folder / "pulled").mkdir()
    write_columns(pendulum, folder / "pulled")
    path = folder / "pulled" / "pulled.csv"
    write_recording(excite(robot, duration_s=SECONDS, rate_hz=500, seed=7), pendulum, path)
    code, found = answer(folder, str(path), capsys=capsys)
    assert (code, found["outcome"]) == (2, "NO EVIDENCE")
    assert found["unusable_s"]["unexplained"] > 0.5 * SECONDS
    assert found["steps"][0]["command"].startswith("physai sim replay ")


def test_a_changed_twin_file_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forged = folder / "forged.json"
    forged.write_bytes((folder / "twin.json").read_bytes().replace(b"0.0001", b"0.1000", 1))
    assert main(["drift", str(folder / "same.csv"), "--twin", str(forged)]) == 2
    assert "it was modified after the calibration" in capsys.readouterr().err


def test_a_gain_is_named_as_gain_and_not_as_wear(pendulum: Robot) -> None:
    """Effort per command falls by 15 % where it is measured: motors answer weaker, and the arm is the same."""
    from physai.drift import drift
    from physai.twin.logs import RobotLog
    from physai.twin.model.twin_file import ActuatorResponse

    def motor(name: str) -> ActuatorResponse:
        return ActuatorResponse(
            joint=name, gain=1.0, gain_std=0.001, dead_time_s=0.0, time_constant_s=0.0, period_s=0.002
        )

    twin = replace(
        nominal_twin(pendulum),
        noise=SensorNoise(joint_pos_std=(1e-4, 1e-4)),
        actuators=tuple(motor(name) for name in pendulum.spec.joint_names),
    )
    robot = StandIn(robot=pendulum, model=calibration_model(pendulum), hidden={}, delay_s=0.0, seed=3)
    made = excite(robot, duration_s=SECONDS, rate_hz=500, seed=2)
    log = RobotLog(
        name="weak",
        joint_names=pendulum.spec.joint_names,
        time=made.time,
        joint_pos=made.joint_pos,
        joint_vel=made.joint_vel,
        joint_effort=made.joint_effort,
        command=made.command / np.array([1.0, 0.85]),
        command_kind="joint_effort",
        source="weak",
        sha256="1" * 64,
    )
    found = drift([log], twin=twin)
    assert found.outcome == "DRIFTED"
    assert [(one.kind, one.owner) for one in found.named] == [("drive gain", "joint2")]
    assert found.named[0].amount == pytest.approx(-0.15, abs=0.01)
    assert "gain of joint2" in found.reason
