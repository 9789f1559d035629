"""Brings what MuJoCo's decoder returns to what the stage states."""

import math
import re
from typing import Any

import mujoco
import numpy as np

from physai.foreign.usd.frames import Array
from physai.foreign.usd.joints import UsdDrive, UsdJoint
from physai.foreign.usd.library import refused
from physai.foreign.usd.shapes import UsdShape
from physai.foreign.usd.stated import StatedRobot
from physai.sdk.base.errors import ModelError

_JOINTS = {"hinge": mujoco.mjtJoint.mjJNT_HINGE, "slide": mujoco.mjtJoint.mjJNT_SLIDE}


def fit(spec: Any, robot: StatedRobot, source: str) -> None:
    """Give a decoded model the bodies, joints, drives, shapes and contacts of the stage.

    Args:
        spec: model that MuJoCo's decoder returned for the stage, a `MjSpec` whose elements are named by prims.
        robot: what the stage states.
        source: name of the file, for the model.

    Raises:
        ModelError: the decoder left out a prim, or put it elsewhere.
    """
    spec.modelname = source
    if spec.compiler.degree:
        for joint in spec.joints:
            if joint.type == mujoco.mjtJoint.mjJNT_HINGE:
                joint.ref, joint.springref = math.radians(joint.ref), math.radians(joint.springref)
    spec.compiler.degree = False
    spec.compiler.autolimits = False
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_AUTO
    spec.option.gravity = robot.gravity
    _fit_bodies(spec, robot)
    for joint in robot.joints:
        if joint.kind != "fixed":
            _fit_joint(spec, joint)
    for geom in list(spec.geoms):
        shape = robot.shapes.get(geom.name)
        if shape is None:
            spec.delete(geom)
        else:
            _fit_shape(spec, geom, shape)
    decoded = {geom.name for geom in spec.geoms}
    for path, shape in robot.shapes.items():
        if shape.collider is not None and path not in decoded:
            raise refused(path, f"is a {shape.prim.GetTypeName()} that collides, which MuJoCo's decoder leaves out")
    for texture in list(spec.textures):
        spec.delete(texture)
    for material in spec.materials:
        material.textures = [""] * len(material.textures)
    for pair in sorted(map(sorted, robot.apart)):
        first, second = (name or "world" for name in pair)
        spec.add_exclude(bodyname1=first, bodyname2=second)
    if not robot.mjc:
        # OpenUSD lets bodies touch each other that no joint joins, MuJoCo none with a parent or what is welded to it.
        spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_FILTERPARENT)


def _fit_bodies(spec: Any, robot: StatedRobot) -> None:
    parents = {joint.child: joint.parent for joint in robot.joints}
    free = robot.free()
    for decoded in [body for body in spec.bodies if body.name != "world" and body.name not in robot.bodies]:
        if list(decoded.geoms) or list(decoded.bodies):
            raise refused(decoded.name, "is no rigid body, and MuJoCo's decoder makes one of it with shapes")
        spec.delete(decoded)
    for path, body in robot.bodies.items():
        decoded = spec.body(path)
        if decoded is None:
            raise refused(path, "is a rigid body that MuJoCo's decoder leaves out")
        above = "" if decoded.parent.name == "world" else decoded.parent.name
        if above != parents.get(path, ""):
            where = parents.get(path) or "the world"
            raise refused(path, f"moves with {where}, and MuJoCo's decoder lets it move with {above or 'the world'}")
        rotation, position = body.frame.rotation, body.frame.position
        if above:
            rotation, position = body.frame.within(robot.bodies[above].frame)
        decoded.pos, decoded.quat = position, _quaternion(rotation)
        decoded.mass, decoded.ipos, decoded.iquat = body.mass, body.centre, _quaternion(body.axes)
        decoded.inertia, decoded.explicitinertial = body.moments, body.mass > 0.0
        decoded.fullinertia = [math.nan, 0, 0, 0, 0, 0]
        for joint in list(decoded.joints):
            if joint.type == mujoco.mjtJoint.mjJNT_FREE and path not in free:
                spec.delete(joint)
        if path in free and not list(decoded.joints):
            raise refused(path, "is held by no joint, and MuJoCo's decoder holds it still")


def _fit_joint(spec: Any, joint: UsdJoint) -> None:
    decoded = spec.joint(joint.path)
    if decoded is None:
        # The decoder leaves out joints whose body1 is the world.
        decoded = spec.body(joint.child).add_joint(name=joint.path, type=_JOINTS[joint.kind])
    if decoded.type != _JOINTS[joint.kind] or decoded.parent.name != joint.child:
        raise refused(joint.path, f"is a {joint.kind} of {joint.child}, and MuJoCo's decoder makes another joint of it")
    decoded.pos, decoded.axis = joint.anchor, joint.axis
    offset = float(decoded.ref)
    if abs(joint.at) > 1e-9:
        if offset:
            raise refused(joint.path, f"has mjc:ref {offset:g} and frames that are {joint.at:g} apart; one is read")
        decoded.ref = joint.at
        decoded.springref = decoded.springref or joint.at
    decoded.limited = int(joint.limits is not None)
    decoded.range = joint.limits or (0.0, 0.0)
    if joint.idle is not None and math.isfinite(joint.idle):
        decoded.actfrcrange = (-joint.idle, joint.idle)
    decoded.actfrclimited = int(decoded.actfrcrange[0] < decoded.actfrcrange[1])
    for name, field in (("armature", "armature"), ("friction", "frictionloss")):
        if name in joint.passive:
            setattr(decoded, field, joint.passive[name])
    if "damping" in joint.passive:
        damping = np.array(decoded.damping, float)
        decoded.damping = joint.passive["damping"] if damping.ndim == 0 else [joint.passive["damping"], *damping[1:]]
    if joint.drive is not None:
        if any(actuator.target == joint.path for actuator in spec.actuators):
            raise refused(joint.path, "has a drive, and an actuator of MuJoCo's moves it as well")
        _add_drive(spec, joint, joint.drive)


def _add_drive(spec: Any, joint: UsdJoint, drive: UsdDrive) -> None:
    """Add the actuator whose force is stiffness · (control − position) + damping · (speed − velocity)."""
    servo = drive.stiffness > 0.0
    spec.add_actuator(
        name=joint.path,
        target=joint.path,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gaintype=mujoco.mjtGain.mjGAIN_FIXED,
        gainprm=[drive.stiffness if servo else drive.damping] + [0.0] * 9,
        biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        biasprm=[drive.damping * drive.speed if servo else 0.0, -drive.stiffness, -drive.damping] + [0.0] * 7,
        forcelimited=int(math.isfinite(drive.most)),
        forcerange=[-drive.most, drive.most] if math.isfinite(drive.most) else [0.0, 0.0],
    )


def add_targets(spec: Any, robot: StatedRobot) -> None:
    """Add a keyframe with the targets of the drives, if one is not zero and the file has no keyframe."""
    wanted = {
        joint.path: joint.drive.target if joint.drive.stiffness > 0.0 else joint.drive.speed
        for joint in robot.joints
        if joint.drive is not None
    }
    if list(spec.keys) or not any(wanted.values()):
        return
    model = spec.copy().compile()
    spec.add_key(name="home", qpos=model.qpos0, ctrl=[wanted.get(actuator.name, 0.0) for actuator in spec.actuators])


def _fit_shape(spec: Any, geom: Any, shape: UsdShape) -> None:
    owner = "" if geom.parent.name == "world" else geom.parent.name
    if geom.type != getattr(mujoco.mjtGeom, f"mjGEOM_{shape.kind.upper()}") or owner != shape.body:
        raise refused(shape.path, f"is a {shape.kind}, and MuJoCo's decoder makes another shape of it")
    geom.pos, geom.quat = shape.position, _quaternion(shape.rotation)
    if shape.kind == "mesh":
        spec.mesh(geom.meshname).scale = shape.size
    elif shape.kind != "plane":
        geom.size = shape.size
    geom.contype = geom.conaffinity = int(shape.collides)
    geom.mass, geom.density = math.nan, 0.0
    if shape.friction is not None:
        geom.friction = shape.friction


def _quaternion(rotation: Array) -> Array:
    found = np.zeros(4)
    mujoco.mju_mat2Quat(found, np.ascontiguousarray(rotation).ravel())
    return found


def plain_names(spec: Any) -> list[str]:
    """Rename the elements from paths to the last names of their prims; return those whose last name is not unique."""
    kept: list[str] = []
    for kind in ("bodies", "joints", "geoms", "sites", "actuators", "meshes", "materials", "keys"):
        elements = [one for one in getattr(spec, kind) if one.name.startswith("/")]
        last = [one.name.rpartition("/")[2] for one in elements]
        renamed = {
            one.name: name if last.count(name) == 1 and name != "world" else re.sub(r"\W", "_", one.name.strip("/"))
            for one, name in zip(elements, last, strict=True)
        }
        if len(set(renamed.values())) < len(renamed):
            raise ModelError(f"{elements[0].name}: two prims have the same name in MuJoCo")
        kept += [old for old, new in renamed.items() if "/" + new not in old[-len(new) - 1 :]]
        _rename(spec, kind, elements, renamed)
    return kept


def _rename(spec: Any, kind: str, elements: list[Any], renamed: dict[str, str]) -> None:
    for element in elements:
        element.name = renamed[element.name]
    uses: list[tuple[Any, str]] = []
    if kind == "bodies":
        uses = [(one, name) for one in spec.excludes for name in ("bodyname1", "bodyname2")]
    elif kind in ("meshes", "materials"):
        uses = [(one, "meshname" if kind == "meshes" else "material") for one in (*spec.geoms, *spec.sites)]
    elif kind in ("joints", "sites"):
        uses = [(one, name) for one in spec.actuators for name in ("target", "refsite", "slidersite")]
    for one, name in uses:
        if hasattr(one, name):
            setattr(one, name, renamed.get(getattr(one, name), getattr(one, name)))
