"""Quantities of the state that tasks with a cube read: cube, tip and joints, in the world frame."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from physai.sdk.contract.robot import RobotSpec
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot
from physai.sim.robots.objects import Box, base_pose, free_columns
from physai.sim.tasks.arms.arm import TIP
from physai.sim.tasks.arms.tabletop import CUBE
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import Randomise, WorldView

Vector3 = tuple[float, float, float]


def norm(vectors: Array, xp: Any) -> Array:
    """Euclidean length, shape (n, k) to (n,)."""
    return xp.sqrt(xp.vecdot(vectors, vectors))


class SceneState:
    """Columns of cube, tip and joints in the arrays of a `WorldView`."""

    sensor = f"{CUBE}_pos"
    """Sensor field with the position of the cube in the base frame."""

    def __init__(self, model: Any, robot: RobotSpec, driven: Sequence[str]) -> None:
        """Resolves them.

        Args:
            model: of robot, table and cube.
            robot: the robot's specification.
            driven: joints that the policy commands.
        """
        self._model = model
        self._position, self._velocity = free_columns(model, CUBE)
        self._site = int(model.site(TIP).id)
        origin, rotation = base_pose(model)
        self._origin, self._rotation = Constant(origin), Constant(rotation)
        self._home = Constant([joint.default_pos for joint in robot.joints])
        self._driven = Constant(robot.joint_index(tuple(driven)))
        self.joints_size = 2 * len(robot.joints) + len(driven)
        """Columns of `joints`."""

    def seeing(self, robot: Robot, boxes: Sequence[Box]) -> Robot:
        """The robot with the sensors of the boxes that move; its model is that of the robot alone."""
        fields = tuple(box.field for box in boxes if box.mass is not None)
        return replace(robot, spec=robot.spec.model_copy(update={"sensors": (*robot.spec.sensors, *fields)}))

    def cube(self, view: WorldView) -> Array:
        """Centre of the cube [m], shape (num_worlds, 3)."""
        return view.qpos[:, self._position : self._position + 3]

    def cube_velocity(self, view: WorldView) -> Array:
        """Of its centre [m/s], shape (num_worlds, 3)."""
        return view.qvel[:, self._velocity : self._velocity + 3]

    def tip(self, view: WorldView) -> Array:
        """Tip of the arm [m], shape (num_worlds, 3)."""
        return view.derived["site_xpos"][:, self._site]

    def joints(self, view: WorldView) -> Array:
        """Positions from home, velocities and lag of the targets, scaled, shape (num_worlds, joints_size)."""
        driven = view.xp.take(view.joint_pos, self._driven.like(view.joint_pos), axis=1)
        parts = [view.joint_pos - self._home.like(view.joint_pos), 0.5 * view.joint_vel, 4.0 * (view.target - driven)]
        return view.xp.concatenate(parts, axis=1)

    def in_base(self, points: Array) -> Array:
        """From the world frame to the base frame [m], shape (n, 3)."""
        return (points - self._origin.like(points)) @ self._rotation.like(points)

    def in_world(self, points: Array) -> Array:
        """From the base frame to the world frame [m], shape (n, 3)."""
        return points @ self._rotation.like(points).T + self._origin.like(points)

    def bounds_in_base(self, centre: tuple[float, float], height: float, radius: float) -> tuple[Vector3, Vector3]:
        """Bounds in the base frame of a square on the table, rounded outwards to 0.1 mm [m]."""
        x, y = centre
        corners = np.array([[x + i * radius, y + j * radius, height] for i, j in itertools.product((-1, 1), (-1, 1))])
        inside = self.in_base(corners)
        lower = tuple(float(v) for v in np.floor(inside.min(axis=0) * 1e4 - 0.5) / 1e4)
        upper = tuple(float(v) for v in np.ceil(inside.max(axis=0) * 1e4 + 0.5) / 1e4)
        return (lower[0], lower[1], lower[2]), (upper[0], upper[1], upper[2])

    def cube_randomisation(self) -> tuple[Randomise, ...]:
        """Mass and friction of the cube."""
        body, geom = int(self._model.body(CUBE).id), int(self._model.geom(CUBE).id)
        return (
            Randomise(
                field="body_mass", rows=(body,), operation="scale", lower=0.7, upper=1.5, together=("body_inertia",)
            ),
            Randomise(field="geom_friction", rows=(geom,), columns=(0,), operation="scale", lower=0.6, upper=1.2),
        )
