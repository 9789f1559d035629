"""Draws a policy's commands: target poses as axes, places as pins, velocities as arrows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import CommandField
from physai.sim.engines.protocol import Array
from physai.sim.robots.shapes import shape_corners
from physai.sim.robots.spec import has_floating_base, home_qpos, posed

Vector = npt.NDArray[np.float64]
Colour = tuple[float, float, float, float]

AXIS_COLOURS: tuple[Colour, ...] = ((0.90, 0.16, 0.16, 1.0), (0.13, 0.66, 0.22, 1.0), (0.16, 0.36, 0.92, 1.0))
"""x red, y green, z blue, as in RViz."""
VELOCITY_COLOUR: Colour = (0.13, 0.66, 0.22, 1.0)

POSE_SIZE = 7
"""A pose is a position [m] and a quaternion, wxyz."""
VELOCITY_SIZE = 3
"""A velocity is forward, left [m/s] and yaw rate [rad/s]."""

PIN_M = 0.1
PIN_COLOUR: Colour = (0.90, 0.16, 0.16, 1.0)
AXIS_LENGTH_M = 0.2
AXIS_RADIUS_M = 0.01
ARROW_RADIUS_M = 0.012
ARROW_LIFT_M = 0.2
"""Height of a velocity arrow above the base."""
WALKING_ROOM_M = 0.5
"""Visible distance around a walking robot's base."""
SECONDS_AHEAD = 0.5
"""Arrows show the displacement, and arcs the rotation, within this time."""
ARC_RADIUS_M = 0.3
ARC_PIECES = 12
ARC_HEAD_M = 0.06
FLOOR_M = 20.0
"""Half side of a floor that is drawn only."""
FLOOR_COLOUR: Colour = (0.80, 0.82, 0.85, 1.0)
STILL_M = 0.01
"""Shorter displacements are not drawn."""


@dataclass(frozen=True)
class Stroke:
    """A line between two points of the world [m], shape (3,) each."""

    start: Vector
    end: Vector
    radius: float
    colour: Colour
    head: bool = True
    """Whether it ends in an arrow head."""


def frame_axes(position: Array, quat: Array, *, length: float = AXIS_LENGTH_M) -> list[Stroke]:
    """The three axes of a frame.

    Args:
        position: origin in the world [m], shape (3,).
        quat: orientation in the world, wxyz, shape (4,); need not have unit length.
        length: of an axis [m].
    """
    origin, rotation = np.asarray(position, float), rotation_matrix(quat)
    return [
        Stroke(origin, origin + length * rotation[:, axis], AXIS_RADIUS_M, colour)
        for axis, colour in enumerate(AXIS_COLOURS)
    ]


def end_effector_axes(model: mujoco.MjModel) -> list[Stroke]:
    """The axes of the site `ee` at home, a fifth of the robot's greatest extent long; none without that site."""
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE.value, "ee")
    if site < 0:
        return []
    quat, home = np.zeros(4), home_qpos(model)
    data = posed(model, home)
    mujoco.mju_mat2Quat(quat, data.site_xmat[site])
    return frame_axes(
        data.site_xpos[site], quat, length=0.2 * float(np.ptp(shape_corners(model, [home]), axis=0).max())
    )


def velocity_arrows(position: Array, quat: Array, velocity: Array) -> list[Stroke]:
    """A commanded velocity above the base: an arrow for translation, an arc for rotation.

    Args:
        position: of the base in the world [m], shape (3,).
        quat: orientation of the base, wxyz, shape (4,); its heading counts.
        velocity: forward, left [m/s] and turn to the left [rad/s] in the heading frame, shape (3,).
    """
    forward = rotation_matrix(quat)[:, 0]
    # Commands are in the heading frame: the base's yaw without its roll and pitch.
    heading = math.atan2(forward[1], forward[0])
    origin = np.asarray(position, float) + np.array([0.0, 0.0, ARROW_LIFT_M])
    ahead = SECONDS_AHEAD * np.asarray(velocity, float)
    cos, sin = math.cos(heading), math.sin(heading)
    way = np.array([cos * ahead[0] - sin * ahead[1], sin * ahead[0] + cos * ahead[1], 0.0])
    strokes = [] if np.hypot(*way[:2]) < STILL_M else [Stroke(origin, origin + way, ARROW_RADIUS_M, VELOCITY_COLOUR)]
    return strokes + ([] if abs(ARC_RADIUS_M * ahead[2]) < STILL_M else _arc(origin, heading, ahead[2]))


def _arc(centre: Vector, heading: float, turn: float) -> list[Stroke]:
    """An arc about the vertical, from the heading through the turn [rad], with a head along its end."""
    angles = heading + np.linspace(0.0, turn, ARC_PIECES + 1)
    points = centre + ARC_RADIUS_M * np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], axis=1)
    tangent = math.copysign(ARC_HEAD_M, turn) * np.array([-math.sin(angles[-1]), math.cos(angles[-1]), 0.0])
    radius = 0.7 * ARROW_RADIUS_M
    pieces = [Stroke(points[i], points[i + 1], radius, VELOCITY_COLOUR, head=False) for i in range(ARC_PIECES)]
    return [*pieces, Stroke(points[-1], points[-1] + tangent, radius, VELOCITY_COLOUR)]


def rotation_matrix(quat: Array) -> Vector:
    """Rotation of a quaternion, wxyz, shape (4,), of any length but zero; shape (3, 3)."""
    unit, matrix = np.array(quat, float), np.zeros(9)
    mujoco.mju_normalize4(unit)
    mujoco.mju_quat2Mat(matrix, unit)
    return matrix.reshape(3, 3)


def pose_fields(contract: PolicyContract) -> list[CommandField]:
    """The commands that are poses in the base frame: those a `pose_error` term reads."""
    names = {term.source for term in contract.observation.terms if term.kind == "pose_error"}
    return [field for field in contract.command.fields if field.name in names and field.size == POSE_SIZE]


class CommandMarkers:
    """Draws the commands of one contract that have a place in the world."""

    def __init__(self, contract: PolicyContract, model: Any) -> None:
        """Finds target poses (what a `pose_error` term reads), places (`position_error`), and velocities [m/s]."""
        self._poses = pose_fields(contract)
        places = {term.source for term in contract.observation.terms if term.kind == "position_error"}
        self._places = [field for field in contract.command.fields if field.name in places]
        self._velocities = [f.name for f in contract.command.fields if _is_velocity(f, contract)]
        self._floating = has_floating_base(model)
        root = int(model.body_rootid[model.jnt_bodyid[0]])
        self._base = np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0])
        if self._floating:
            home = home_qpos(model)
            self._base = home[:3], home[3:7]
        elif int(model.body_jntnum[root]) == 0:
            # Where a body that moves on a joint hangs on the world, the base frame is the world's.
            self._base = np.array(model.body_pos[root]), np.array(model.body_quat[root])

    def reach(self) -> Vector:
        """Points between which the strokes lie, world frame [m], shape (n, 3); of a walking robot, while it is home."""
        position, quat = self._base
        if self._floating:
            around = product((-WALKING_ROOM_M, WALKING_ROOM_M), (-WALKING_ROOM_M, WALKING_ROOM_M), (ARROW_LIFT_M,))
            return position + np.array(list(around) if self._velocities else []).reshape(-1, 3)
        corners = [
            xyz for f in (*self._poses, *self._places) for xyz in product(*zip(f.lower[:3], f.upper[:3], strict=True))
        ]
        return position + np.array(corners).reshape(-1, 3) @ rotation_matrix(quat).T

    def at(self, qpos: Array, commands: Mapping[str, Array]) -> list[Stroke]:
        """Strokes to draw.

        Args:
            qpos: generalised positions, shape (nq,).
            commands: command fields by name, shape (size,) each.
        """
        position, quat = (qpos[:3], qpos[3:7]) if self._floating else self._base
        strokes: list[Stroke] = []
        for field in self._poses:
            p_world, q_world = np.zeros(3), np.zeros(4)
            pose = np.asarray(commands[field.name], float)
            mujoco.mju_mulPose(p_world, q_world, position, quat, pose[:3], pose[3:])
            strokes += frame_axes(p_world, q_world)
        for field in self._places:
            place = position + rotation_matrix(quat) @ np.asarray(commands[field.name], float)
            strokes.append(Stroke(place + np.array([0.0, 0.0, PIN_M]), place, 0.5 * AXIS_RADIUS_M, PIN_COLOUR))
        for name in self._velocities:
            strokes += velocity_arrows(position, quat, commands[name])
        return strokes


def _is_velocity(field: CommandField, contract: PolicyContract) -> bool:
    return contract.robot.base == "floating" and field.size == VELOCITY_SIZE and field.unit.startswith("m/s")


def draw(scene: Any, strokes: Sequence[Stroke], *, floor_z: float | None = None) -> None:
    """Adds strokes, and a floor at a height [m], to a scene (MjvScene); what is beyond its capacity is left out."""
    if floor_z is not None and scene.ngeom < scene.maxgeom:
        _draw_floor(scene, floor_z)
    for stroke in strokes[: scene.maxgeom - scene.ngeom]:
        geom = scene.geoms[scene.ngeom]
        kind = mujoco.mjtGeom.mjGEOM_ARROW if stroke.head else mujoco.mjtGeom.mjGEOM_CAPSULE
        mujoco.mjv_initGeom(geom, kind, np.zeros(3), np.zeros(3), np.zeros(9), np.array(stroke.colour, np.float32))
        mujoco.mjv_connector(geom, kind, stroke.radius, stroke.start, stroke.end)
        # mjv_initGeom leaves these fields uninitialised. Dynamic geoms cast a shadow, which shows their height.
        geom.category = mujoco.mjtCatBit.mjCAT_DYNAMIC
        geom.objtype, geom.objid, geom.segid = mujoco.mjtObj.mjOBJ_UNKNOWN, -1, scene.ngeom
        geom.castshadow = True
        # Emissive, so that the colours stay distinguishable in shadows.
        geom.emission = 0.3
        scene.ngeom += 1


def _draw_floor(scene: Any, height: float) -> None:
    geom = scene.geoms[scene.ngeom]
    kind, size = mujoco.mjtGeom.mjGEOM_PLANE, np.array([FLOOR_M, FLOOR_M, 1.0])
    position, colour = np.array([0.0, 0.0, height]), np.array(FLOOR_COLOUR, np.float32)
    mujoco.mjv_initGeom(geom, kind, size, position, np.eye(3).ravel(), colour)
    geom.category = mujoco.mjtCatBit.mjCAT_STATIC
    geom.objtype, geom.objid, geom.segid = mujoco.mjtObj.mjOBJ_UNKNOWN, -1, scene.ngeom
    scene.ngeom += 1
