"""`physai drift` and `physai logs check` on scheduled segments: column blocks answer as the numbers themselves do."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from physai.sdk.base.formats.column_blocks import encode_block
from physai.sdk.cli.main import main
from physai.sdk.evidence.recording_channels import (
    JOINT_STATE,
    JOINTS_TOPIC,
    ORIGIN_METADATA_KEY,
    TARGET_TOPIC,
    ChannelWriter,
)
from physai.sim.robots import Robot, load_robot
from physai.twin.calibration.stand_in.synthetic_robot import StandIn, excite
from physai.twin.model.twin import nominal_twin, save_twin
from physai.twin.model.twin_file import SensorNoise
from physai.twin.parameters.models import calibration_model

pytestmark = pytest.mark.slow

SECONDS, RATE_HZ = 60.0, 500
EPOCH_NS = 1_790_000_000 * 10**9
STEPS = {"position": 1e-4, "velocity": 1e-3, "effort": 1e-3}
MOST_BYTES_PER_H = 20e6


@pytest.fixture(scope="module")
def pendulum() -> Robot:
    return load_robot("double_pendulum")


@pytest.fixture(scope="module")
def folder(pendulum: Robot, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A twin, and a segment of the robot before and after 0.3 kg were added to its second link."""
    path = tmp_path_factory.mktemp("segments")
    twin = replace(nominal_twin(pendulum), noise=SensorNoise(joint_pos_std=(1e-4, 1e-4)))
    save_twin(replace(twin, folder=str(path)), path / "twin.json")
    for number, (name, added) in enumerate((("same", 0.0), ("heavy", 0.3))):
        model = calibration_model(pendulum)
        link = model.body("link2").id
        model.body_inertia[link] *= 1.0 + added / model.body_mass[link]
        model.body_mass[link] += added
        mujoco.mj_setConst(model, mujoco.MjData(model))
        robot = StandIn(robot=pendulum, model=model, hidden={}, delay_s=0.0, seed=3)
        motion = excite(robot, duration_s=SECONDS, rate_hz=RATE_HZ, seed=number + 1)
        write_segment(path / f"{name}-scheduled.mcap", motion, pendulum, EPOCH_NS + number * 3600 * 10**9)
    return path


def write_segment(path: Path, motion: Any, robot: Robot, start_ns: int) -> None:
    names = robot.spec.joint_names
    times = start_ns + np.rint(1e9 * motion.time).astype(np.int64)
    measured = {"position": motion.joint_pos, "velocity": motion.joint_vel, "effort": motion.joint_effort}
    topics = {JOINTS_TOPIC: measured, f"{TARGET_TOPIC}joint_effort_target": {"effort": motion.command}}
    with path.open("wb") as stream:
        writer = ChannelWriter(stream)
        for first in range(0, len(times), 2000):
            rows = slice(first, first + 2000)
            for topic, fields in topics.items():
                columns = {
                    f"{field}.{name}": values[rows, joint]
                    for field, values in fields.items()
                    for joint, name in enumerate(names)
                }
                steps = {name: STEPS[name.split(".")[0]] for name in columns} | {"log_ns": 1000.0}
                stamps = {"log_ns": times[rows], "delay_ns": np.zeros(len(times[rows]), np.int64)}
                writer.add_block(topic, JOINT_STATE, int(times[first]), encode_block({**stamps, **columns}, steps))
        writer.add_metadata("physai.flight", {"segment": "scheduled", ORIGIN_METADATA_KEY: f"stand-in {robot.name}"})
        writer.finish()


def test_they_are_small(folder: Path) -> None:
    for name in ("same", "heavy"):
        size = (folder / f"{name}-scheduled.mcap").stat().st_size
        assert size * 3600.0 / SECONDS < MOST_BYTES_PER_H


def test_a_payload_is_found_in_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(folder / f"{name}-scheduled.mcap") for name in ("heavy", "same")]
    code = main(["drift", *paths, "--twin", str(folder / "twin.json"), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["outcome"], found["named"]) == (1, "DRIFTED", ["link2.mass"])
    assert found["parameters"]["link2.mass"]["amount"] == pytest.approx(0.3, abs=0.05)
    # By their clocks, not in the order in which they were given.
    assert found["since"]["recording"] == "heavy-scheduled"


def test_they_are_checked_as_other_recordings_are(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(folder / "same-scheduled.mcap")
    assert main(["logs", "check", path, "--model", "double_pendulum"]) == 0, capsys.readouterr().out
    damaged = folder / "damaged.mcap"
    data = bytearray((folder / "same-scheduled.mcap").read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    assert main(["logs", "check", str(damaged), "--model", "double_pendulum"]) == 2
    assert "damaged" in capsys.readouterr().out
