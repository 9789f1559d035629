"""Recordings of a policy on a stand-in for the pusher, simulated step by step beside the package's own environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sdk.evidence.origin import Origin
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.task import Task
from physai.twin.logs import RobotLog
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import model_fields

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class HiddenRobot:
    """What the twin does not know."""

    values: Mapping[str, float]
    """Parameters by name."""
    lag_s: tuple[float, float] = (0.01, 0.02)
    """Range of the delay of commands; each run draws its own."""
    pos_std: float = 0.002
    vel_std: float = 0.02
    offset: tuple[float, float] = (0.0, 0.0)
    """Mean and standard deviation of the encoder's offset; each run has its own, see `offset_of`."""
    start: tuple[float, float] = (0.5, 1.0)
    """Range of the distance from the middle at the start."""

    def offset_of(self, seed: int) -> float:
        """Measured minus true position in the run with this seed."""
        return self.offset[0] + self.offset[1] * float(np.random.default_rng([seed, 1]).normal())


def recorded_run(task: Task, policy: OnnxPolicy, robot: HiddenRobot, *, seed: int, name: str = "run") -> RobotLog:
    """One run of an episode's length, from rest left or right of the middle."""
    random, timing = np.random.default_rng(seed), task.contract.timing
    model: Any = calibration_model(task.robot)
    for field, rows in model_fields(model, list(robot.values), np.array([list(robot.values.values())])).items():
        getattr(model, field)[...] = rows[0]
    mujoco.mj_setConst(model, mujoco.MjData(model))
    data: Any = mujoco.MjData(model)
    data.qpos[0] = random.choice((-1.0, 1.0)) * random.uniform(*robot.start)
    # Whole physics steps, both ends included, as the twin draws them.
    low, high = (round(end / timing.physics_dt) for end in robot.lag_s)
    lag = int(random.integers(low, high + 1))
    steps = round(task.episode_length_s / timing.control_dt)
    pending = [0.0] * lag
    measured, sent = np.zeros((steps, 2)), np.zeros((steps, 1))
    policy.reset(1)
    for step in range(steps):
        measured[step] = data.qpos[0] + robot.pos_std * random.normal(), data.qvel[0] + robot.vel_std * random.normal()
        measured[step, 0] += robot.offset_of(seed)
        fields = {"joint_pos": measured[None, step, :1], "joint_vel": measured[None, step, 1:]}
        command = policy({key: value.astype(np.float32) for key, value in fields.items()}, {})
        sent[step] = float(command["joint_effort_target"][0, 0])
        for _ in range(timing.decimation):
            pending.append(float(sent[step, 0]))
            data.ctrl[0] = pending.pop(0)
            mujoco.mj_step(model, data)
    return RobotLog(
        name=name,
        joint_names=task.contract.robot.joint_names,
        time=np.arange(steps, dtype=np.float64) * timing.control_dt,
        joint_pos=measured[:, :1],
        joint_vel=measured[:, 1:],
        joint_effort=None,
        command=sent,
        command_kind="joint_effort",
        source=f"{name}.csv",
        sha256=f"{seed:064x}",
        origin=Origin(kind="stand-in", robot=task.robot.name),
    )


def recorded_runs_of(
    task: Task, policy: OnnxPolicy, robot: HiddenRobot, count: int, *, seed: int
) -> tuple[RobotLog, ...]:
    """Several runs, from starts of their own."""
    return tuple(
        recorded_run(task, policy, robot, seed=1000 * seed + number + 1, name=f"run{number + 1}")
        for number in range(count)
    )
