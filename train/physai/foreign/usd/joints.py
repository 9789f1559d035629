"""Joints and drives of a stage."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from physai.foreign.usd.bodies import UsdBody, all_prims, body_above
from physai.foreign.usd.frames import Array, UsdFrame, UsdUnits, authored, axis_of, endless, finite, rotation_of
from physai.foreign.usd.library import pxr, refused

KINDS = {"PhysicsRevoluteJoint": "hinge", "PhysicsPrismaticJoint": "slide", "PhysicsFixedJoint": "fixed"}
_DRIVES = {"hinge": "angular", "slide": "linear"}
MEET = 1e-4
"""Greatest distance [m] and angle [rad] by which the two frames of a joint may miss each other."""
PASSIVE = ("newton:armature", "newton:damping", "newton:friction")


@dataclass(frozen=True, kw_only=True)
class UsdDrive:
    """Force of a drive: stiffness · (target − position) + damping · (speed − velocity), in N, m, rad."""

    stiffness: float
    damping: float
    most: float
    """Greatest force or torque, possibly infinite."""
    target: float
    speed: float


@dataclass(frozen=True, kw_only=True)
class UsdJoint:
    """A joint of a stage, as MuJoCo has it: it moves `child`."""

    prim: Any
    kind: str
    """hinge, slide or fixed."""
    parent: str
    """Path of the body that carries it, empty of the world."""
    child: str
    anchor: Array
    axis: Array
    """Anchor [m] and axis in the child's frame."""
    at: float
    """Position in the pose of the stage [rad or m]."""
    limits: tuple[float, float] | None
    drive: UsdDrive | None
    passive: dict[str, float]
    """Armature, damping and friction in SI, where they are stated."""
    collides: bool
    """Whether the two bodies touch each other."""
    idle: float | None
    """Greatest force or torque of a drive without stiffness and damping; None without such a drive."""

    @property
    def path(self) -> str:
        """Path of its prim."""
        return str(self.prim.GetPath())


def read_joints(stage: Any, units: UsdUnits, bodies: dict[str, UsdBody]) -> list[UsdJoint]:
    """Read the joints of a stage.

    Raises:
        ModelError: one is of a type or has a property that MuJoCo does not have, or joins no body; joints make a loop.
    """
    physics = pxr("UsdPhysics")
    found = [_joint(prim, units, bodies) for prim in all_prims(stage) if prim.IsA(physics.Joint)]
    above: dict[str, UsdJoint] = {}
    for joint in found:
        other = above.setdefault(joint.child, joint)
        if other is not joint and not (
            other.parent == joint.parent and _one_of_several(other) and _one_of_several(joint)
        ):
            raise refused(
                joint.prim,
                f"moves {joint.child}, as {other.path} does: the joints make a loop, or body0 and body1 of one are "
                "exchanged; MuJoCo's bodies make a tree",
            )
    for joint in found:
        body, passed = joint.child, set[str]()
        while body in above:
            if body in passed:
                raise refused(joint.prim, f"is part of a loop of joints through {body}; MuJoCo's bodies make a tree")
            passed.add(body)
            body = above[body].parent
    for joint in found:
        if bodies[joint.child].still and (joint.parent or joint.kind != "fixed"):
            raise refused(joint.child, f"is kinematic (kinematicEnabled), and moved by the joint {joint.path}")
    return found


def _one_of_several(joint: UsdJoint) -> bool:
    """Return whether a joint is one of those that MuJoCo moves a body by, one after another."""
    return joint.kind != "fixed" and "MjcJointAPI" in joint.prim.GetPrimTypeInfo().GetAppliedAPISchemas()


def _joint(prim: Any, units: UsdUnits, bodies: dict[str, UsdBody]) -> UsdJoint:
    physics = pxr("UsdPhysics")
    kind = KINDS.get(str(prim.GetTypeName()))
    if kind is None:
        raise refused(prim, f"is a {prim.GetTypeName()}; read are {', '.join(KINDS)}")
    joint = physics.Joint(prim)
    if not joint.GetJointEnabledAttr().Get():
        raise refused(prim, "is not enabled (jointEnabled); remove it")
    for name in ("physics:breakForce", "physics:breakTorque"):
        if not endless(broken := prim.GetAttribute(name).Get()):
            raise refused(prim, f"breaks at {name} {broken:g}; MuJoCo's joints do not break")
    ends = [_end(joint, number, units) for number in (0, 1)]
    owners = [owner for owner, _ in ends]
    if owners[0] == owners[1]:
        raise refused(prim, f"joins {owners[0] or 'the world'} with itself")
    turned = not owners[1]
    child = bodies[owners[0] if turned else owners[1]]
    drive = _drive(prim, kind, units) if _drives(prim, kind) else None
    idle = drive is not None and drive.stiffness == drive.damping == 0.0
    at, direction = _placed(prim, kind, ends[0][1], ends[1][1])
    if kind == "hinge" and authored(prim, "mjc:ref") is not None:
        at = 0.0  # MuJoCo's decoder reads the position from there, and the writer leaves it out of localRot0
    moved = ends[0 if turned else 1][1]
    return UsdJoint(
        prim=prim,
        kind=kind,
        parent="" if turned else owners[0],
        child=child.path,
        anchor=child.frame.rotation.T @ (moved.position - child.frame.position),
        axis=child.frame.rotation.T @ (-direction if turned else direction),
        at=at,
        limits=None if kind == "fixed" else _limits(prim, units.metres if kind == "slide" else math.radians(1.0)),
        drive=None if idle else drive,
        idle=drive.most if drive is not None and idle else None,
        passive={} if kind == "fixed" else _passive(prim, kind, units),
        collides=bool(joint.GetCollisionEnabledAttr().Get()),
    )


def _end(joint: Any, number: int, units: UsdUnits) -> tuple[str, UsdFrame]:
    """Return the body at an end of a joint, and the joint's frame there."""
    prim = joint.GetPrim()
    targets = prim.GetRelationship(f"physics:body{number}").GetTargets()
    if len(targets) > 1:
        raise refused(prim, f"body{number} names {len(targets)} prims")
    named = prim.GetStage().GetPrimAtPath(targets[0]) if targets else None
    if named is not None and not named.IsValid():
        raise refused(prim, f"body{number} names {targets[0]}, which the stage does not have")
    owner = None if named is None else body_above(named)
    frame = units.world() if named is None or named.IsPseudoRoot() else units.frame(named)
    place, turn = (prim.GetAttribute(f"physics:local{part}{number}").Get() for part in ("Pos", "Rot"))
    rotation, position = frame.rotation @ rotation_of(turn), frame.point(place)
    if not (np.isfinite(rotation).all() and np.isfinite(position).all()):
        raise refused(prim, f"localPos{number} or localRot{number} is not finite")
    return "" if owner is None else str(owner.GetPath()), UsdFrame(
        rotation=rotation, position=position, scale=np.ones(3)
    )


def _placed(prim: Any, kind: str, first: UsdFrame, second: UsdFrame) -> tuple[float, Array]:
    """Return the position of a joint in the pose of the stage, and its axis in the world."""
    axis = np.array([0.0, 0.0, 1.0]) if kind == "fixed" else axis_of(prim)
    turn, shift = second.within(first)
    angle = math.atan2(float(axis @ _vee(turn)), float(np.trace(turn) - axis @ turn @ axis)) if kind == "hinge" else 0.0
    along = float(axis @ shift) if kind == "slide" else 0.0
    left = turn @ _about(axis, -angle)
    miss_angle = float(np.linalg.norm(_vee(left))) / 2.0 + (math.pi if np.trace(left) < 1.0 else 0.0)
    miss = float(np.linalg.norm(shift - along * axis))
    if miss > MEET or miss_angle > MEET:
        raise refused(
            prim,
            f"its frames on both bodies miss each other by {miss:.2g} m and {miss_angle:.2g} rad, at most {MEET:g} is "
            "read; move the bodies to where the joint holds them",
        )
    return (angle if kind == "hinge" else along), second.rotation @ axis


def _vee(turn: Array) -> Array:
    return np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])


def _about(axis: Array, angle: float) -> Array:
    cross = np.cross(np.eye(3), axis)
    return np.eye(3) + math.sin(angle) * cross + (1.0 - math.cos(angle)) * cross @ cross


def _limits(prim: Any, unit: float) -> tuple[float, float] | None:
    low, high = (float(prim.GetAttribute(f"physics:{side}Limit").Get()) for side in ("lower", "upper"))
    if low < 0.0 and endless(low) and high > 0.0 and endless(high):
        return None
    if endless(low) or endless(high) or not low < high:
        raise refused(prim, f"has the limits {low:g} … {high:g}; read are none (-inf … inf), or lower < upper")
    return low * unit, high * unit


def _drives(prim: Any, kind: str) -> list[str]:
    """Return the names of a joint's drives.

    Raises:
        ModelError: it has one, or a limit, for an axis that it does not have.
    """
    applied = [str(name).partition(":") for name in prim.GetPrimTypeInfo().GetAppliedAPISchemas()]
    for schema, _, axis in applied:
        if schema == "PhysicsLimitAPI" or (schema == "PhysicsDriveAPI" and axis != _DRIVES.get(kind)):
            raise refused(prim, f"has {schema}:{axis}, which a {prim.GetTypeName()} does not have")
    return [axis for schema, _, axis in applied if schema == "PhysicsDriveAPI"]


def _drive(prim: Any, kind: str, units: UsdUnits) -> UsdDrive:
    head = f"drive:{_DRIVES[kind]}:physics:"
    if (sort := str(prim.GetAttribute(f"{head}type").Get())) != "force":
        raise refused(prim, f"has a drive of the type {sort!r}; MuJoCo's actuators exert a force")
    degrees = math.degrees(1.0) if kind == "hinge" else 1.0
    effort = units.kilograms * units.metres ** (2 if kind == "hinge" else 1)
    length = math.radians(1.0) if kind == "hinge" else units.metres
    stiffness, damping = (
        finite(prim, f"{head}{name}", 0.0) * degrees * (effort if kind == "hinge" else units.kilograms)
        for name in ("stiffness", "damping")
    )
    most = prim.GetAttribute(f"{head}maxForce").Get()
    if math.isnan(most) or most < 0.0 or stiffness < 0.0 or damping < 0.0:
        raise refused(
            prim, f"has a drive with a negative stiffness, damping or maxForce ({stiffness:g}, {damping:g}, {most:g})"
        )
    return UsdDrive(
        stiffness=stiffness,
        damping=damping,
        most=math.inf if endless(most) else float(most) * effort,
        target=finite(prim, f"{head}targetPosition", 0.0) * length,
        speed=finite(prim, f"{head}targetVelocity", 0.0) * length,
    )


def _passive(prim: Any, kind: str, units: UsdUnits) -> dict[str, float]:
    """Return armature, damping and friction that Newton's or PhysX's schema states."""
    hinge = kind == "hinge"
    inertia = units.kilograms * (units.metres**2 if hinge else 1.0)
    schemas = prim.GetPrimTypeInfo().GetAppliedAPISchemas()
    factors = (inertia, inertia * (math.degrees(1.0) if hinge else 1.0), inertia * (1.0 if hinge else units.metres))
    found = {
        name.partition(":")[2]: finite(prim, name, 0.0) * factor
        for name, factor in zip(PASSIVE, factors, strict=True)
        if authored(prim, name) is not None
    }
    if "MjcJointAPI" in schemas:
        # Older names, in radians.
        for name, old in (("armature", "armature"), ("damping", "damping"), ("friction", "frictionloss")):
            if authored(prim, f"mjc:{old}") is not None and name not in found:
                found[name] = finite(prim, f"mjc:{old}", 0.0)
    if authored(prim, "physxJoint:armature") is not None and "armature" not in found:
        found["armature"] = finite(prim, "physxJoint:armature", 0.0) * inertia
    return found
