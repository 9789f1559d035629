"""Contacts between parts of a robot."""

import mujoco

from physai.sim.robots.spec import home_qpos, posed

DEEP_M = 1e-3
"""Depth from which two parts count as colliding [m]."""


def overlaps(model: mujoco.MjModel) -> set[tuple[str, str]]:
    """Names of the bodies that collide with each other at home, in alphabetical order; not with the world."""
    return touching(model, posed(model, home_qpos(model), mujoco.mj_forward))


def touching(model: mujoco.MjModel, data: mujoco.MjData) -> set[tuple[str, str]]:
    """As `overlaps`, of a state whose contacts were computed."""
    pairs: set[tuple[str, str]] = set()
    for contact in data.contact[: data.ncon]:
        bodies = [int(model.geom_bodyid[geom]) for geom in contact.geom]
        if contact.dist < -DEEP_M and all(model.body_weldid[body] for body in bodies):
            first, second = sorted(str(model.body(body).name) for body in bodies)
            pairs.add((first, second))
    return pairs
