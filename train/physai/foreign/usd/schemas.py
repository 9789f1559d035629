"""Schemas of MuJoCo, Newton and PhysX: what is read is checked, what is not is named or refused."""

import math
import re
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np

from physai.foreign.usd.bodies import all_prims, body_above
from physai.foreign.usd.frames import UsdUnits, authored
from physai.foreign.usd.library import pxr, refused

_MOVING = re.compile(r"Mimic|Tendon|Equality|Deformable|Vehicle|Gear|RackAndPinion|Particle|SurfaceVelocity|Muscle")
"""Names of schemas that change which motions a robot has."""
_TYPES = {"MjcActuator", "MjcKeyframe"}
"""Types of physics prims that MuJoCo's decoder reads, next to OpenUSD's."""
_READ = {
    *("newton:armature", "newton:damping", "newton:friction", "newton:selfCollisionEnabled", "newton:gravityEnabled"),
    *("physxJoint:armature", "physxArticulation:enabledSelfCollisions", "newton:timeStepsPerSecond"),
    *("newton:torsionalFriction", "newton:rollingFriction"),
}
_FOREIGN = re.compile(r"^[A-Z]\w*API(:\w+)?$")
SHOWN = 6
_TOKENS = {
    **{"integrator": "Integrator.mjINT", "cone": "Cone.mjCONE", "jacobian": "Jacobian.mjJAC", "solver": "Solver.mjSOL"},
    **{"gainType": "Gain.mjGAIN", "biasType": "Bias.mjBIAS", "dynType": "Dyn.mjDYN"},
}
_JOINT = {
    **{name: name for name in ("stiffness", "ref", "springref", "margin", "springdamper")},
    "actuatorgravcomp": "actgravcomp",
    **{f"sol{kind}{name}": f"sol{kind}_{name}" for kind in ("ref", "imp") for name in ("limit", "friction")},
}
_GEOM = ("condim", "priority", "solmix", "solref", "solimp")
_ACTUATOR = ("gainPrm", "biasPrm", "dynPrm", "gear")
_NOT_OPTIONS = ("timestep", "actuatorgroupdisable")


def unread(stage: Any, units: UsdUnits) -> Iterator[tuple[str, str]]:
    """Yield `(schema, words)` of what a stage states and an import leaves out.

    Raises:
        ModelError: a schema changes the motions that a robot has, or is MuJoCo's and not in metres, kilograms and z up.
    """
    physics, named = pxr("UsdPhysics"), dict[str, tuple[list[str], set[str]]]()
    rough: list[str] = []
    for prim in all_prims(stage):
        kind, schemas = str(prim.GetTypeName()), list(map(str, prim.GetPrimTypeInfo().GetAppliedAPISchemas()))
        _check_type(prim, kind, schemas, units)
        for name in _unread_properties(prim):
            schema = next((one for one in schemas if _belongs(name, one)), name.partition(":")[0])
            where, properties = named.setdefault(schema, ([], set()))
            where.append(str(prim.GetPath()))
            properties.add(name)
        if prim.HasAPI(physics.MaterialAPI):
            values = [prim.GetAttribute(f"physics:{name}").Get() for name in ("staticFriction", "dynamicFriction")]
            if not math.isclose(*values, rel_tol=1e-6) or prim.GetAttribute("physics:restitution").Get():
                rough.append(str(prim.GetPath()))
        if prim.HasAPI(physics.RigidBodyAPI) and any(
            any(authored(prim, f"physics:{name}") or ()) for name in ("velocity", "angularVelocity")
        ):
            yield str(prim.GetPath()), "starts with a velocity, which is not read"
    for schema, (where, properties) in sorted(named.items()):
        shown = ", ".join(sorted(properties)[:SHOWN]) + (" …" if len(properties) > SHOWN else "")
        yield schema, f"is not read: {shown} of {_several(where)}"
    if rough:
        yield "restitution", f"and static friction are not read, the dynamic friction is, of {_several(rough)}"


def _several(where: list[str]) -> str:
    unique = sorted(set(where))
    return unique[0] + (f" and {len(unique) - 1} more" if len(unique) > 1 else "")


def _check_type(prim: Any, kind: str, schemas: list[str], units: UsdUnits) -> None:
    if re.match(r"(Newton|Physx|Mjc)[A-Z]", kind) and kind not in _TYPES:
        raise refused(prim, f"is a {kind}, which is not read")
    if kind in ("TetMesh", "PointInstancer"):
        raise refused(prim, f"is a {kind}, which is not read")
    for schema in schemas:
        if _MOVING.search(schema):
            raise refused(prim, f"has {schema}, which is not read and changes how the robot moves")
        if schema.startswith("Mjc") and schema != "MjcImageableAPI" and not units.plain:
            raise refused(
                prim, f"has {schema}, which is read in metres and kilograms with z up only; this stage has other units"
            )


def _unread_properties(prim: Any) -> Iterator[str]:
    for prop in prim.GetAuthoredProperties():
        name = str(prop.GetName())
        if name in _READ or not re.match(r"(physx|newton|isaac|state:)", name):
            continue
        fallback = prim.GetPrimDefinition().GetAttributeFallbackValue(name)
        if fallback is not None and hasattr(prop, "Get") and prop.Get() == fallback:
            continue
        yield name


def _belongs(name: str, schema: str) -> bool:
    """Return whether a property, as `physxRigidBody:sleepThreshold`, is of a schema, as `PhysxRigidBodyAPI`."""
    return schema.lower().startswith(name.partition(":")[0].lower()) and bool(_FOREIGN.match(schema))


def check_mjc(spec: Any, stage: Any, units: UsdUnits) -> None:
    """Check what the decoder read of MuJoCo's schemas, before anything is changed, and place the sites.

    Raises:
        ModelError: a number, a type or a target differs from the stage's.
    """
    for prim in all_prims(stage):
        schemas, path = prim.GetPrimTypeInfo().GetAppliedAPISchemas(), str(prim.GetPath())
        if steps := authored(prim, "newton:timeStepsPerSecond"):
            spec.option.timestep = 1.0 / steps
        if "MjcSceneAPI" in schemas:
            _check_scene(spec, prim)
        if "MjcJointAPI" in schemas and (joint := spec.joint(path)) is not None:
            for name, field in _JOINT.items():
                _check(prim, f"mjc:{name}", getattr(joint, field))
        if "MjcCollisionAPI" in schemas and (geom := spec.geom(path)) is not None:
            for name in _GEOM:
                _check(prim, f"mjc:{name}", getattr(geom, name))
        if "MjcSiteAPI" in schemas:
            _place_site(spec, prim, units)
        if str(prim.GetTypeName()) == "MjcActuator":
            _check_actuator(spec, prim)


def _check(prim: Any, name: str, found: Any) -> None:
    """Check the numbers of a prim's attribute, if the stage states them."""
    stated = authored(prim, name)
    if stated is None:
        return
    numbers = np.atleast_1d(np.array(stated, float))
    if not np.allclose(numbers, np.ravel(np.array(found, float))[: len(numbers)], rtol=1e-6, atol=1e-12):
        raise refused(prim, f"{name} is {stated}, and MuJoCo's decoder reads {found}")


def _check_scene(spec: Any, prim: Any) -> None:
    for attribute in prim.GetAuthoredAttributes():
        sort, _, name = str(attribute.GetName()).removeprefix("mjc:").partition(":")
        value = attribute.Get()
        if value is None or sort not in ("option", "flag") or name in _NOT_OPTIONS:
            continue
        if sort == "flag":
            off = getattr(mujoco.mjtDisableBit, f"mjDSBL_{name.upper()}", None)
            on = getattr(mujoco.mjtEnableBit, f"mjENBL_{name.upper()}", None)
            if off is not None:
                _check(prim, f"mjc:flag:{name}", not spec.option.disableflags & int(off))
            elif on is not None:
                _check(prim, f"mjc:flag:{name}", bool(spec.option.enableflags & int(on)))
        elif name in _TOKENS:
            _check_token(prim, f"mjc:option:{name}", int(getattr(spec.option, name)))
        else:
            _check(prim, f"mjc:option:{name}", getattr(spec.option, name, math.nan))


def _check_token(prim: Any, name: str, found: int) -> None:
    """Check a choice of a prim's attribute, if the stage states one."""
    stated = authored(prim, name)
    if name == "mjc:biasType" and stated == "fixed":
        stated = "none"  # as MuJoCo writes it
    kind, _, head = _TOKENS[name.rpartition(":")[2]].partition(".")
    if stated is not None and getattr(getattr(mujoco, f"mjt{kind}"), f"{head}_{str(stated).upper()}", None) != found:
        raise refused(prim, f"{name} is {stated}, and MuJoCo's decoder reads another")


def _place_site(spec: Any, prim: Any, units: UsdUnits) -> None:
    site, body = spec.site(str(prim.GetPath())), body_above(prim)
    if site is None:
        raise refused(prim, "is a site that MuJoCo's decoder leaves out")
    rotation, position = units.frame(prim).within(units.home(body))
    site.pos = position
    mujoco.mju_mat2Quat(site.quat, np.ascontiguousarray(rotation).ravel())


def _check_actuator(spec: Any, prim: Any) -> None:
    decoded = spec.actuator(str(prim.GetPath()))
    targets = [str(path) for path in prim.GetRelationship("mjc:target").GetTargets()]
    if decoded is None or targets != [decoded.target]:
        raise refused(prim, f"acts on {', '.join(targets) or 'nothing'}, which MuJoCo's decoder does not read")
    for name in _ACTUATOR:
        _check(prim, f"mjc:{name}", getattr(decoded, name.lower()))
    for name in ("gainType", "biasType", "dynType"):
        _check_token(prim, f"mjc:{name}", int(getattr(decoded, name.lower())))
    for name in ("ctrl", "force", "act"):
        ends = getattr(decoded, f"{name}range")
        for column, side in enumerate(("min", "max")):
            _check(prim, f"mjc:{name}Range:{side}", ends[column])
        limited = getattr(decoded, f"{name}limited")
        inherited = name == "ctrl" and decoded.inheritrange > 0.0
        bounded = limited == 1 or (limited == 2 and (inherited or ends[0] < ends[1]))
        setattr(decoded, f"{name}limited", int(bounded))
