"""Synthetic robot (stand-in): the nominal model with hidden parameter deviations, command delay and sensor noise.

It exercises the workflow from recordings to a verdict without a robot. Results apply to the stand-in only.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
import yaml

from physai.sdk.base.errors import ModelError, PhysaiError
from physai.sdk.base.files import write_atomic
from physai.sdk.contract.robot import JointSpec
from physai.sdk.evidence.origin import Origin
from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_actuator, joint_ids
from physai.sim.solver import use_right_solver
from physai.twin.logs.readers.table import ORIGIN_COLUMN
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import DELAY, Parameter, catalogue, model_fields
from physai.twin.parameters.servo import is_servo

Array = npt.NDArray[np.float64]

DEVIATION = 0.7
"""Standard deviation of the hidden parameters, in prior standard deviations."""
DELAY_RANGE_S = (0.004, 0.010)
"""Command delay of a stand-in [s]; typical of fieldbus, driver and motor current together."""
POSITION_NOISE, SPEED_NOISE, EFFORT_NOISE = 1e-4, 5e-3, 0.005
"""Standard deviations: position [rad or m], speed [rad/s or m/s], effort relative to the joint's limit."""
WAVES = 5
"""Number of sines per joint in an excitation."""
SPEED_SHARE, EFFORT_SHARE = 0.25, 0.3
"""Maximum share of a joint's limits that an excitation commands."""
SPEED_MAX, GENTLER = 0.8, 8
"""Maximum share of the speed limit that motion may reach, and how often efforts are halved to stay below."""
FREQUENCIES_HZ = (0.1, 1.0)
STEP_S, STEPS_MAX = (0.03, 0.15), 0.5
"""Time between two steps of a motor's command [s], and their maximum share of its effort limit."""
TRAVEL_MAX = 0.6
"""Maximum distance of a position target from the default pose [rad or m]."""
MAX_DURATION_S, MAX_RATE_HZ = 600.0, 1000.0

COLUMNS_FILE = "columns.yaml"
NOTE = "# Recordings of a stand-in made by `physai sim record`, not of a real robot.\n"


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """Simulated robot with hidden deviations from the nominal one."""

    robot: Robot
    model: Any
    """Compiled model with the hidden values."""
    hidden: dict[str, float]
    """Hidden values by parameter name, in the parameters' units."""
    delay_s: float
    seed: int
    unmodelled: Callable[[Array, Array], Array] | None = None
    """Efforts that no model knows, of positions and speeds, shape (J,) each; None for none."""


@dataclass(frozen=True, kw_only=True)
class SyntheticRecording:
    """Synthetic log: n samples, J joints."""

    time: Array
    """[s], shape (n,)."""
    command: Array
    """Targets [rad or m] of servos, efforts [N·m or N] of motors, shape (n, J)."""
    joint_pos: Array
    joint_vel: Array
    joint_effort: Array


def stand_in(robot: Robot, seed: int) -> StandIn:
    """Draw a stand-in; equal seeds give equal ones.

    Raises:
        ModelError: the robot has a floating base and joints, and would fall over during an excitation.
    """
    if robot.spec.base == "floating" and robot.spec.joints:
        raise ModelError(
            f"robot {robot.name} has a floating base: it would fall over; only fixed bases and free bodies are recorded"
        )
    rng = np.random.default_rng(seed)
    # Position biases would shift the log, not the robot, and a stand-in writes its log without them.
    drive = "command" if robot.spec.joints else "effort"
    drawn = {p.name: _draw(p, rng) for p in catalogue(robot, drive) if not p.name.endswith(".pos_bias")}
    delay = float(rng.uniform(*DELAY_RANGE_S))
    drawn.pop(DELAY, None)
    model = calibration_model(robot)
    for name, rows in model_fields(model, list(drawn), np.array([list(drawn.values())])).items():
        getattr(model, name)[...] = rows[0]
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return StandIn(robot=robot, model=model, hidden=drawn, delay_s=delay, seed=seed)


def _draw(parameter: Parameter, rng: np.random.Generator) -> float:
    value = parameter.prior + DEVIATION * parameter.prior_std * rng.standard_normal()
    return float(np.clip(value, parameter.lower, parameter.upper))


def excite(
    robot: StandIn,
    *,
    duration_s: float,
    rate_hz: float,
    seed: int,
    steps: float = 0.0,
    tell: Callable[[float], None] = lambda done: None,
) -> SyntheticRecording:
    """Excite every driven joint with a sum of sines and log the sensors.

    Args:
        robot: the stand-in.
        duration_s: length of the recording [s].
        rate_hz: samples and commands per second.
        seed: seed of the sines and the sensor noise.
        steps: size of random steps in the commands of motors, which show the lag of the efforts, as a share of the
            effort limit.
        tell: called with the completed share, 0 to 1.

    Raises:
        PhysaiError: duration or rate are out of range, the physics diverged, or small efforts exceed speed limits.
    """
    time, every = sample_times(robot, duration_s, rate_hz)
    _require("--steps", steps, 0.0, STEPS_MAX)
    model, spec = robot.model, robot.robot.spec
    # Both seeds, so that two stand-ins never share their excitation.
    rng = np.random.default_rng([robot.seed, seed])
    joints = joint_ids(model)
    command = np.zeros((len(time), len(joints)))
    motors = np.zeros(len(joints), bool)
    for number, actuator in enumerate(joint_actuator(model, joint) for joint in joints):
        if actuator is not None:
            motors[number] = not is_servo(model, actuator)
            command[:, number] = _waves(spec.joints[number], not motors[number], time, rng)
            if motors[number] and steps > 0.0:
                command[:, number] += steps * (spec.joints[number].effort_limit or 1.0) * _steps(time, rng)
    for _ in range(GENTLER):
        truth = _simulate(robot, command, every, tell)
        if within_speed_limits(robot, truth[1]):
            return _measured(robot, time, command, truth, rng)
        # The speed that a motor's effort causes is only known after the simulation.
        command = np.where(motors, 0.5 * command, command)
    raise PhysaiError(f"the stand-in of {robot.robot.name} exceeds its speed limits even when excited gently")


def play(
    robot: StandIn, command: Array, *, rate_hz: float, seed: int, tell: Callable[[float], None] = lambda done: None
) -> SyntheticRecording:
    """Play given commands and log the sensors.

    Args:
        robot: the stand-in.
        command: targets of servos [rad or m], efforts of motors [N·m or N], shape (n, J).
        rate_hz: samples and commands per second.
        seed: seed of the sensor noise.
        tell: called with the completed share, 0 to 1.

    Raises:
        PhysaiError: the rate is out of range, the physics diverged, or the commands exceed speed limits.
    """
    time, every = sample_times(robot, len(command) / rate_hz + 0.5 / rate_hz, rate_hz)
    time = float(time[1]) * np.arange(len(command), dtype=np.float64)
    truth = _simulate(robot, command, every, tell)
    if not within_speed_limits(robot, truth[1]):
        raise PhysaiError(f"these commands bring the stand-in of {robot.robot.name} beyond its speed limits")
    return _measured(robot, time, command, truth, np.random.default_rng([robot.seed, seed]))


def sample_times(robot: StandIn, duration_s: float, rate_hz: float) -> tuple[Array, int]:
    """Return the times of the samples [s], and the physics steps between two of them.

    Raises:
        PhysaiError: duration or rate are out of range.
    """
    _require("--duration-s", duration_s, 1.0, MAX_DURATION_S)
    _require("--rate-hz", rate_hz, 10.0, MAX_RATE_HZ)
    step = float(robot.model.opt.timestep)
    every = max(1, round(1.0 / (rate_hz * step)))
    count = int(duration_s / (every * step))
    return np.arange(count, dtype=np.float64) * every * step, every


def within_speed_limits(robot: StandIn, joint_vel: Array) -> bool:
    """Whether a motion leaves a margin to every joint's speed limit."""
    limits = SPEED_MAX * np.array([joint.velocity_limit or np.inf for joint in robot.robot.spec.joints])
    return bool((np.abs(joint_vel) < limits).all())


def _measured(
    robot: StandIn, time: Array, command: Array, truth: Array, rng: np.random.Generator
) -> SyntheticRecording:
    """Add the sensors' noise to true positions, speeds and efforts, shape (3, n, J)."""
    noise = rng.standard_normal(truth.shape)
    efforts = np.array([joint.effort_limit or 1.0 for joint in robot.robot.spec.joints])
    return SyntheticRecording(
        time=time,
        command=command,
        joint_pos=truth[0] + POSITION_NOISE * noise[0],
        joint_vel=truth[1] + SPEED_NOISE * noise[1],
        joint_effort=truth[2] + EFFORT_NOISE * efforts * noise[2],
    )


def _require(option: str, value: float, lower: float, upper: float) -> None:
    if not lower <= value <= upper:
        raise PhysaiError(f"{option} must be in {lower:g} … {upper:g}, got {value:g}")


def _waves(joint: JointSpec, servo: bool, time: Array, rng: np.random.Generator) -> Array:
    """Return a sum of sines that starts from zero and stays within the joint's limits."""
    frequency = 2.0 * np.pi * np.exp(rng.uniform(math.log(FREQUENCIES_HZ[0]), math.log(FREQUENCIES_HZ[1]), WAVES))
    phase, weight = rng.uniform(0.0, 2.0 * np.pi, WAVES), rng.uniform(0.5, 1.0, WAVES)
    # Ramp up, so that a servo gets no step at the start.
    wave: Array = np.minimum(time, 1.0) * (np.sin(np.outer(time, frequency) + phase) @ weight)
    if not servo:
        limit = EFFORT_SHARE * (joint.effort_limit or 1.0)
        return limit * wave / max(float(np.abs(wave).max()), 1e-9)
    speed = float(np.abs(np.gradient(wave, time)).max())
    travel = TRAVEL_MAX / max(float(np.abs(wave).max()), 1e-9)
    scale = min(travel, SPEED_SHARE * (joint.velocity_limit or 1.0) / max(speed, 1e-9))
    for bound in (joint.position_lower, joint.position_upper):
        if bound is not None:
            scale = min(scale, 0.8 * abs(bound - joint.default_pos) / max(float(np.abs(wave).max()), 1e-9))
    return joint.default_pos + scale * wave


def _steps(time: Array, rng: np.random.Generator) -> Array:
    """Return a series that jumps between -1, 0 and 1 at random times, beginning with 0."""
    edges = np.cumsum(rng.uniform(*STEP_S, size=int(time[-1] / STEP_S[0]) + 2))
    levels = np.concatenate([[0.0], rng.integers(-1, 2, size=len(edges)).astype(np.float64)])
    return levels[np.searchsorted(edges, time)]


def _simulate(robot: StandIn, command: Array, every: int, tell: Callable[[float], None]) -> Array:
    """Return true positions, velocities and actuator efforts at the samples, shape (3, n, J)."""
    model: Any = use_right_solver(robot.model)
    data: Any = mujoco.MjData(model)
    joints = joint_ids(model)
    qpos = [int(model.jnt_qposadr[j]) for j in joints]
    dofs = [int(model.jnt_dofadr[j]) for j in joints]
    actuators = [joint_actuator(model, j) for j in joints]
    data.qpos[qpos] = [joint.default_pos for joint in robot.robot.spec.joints]
    lag = round(robot.delay_s / float(model.opt.timestep))
    driven = [(number, actuator) for number, actuator in enumerate(actuators) if actuator is not None]
    truth = np.zeros((3, *command.shape))
    for sample in range(len(command)):
        # `mj_step` leaves efforts of the step before; this computes them for the logged state.
        mujoco.mj_forward(model, data)
        truth[:, sample] = data.qpos[qpos], data.qvel[dofs], data.qfrc_actuator[dofs]
        for part in range(every):
            # The command of the control period in which this physics step would have been sent, `lag` steps ago.
            sent = command[max(0, (sample * every + part - lag) // every)]
            for number, actuator in driven:
                data.ctrl[actuator] = sent[number]
            if robot.unmodelled is not None:
                data.qfrc_applied[dofs] = robot.unmodelled(data.qpos[qpos], data.qvel[dofs])
            mujoco.mj_step(model, data)
        if sample % 256 == 0:
            tell(sample / len(command))
    if not bool(np.isfinite(truth).all()):
        raise PhysaiError(f"the stand-in of {robot.robot.name} diverged; try another seed or a shorter recording")
    return truth


def write_recording(recording: SyntheticRecording, robot: Robot, path: Path) -> None:
    """Write one recording as CSV.

    Raises:
        OSError: the file cannot be written.
    """
    names = robot.spec.joint_names
    kinds = ("command", "joint_pos", "joint_vel", "joint_effort")
    header = ["time", *(f"{name}.{kind}" for kind in kinds for name in names), ORIGIN_COLUMN]
    mark = Origin(kind="stand-in", robot=robot.name).mark
    columns = np.hstack([recording.time[:, None], *(getattr(recording, kind) for kind in kinds)])
    text = io.StringIO()
    row = ",".join(["%.9g"] * columns.shape[1] + [mark])
    np.savetxt(text, columns, fmt=row, header=",".join(header), comments="")
    write_atomic(path, text.getvalue().encode())


def write_columns(robot: Robot, folder: Path) -> None:
    """Write the column map of a folder of recordings.

    Raises:
        OSError: the file cannot be written.
    """
    model: Any = robot.model
    actuators = {
        name: joint_actuator(model, j) for name, j in zip(robot.spec.joint_names, joint_ids(model), strict=True)
    }
    servos = any(actuator is not None and is_servo(model, actuator) for actuator in actuators.values())
    kinds = ("joint_pos", "joint_vel", "joint_effort")
    document = {
        "robot": robot.name,
        "time": "time",
        "command_kind": "joint_pos" if servos else "joint_effort",
        "joints": {
            name: {kind: f"{name}.{kind}" for kind in kinds}
            | ({} if actuator is None else {"command": f"{name}.command"})
            for name, actuator in actuators.items()
        },
    }
    write_atomic(folder / COLUMNS_FILE, (NOTE + yaml.safe_dump(document, sort_keys=False)).encode())
