"""The feet of a legged robot: which bodies it can stand on, and where they meet the floor."""

import itertools
import re
from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sim.robots.spec import ancestors, has_floating_base, posed

Array = NDArray[np.float64]

MIN_HINGES = 2
"""Joints between base and foot that make a leg."""
NAMED = re.compile(r"foot|sole|ankle|toe|calf|shank|shin", re.IGNORECASE)
DEEP = 0.7
"""Share of the longest leg's reach that a leg has; arms of a humanoid reach less far down."""
LEVEL_M = 2e-3
"""Height above the lowest point up to which a sole lies on the floor [m]."""
POSES = 200
"""Joint positions that are tried to see how far down a leg reaches."""


@dataclass(frozen=True, kw_only=True)
class Foot:
    """A body that stands on the floor."""

    body: int
    """Its MuJoCo id."""
    joints: tuple[int, ...]
    """MuJoCo ids of the joints between base and foot, from the base on."""
    point: tuple[float, float, float]
    """Where it touches the floor in the given pose, or the centre of a spherical foot, in the frame of the body [m]."""
    radius: float
    """Radius of a spherical foot, else 0 [m]."""
    geoms: tuple[int, ...]
    """MuJoCo ids of its shapes that can touch the floor."""
    corners: tuple[tuple[float, float, float], ...] = ()
    """Up to four outermost points of a flat sole in the given pose, in the frame of the body [m]; none of a ball."""


def find_feet(model: mujoco.MjModel, qpos: Array) -> tuple[Foot, ...]:
    """Returns the feet of a robot with a floating base, in the model's order; none if it has no legs.

    A foot is the last body of a chain of at least two joints. If some chains have bodies that are called foot, sole,
    ankle, toe, calf, shank or shin, the feet are their last ones; else those that reach about as far down as any.

    Args:
        model: compiled model.
        qpos: pose in which the feet touch the floor, shape (nq,).
    """
    if not has_floating_base(model):
        return ()
    parents = {int(model.body_parentid[body]) for body in range(1, model.nbody)}
    chains = {body: _joints(model, body) for body in range(1, model.nbody) if body not in parents}
    ends = {_carrier(model, body): joints for body, joints in chains.items() if len(joints) >= MIN_HINGES}
    legs = {body: joints for body, joints in ends.items() if _touching(model, body)}
    named = {body: joints for body, joints in legs.items() if _is_named(model, body, joints)}
    if len(named) < MIN_HINGES:
        reaches = dict(zip(legs, _reaches(model, list(legs)), strict=True))
        deepest = max(reaches.values(), default=0.0)
        named = {body: joints for body, joints in legs.items() if reaches[body] > DEEP * deepest}
    data = posed(model, qpos)
    return tuple(_foot(model, data, body, joints) for body, joints in sorted(named.items()))


def lowest_point(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> Array:
    """Returns the lowest point of a shape in the world frame [m], shape (3,).

    Args:
        model: compiled model.
        data: state whose kinematics were computed.
        geom: MuJoCo id of a sphere, capsule, cylinder, ellipsoid, box or mesh; of others the centre is taken.
    """
    centre, turn, size = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3), model.geom_size[geom]
    # The direction of gravity in the shape's frame.
    down = -turn[2]
    kind = mujoco.mjtGeom(int(model.geom_type[geom]))
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = int(model.geom_dataid[geom])
        start = int(model.mesh_vertadr[mesh])
        vertices = model.mesh_vert[start : start + int(model.mesh_vertnum[mesh])]
        return centre + turn @ vertices[int(np.argmax(vertices @ down))]
    radial = down * [1.0, 1.0, 0.0]
    length = float(np.linalg.norm(radial))
    offsets = {
        mujoco.mjtGeom.mjGEOM_SPHERE: down * size[0],
        mujoco.mjtGeom.mjGEOM_CAPSULE: down * size[0] + [0.0, 0.0, np.sign(down[2]) * size[1]],
        mujoco.mjtGeom.mjGEOM_CYLINDER: radial / max(length, 1e-9) * size[0] + [0.0, 0.0, np.sign(down[2]) * size[1]],
        mujoco.mjtGeom.mjGEOM_BOX: np.sign(down) * size,
        mujoco.mjtGeom.mjGEOM_ELLIPSOID: size**2 * down / max(float(np.linalg.norm(size * down)), 1e-9),
    }
    return centre + turn @ offsets.get(kind, np.zeros(3))


def lowest_touching(model: mujoco.MjModel, qpos: Array) -> float:
    """Returns the height of the lowest point of all shapes that collide [m]; infinity if there are none."""
    data = posed(model, qpos)
    shapes = [geom for body in range(1, model.nbody) for geom in _touching(model, body)]
    return min((float(lowest_point(model, data, geom)[2]) for geom in shapes), default=np.inf)


def _foot(model: mujoco.MjModel, data: mujoco.MjData, body: int, joints: tuple[int, ...]) -> Foot:
    geoms = _touching(model, body)
    points = [lowest_point(model, data, geom) for geom in geoms]
    lowest = min(range(len(geoms)), key=lambda index: float(points[index][2]))
    sphere = int(model.geom_type[geoms[lowest]]) == mujoco.mjtGeom.mjGEOM_SPHERE
    # A flat foot, of one shape or many, is taken by the middle of what lies on the floor.
    level = [point for point in points if point[2] < points[lowest][2] + LEVEL_M]
    point = data.geom_xpos[geoms[lowest]] if sphere and len(level) == 1 else np.mean(level, axis=0)
    turn, place = data.xmat[body].reshape(3, 3), data.xpos[body]
    local = turn.T @ (point - place)
    corners = [] if sphere and len(level) == 1 else [turn.T @ (x - place) for x in _corners(model, data, geoms)]
    radius = float(model.geom_size[geoms[lowest], 0]) if sphere and len(level) == 1 else 0.0
    return Foot(
        body=body,
        joints=joints,
        point=(float(local[0]), float(local[1]), float(local[2])),
        radius=radius,
        geoms=tuple(geoms),
        corners=tuple((float(x), float(y), float(z)) for x, y, z in corners),
    )


def _corners(model: mujoco.MjModel, data: mujoco.MjData, geoms: list[int]) -> list[Array]:
    """Of the points that lie on the floor, those that are furthest in the four diagonal directions."""
    points = np.concatenate([_surface(model, data, geom) for geom in geoms])
    level = points[points[:, 2] < points[:, 2].min() + LEVEL_M]
    diagonals = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))
    outermost = {int(np.argmax(level[:, :2] @ np.array(diagonal))): None for diagonal in diagonals}
    return [level[index] for index in outermost]


def _surface(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> Array:
    """Points of a shape that may lie on the floor, in the world frame [m], shape (points, 3)."""
    centre, turn, size = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3), model.geom_size[geom]
    kind = mujoco.mjtGeom(int(model.geom_type[geom]))
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = int(model.geom_dataid[geom])
        start = int(model.mesh_vertadr[mesh])
        return centre + model.mesh_vert[start : start + int(model.mesh_vertnum[mesh])] @ turn.T
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return centre + np.array(list(itertools.product((-1.0, 1.0), repeat=3))) * size @ turn.T
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        ends = np.array([[0.0, 0.0, size[1]], [0.0, 0.0, -size[1]]]) @ turn.T
        return centre + ends - [0.0, 0.0, size[0]]
    return lowest_point(model, data, geom)[None]


def _joints(model: mujoco.MjModel, body: int) -> tuple[int, ...]:
    """Joints between a body and the floating base, from the base on."""
    found: list[int] = []
    for part in ancestors(model, body):
        first, count = int(model.body_jntadr[part]), int(model.body_jntnum[part])
        found[:0] = [joint for joint in range(first, first + count) if joint > 0]
    return tuple(found)


def _carrier(model: mujoco.MjModel, body: int) -> int:
    """The body itself, if it has shapes that collide, or the nearest one above it in the same rigid part."""
    top = int(model.body_weldid[body])
    while body != top and not _touching(model, body):
        body = int(model.body_parentid[body])
    return body


def _touching(model: mujoco.MjModel, body: int) -> list[int]:
    first, count = int(model.body_geomadr[body]), int(model.body_geomnum[body])
    shapes = range(first, first + count)
    return [geom for geom in shapes if model.geom_contype[geom] or model.geom_conaffinity[geom]]


def _is_named(model: mujoco.MjModel, body: int, joints: tuple[int, ...]) -> bool:
    last = int(model.jnt_bodyid[joints[-1]])
    return any(NAMED.search(str(model.body(part).name)) for part in (body, last))


def _reaches(model: mujoco.MjModel, bodies: list[int]) -> Array:
    """Reach of the bodies below the base, over random poses within the joints' limits [m]."""
    random, data = np.random.default_rng(0), mujoco.MjData(model)
    deepest = np.zeros(len(bodies))
    for _ in range(POSES):
        data.qpos[:] = model.qpos0
        for joint in range(1, model.njnt):
            low, high = model.jnt_range[joint] if model.jnt_limited[joint] else (-1.0, 1.0)
            data.qpos[model.jnt_qposadr[joint]] = random.uniform(low, high)
        mujoco.mj_kinematics(model, data)
        heights = [min(float(lowest_point(model, data, geom)[2]) for geom in _touching(model, b)) for b in bodies]
        deepest = np.maximum(deepest, data.qpos[2] - np.array(heights))
    return deepest
