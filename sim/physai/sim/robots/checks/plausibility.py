"""Plausibility of a home pose and of efforts, given a robot's size and weight."""

import math
from collections.abc import Iterator

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


GYRATION = 5.0
"""Radius of gyration of a link above which its inertia is in another unit, in lengths of the whole robot."""
DENSEST = 25_000.0
"""Density of a link's bounding box above which its mass is in another unit; osmium has 22 600 kg/m³ [kg/m³]."""


HEAVY_KG = 20.0
"""Mass from which the density counts; the shapes of a light link may show a part of it [kg]."""


def implausible_bodies(model: mujoco.MjModel) -> Iterator[tuple[str, str, bool]]:
    """Names of bodies that no matter is like, why, and whether that is certain whatever shapes they have."""
    extent = float(model.stat.extent)
    volumes = _volumes(model)
    for body in range(1, model.nbody):
        if not model.body_weldid[body]:
            continue
        mass, inertia = float(model.body_mass[body]), float(model.body_inertia[body].max())
        radius, density = math.sqrt(inertia / mass) if mass > 0.0 else 0.0, mass / volumes.get(body, math.inf)
        if radius > GYRATION * extent:
            yield (
                str(model.body(body).name),
                f"{inertia:.4g} kg·m² on {mass:.4g} kg are a ring's of {radius:.3g} m; the robot has {extent:.3g} m",
                True,
            )
        elif mass > HEAVY_KG and density > DENSEST:
            yield (
                str(model.body(body).name),
                f"{mass:.4g} kg in a box of {1e3 * volumes[body]:.3g} l; no matter is denser than {DENSEST:g} kg/m³",
                False,
            )


MOST_RAD, FAST_RAD_S = 6.0 * math.pi, 60.0
"""Limits of hinges from which round numbers are probably degrees: three turns, and ten turns per second."""


MOST_DEGREES = 720.0
"""Greatest limit that may be degrees; larger ones are placeholders for none."""


def degrees_in(numbers: tuple[float, ...], most: float) -> bool:
    """Whether one of these numbers is beyond `most` and round, as degrees are and radians are not."""
    return any(most < abs(x) <= MOST_DEGREES and abs(x / 5.0 - round(x / 5.0)) < 1e-4 for x in numbers)


def _volumes(model: mujoco.MjModel) -> dict[int, float]:
    """Sum of the volumes of the bounding boxes of each body's shapes [m³]; bodies without shapes are left out."""
    volumes: dict[int, float] = {}
    for geom in range(model.ngeom):
        if model.geom_rbound[geom] > 0.0:
            body = int(model.geom_bodyid[geom])
            volumes[body] = volumes.get(body, 0.0) + 8.0 * float(np.asarray(model.geom_aabb[geom, 3:]).prod())
    return {body: volume for body, volume in volumes.items() if volume > 0.0}


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
