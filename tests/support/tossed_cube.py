"""A cube that is thrown to the floor: its model, and recordings of it with parameters of our choice."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
from tests.support.fixtures_calibration import changed_model

from physai.sim.robots import Robot, load_robot
from physai.twin.calibration.stand_in.synthetic_robot import StandIn
from physai.twin.calibration.stand_in.synthetic_toss import toss
from physai.twin.logs import BasePose, RobotLog

CUBE = """
<mujoco model="cube">
  <option timestep="0.001" integrator="implicitfast" cone="elliptic"/>
  <worldbody>
    <geom name="floor" type="plane" size="2 2 0.1"/>
    <body name="cube" pos="0 0 0.2">
      <freejoint/>
      <inertial pos="0 0 0" mass="0.37" diaginertia="0.00081 0.00081 0.00081"/>
      <geom name="box" type="box" size="0.0524 0.0524 0.0524"/>
    </body>
  </worldbody>
</mujoco>
"""
"""Mass 0.37 kg, half width 52.4 mm, inertia 0.00081 kg·m²: the cube of the ContactNets recordings."""

FRICTION, RESTITUTION, CONTACT_TIME = "cube.sliding_friction", "cube.restitution", "cube.contact_time"


def cube(folder: Path, text: str = CUBE) -> Robot:
    """The cube from a file in the folder."""
    path = folder / "cube.xml"
    path.write_text(text)
    return load_robot(path)


def throws(robot: Robot, truth: Mapping[str, float], *, count: int, seed: int, noise: float = 1.0) -> list[RobotLog]:
    """Recordings of throws of a cube with these parameter values."""
    model = changed_model(robot, truth)
    mujoco.mj_setConst(model, mujoco.MjData(model))
    thrown = StandIn(robot=robot, model=model, hidden=dict(truth), delay_s=0.0, seed=seed)
    return [_throw(thrown, number, noise) for number in range(count)]


def _throw(thrown: StandIn, number: int, noise: float) -> RobotLog:
    made = toss(thrown, duration_s=0.8, rate_hz=250.0, seed=number, noise=noise)
    none = np.zeros((len(made.time), 0))
    return RobotLog(
        name=f"throw{number}",
        joint_names=(),
        time=made.time,
        joint_pos=none,
        joint_vel=None,
        joint_effort=None,
        command=none,
        command_kind="joint_effort",
        source=f"throw{number}.csv",
        sha256=f"{1000 * thrown.seed + number:064x}",
        base=BasePose(made.position, made.quat),
    )


def still(log: RobotLog) -> RobotLog:
    """The recording with the last pose throughout."""
    assert log.base is not None
    last = np.full(len(log.time), -1)
    return replace(log, base=log.base.rows(last))
