"""A table that any arm can reach, a cube on it, and poses from which the arm begins."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from physai.sdk.base.errors import TaskError
from physai.sim.engines.protocol import Array
from physai.sim.robots import Robot, home_qpos
from physai.sim.robots.objects import Box, with_objects
from physai.sim.robots.spec import chain_joints, has_floating_base
from physai.sim.tasks.arms.arm import TIP
from physai.sim.tasks.constant import Constant
from physai.sim.tasks.task import ResetFunction, Uniforms

CUBE = "cube"
EDGE, LEAST_EDGE_M, GREATEST_EDGE_M = 0.04, 0.025, 0.05
"""Edge of the cube as a share of the arm's length, and its bounds."""
DENSITY = 400.0
"""Of the cube [kg/m³]: light wood."""
AREAS = (0.15, 0.12, 0.09)
"""Radius of the area in which the cube is moved, as a share of the arm's length; the first that the arm reaches."""
NEAREST, FARTHEST = 0.35, 0.55
"""Bounds of the distance between the first joint's axis and the middle of the table, as a share of the arm's length."""
TABLE_M = 0.02
"""Height of the table's top above what the arm stands on."""
INNER = 0.15
"""Greatest distance of the cube from the middle at the start, as a share of `half` along each axis."""
STARTS = 256
"""Poses from which the arm begins."""
_ACCURACY_M, _STEPS, _TRIES = 0.002, 60, 20

Poses = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Tabletop:
    """Places of a table's things, in the world frame."""

    edge: float
    """Of the cube [m]."""
    centre: tuple[float, float]
    """Middle of the table [m]."""
    height: float
    """Of a cube's centre on the table [m]."""
    half: float
    """Radius of the area in which the cube is moved [m]."""
    boxes: tuple[Box, Box]
    """Table and cube."""
    starts: Poses
    """Positions of all joints, the tip above the cube, shape (STARTS, joints)."""

    def reset(self) -> ResetFunction:
        """Draws one of `starts`, and a cube near the middle that is turned at random; six uniform numbers."""
        starts, middle = Constant(self.starts), Constant([*self.centre, self.height])
        spread = Constant([INNER * self.half, INNER * self.half, 0.0])

        def draw_state(draw: Uniforms) -> tuple[Array, Array]:
            xp: Any = array_namespace(draw)
            number = xp.astype(xp.floor(draw[:, 0] * STARTS), xp.int64)
            joints = xp.take(starts.like(draw), number, axis=0)
            cube = middle.like(draw) + spread.like(draw) * (2.0 * draw[:, 1:4] - 1.0)
            half_turn, none = 0.25 * math.pi * (2.0 * draw[:, 4:5] - 1.0), 0.0 * draw[:, :1]
            quat = xp.concatenate([xp.cos(half_turn), none, none, xp.sin(half_turn)], axis=1)
            qpos = xp.concatenate([joints, cube, quat], axis=1)
            return qpos, xp.concatenate([0.0 * joints, none, none, none, none, none, none], axis=1)

        return draw_state


DRAWS = 5
"""Uniform numbers that `Tabletop.reset` takes."""


def tabletop(robot: Robot, *, clearance: float = 1.0) -> Tabletop:
    """A table for an arm: ahead of its first joint, below its home pose, no farther than it reaches.

    Args:
        robot: the arm.
        clearance: least distance of the tip from the cube at the start, in edges of the cube.

    Raises:
        TaskError: the robot has no site `ee`, no fixed base or less than three joints before its tip, or does not reach
            a table on the ground it stands on.
    """
    model = robot.model
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, TIP)
    if site < 0:
        raise TaskError(
            f"robot {robot.name} has no site named {TIP!r}, which marks the end effector; make one with: physai robots "
            "import FILE --ee LINK"
        )
    if has_floating_base(model):
        raise TaskError(f"robot {robot.name} moves freely; this task needs a fixed base: import it with --fixed-base")
    joints = chain_joints(model, site)
    if len(joints) < 3:
        raise TaskError(f"robot {robot.name} moves its tip with {len(joints)} joints; this task needs at least 3")
    arm = _Arm(model, site, joints)
    edge = round(min(max(EDGE * arm.length, LEAST_EDGE_M), GREATEST_EDGE_M), 4)
    top = round(_ground(model) + TABLE_M, 4)
    centre = arm.ahead()
    middle = np.array([*centre, top])
    half = next((half for half in (round(a * arm.length, 4) for a in AREAS) if arm.covers(middle, half, edge)), None)
    if half is None:
        where = ", ".join(f"{value:.2f}" for value in middle)
        raise TaskError(
            f"robot {robot.name} does not reach every place within {AREAS[-1] * arm.length:.2f} m of ({where}) m, on a "
            "table on the ground; give the model a keyframe named home in the middle of its work"
        )
    boxes = _boxes(edge, centre, top, half)
    starts = _starts(robot, arm, boxes, top + (1.0 + clearance) * edge, half)
    return Tabletop(edge=edge, centre=centre, height=top + 0.5 * edge, half=half, boxes=boxes, starts=starts)


def _boxes(edge: float, centre: tuple[float, float], top: float, half: float) -> tuple[Box, Box]:
    table = Box(
        name="table", half_size=(1.6 * half, 1.6 * half, 0.5 * TABLE_M), position=(*centre, top - 0.5 * TABLE_M)
    )
    cube = Box(
        name=CUBE,
        half_size=(0.5 * edge, 0.5 * edge, 0.5 * edge),
        position=(*centre, top + 0.5 * edge),
        mass=round(DENSITY * edge**3, 4),
        rgba=(0.2, 0.45, 0.75, 1.0),
    )
    return table, cube


def _ground(model: Any) -> float:
    """Height of the highest floor [m]; of the lowest root body if there is none."""
    planes = [float(z) for z in model.geom_pos[model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE, 2]]
    return max(planes) if planes else float(model.body_pos[model.body_parentid == 0, 2][1:].min())


def _starts(robot: Robot, arm: "_Arm", boxes: tuple[Box, Box], height: float, half: float) -> Poses:
    """Poses with the tip at most `half` from the middle and from `height` up to one edge above, free of collisions."""
    table, cube = boxes
    scene = with_objects(robot, [table], physics_dt=float(robot.model.opt.timestep))
    data, random = mujoco.MjData(scene), np.random.default_rng(0)
    found: list[Poses] = []
    for _ in range(_TRIES * STARTS):
        x, y, z = random.uniform(-1.0, 1.0, 3) * (0.7 * half, 0.7 * half, cube.half_size[2])
        point = np.array([table.position[0] + x, table.position[1] + y, height + cube.half_size[2] + z])
        pose = arm.pose_at(point, arm.home + 0.1 * random.standard_normal(len(arm.home)) * arm.moving)
        if pose is None:
            continue
        data.qpos[:] = pose
        mujoco.mj_kinematics(scene, data)
        mujoco.mj_collision(scene, data)
        if not any(contact.dist < 0.0 for contact in data.contact[: data.ncon]):
            found.append(pose)
        if len(found) == STARTS:
            return np.array(found)
    raise TaskError(
        f"only {len(found)} of {_TRIES * STARTS} poses of robot {robot.name} above the table are free of collisions; "
        "give the model a keyframe named home in the middle of its work"
    )


class _Arm:
    """Inverse kinematics of an arm's tip."""

    def __init__(self, model: Any, site: int, joints: list[int]) -> None:
        self._model, self._site, self._data = model, site, mujoco.MjData(model)
        self._columns, self._dofs = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        self.home = home_qpos(model)
        self.moving = np.zeros(model.nq)
        self.moving[self._columns] = 1.0
        limited = np.asarray(model.jnt_limited[joints], bool)
        room = 0.05 * (model.jnt_range[joints, 1] - model.jnt_range[joints, 0])
        self._lower = np.where(limited, model.jnt_range[joints, 0] + room, -np.inf)
        self._upper = np.where(limited, model.jnt_range[joints, 1] - room, np.inf)
        self._place(self.home)
        anchors = [*self._data.xanchor[joints], self._data.site_xpos[site]]
        self._foot, self._tip = np.array(anchors[0]), np.array(anchors[-1])
        self.length = float(sum(np.linalg.norm(b - a) for a, b in itertools.pairwise(anchors)))
        """Sum of the distances from joint to joint to the tip [m]."""

    def _place(self, qpos: Poses) -> None:
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        mujoco.mj_comPos(self._model, self._data)

    def ahead(self) -> tuple[float, float]:
        """Place for the middle of a table, in the direction of the tip at home [m]."""
        way = self._tip[:2] - self._foot[:2]
        distance = float(np.linalg.norm(way))
        direction = way / distance if distance > 1e-6 else np.array([1.0, 0.0])
        x, y = self._foot[:2] + direction * min(max(distance, NEAREST * self.length), FARTHEST * self.length)
        return round(float(x), 4), round(float(y), 4)

    def covers(self, middle: Poses, radius: float, edge: float) -> bool:
        """Whether the tip reaches a circle around the middle of a table, at the cube and well above it."""
        angles = np.arange(8) * math.pi / 4
        around = [(radius * math.cos(a), radius * math.sin(a), z * edge) for a in angles for z in (0.5, 3.0)]
        return all(self.pose_at(middle + point, self.home) is not None for point in around)

    def pose_at(self, point: Poses, start: Poses) -> Poses | None:
        """Positions of all joints with the tip at a point [m], by damped least squares; None if it is not reached."""
        qpos, jacobian = start.copy(), np.zeros((3, self._model.nv))
        damping = (0.01 * self.length) ** 2 * np.eye(3)
        for _ in range(_STEPS):
            self._place(qpos)
            error = point - self._data.site_xpos[self._site]
            if np.linalg.norm(error) < _ACCURACY_M:
                return qpos
            mujoco.mj_jacSite(self._model, self._data, jacobian, None, self._site)
            own: Poses = jacobian[:, self._dofs]
            gap: Poses = np.asarray(error, dtype=np.float64)
            step = own.T @ np.linalg.solve(own @ own.T + damping, gap)
            moved = qpos[self._columns] + np.clip(step, -0.2, 0.2)
            qpos[self._columns] = np.clip(moved, self._lower, self._upper)
        return None
