"""Extents of a model's shapes."""

from collections.abc import Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def visible_shapes(model: mujoco.MjModel) -> list[int]:
    """MuJoCo ids of the shapes that are drawn, planes excepted."""
    return [
        g
        for g in range(model.ngeom)
        if model.geom_rbound[g] > 0.0 and model.geom_group[g] < 3 and model.geom_rgba[g, 3] > 0.0
    ]


def shape_corners(model: mujoco.MjModel, poses: Sequence[Array]) -> Array:
    """Corners of the bounding boxes of all visible shapes in all poses, world frame [m], shape (n, 3).

    There are eight of each shape, in the order of `visible_shapes`. Planes are ignored; a model without shapes has one
    corner, the origin.

    Args:
        model: the compiled model.
        poses: generalised positions, each of shape (nq,).
    """
    data = mujoco.MjData(model)
    shapes = visible_shapes(model)
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=np.float64)
    boxes = np.array(model.geom_aabb)[shapes]
    local = boxes[:, None, :3] + signs[None] * boxes[:, None, 3:]
    if not shapes:
        return np.zeros((1, 3))
    corners: list[Array] = []
    for pose in poses:
        # Kinematics suffices: no forces, no contacts.
        data.qpos[:] = pose
        mujoco.mj_kinematics(model, data)
        rotation = np.array(data.geom_xmat)[shapes].reshape(-1, 3, 3)
        position = np.array(data.geom_xpos)[shapes]
        corners.append((np.einsum("gij,gcj->gci", rotation, local) + position[:, None]).reshape(-1, 3))
    return np.concatenate(corners)
