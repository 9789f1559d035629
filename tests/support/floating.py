"""Twins and recordings of robots with a floating base, with parameters of our choice."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray
from tests.support.fixtures_calibration import changed_model

from physai.sim.robots import Robot, home_qpos
from physai.sim.robots.spec import home_controls
from physai.twin.logs import BasePose, RobotLog
from physai.twin.logs.signals.rotation import from_vector, multiply
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import FittedParameter
from physai.twin.parameters.parameters import catalogue

FEET = ("FL", "FR", "RL", "RR")
SLIPPERY = {f"{foot}_foot.sliding_friction": 0.2 for foot in FEET}

HOPPER = """
<mujoco model="hopper">
  <option timestep="0.002" integrator="implicitfast" cone="elliptic"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 0.1"/>
    <body name="trunk" pos="0 0 0.14">
      <freejoint/>
      <inertial pos="0 0 0" mass="2" diaginertia="0.01 0.01 0.01"/>
      <geom name="rear" type="sphere" size="0.03" pos="-0.15 0.1 -0.11"/>
      <geom name="side" type="sphere" size="0.03" pos="-0.15 -0.1 -0.11"/>
      <body name="leg" pos="0.1 0 0">
        <joint name="hip" axis="0 1 0" range="-1 1" damping="0.05"/>
        <inertial pos="0 0 -0.07" mass="0.2" diaginertia="0.0004 0.0004 0.0001"/>
        <geom name="foot" type="sphere" size="0.03" pos="0.1 0 -0.11"/>
      </body>
    </body>
  </worldbody>
  <actuator><position name="hip" joint="hip" kp="15" kv="0.3" forcerange="-20 20"/></actuator>
</mujoco>
"""
"""A trunk on three feet, one of them at a leg with a servo: small enough for fast tests."""
HOPPER_FRICTION = {"trunk.sliding_friction": 0.3, "leg.sliding_friction": 0.3}


def fitted(robot: Robot, values: Mapping[str, float]) -> Twin:
    """A twin of the robot with these parameters."""
    known = {parameter.name: parameter for parameter in catalogue(robot, "command")}
    parameters = tuple(
        FittedParameter(
            name=name, unit=known[name].unit, prior=known[name].prior, prior_std=known[name].prior_std,
            lower=known[name].lower, upper=known[name].upper, value=value, std=0.02, identified=True,
        )
        for name, value in values.items()
    )  # fmt: skip
    return replace(nominal_twin(robot), parameters=parameters, covariance=0.02**2 * np.eye(len(parameters)))


def dropped(robot: Robot, truth: Mapping[str, float], *, seed: int = 5) -> RobotLog:
    """The robot, dropped from 5 cm while it drifts sideways, with its servos swinging a little; 0.5 s."""
    model: Any = changed_model(robot, truth)
    random = np.random.default_rng(seed)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    data: Any = mujoco.MjData(model)
    data.qpos[:] = home_qpos(model)
    data.qpos[2] += 0.05
    data.qvel[:2], data.qvel[5] = [0.9, 0.6], 1.0
    count = round(0.5 / float(model.opt.timestep))
    time: NDArray[np.float64] = np.arange(count, dtype=np.float64) * float(model.opt.timestep)
    swing = np.sin(2.0 * np.pi * time[:, None] + np.arange(int(model.nu), dtype=np.float64))
    command = home_controls(model) + 0.1 * swing
    path, speed = np.zeros((count, model.nq)), np.zeros((count, model.nv))
    for sample in range(count):
        path[sample], speed[sample] = data.qpos, data.qvel
        data.ctrl[:] = command[sample]
        mujoco.mj_step(model, data)
    turn = 1e-3 * random.standard_normal((count, 3))
    return RobotLog(
        name="drop",
        joint_names=robot.spec.joint_names,
        time=time,
        joint_pos=path[:, 7:] + 2e-4 * random.standard_normal((count, model.nu)),
        joint_vel=speed[:, 6:] + 0.02 * random.standard_normal((count, model.nu)),
        joint_effort=None,
        command=command,
        command_kind="joint_pos",
        source="drop.csv",
        sha256="0" * 64,
        base=BasePose(
            path[:, :3] + 3e-4 * random.standard_normal((count, 3)), multiply(path[:, 3:7], from_vector(turn))
        ),
    )
