"""The guard believes sound recordings of real hardware, and none in which a sensor was broken afterwards."""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.support.real_recordings import of_double_pendulum

from physai.sdk.safety import Guard
from physai.sim.tasks.pendulums.double_pendulum import MISMATCH_RAD, pendubot_swingup

DATA = Path(os.environ.get("PHYSAI_DATA", Path(__file__).resolve().parents[5] / "shared" / "data"))
FOLDER = DATA / "dfki_double_pendulum"
SWING_UP = "leaderboard/pendubot/real_hardware_v2/src_data/ilqr_tvlqr_lqr/experiment01/trajectory.csv.gz"

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="needs the DFKI double pendulum's recordings: set PHYSAI_DATA to their folder"
)

Array = npt.NDArray[np.float64]


@dataclass
class Recording:
    """What the hardware measured and was told."""

    time_s: Array
    position: Array
    velocity: Array
    torque: Array


def read(path: Path) -> Recording:
    with gzip.open(path, "rt") as file:
        names = [name.strip() for name in file.readline().split(",")]
        rows = np.loadtxt(file, delimiter=",", ndmin=2)
    columns = dict(zip(names, rows.T, strict=True))

    def pair(name: str) -> Array:
        return np.stack([columns[f"{name}1"], columns[f"{name}2"]], axis=1)

    torque = pair("tau_con") if "tau_con1" in columns else np.zeros((len(rows), 2))
    return Recording(columns["time"], pair("pos_meas"), pair("vel_meas"), torque)


def believed(recording: Recording) -> npt.NDArray[np.bool_]:
    """Whether each sample is, by the contract's ranges, mismatch and frozen samples; the shoulder is driven."""
    guard = Guard(pendubot_swingup().contract)
    answers: list[bool] = []
    for time_s, position, velocity, torque in zip(
        recording.time_s, recording.position, recording.velocity, recording.torque, strict=True
    ):
        guard.last[...] = torque[:1]
        seen = guard.observe(stamp_s=float(time_s), joint_pos=position[None], joint_vel=velocity[None])
        answers.append(bool(seen[0]))
    return np.array(answers)


RECORDINGS = of_double_pendulum(DATA)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: "/".join(path.parts[-3:-1]))
def test_a_sound_recording_is_believed_throughout(path: Path) -> None:
    assert believed(read(path)).all()


def test_half_the_limit_would_do() -> None:
    """The greatest leaky residual at the hardware's own rate; MC-PILCO's recordings were thinned out to 33 Hz."""
    greatest = 0.0
    for path in RECORDINGS:
        recording = read(path)
        elapsed = np.diff(recording.time_s)
        if np.median(elapsed) > 0.01:
            continue
        mean = 0.5 * (recording.velocity[1:] + recording.velocity[:-1])
        residual = np.zeros(2)
        for time_s, step in zip(elapsed, np.diff(recording.position, axis=0) - elapsed[:, None] * mean, strict=True):
            residual = residual * (1.0 - time_s / 0.25) + step
            greatest = max(greatest, float(np.abs(residual).max()))
    assert 0.01 < greatest < 0.5 * MISMATCH_RAD


@pytest.fixture
def swing_up() -> Recording:
    path = FOLDER / SWING_UP
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return read(path)


def moving(recording: Recording) -> int:
    """The first sample at which the shoulder turns faster than 5 rad/s."""
    return int(np.argmax(np.abs(recording.velocity[:, 0]) > 5.0))


def broken(recording: Recording, name: str, start: int) -> Recording:
    """The recording with a sensor that is broken from a sample on."""
    position, velocity = recording.position.copy(), recording.velocity.copy()
    changes: dict[str, tuple[Any, Any]] = {
        "dead velocity": (position, np.where(np.arange(len(velocity))[:, None] >= start, 0.0, velocity)),
        "velocity of the other sign": (
            position,
            np.where(np.arange(len(velocity))[:, None] >= start, -velocity, velocity),
        ),
        "encoder slips": (position + 0.2 * (np.arange(len(position))[:, None] >= start), velocity),
        "frozen": (
            np.where(np.arange(len(position))[:, None] >= start, position[start], position),
            np.where(np.arange(len(velocity))[:, None] >= start, velocity[start], velocity),
        ),
        "raw counts": (position, np.where(np.arange(len(velocity))[:, None] >= start, 4096.0, velocity)),
    }
    return Recording(recording.time_s, *changes[name], recording.torque)


@pytest.mark.parametrize(
    ("fault", "within_s"),
    [
        ("dead velocity", 0.05),
        ("velocity of the other sign", 0.05),
        ("encoder slips", 0.01),
        ("frozen", 0.15),
        ("raw counts", 0.01),
    ],
)
def test_a_broken_sensor_is_not(swing_up: Recording, fault: str, within_s: float) -> None:
    start = moving(swing_up)
    answers = believed(broken(swing_up, fault, start))
    assert answers[:start].all()
    first = int(np.argmin(answers))
    assert not answers[first]
    assert swing_up.time_s[first] - swing_up.time_s[start] <= within_s
