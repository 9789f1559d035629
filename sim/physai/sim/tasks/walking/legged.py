"""A legged robot as its walking task sees it: base, feet and servos, computed once per step."""

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from array_api_compat import array_namespace

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.robot import JointSpec
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, home_qpos
from physai.sim.robots.checks.feet import Foot, find_feet
from physai.sim.robots.spec import posed
from physai.sim.tasks import rotations
from physai.sim.tasks.common import once
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import WorldView
from physai.sim.tasks.walking.terrain import Terrain

IMU = ("imu_quat", "imu_ang_vel_b")
"""Sensors that a walking policy reads."""
MIN_FEET = 2
TOUCH_M, TOUCH_ROUGH_M = 0.002, 0.01
"""Height below which a foot touches a flat floor, and one that may slope [m]."""


@dataclass(frozen=True, kw_only=True)
class Stature:
    """Height at which a robot walks."""

    base_height: float
    """Height of the base above the floor when walking [m]."""
    fallen_height: float
    """Height of the base below which the robot has fallen [m]."""
    clearance: float
    """Height of a foot's lowest point at mid-swing [m]."""

    @classmethod
    def of(cls, standing: float, *, feet: int = 4) -> "Stature":
        """For a robot whose base stands at this height [m]: a Go2's, scaled; on two feet with straighter legs."""
        walking, fallen = (0.96, 0.6) if feet == 2 else (0.92, 0.5)
        clearance = min(0.08, 0.18 * standing)
        return cls(base_height=walking * standing, fallen_height=fallen * standing, clearance=clearance)


def require_legs(robot: Robot) -> tuple[Foot, ...]:
    """Returns the feet of a robot that can walk.

    Raises:
        TaskError: its base is fixed, it has fewer than two feet, no IMU, or no joint with a position servo.
    """
    if robot.spec.base != "floating":
        raise TaskError(f"the base of {robot.name} is fixed; a robot that walks needs: physai robots import --floating")
    feet = find_feet(robot.model, home_qpos(robot.model))
    if len(feet) < MIN_FEET:
        raise TaskError(
            f"{robot.name} has {len(feet)} legs that end in a shape that collides; a robot that walks needs "
            f"{MIN_FEET} or more"
        )
    missing = [name for name in IMU if name not in {sensor.name for sensor in robot.spec.sensors}]
    if missing:
        raise TaskError(
            f"{robot.name} has no sensor {missing[0]!r}; physai robots import adds an IMU to a floating base"
        )
    if not servos(robot):
        raise TaskError(
            f"{robot.name} has no position servos; a policy that walks commands positions, so give it some: physai "
            f"robots import {robot.path} --servo auto"
        )
    return feet


def servos(robot: Robot) -> list[JointSpec]:
    """The joints with a position servo."""
    return [joint for joint in robot.spec.joints if joint.stiffness > 0.0]


def commanded(robot: Robot, feet: tuple[Foot, ...]) -> list[JointSpec]:
    """The joints that a policy commands: those with a position servo, of a robot on two feet those of its legs.

    The waist and arms of a humanoid are held at home by their servos, as in unitree_rl_gym and humanoid-gym.
    """
    if len(feet) != 2:
        return servos(robot)
    legs = {str(robot.model.joint(joint).name) for foot in feet for joint in foot.joints}
    return [joint for joint in servos(robot) if joint.name in legs]


def add_feet(spec: mujoco.MjSpec, model: mujoco.MjModel, feet: tuple[Foot, ...]) -> None:
    """Adds sensors of the position and velocity of each foot to the model that `model` was compiled from."""
    site = mujoco.mjtObj.mjOBJ_SITE
    for number, foot in enumerate(feet):
        body = spec.body(model.body(foot.body).name)
        name = f"physai_foot{number}"
        body.add_site(name=name, pos=foot.point, group=5)
        spec.add_sensor(name=f"{name}_vel", type=mujoco.mjtSensor.mjSENS_FRAMELINVEL, objtype=site, objname=name)
        for corner, point in zip(_corners(number, foot), foot.corners or (foot.point,), strict=True):
            if corner != name:
                body.add_site(name=corner, pos=point, group=5)
            spec.add_sensor(name=f"{corner}_pos", type=mujoco.mjtSensor.mjSENS_FRAMEPOS, objtype=site, objname=corner)


def _corners(number: int, foot: Foot) -> list[str]:
    """Names of the sites whose heights are the foot's, one for a foot without corners."""
    name = f"physai_foot{number}"
    return [f"{name}_corner{corner}" for corner in range(len(foot.corners))] or [name]


def middle(robot: Robot) -> float:
    """Height of the middle of the base above its origin [m], 0 unless the file has the origin near the floor."""
    qpos = home_qpos(robot.model)
    data = posed(robot.model, qpos)
    mujoco.mj_comPos(robot.model, data)
    centre = float(data.subtree_com[0, 2] - qpos[2])
    return centre if centre > qpos[2] else 0.0


class Legged:
    """Quantities used by the terms, in the base frame (x forward, z up), computed once per step."""

    def __init__(
        self, robot: Robot, model: Any, feet: tuple[Foot, ...], stature: Stature, terrain: Terrain | None = None
    ) -> None:
        """Resolves names against the task's model, whose floor has the shape of `terrain`, or is flat."""
        self._terrain = terrain
        self._touch = TOUCH_M if terrain is None else TOUCH_ROUGH_M
        joints = commanded(robot, feet)
        self.stature, self.feet = stature, len(feet)
        self.home = Constant([joint.default_pos for joint in robot.spec.joints])
        # All joints are commanded, unless some are passive or held.
        names = tuple(joint.name for joint in joints)
        self._driven = None if len(joints) == len(robot.spec.joints) else Constant(robot.spec.joint_index(names))
        self._middle = middle(robot)
        self.stiffness = Constant([joint.stiffness for joint in joints])
        self.damping = Constant([joint.damping for joint in joints])
        self.effort_limit = Constant([joint.effort_limit for joint in joints])
        self._radius = Constant([foot.radius for foot in feet])
        soles = [_corners(number, foot) for number, foot in enumerate(feet)]
        self._corners = max(len(corners) for corners in soles)
        # A foot with fewer corners than another has its last one several times.
        soles = [(corners + corners[-1:] * self._corners)[: self._corners] for corners in soles]
        sensors = [_sensor(model, f"{corner}_pos") for corners in soles for corner in corners]
        self._corner_x, self._corner_y, self._corner_z = (Constant(np.array(sensors) + axis) for axis in range(3))
        self._foot_x_vel = Constant([_sensor(model, f"physai_foot{n}_vel") for n in range(len(feet))])
        self._foot_y_vel = Constant([_sensor(model, f"physai_foot{n}_vel") + 1 for n in range(len(feet))])

    def lin_vel(self, view: WorldView) -> Array:
        """Velocity of the base [m/s], shape (num_worlds, 3)."""
        return once(view, "lin_vel", lambda v: rotations.rotate_inverse(v.qpos[:, 3:7], v.qvel[:, :3], v.xp))

    def gravity(self, view: WorldView) -> Array:
        """Unit vector of gravity, shape (num_worlds, 3)."""
        return once(view, "gravity", _gravity)

    def base_height(self, view: WorldView) -> Array:
        """Height of the base above the ground below it [m], shape (num_worlds,)."""
        return once(view, "base_height", self._base_height)

    def foot_heights(self, view: WorldView) -> Array:
        """Heights of the feet's lowest points above the ground [m], shape (num_worlds, feet)."""
        return once(view, "foot_heights", self._foot_heights)

    def foot_speeds(self, view: WorldView) -> Array:
        """Horizontal speeds of the feet over the floor [m/s], shape (num_worlds, feet)."""
        return once(view, "foot_speeds", self._foot_speeds)

    def foot_contacts(self, view: WorldView) -> Array:
        """1 where a foot is within `TOUCH_M` of the ground, else 0, shape (num_worlds, feet)."""
        return view.xp.astype(self.foot_heights(view) < self._touch, view.qpos.dtype)

    def lag(self, view: WorldView) -> Array:
        """Commanded minus actual position of the commanded joints [rad], shape (num_worlds, commands)."""
        return once(view, "lag", lambda v: v.target - self.driven(v.joint_pos))

    def efforts(self, view: WorldView) -> Array:
        """Torques of the position servos, clip(kp (u - q) - kd q', ±limit) [N·m], shape (num_worlds, commands)."""
        return once(view, "efforts", self._efforts)

    def _foot_heights(self, view: WorldView) -> Array:
        # The sensors measure the centres of spherical feet, and the corners of the soles of others.
        data, xp = view.derived["sensordata"], view.xp
        heights = _columns(data, self._corner_z)
        if self._terrain is not None:
            x, y = _columns(data, self._corner_x), _columns(data, self._corner_y)
            heights = heights - self._terrain.height(x, y, xp)
        if self._corners > 1:
            heights = xp.min(xp.reshape(heights, (-1, self.feet, self._corners)), axis=2)
        return heights - self._radius.like(data)

    def _base_height(self, view: WorldView) -> Array:
        x, y, z = (view.qpos[:, axis] for axis in range(3))
        if self._middle:
            # Minus gravity's last component is the share of the way up that is still vertical.
            z = z - self._middle * self.gravity(view)[:, 2]
        return z if self._terrain is None else z - self._terrain.height(x, y, view.xp)

    def _foot_speeds(self, view: WorldView) -> Array:
        data = view.derived["sensordata"]
        x, y = _columns(data, self._foot_x_vel), _columns(data, self._foot_y_vel)
        return view.xp.sqrt(x * x + y * y)

    def _efforts(self, view: WorldView) -> Array:
        like = view.joint_pos
        wanted = self.stiffness.like(like) * self.lag(view) - self.damping.like(like) * self.driven(view.joint_vel)
        return view.xp.clip(wanted, -self.effort_limit.like(like), self.effort_limit.like(like))

    def driven(self, values: Array) -> Array:
        """Those of the commanded joints, shape (num_worlds, commands), of values of all joints."""
        return values if self._driven is None else _columns(values, self._driven)


def _columns(data: Array, columns: Constant) -> Array:
    return array_namespace(data).take(data, columns.like(data), axis=1)


def _gravity(view: WorldView) -> Array:
    # Minus the third row of the rotation matrix of qpos[3:7], without its other six entries.
    w, x, y, z = (view.qpos[:, i] for i in range(3, 7))
    return view.xp.stack([2.0 * (w * y - x * z), -2.0 * (w * x + y * z), 2.0 * (x * x + y * y) - 1.0], axis=1)


def _sensor(model: Any, name: str) -> int:
    return int(model.sensor_adr[mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SENSOR, name)])
