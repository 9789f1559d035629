"""When a recorded robot touches the world, by the geometry of its model."""

import copy
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_columns
from physai.twin.logs import LogError, RobotLog

NEAR_M = 0.01
"""Distance at which a body counts as touching [m]: poses have errors, and at 1 m/s and 100 Hz it is one sample."""


def touching(robot: Robot, log: RobotLog) -> npt.NDArray[np.bool_]:
    """Return whether the robot is within `NEAR_M` of the world at each sample, shape (n,).

    Raises:
        LogError: the recording has no pose, or the robot's file has nothing that it could touch.
    """
    if log.base is None:
        raise LogError(f"log {log.name}: has no pose of the base")
    model: Any = copy.copy(robot.model)
    world = [geom for geom in range(model.ngeom) if int(model.body_weldid[model.geom_bodyid[geom]]) == 0]
    if not any(model.geom_contype[geom] or model.geom_conaffinity[geom] for geom in world):
        raise LogError(
            f"robot {robot.name} has nothing to touch: add the floor to its file where it was during the recordings, "
            'such as <geom type="plane" size="2 2 0.1"/> in <worldbody>'
        )
    model.geom_margin[world] = NEAR_M
    data: Any = mujoco.MjData(model)
    joints, _ = joint_columns(model, robot.spec)
    result = np.zeros(len(log.time), bool)
    for sample in range(len(log.time)):
        data.qpos[:3], data.qpos[3:7] = log.base.position[sample], log.base.quat[sample]
        data.qpos[joints] = log.joint_pos[sample]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        mujoco.mj_collision(model, data)
        geoms = np.array(data.contact.geom).reshape(-1, 2)
        result[sample] = bool(np.isin(geoms, world).any())
    return result
