"""A robot as its stage states it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from physai.foreign.usd.bodies import UsdBody, all_prims, body_above, check_mass, read_bodies
from physai.foreign.usd.contacts import Pair, apart
from physai.foreign.usd.frames import Array, UsdUnits, authored
from physai.foreign.usd.joints import UsdJoint, read_joints
from physai.foreign.usd.library import pxr, refused
from physai.foreign.usd.shapes import UsdShape, collider_above, read_shape, seen_shape

EARTH = 9.81


@dataclass(frozen=True, kw_only=True)
class StatedRobot:
    """A robot as its stage states it, in metres, kilograms and radians with z up."""

    bodies: dict[str, UsdBody]
    joints: list[UsdJoint]
    shapes: dict[str, UsdShape]
    unseen: list[str]
    """Paths of shapes that are only seen, and that MuJoCo does not have."""
    gravity: Array
    """[m/s²]"""
    apart: set[Pair]
    """Bodies that pass through each other, the world as ''."""
    mjc: bool
    """Whether MuJoCo wrote the stage, whose rule for the contacts of parents then holds."""

    def free(self) -> set[str]:
        """Return the bodies that no joint holds."""
        held = {joint.child for joint in self.joints}
        return {path for path, body in self.bodies.items() if path not in held and not body.still}


def read_robot(stage: Any, units: UsdUnits) -> StatedRobot:
    """Read the robot of a stage.

    Raises:
        ModelError: the stage has none, more than one, or one that MuJoCo cannot have.
    """
    physics, geometry = pxr("UsdPhysics"), pxr("UsdGeom")
    roots = [prim for prim in all_prims(stage) if prim.HasAPI(physics.ArticulationRootAPI)]
    if len(roots) > 1:
        raise refused(roots[1], f"is a second articulation after {roots[0].GetPath()}; export one robot to a file")
    shapes: dict[str, UsdShape] = {}
    unseen: list[str] = []
    for prim in all_prims(stage):
        if prim.HasAPI(physics.CollisionAPI) and prim.HasAPI(physics.RigidBodyAPI) and not prim.IsA(geometry.Gprim):
            raise refused(prim, f"has PhysicsCollisionAPI and is a {prim.GetTypeName()}, no shape")
        if not prim.IsA(geometry.Gprim) or "MjcSiteAPI" in prim.GetPrimTypeInfo().GetAppliedAPISchemas():
            continue
        owner = body_above(prim)
        read = seen_shape if collider_above(prim) is None else read_shape
        shape = read(prim, units, owner)
        if shape is None:
            unseen.append(str(prim.GetPath()))
        else:
            shapes[shape.path] = shape
    used = {shape.collider.GetPath() for shape in shapes.values() if shape.collider is not None}
    for prim in all_prims(stage):
        if prim.HasAPI(physics.CollisionAPI) and prim.GetPath() not in used:
            raise refused(prim, f"has PhysicsCollisionAPI, is a {prim.GetTypeName()} and has no shape below it")
    bodies = read_bodies(stage, units, list(shapes.values()))
    if not bodies:
        raise refused(stage.GetDefaultPrim() or stage.GetPseudoRoot(), "no prim has PhysicsRigidBodyAPI: no robot")
    joints = read_joints(stage, units, bodies)
    parents = {joint.child: joint.parent for joint in joints}
    held = {path for path, body in bodies.items() if body.still}
    held |= {joint.child for joint in joints if joint.kind == "fixed" and not joint.parent}
    for _ in bodies:
        held |= {joint.child for joint in joints if joint.kind == "fixed" and parents[joint.child] in held}
    mjc = any("MjcSceneAPI" in prim.GetPrimTypeInfo().GetAppliedAPISchemas() for prim in all_prims(stage))
    for path, body in bodies.items():
        check_mass(body, needed=not mjc and path not in held)
    return StatedRobot(
        bodies=bodies,
        joints=joints,
        shapes=shapes,
        unseen=unseen,
        gravity=_gravity(stage, units),
        apart=set() if mjc else apart(stage, bodies, joints, list(shapes.values())),
        mjc=mjc,
    )


def _gravity(stage: Any, units: UsdUnits) -> Array:
    scenes = [prim for prim in all_prims(stage) if prim.IsA(pxr("UsdPhysics").Scene)]
    if len(scenes) > 1:
        raise refused(scenes[1], f"is a second physics scene after {scenes[0].GetPath()}")
    down = np.array([0.0, 0.0, -1.0])
    if not scenes:
        return down * EARTH
    scene = pxr("UsdPhysics").Scene(scenes[0])
    direction = np.array(scene.GetGravityDirectionAttr().Get(), float)
    magnitude = float(scene.GetGravityMagnitudeAttr().Get())
    length = float(np.linalg.norm(direction))
    if length > 0.0:
        down = units.turn @ direction / length
    if authored(scenes[0], "newton:gravityEnabled") is False:
        return np.zeros(3)
    # A negative magnitude, minus infinity by default, stands for the Earth's.
    size = EARTH if magnitude < 0.0 else magnitude * units.metres
    if not (math.isfinite(size) and np.isfinite(down).all()):
        raise refused(scenes[0], f"has gravity of {magnitude:g} along {tuple(direction.tolist())}")
    return down * size
