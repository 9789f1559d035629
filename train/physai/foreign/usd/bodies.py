"""Rigid bodies of a stage, with mass, centre of mass and inertia by the rules of OpenUSD."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from physai.foreign.usd.frames import Array, UsdFrame, UsdUnits, authored, rotation_of
from physai.foreign.usd.library import pxr, refused
from physai.foreign.usd.shapes import UsdShape, moments

_STATED = ("mass", "diagonalInertia", "principalAxes")
_INERTIA_PARTS = ("physics:mass", "physics:diagonalInertia", "physics:centerOfMass")


@dataclass(frozen=True, kw_only=True)
class UsdBody:
    """A rigid body of a stage."""

    prim: Any
    frame: UsdFrame
    still: bool
    """Whether it is kinematic, which nothing moves."""
    mass: float
    """[kg]; 0 if neither the body nor its shapes give one."""
    centre: Array
    """Centre of mass in the body's frame [m]."""
    moments: Array
    """Principal moments of inertia [kg·m²]."""
    axes: Array
    """Principal axes in the body's frame, one per column."""

    @property
    def path(self) -> str:
        """Path of its prim."""
        return str(self.prim.GetPath())


def all_prims(stage: Any) -> Iterator[Any]:
    """Yield the prims of a stage, those of instances included."""
    usd = pxr("Usd")
    yield from usd.PrimRange.Stage(stage, usd.TraverseInstanceProxies())


def body_above(prim: Any) -> Any | None:
    """Return the prim of the rigid body that a prim belongs to, or None of the world's."""
    physics = pxr("UsdPhysics")
    while prim.IsValid() and not prim.IsPseudoRoot():
        if prim.HasAPI(physics.RigidBodyAPI):
            return prim
        if pxr("UsdGeom").Xformable(prim) and pxr("UsdGeom").Xformable(prim).GetResetXformStack():
            return None
        prim = prim.GetParent()
    return None


def read_bodies(stage: Any, units: UsdUnits, shapes: list[UsdShape]) -> dict[str, UsdBody]:
    """Read the rigid bodies of a stage, by path.

    Raises:
        ModelError: one is disabled, or mirrored.
    """
    physics = pxr("UsdPhysics")
    solids = {shape.path: shape for shape in shapes if shape.collider is not None}
    found: dict[str, UsdBody] = {}
    for prim in all_prims(stage):
        if not prim.HasAPI(physics.RigidBodyAPI):
            continue
        if not physics.RigidBodyAPI(prim).GetRigidBodyEnabledAttr().Get():
            raise refused(prim, "is a rigid body that is not enabled; remove it, or its PhysicsRigidBodyAPI")
        frame = units.frame(prim)
        if frame.scale[0] < 0.0:
            raise refused(prim, "is a mirrored rigid body (a negative scale)")
        still = bool(physics.RigidBodyAPI(prim).GetKinematicEnabledAttr().Get())
        path = str(prim.GetPath())
        own = {name: shape for name, shape in solids.items() if shape.body == path}
        found[path] = _with_mass(prim, frame, own, units, still=still)
    return found


def _with_mass(prim: Any, frame: UsdFrame, own: dict[str, UsdShape], units: UsdUnits, *, still: bool) -> UsdBody:
    stated = {name: authored(prim, name) for name in _INERTIA_PARTS}
    complete = stated["physics:mass"] and any(stated["physics:diagonalInertia"] or (0.0,))
    if not (complete or own):
        return UsdBody(
            prim=prim, frame=frame, still=still, mass=0.0, centre=np.zeros(3), moments=np.zeros(3), axes=np.eye(3)
        )
    centre = stated["physics:centerOfMass"]
    if centre is not None and not np.isfinite(list(centre)).all():
        centre = None  # the default, minus infinity
    mass, inertia, axes = (prim.GetAttribute(f"physics:{name}").Get() for name in _STATED)
    if not complete or centre is None:
        computed = _computed(prim, own, units)
        mass, centre = mass or computed[0], computed[2]
        if not any(inertia or (0.0,)):
            inertia, axes = computed[1], computed[3]
    else:
        centre = frame.scale / units.metres * np.array(centre, float)
    numbers = np.array([mass, *inertia, *centre], float)
    if not (np.isfinite(numbers).all() and (numbers[:4] > 0.0).all()):
        raise refused(prim, f"has a mass of {mass:g} and moments of inertia {tuple(inertia)}; they must be positive")
    return UsdBody(
        prim=prim,
        frame=frame,
        still=still,
        mass=mass * units.kilograms,
        centre=np.array(centre, float) * units.metres,
        moments=np.array(inertia, float) * units.kilograms * units.metres**2,
        axes=rotation_of(axes),
    )


def _computed(prim: Any, own: dict[str, UsdShape], units: UsdUnits) -> tuple[float, Any, Any, Any]:
    """Return mass, moments, centre and principal axes by OpenUSD's rules, which leave out stated moments below 1e-5."""
    physics, gf = pxr("UsdPhysics"), pxr("Gf")
    for shape in own.values():
        if shape.kind == "mesh" or shape.of_group:
            raise refused(
                prim,
                f"leaves its mass to the {shape.kind} {shape.path}; state physics:mass, centerOfMass, diagonalInertia",
            )

    def information(collider: Any) -> Any:
        shape, facts = own[str(collider.GetPath())], physics.RigidBodyAPI.MassInformation()
        volume, inertia = moments(shape)
        facts.volume = volume / units.metres**3
        facts.inertia = gf.Matrix3f(*(np.diag(inertia) / units.metres**5).ravel().tolist())
        facts.centerOfMass = gf.Vec3f(0.0)
        facts.localPos = gf.Vec3f(*(shape.position / units.metres).tolist())
        facts.localRot = gf.Quatf(gf.Matrix3d(*shape.rotation.T.ravel().tolist()).ExtractRotation().GetQuat())
        return facts

    return physics.RigidBodyAPI(prim).ComputeMassProperties(information)


def check_mass(body: UsdBody, *, needed: bool) -> None:
    """Check that a body has a mass, and moments of inertia that a body can have.

    Raises:
        ModelError: it has none and one is needed, or one moment exceeds the sum of the others.
    """
    if body.mass == 0.0:
        if needed:
            raise refused(
                body.prim, "has no mass or inertia, and no shape that gives one; state physics:mass, diagonalInertia"
            )
        return
    low, middle, high = sorted(body.moments.tolist())
    if not (math.isfinite(high) and low + middle >= high * (1.0 - 1e-5)):
        raise refused(body.prim, f"has moments of inertia {low:g}, {middle:g}, {high:g} kg·m², which no body has")
