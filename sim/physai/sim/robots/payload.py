"""Payload of a robot: its place, its mass relative to the robot, its effect on the model."""

from typing import Any

import mujoco

from physai.sim.robots.objects import is_object
from physai.sim.robots.spec import TIP_SITE, ancestors, has_floating_base


def moving_mass(model: Any) -> float:
    """Return the mass of all bodies of the robot that joints can move [kg]."""
    return float(sum(model.body_mass[body] for body in _robot_bodies(model) if model.body_dofnum[_root(model, body)]))


def payload_body(model: Any) -> int:
    """Return the body that carries a payload.

    It is the floating base, the body of the site `ee`, or else the body furthest down the tree.
    """
    if has_floating_base(model):
        return int(model.jnt_bodyid[0])
    moving = [body for body in _robot_bodies(model) if model.body_mass[body] > 0.0 and _root(model, body)]
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, TIP_SITE)
    # Not a finger: it weighs little, and a load on it would mostly move the finger.
    if site >= 0 and int(model.site_bodyid[site]) in moving:
        return int(model.site_bodyid[site])
    # Ties go to the body that the model lists last, usually the tool.
    return max(moving, key=lambda body: (len(list(ancestors(model, body))), body), default=0)


def add_payload(model: Any, body: int, mass: float) -> None:
    """Add `mass` [kg] to a body without moving its centre of mass; its inertia scales with the mass.

    Servos that carry the robot's own weight do not know of the payload and do not carry its weight.
    """
    factor = 1.0 + mass / float(model.body_mass[body])
    model.body_mass[body] *= factor
    model.body_inertia[body] *= factor
    model.body_gravcomp[body] /= factor
    mujoco.mj_setConst(model, mujoco.MjData(model))


def _robot_bodies(model: Any) -> list[int]:
    return [body for body in range(1, model.nbody) if not is_object(model, body)]


def _root(model: Any, body: int) -> int:
    """Return the body or its nearest ancestor that has a joint; the world if there is none."""
    return next((part for part in ancestors(model, body) if model.body_dofnum[part]), 0)
