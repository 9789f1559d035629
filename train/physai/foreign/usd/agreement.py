"""Compares the compiled model with the stage, prim by prim."""

import math
from typing import Any

import mujoco
import numpy as np

from physai.foreign.usd.frames import Array
from physai.foreign.usd.joints import UsdJoint
from physai.foreign.usd.library import refused
from physai.foreign.usd.stated import StatedRobot

RELATIVE = 1e-6
"""Greatest relative difference of masses, inertias and gains."""
PLACE = 1e-6
"""Greatest distance of a body or an anchor [m], and difference of an axis."""


def compare(model: Any, robot: StatedRobot) -> None:
    """Check that a compiled model is the robot of the stage.

    Args:
        model: a `MjModel` whose elements are named by prims.
        robot: what the stage states.

    Raises:
        ModelError: a body, joint, drive or shape is missing, added or differs; with the prim and both values.
    """
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    if model.nbody != len(robot.bodies) + 1:
        raise refused("/", f"has {len(robot.bodies)} rigid bodies, the model {model.nbody - 1}")
    for path, body in robot.bodies.items():
        row = model.body(path).id
        _same(path, "position", body.frame.position, data.xpos[row], PLACE)
        _same(path, "orientation", body.frame.rotation, data.xmat[row].reshape(3, 3), PLACE)
        _near(path, "mass [kg]", body.mass, model.body_mass[row])
        inertia = body.frame.rotation @ body.axes @ np.diag(body.moments) @ (body.frame.rotation @ body.axes).T
        turned = data.ximat[row].reshape(3, 3)
        _near(path, "inertia [kg·m²]", inertia, turned @ np.diag(model.body_inertia[row]) @ turned.T)
        _same(path, "centre of mass", body.frame.position + body.frame.rotation @ body.centre, data.xipos[row], PLACE)
    moving = [joint for joint in robot.joints if joint.kind != "fixed"]
    if model.njnt != len(moving) + len(robot.free()):
        raise refused("/", f"has {len(moving)} joints that move, the model {model.njnt - len(robot.free())}")
    for joint in moving:
        _compare_joint(model, data, joint, robot)
    colliding = sum(shape.collides for shape in robot.shapes.values())
    if colliding != int(np.count_nonzero(model.geom_contype | model.geom_conaffinity)):
        raise refused("/", f"has {colliding} shapes that collide, the model another number")
    _same("/", "gravity", robot.gravity, model.opt.gravity, PLACE)


def _compare_joint(model: Any, data: Any, joint: UsdJoint, robot: StatedRobot) -> None:
    row, frame = model.joint(joint.path).id, robot.bodies[joint.child].frame
    if int(model.jnt_type[row]) != int(getattr(mujoco.mjtJoint, f"mjJNT_{joint.kind.upper()}")):
        raise refused(joint.path, f"is a {joint.kind}, the model has another joint")
    _same(joint.path, "anchor", frame.position + frame.rotation @ joint.anchor, data.xanchor[row], PLACE)
    _same(joint.path, "axis", frame.rotation @ joint.axis, data.xaxis[row], PLACE)
    if bool(model.jnt_limited[row]) != (joint.limits is not None):
        raise refused(joint.path, "is limited in the stage or in the model, and not in both")
    if joint.limits:
        _same(joint.path, "limits", np.array(joint.limits), model.jnt_range[row], PLACE)
    column = model.jnt_dofadr[row]
    for name, values in (
        ("armature", model.dof_armature),
        ("friction", model.dof_frictionloss),
        ("damping", np.reshape(model.dof_damping, (model.nv, -1))[:, 0]),
    ):
        _near(joint.path, name, joint.passive.get(name, values[column]), values[column])
    if joint.drive is None:
        return
    actuator = model.actuator(joint.path).id
    drive, bias = joint.drive, model.actuator_biasprm[actuator]
    _near(joint.path, "gain of the drive", drive.stiffness or drive.damping, model.actuator_gainprm[actuator, 0])
    _near(joint.path, "stiffness of the drive", -drive.stiffness, bias[1])
    _near(joint.path, "damping of the drive", -drive.damping, bias[2])
    most = model.actuator_forcerange[actuator, 1] if model.actuator_forcelimited[actuator] else math.inf
    if most != drive.most:
        _near(joint.path, "maxForce of the drive", drive.most, most)


def _same(path: str, what: str, stated: Array, found: Array, most: float) -> None:
    if not np.abs(np.asarray(stated) - found).max() <= most:
        raise refused(path, f"{what} is {_text(stated)} in the stage and {_text(found)} in the model")


def _near(path: str, what: str, stated: Any, found: Any) -> None:
    _same(path, what, stated, found, RELATIVE * float(np.abs(stated).max()) + 1e-15)


def _text(values: Any) -> str:
    return np.array2string(np.asarray(values), precision=9, separator=", ").replace("\n", "")
