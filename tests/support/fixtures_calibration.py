"""A pendulum of one joint, small enough to compute by hand, and recordings of it with parameters of our choice."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.robots import Robot, load_robot
from physai.twin.logs import RobotLog
from physai.twin.parameters.models import calibration_model
from physai.twin.parameters.parameters import model_fields

Array = NDArray[np.float64]
Recorder = Callable[..., RobotLog]

PENDULUM = """
<mujoco model="pendulum">
  <compiler autolimits="true"/>
  <option timestep="0.002" integrator="implicitfast" gravity="0 0 -10"/>
  <worldbody>
    <body name="arm">
      <inertial pos="0 0 -0.5" mass="2" diaginertia="0.1 0.1 0.1"/>
      <joint name="hinge" type="hinge" axis="0 -1 0" damping="0.1" frictionloss="0.2" armature="0.05"/>
      <geom type="sphere" size="0.01" mass="0" contype="0" conaffinity="0"/>
    </body>
  </worldbody>
  <actuator><motor name="hinge" joint="hinge" ctrlrange="-20 20" forcerange="-20 20"/></actuator>
</mujoco>
"""
"""2 kg at 0.5 m in 10 m/s²: 10 N·m held out horizontally; 0.1 + 2·0.5² + 0.05 = 0.65 kg·m² about the hinge."""

POS_STD, VEL_STD, EFFORT_STD = 3e-4, 0.05, 0.02
"""Noise of the recordings' sensors [rad, rad/s, N·m]: that of the double pendulum's, roughly."""


@pytest.fixture(scope="session")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Robot:
    path: Path = tmp_path_factory.mktemp("robots") / "pendulum.xml"
    path.write_text(PENDULUM)
    return load_robot(path)


def changed_model(robot: Robot, values: Mapping[str, float]) -> Any:
    """The robot's model with other parameter values."""
    model = calibration_model(robot)
    fields = model_fields(model, list(values), np.array([list(values.values())]))
    for name, rows in fields.items():
        getattr(model, name)[...] = rows[0]
    return model


def recorded(
    robot: Robot,
    values: Mapping[str, float],
    *,
    seed: int,
    seconds: float = 8.0,
    every: int = 2,
    name: str = "log",
    noise: float = 1.0,
    offset: float = 0.0,
    age_s: float = 0.0,
    age_periods: float = 0.0,
    held: bool = False,
) -> RobotLog:
    """A recording of the robot with these parameter values, shaken by four sines, sampled every so many steps.

    Its encoder shows positions larger than the true ones by `offset`. Positions and speeds are `age_periods` samples
    and `age_s` old when they are logged, efforts are not. A loop of this rate holds its effort from sample to sample.
    """
    model, random = changed_model(robot, values), np.random.default_rng(seed)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    # An engine, because MuJoCo alone knows Coulomb and viscous friction only.
    engine, step_s = MujocoEngine(model, 1, num_threads=1), float(model.opt.timestep)
    count = round(seconds / step_s)
    moments = np.linspace(0.0, count * step_s, count + 1)
    waves = [(random.uniform(2.0, 4.0), random.uniform(0.2, 1.5), random.uniform(0.0, 6.0)) for _ in range(4)]
    effort = np.sum([size * np.sin(2.0 * np.pi * f * moments + p) for size, f, p in waves], axis=0)
    if held:
        effort = effort[np.arange(count + 1) // every * every]
    state = np.zeros((count + 1, 2))
    for number in range(count + 1):
        state[number] = engine.state("qpos")[0, 0], engine.state("qvel")[0, 0]
        # What drives a step of the replay is the effort in its middle.
        ahead = effort[number if held else min(number + 1, count)]
        engine.drive(np.full((1, 1, 1), 0.5 * (effort[number] + ahead)))
    rows = slice(None, None, every)
    seen = state[np.maximum(0, np.arange(count + 1) - round(age_periods * every + age_s / step_s))]
    position, speed = seen[rows, :1], seen[rows, 1:]
    measured, sent = effort[rows, None], effort[rows, None]
    return RobotLog(
        name=name,
        joint_names=robot.spec.joint_names,
        time=moments[rows],
        joint_pos=position + offset + noise * POS_STD * random.normal(size=position.shape),
        joint_vel=speed + noise * VEL_STD * random.normal(size=position.shape),
        joint_effort=measured + noise * EFFORT_STD * random.normal(size=position.shape),
        command=sent.copy(),
        command_kind="joint_effort",
        source=f"{name}.csv",
        sha256=f"{seed:064x}",
    )


@pytest.fixture(scope="session")
def record() -> Recorder:
    """See `recorded`."""
    return recorded
