"""What a robot's size and weight say of its home pose and of the efforts in its file."""

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sim.robots.shapes import shape_corners, visible_shapes

Array = NDArray[np.float64]

BELOW_M = 0.05
"""Depth below the base from which a link at home is worth a note [m]."""
STRONGEST = 20.0
"""Efforts above this many times what holds the whole robot at its full length are placeholders. Arms and legs have 0.3
to 3 of it, hobby servos 2."""


def base_plane(model: mujoco.MjModel) -> float:
    """Height of the lowest visible shape that does not move; 0 if there is none [m]."""
    still = [row for row, geom in enumerate(visible_shapes(model)) if not _moves(model, geom)]
    corners = shape_corners(model, [model.qpos0]).reshape(-1, 8, 3) if still else np.zeros((1, 8, 3))
    return float(corners[still or [0], :, 2].min())


def links_below(model: mujoco.MjModel, qpos: Array) -> dict[str, float]:
    """Depth below the base of each link that has a visible shape there, by name, the lowest link first [m]."""
    shapes, plane = visible_shapes(model), base_plane(model)
    if not shapes:
        return {}
    heights = shape_corners(model, [qpos]).reshape(-1, 8, 3)[:, :, 2].min(axis=1)
    depths: dict[str, float] = {}
    for geom, height in zip(shapes, heights, strict=True):
        name = str(model.body(int(model.geom_bodyid[geom])).name)
        if _moves(model, geom) and plane - height > max(BELOW_M, depths.get(name, 0.0)):
            depths[name] = float(plane - height)
    return dict(sorted(depths.items(), key=lambda entry: -entry[1]))


def strongest_effort(model: mujoco.MjModel, *, slides: bool) -> float:
    """Greatest plausible effort of a joint [N·m, or N of one that slides]."""
    weight = 9.81 * sum(float(model.body_mass[body]) for body in range(model.nbody) if model.body_weldid[body])
    return STRONGEST * weight * (1.0 if slides else float(model.stat.extent))


def _moves(model: mujoco.MjModel, geom: int) -> bool:
    return bool(model.body_weldid[model.geom_bodyid[geom]])
