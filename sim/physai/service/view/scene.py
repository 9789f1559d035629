"""Drawing of a model for a viewer: triangles that move with bodies."""

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt
import trimesh

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int32]

_create: Any = trimesh.creation

VISIBLE_GROUPS = (0, 1, 2)
"""Groups of geoms that MuJoCo's own viewer shows; by convention the others are for collisions only."""
PLANE_HALF_SIZE_M = 10.0
"""Half side of an infinite plane."""


@dataclass(frozen=True)
class Shape:
    """Triangles in the frame of a body."""

    name: str
    body: int
    vertices: Floats
    """Corners [m], shape (corners, 3)."""
    faces: Indices
    """Three corners each, shape (triangles, 3)."""
    colour: tuple[float, float, float, float]
    """Red, green, blue and opacity, 0 to 1."""


def shapes(model: mujoco.MjModel) -> list[Shape]:
    """The visible geoms of a model."""
    found: list[Shape] = []
    for geom in range(model.ngeom):
        rgba = _colour(model, geom)
        if model.geom_group[geom] not in VISIBLE_GROUPS or rgba[3] == 0.0:
            continue
        triangles = _triangles(model, geom)
        if triangles is None:
            continue
        rotation: Floats = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
        vertices = triangles[0] @ rotation.reshape(3, 3).T + model.geom_pos[geom]
        name = model.geom(geom).name or f"geom{geom}"
        found.append(Shape(name, int(model.geom_bodyid[geom]), vertices, triangles[1], rgba))
    return found


def _colour(model: mujoco.MjModel, geom: int) -> tuple[float, float, float, float]:
    material = model.geom_matid[geom]
    # A geom's own colour counts unless it is the default and the geom has a material.
    own: Floats = model.geom_rgba[geom]
    rgba = model.mat_rgba[material] if material >= 0 and np.allclose(own, (0.5, 0.5, 0.5, 1.0)) else own
    red, green, blue, alpha = (float(value) for value in rgba)
    return red, green, blue, alpha


def _triangles(model: mujoco.MjModel, geom: int) -> tuple[Floats, Indices] | None:
    """Corners in the geom's frame, and faces; None for what has no surface of its own."""
    size: Floats = model.geom_size[geom]
    mesh: Any
    match mujoco.mjtGeom(int(model.geom_type[geom])):
        case mujoco.mjtGeom.mjGEOM_MESH:
            return _mesh(model, int(model.geom_dataid[geom]))
        case mujoco.mjtGeom.mjGEOM_PLANE:
            half = [value if value > 0.0 else PLANE_HALF_SIZE_M for value in size[:2]]
            corners = np.array([(x, y, 0.0) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))])
            return corners * (*half, 1.0), np.array([(0, 1, 2), (0, 2, 3)], np.int32)
        case mujoco.mjtGeom.mjGEOM_BOX:
            mesh = _create.box(2.0 * size)
        case mujoco.mjtGeom.mjGEOM_SPHERE:
            mesh = _create.icosphere(2, size[0])
        case mujoco.mjtGeom.mjGEOM_ELLIPSOID:
            mesh = _create.icosphere(2, 1.0)
            mesh.vertices *= size
        case mujoco.mjtGeom.mjGEOM_CYLINDER:
            mesh = _create.cylinder(size[0], 2.0 * size[1], sections=24)
        case mujoco.mjtGeom.mjGEOM_CAPSULE:
            mesh = _create.capsule(2.0 * size[1], size[0], count=(16, 16))
            # Some versions put the origin at the centre of the lower half sphere.
            mesh.vertices -= mesh.bounds.mean(axis=0)
        case _:
            return None
    return np.array(mesh.vertices, np.float64), np.array(mesh.faces, np.int32)


def _mesh(model: mujoco.MjModel, mesh: int) -> tuple[Floats, Indices]:
    first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    face, faces = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    vertices = np.array(model.mesh_vert[first : first + count], np.float64)
    return vertices, np.array(model.mesh_face[face : face + faces], np.int32)


class BodyPoses:
    """Forward kinematics of a model, one world at a time."""

    def __init__(self, model: mujoco.MjModel) -> None:
        """Allocates MuJoCo's data; not for several threads at once."""
        self._model = model
        self._data = mujoco.MjData(model)

    def at(self, qpos: Floats) -> tuple[Floats, Floats]:
        """Positions [m], shape (bodies, 3), and orientations (wxyz), shape (bodies, 4), of all bodies in the world."""
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        return self._data.xpos.copy(), self._data.xquat.copy()
