"""Shapes of a stage: those that collide, and those that are seen."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from physai.foreign.usd.frames import Array, UsdFrame, UsdUnits, authored, axis_of, finite
from physai.foreign.usd.library import pxr, refused
from physai.sdk.base.errors import ModelError

_TURNED = {0: np.array([[0.0, 0, 1], [0, 1, 0], [-1, 0, 0]]), 1: np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])}
"""Rotations that bring z to the axis x or y."""
EVEN = 1e-5
"""Greatest relative difference of scales that count as one."""
HULLS = ("none", "meshSimplification", "convexDecomposition", "sdf")
"""Approximations of a mesh that MuJoCo replaces by the convex hull."""


@dataclass(frozen=True, kw_only=True)
class UsdShape:
    """A shape of a stage."""

    prim: Any
    body: str
    """Path of its rigid body, empty of the world's."""
    kind: str
    """MuJoCo's name of the type: sphere, ellipsoid, box, cylinder, capsule, plane, mesh."""
    size: Array
    """MuJoCo's sizes [m]; scale of a mesh."""
    rotation: Array
    position: Array
    """Rotation and position [m] in the body's frame."""
    collider: Any
    """Prim with its PhysicsCollisionAPI, itself or an Xform above, or None if it is only seen."""
    collides: bool
    friction: tuple[float, float, float] | None
    """Dynamic, torsional and rolling friction of its physics material, if it has one."""

    @property
    def path(self) -> str:
        """Path of its prim."""
        return str(self.prim.GetPath())

    @property
    def of_group(self) -> bool:
        """Whether an Xform above has its PhysicsCollisionAPI."""
        return self.collider is not None and self.collider != self.prim


def collider_above(prim: Any) -> Any | None:
    """Return the prim whose PhysicsCollisionAPI holds for a shape: itself, or an Xform between it and its body."""
    physics, geometry = pxr("UsdPhysics"), pxr("UsdGeom")
    if prim.HasAPI(physics.CollisionAPI):
        return prim
    above = prim.GetParent()
    while above.IsValid() and not above.IsPseudoRoot() and not above.HasAPI(physics.RigidBodyAPI):
        if above.HasAPI(physics.CollisionAPI) and not above.IsA(geometry.Gprim):
            return above
        above = above.GetParent()
    return None


def read_shape(prim: Any, units: UsdUnits, body: Any | None) -> UsdShape:
    """Read a shape.

    Raises:
        ModelError: no shape of MuJoCo is the same.
    """
    physics = pxr("UsdPhysics")
    collider = collider_above(prim)
    solid = collider is not None
    frame = units.frame(prim)
    kind, size, turned = _sized(prim, frame)
    if kind == "plane" and body is not None and solid:
        raise refused(prim, f"is a plane on the rigid body {body.GetPath()}; MuJoCo has planes on the world only")
    if kind == "mesh" and solid:
        approximation = str(authored(collider, "physics:approximation") or "none")
        if approximation not in (*HULLS, "convexHull"):
            raise refused(prim, f"physics:approximation is {approximation!r}; MuJoCo collides with convexHull")
    rotation, position = frame.within(units.home(body))
    return UsdShape(
        prim=prim,
        body="" if body is None else str(body.GetPath()),
        kind=kind,
        size=size,
        rotation=rotation @ turned,
        position=position,
        collider=collider,
        collides=solid and bool(physics.CollisionAPI(collider).GetCollisionEnabledAttr().Get()),
        friction=_friction(prim) if solid else None,
    )


def _sized(prim: Any, frame: UsdFrame) -> tuple[str, Array, Array]:
    kind, scale, upright = str(prim.GetTypeName()), np.abs(frame.scale), np.eye(3)
    if kind == "Sphere":
        radii = scale * finite(prim, "radius", 1.0)
        return ("sphere" if _even(radii) else "ellipsoid"), radii, upright
    if kind == "Cube":
        return "box", scale * finite(prim, "size", 2.0) / 2.0, upright
    if kind in ("Cylinder", "Capsule"):
        along = int(axis_of(prim).argmax())
        across = np.delete(scale, along)
        if not _even(scale if kind == "Capsule" else across):
            raise refused(prim, f"is a {kind} with the scale {tuple(scale.tolist())}; MuJoCo's are round")
        default = (0.5, 1.0) if kind == "Capsule" else (1.0, 2.0)
        radius, height = finite(prim, "radius", default[0]), finite(prim, "height", default[1])
        return (
            kind.lower(),
            np.array([radius * across[0], height * scale[along] / 2.0, 0.0]),
            _TURNED.get(along, upright),
        )
    if kind == "Plane":
        return "plane", np.array([0.0, 0.0, 1.0]), _TURNED.get(int(axis_of(prim).argmax()), upright)
    if kind == "Mesh":
        return "mesh", frame.scale, upright
    raise refused(prim, f"is a {kind or 'prim without type'}, no shape of MuJoCo's")


def _even(values: Array) -> bool:
    return float(np.ptp(values)) <= EVEN * float(np.max(values))


def moments(shape: UsdShape) -> tuple[float, Array]:
    """Return volume [m³] and moments of inertia of a density of 1 [m⁵] of a shape that is no mesh."""
    a, b, c = shape.size.tolist()
    if shape.kind in ("sphere", "ellipsoid"):
        volume = 4.0 / 3.0 * math.pi * a * b * c
        return volume, volume / 5.0 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
    if shape.kind == "box":
        volume = 8.0 * a * b * c
        return volume, volume / 3.0 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
    cylinder = 2.0 * math.pi * a * a * b
    across, along = cylinder * (a * a / 4.0 + b * b / 3.0), cylinder * a * a / 2.0
    if shape.kind == "cylinder":
        return cylinder, np.array([across, across, along])
    if shape.kind != "capsule":
        raise refused(shape.prim, f"a {shape.kind} gives no mass")
    ball = 4.0 / 3.0 * math.pi * a**3
    # Two halves of a ball, their centres of mass 3/8 a from the ends of the cylinder.
    across += ball * (2.0 / 5.0 * a * a + b * b + 3.0 / 4.0 * a * b)
    along += ball * 2.0 / 5.0 * a * a
    return cylinder + ball, np.array([across, across, along])


def _friction(prim: Any) -> tuple[float, float, float] | None:
    shade, physics = pxr("UsdShade"), pxr("UsdPhysics")
    material = shade.MaterialBindingAPI(prim).ComputeBoundMaterial("physics")[0]
    if not material or not material.GetPrim().HasAPI(physics.MaterialAPI):
        return None
    stated = material.GetPrim()
    sliding = finite(stated, "physics:dynamicFriction", 0.0)
    turning, rolling = finite(stated, "newton:torsionalFriction", 0.005), finite(stated, "newton:rollingFriction", 1e-4)
    if min(sliding, turning, rolling) < 0.0:
        raise refused(stated, f"has a negative friction ({sliding:g}, {turning:g}, {rolling:g})")
    return sliding, turning, rolling


def seen_shape(prim: Any, units: UsdUnits, body: Any | None) -> UsdShape | None:
    """Return a shape that is only seen, or None if MuJoCo has none like it."""
    try:
        return read_shape(prim, units, body)
    except ModelError:
        return None
