"""Carries a compiled MuJoCo model into Newton, and compares what arrived."""

import functools
import importlib
from typing import Any

import mujoco
import numpy as np

from physai.sdk import MissingExtraError
from physai.sim import ModelError
from physai.sim.engines.warp import modules

# Its extra `sim` asks for an older MuJoCo than ours, so only Newton itself is installed.
PIP_LINE = "pip install --no-deps newton==1.8.0"

_JOINTS = (mujoco.mjtJoint.mjJNT_FREE, mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE)
_SIZES = {
    int(mujoco.mjtGeom.mjGEOM_PLANE): 0,  # endless where it is touched; only drawn with a size
    int(mujoco.mjtGeom.mjGEOM_SPHERE): 1,
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): 2,
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): 2,
    int(mujoco.mjtGeom.mjGEOM_BOX): 3,
}
"""How many sizes each shape has that can touch others in Newton."""
_LACKING = {
    "neq": "equality constraints",
    "ntendon": "tendons",
    "nflex": "flexible bodies",
    "nskin": "skins",
    "nplugin": "plugins",
    "nmocap": "mocap bodies",
    "nexclude": "excluded contacts",
    "npair": "contact pairs",
    "na": "actuators with activation",
}
_COMPARED = {
    "body": ("parentid", "mass", "pos", "quat", "ipos", "iquat", "inertia", "gravcomp"),
    "jnt": (
        *("type", "bodyid", "qposadr", "pos", "axis", "range", "solref", "solimp", "margin", "stiffness"),
        *("stiffnesspoly", "springyield", "actfrcrange", "actgravcomp"),
    ),
    "dof": ("damping", "armature", "dampingpoly", "frictionloss", "solref", "solimp"),
    "state": ("qpos0", "qpos_spring"),
    "geom": (
        *("type", "bodyid", "contype", "conaffinity", "condim", "priority", "size", "pos", "quat", "friction"),
        *("solmix", "solref", "solimp", "margin", "gap", "fluid", "adhesion", "surfacevel"),
    ),
    "actuator": (
        *("trntype", "trnid", "dyntype", "gaintype", "biastype", "gear", "gainprm", "biasprm", "ctrlrange"),
        *("forcerange", "damping", "dampingpoly", "armature", "delay"),
    ),
    "opt": (
        *(
            "integrator",
            "cone",
            "solver",
            "iterations",
            "ls_iterations",
            "tolerance",
            "ls_tolerance",
            "gravity",
            "impratio",
        ),
        *("density", "viscosity", "wind", "magnetic", "noslip_iterations"),
    ),
}
"""What a step depends on, by element; only of geoms that can touch."""
_UNLIMITED = 1e6
"""Newton writes a limit beyond any robot's where MuJoCo has none."""
_SWITCHES = ("CONTACT", "GRAVITY", "LIMIT", "FRICTIONLOSS", "ACTUATION", "SPRING", "DAMPER", "EQUALITY", "CLAMPCTRL")


@functools.cache
def newton_module() -> Any:
    """The package newton.

    Raises:
        MissingExtraError: it, warp or mujoco_warp is not installed.
    """
    modules()
    try:
        return importlib.import_module("newton")
    except ImportError as error:
        raise MissingExtraError(f"the engine newton needs {error.name}: {PIP_LINE}") from error


def mjcf_of(model: mujoco.MjModel) -> str:
    """The model's bodies, joints, shapes and actuators as MJCF; shapes that touch nothing as small spheres.

    Raises:
        ModelError: the model has an element that is not carried over; the message names it.
    """
    _require_known(model)
    spec = mujoco.MjSpec()
    for name in dir(model.opt):
        if not name.startswith("_") and not callable(getattr(model.opt, name)):
            setattr(spec.option, name, getattr(model.opt, name))
    spec.compiler.degree = False
    spec.compiler.autolimits = False
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    bodies: list[Any] = [spec.worldbody]
    for body in range(1, model.nbody):
        fields = ("pos", "quat", "mass", "ipos", "iquat", "inertia", "gravcomp")
        added = bodies[model.body_parentid[body]].add_body(
            name=f"body{body}", explicitinertial=True, **_row(model, "body", body, fields)
        )
        bodies.append(added)
    for joint in range(model.njnt):
        _add_joint(model, joint, bodies)
    for geom in range(model.ngeom):
        _add_geom(model, geom, bodies)
    for actuator in range(model.nu):
        _add_actuator(model, actuator, spec)
    try:
        spec.compile()
        return str(spec.to_xml())
    except ValueError as error:
        raise ModelError(f"the model cannot be written for Newton: {error}") from error


def touches(model: mujoco.MjModel) -> Any:
    """Geoms that can touch anything, bool, shape (ngeom,)."""
    return (np.asarray(model.geom_contype) != 0) | (np.asarray(model.geom_conaffinity) != 0)


def require_same(model: mujoco.MjModel, arrived: mujoco.MjModel) -> None:
    """Checks that Newton made the model it was given.

    Raises:
        ModelError: it did not; the message names the first field that differs, with both values.
    """
    for count in ("nbody", "njnt", "nv", "ngeom", "nu"):
        given, found = getattr(model, count), getattr(arrived, count)
        if given != found:
            raise ModelError(f"Newton cannot represent this model: {count} is {given} here and {found} in Newton")
    for element, fields in _COMPARED.items():
        for field in fields:
            owner = (model.opt, arrived.opt) if element == "opt" else (model, arrived)
            name = field if element in ("opt", "state") else f"{element}_{field}"
            given, found = (_values(one, name) for one in owner)
            if element == "geom":
                solid = touches(model)
                if field == "size":
                    # Newton also fills in sizes that the shape does not have.
                    used = np.arange(3) < np.vectorize(_SIZES.get)(np.asarray(model.geom_type), 3)[:, None]
                    given, found = np.where(used, given, 0.0), np.where(used, found, 0.0)
                given, found = given[solid], found[solid]
            if field in ("quat", "iquat"):
                # Both signs are one rotation.
                found = found * np.where((given * found).sum(axis=-1, keepdims=True) < 0.0, -1.0, 1.0)
            _require_close(f"{element} {field}", given, found)
    for name in _SWITCHES:
        bit = int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}"))
        if (model.opt.disableflags ^ arrived.opt.disableflags) & bit:
            raise ModelError(f"Newton cannot represent this model: the flag {name.lower()} differs")


def _values(owner: Any, name: str) -> Any:
    """A field as float64; a range as it limits."""
    values = np.asarray(getattr(owner, name), np.float64)
    if not name.endswith("range"):
        return values
    limited = np.asarray(getattr(owner, f"{name.removesuffix('range')}limited"), bool)
    return np.where(limited[:, None], np.clip(values, -_UNLIMITED, _UNLIMITED), [-_UNLIMITED, _UNLIMITED])


def _require_close(what: str, given: Any, found: Any) -> None:
    same = given.shape == found.shape and np.allclose(given, found, rtol=1e-4, atol=1e-6)
    if same:
        return
    if given.shape == found.shape:
        worst = np.unravel_index(np.argmax(np.abs(given - found)), given.shape) if given.ndim else ()
        where = f" {'/'.join(map(str, worst))}" if worst else ""
        raise ModelError(
            f"Newton cannot represent this model: {what}{where} is {given[worst]:g} here and {found[worst]:g} in "
            "Newton; simplify that element, or use the engine warp"
        )
    raise ModelError(f"Newton cannot represent this model: {what} has shape {given.shape}, in Newton {found.shape}")


def _require_known(model: mujoco.MjModel) -> None:
    lacking = [words for count, words in _LACKING.items() if getattr(model, count) > 0]
    kinds = {int(kind) for kind in model.jnt_type} - set(map(int, _JOINTS))
    lacking += [f"joints of type {mujoco.mjtJoint(kind).name[6:].lower()}" for kind in sorted(kinds)]
    shapes = {int(kind) for kind in model.geom_type[touches(model)]} - set(_SIZES)
    lacking += [f"contacts of shape {mujoco.mjtGeom(kind).name[7:].lower()}" for kind in sorted(shapes)]
    if any(model.actuator_trntype != mujoco.mjtTrn.mjTRN_JOINT):
        lacking.append("actuators that do not drive a joint")
    # NaN is not affine either.
    gains = set(map(int, model.actuator_gaintype)) | set(map(int, model.actuator_biastype))
    if any(not kind <= int(mujoco.mjtBias.mjBIAS_AFFINE) for kind in gains):
        lacking.append("actuators whose force is not affine")
    if lacking:
        raise ModelError(
            f"the engine newton cannot represent {', '.join(lacking)}; remove them from the model, or use the engine "
            "warp"
        )


def _row(model: mujoco.MjModel, element: str, index: int, fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: getattr(model, f"{element}_{field}")[index] for field in fields}


def _add_joint(model: mujoco.MjModel, joint: int, bodies: list[Any]) -> None:
    body, dof = bodies[model.jnt_bodyid[joint]], model.jnt_dofadr[joint]
    kind = mujoco.mjtJoint(int(model.jnt_type[joint]))
    if kind == mujoco.mjtJoint.mjJNT_FREE:
        body.add_joint(name=f"joint{joint}", type=kind)
        return
    added = body.add_joint(
        name=f"joint{joint}",
        type=kind,
        limited=int(model.jnt_limited[joint]),
        actfrclimited=int(model.jnt_actfrclimited[joint]),
        armature=model.dof_armature[dof],
        frictionloss=model.dof_frictionloss[dof],
        solref_limit=model.jnt_solref[joint],
        solimp_limit=model.jnt_solimp[joint],
        solref_friction=model.dof_solref[dof],
        solimp_friction=model.dof_solimp[dof],
        springref=model.qpos_spring[model.jnt_qposadr[joint]],
        ref=model.qpos0[model.jnt_qposadr[joint]],
        actgravcomp=bool(model.jnt_actgravcomp[joint]),
        **_row(model, "jnt", joint, ("pos", "axis", "range", "margin", "actfrcrange")),
    )
    # Polynomials, whose linear term is the model's field.
    for name, value in (("stiffness", model.jnt_stiffness[joint]), ("damping", model.dof_damping[dof])):
        terms = np.zeros_like(np.atleast_1d(getattr(added, name)))
        terms[0] = value
        setattr(added, name, terms if np.ndim(getattr(added, name)) else float(value))


def _add_geom(model: mujoco.MjModel, geom: int, bodies: list[Any]) -> None:
    body = bodies[model.geom_bodyid[geom]]
    if not touches(model)[geom]:
        body.add_geom(name=f"geom{geom}", size=[0.01, 0, 0], contype=0, conaffinity=0, mass=0.0)
        return
    fields = ("contype", "conaffinity", "condim", "priority", "size", "pos", "quat", "friction", "solmix", "solref")
    kind = mujoco.mjtGeom(int(model.geom_type[geom]))
    body.add_geom(
        name=f"geom{geom}", type=kind, mass=0.0, **_row(model, "geom", geom, (*fields, "solimp", "margin", "gap"))
    )


def _add_actuator(model: mujoco.MjModel, actuator: int, spec: Any) -> None:
    spec.add_actuator(
        name=f"actuator{actuator}",
        target=f"joint{model.actuator_trnid[actuator, 0]}",
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        gaintype=mujoco.mjtGain(int(model.actuator_gaintype[actuator])),
        biastype=mujoco.mjtBias(int(model.actuator_biastype[actuator])),
        ctrllimited=int(model.actuator_ctrllimited[actuator]),
        forcelimited=int(model.actuator_forcelimited[actuator]),
        **_row(model, "actuator", actuator, ("gear", "gainprm", "biasprm", "ctrlrange", "forcerange")),
    )
