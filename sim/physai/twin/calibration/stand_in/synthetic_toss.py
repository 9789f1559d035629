"""Recordings of a stand-in of a free body that is thrown to the ground, as cameras see it."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
import yaml

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import write_atomic
from physai.sdk.evidence.origin import Origin
from physai.sim.robots import Robot, home_qpos
from physai.twin.calibration.stand_in.synthetic_robot import COLUMNS_FILE, MAX_DURATION_S, MAX_RATE_HZ, NOTE, StandIn
from physai.twin.logs.readers.table import ORIGIN_COLUMN
from physai.twin.logs.signals.rotation import from_vector, multiply

Array = npt.NDArray[np.float64]

POSITION_NOISE, ROTATION_NOISE = 3e-4, 2e-3
"""Standard deviations of a camera's pose of a marker, per axis [m, rad]."""
SPEED, RISE, SPIN = (0.4, 1.5), (-0.5, 0.5), 4.0
"""Horizontal and vertical speed of a throw [m/s], and standard deviation of its angular velocity per axis [rad/s]."""
STEP_UP_M, MAX_UP_M = 0.02, 2.0
"""A throw starts this much higher until nothing touches [m]."""
MIN_DURATION_S, MIN_RATE_HZ = 0.5, 50.0


@dataclass(frozen=True, kw_only=True)
class TossRecording:
    """Synthetic recording of one throw: n samples."""

    time: Array
    """[s], shape (n,)."""
    position: Array
    """Origin of the body in the world [m], shape (n, 3)."""
    quat: Array
    """Orientation of the body in the world, wxyz, shape (n, 4)."""


def toss(
    thrown: StandIn,
    *,
    duration_s: float,
    rate_hz: float,
    seed: int,
    noise: float = 1.0,
    tell: Callable[[float], None] = lambda done: None,
) -> TossRecording:
    """Throw a body from its home position, turned at random, and record its pose.

    Args:
        thrown: the stand-in of a free body.
        duration_s: length of the recording [s].
        rate_hz: samples per second.
        seed: seed of the throw and the noise.
        noise: factor on the noise of the poses.
        tell: called with the completed share, 0 to 1.

    Raises:
        PhysaiError: duration or rate are out of range, the physics diverged, or the body never touches the ground.
    """
    for option, value, lower, upper in (
        ("--duration-s", duration_s, MIN_DURATION_S, MAX_DURATION_S),
        ("--rate-hz", rate_hz, MIN_RATE_HZ, MAX_RATE_HZ),
    ):
        if not lower <= value <= upper:
            raise PhysaiError(f"{option} must be in {lower:g} … {upper:g} for a throw, got {value:g}")
    model: Any = thrown.model
    # Both seeds, so that two stand-ins never share their throws.
    rng = np.random.default_rng([thrown.seed, seed])
    data = _thrown(thrown, rng)
    every = max(1, round(1.0 / (rate_hz * float(model.opt.timestep))))
    count = int(duration_s / (every * float(model.opt.timestep)))
    poses, touched = np.zeros((count, 7)), False
    for sample in range(count):
        poses[sample] = data.qpos
        for _ in range(every):
            mujoco.mj_step(model, data)
            touched = touched or data.ncon > 0
        if sample % 64 == 0:
            tell(sample / count)
    if not bool(np.isfinite(poses).all()) or data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number:
        raise PhysaiError(f"the stand-in of {thrown.robot.name} diverged; give its file a shorter timestep")
    if not touched:
        raise PhysaiError(
            f"the stand-in of {thrown.robot.name} touches nothing within {duration_s:g} s; give its file a floor below "
            "its home position, or record longer"
        )
    turn = noise * ROTATION_NOISE * rng.standard_normal((count, 3))
    return TossRecording(
        time=np.arange(count, dtype=np.float64) * every * float(model.opt.timestep),
        position=poses[:, :3] + noise * POSITION_NOISE * rng.standard_normal((count, 3)),
        quat=multiply(poses[:, 3:], from_vector(turn)),
    )


def _thrown(thrown: StandIn, rng: np.random.Generator) -> Any:
    """Return the state at the start of a throw, clear of the ground."""
    model: Any = thrown.model
    data: Any = mujoco.MjData(model)
    data.qpos[:] = home_qpos(model)
    quat = rng.standard_normal(4)
    data.qpos[3:7] = quat / np.linalg.norm(quat)
    course, speed = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(*SPEED)
    data.qvel[:3] = speed * np.cos(course), speed * np.sin(course), rng.uniform(*RISE)
    data.qvel[3:6] = SPIN * rng.standard_normal(3)
    start = float(data.qpos[2])
    while True:
        mujoco.mj_forward(model, data)
        if not data.ncon:
            return data
        data.qpos[2] += STEP_UP_M
        if not data.qpos[2] <= start + MAX_UP_M:
            raise PhysaiError(f"the stand-in of {thrown.robot.name} touches something wherever it is thrown from")


def write_toss(recording: TossRecording, robot: Robot, path: Path) -> None:
    """Write one recording as CSV.

    Raises:
        OSError: the file cannot be written.
    """
    columns = np.hstack([recording.time[:, None], recording.position, recording.quat])
    text = io.StringIO()
    row = ",".join(["%.9g"] * columns.shape[1] + [Origin(kind="stand-in", robot=robot.name).mark])
    header = ",".join(["time", *POSITION_COLUMNS, *QUAT_COLUMNS, ORIGIN_COLUMN])
    np.savetxt(text, columns, fmt=row, header=header, comments="")
    write_atomic(path, text.getvalue().encode())


POSITION_COLUMNS, QUAT_COLUMNS = ("x", "y", "z"), ("qw", "qx", "qy", "qz")


def write_toss_columns(folder: Path) -> None:
    """Write the column map of a folder of recordings of a free body.

    Raises:
        OSError: the file cannot be written.
    """
    document = {"time": "time", "base": {"position": list(POSITION_COLUMNS), "quat": list(QUAT_COLUMNS)}}
    write_atomic(folder / COLUMNS_FILE, (NOTE + yaml.safe_dump(document, sort_keys=False)).encode())
