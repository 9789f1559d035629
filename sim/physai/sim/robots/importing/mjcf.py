"""Reads an MJCF file, and changes what an import may change in it: joints that move, their names, the base."""

import fnmatch
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring, tostring

import mujoco
import numpy as np

from physai.sdk.base.errors import ModelError
from physai.sim.robots.files.named_files import announce_files, mjcf_parts
from physai.sim.robots.files.pictures import check_model_pictures
from physai.sim.robots.files.xmlfile import read_xml
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.names import usable_names

_JOINT_KEYS = ("joint", "joint1", "joint2", "jointinparent")
"""Attributes outside of bodies that name a joint."""
_FREE_NUMBERS = 7
"""Positions of a free joint: three coordinates and a quaternion."""


def read_mjcf(
    path: Path,
    decisions: Decisions,
    *,
    fixed: tuple[str, ...] = (),
    floating: bool | None = None,
    balance: bool = False,
) -> mujoco.MjSpec:
    """Reads the model of an MJCF file.

    Args:
        path: the file.
        decisions: takes what is changed.
        fixed: names or patterns (`finger_*`) of joints that do not move.
        floating: whether the base is free; None for as it is.
        balance: raise moments of inertia that no body can have.

    Raises:
        ModelError: no joint has a name of `fixed`, the base cannot be changed as asked, or a picture is too large.
        ValueError: MuJoCo does not read or compile the file.
    """
    _require_known_flags(path)
    spec = mujoco.MjSpec.from_file(str(path))
    _free_base(spec, decisions)
    _complete(spec, path, decisions)
    check_model_pictures(spec, path.parent)
    announce_files(path)
    if balance:
        spec.compiler.balanceinertia = True
        decisions.add("inertia", "moments that no body has are raised, as asked", "leave out --balance")
    if floating is not None:
        _set_base(spec, decisions, floating=floating)
    names = [str(joint.name) for joint in spec.joints if joint.type != mujoco.mjtJoint.mjJNT_FREE]
    still = _with_followers(spec, _matching(path, names, fixed))
    renamed = usable_names([name for name in names if name not in still], decisions)
    if not (still or renamed):
        return spec
    changed = _edited(spec, still, renamed, decisions)
    changed.modelfiledir = spec.modelfiledir or str(path.resolve().parent)
    return changed


def _require_known_flags(path: Path) -> None:
    """Refuse a flag of older versions with its line; MuJoCo's own message has no way out."""
    file = read_xml(path)
    for flag in file.root.iterfind("option/flag"):
        if "sensornoise" in flag.attrib:
            raise file.error(
                flag,
                f"sensornoise is no flag of MuJoCo {mujoco.__version__}; delete it: a task states the noise of sensors",
            )


def _free_base(spec: mujoco.MjSpec, decisions: Decisions) -> None:
    """Replace a base on three slides and a ball joint, or three hinges, by a free joint, where that is the same."""
    tops = [body for body in spec.worldbody.bodies if list(body.joints)]
    kinds = [joint.type for joint in tops[0].joints] if len(tops) == 1 else []
    slide, hinge, ball = mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_BALL
    if kinds not in ([slide] * 3 + [ball], [slide] * 3 + [hinge] * 3) or list(spec.keys):
        return
    model: Any = spec.copy().compile()
    joints = np.flatnonzero(model.jnt_bodyid == model.jnt_bodyid[0])
    dofs = model.dof_bodyid == model.jnt_bodyid[0]
    held = [model.jnt_limited[joints], model.jnt_stiffness[joints], model.dof_damping[dofs], model.dof_armature[dofs]]
    turns = model.jnt_axis[joints[3:]] if len(kinds) == 6 else np.eye(3)
    along = np.array_equal(model.jnt_axis[joints[:3]], np.eye(3)) and np.allclose(np.abs(turns).sum(axis=0), 1.0)
    straight = np.array_equal(model.body_quat[model.jnt_bodyid[0]], [1, 0, 0, 0]) and not model.jnt_pos[joints].any()
    if not (along and straight) or any(np.any(value) for value in (*held, model.dof_frictionloss[dofs])):
        return
    for joint in list(tops[0].joints):
        spec.delete(joint)
    tops[0].add_freejoint()
    decisions.add("base", f"floats: a free joint for its {len(kinds)} joints, which moves as they do")


def _complete(spec: mujoco.MjSpec, path: Path, decisions: Decisions) -> None:
    """Add materials that are named and not defined, and drop contacts with what another file of a scene defines."""
    geoms = {str(geom.name) for geom in spec.geoms}
    for pair in list(spec.pairs):
        absent = sorted({str(pair.geomname1), str(pair.geomname2)} - geoms)
        if absent:
            decisions.add(
                f"contact {pair.name or absent[0]}",
                f"is with {absent[0]}, which this file does not have: left out; with the floor of physai, geoms touch "
                "by their own numbers",
                "import the scene that has it",
            )
            spec.delete(pair)
    # MuJoCo may look for the material of a default only when it reads the model that it has written.
    roots, _ = mjcf_parts(path, read_xml(path).root)
    named = {element.get("material", "") for root in roots for element in root.iter()}
    for name in sorted(named - {"", *(str(material.name) for material in spec.materials)}):
        spec.add_material(name=name)
        decisions.add(f"material {name}", "is named and not defined: a plain one", "define it in the file")


def _matching(path: Path, names: list[str], patterns: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        matches = fnmatch.filter(names, pattern)
        if not matches:
            raise ModelError(f"`fix` {pattern}: no joint of that name in {path}; known: {', '.join(names[:64])}")
        found.update(matches)
    return found


def _set_base(spec: mujoco.MjSpec, decisions: Decisions, *, floating: bool) -> None:
    free = next((joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE), None)
    if floating is (free is not None):
        return
    if free is not None:
        spec.delete(free)
        for key in spec.keys:
            key.qpos, key.qvel = list(key.qpos)[_FREE_NUMBERS:], []
        decisions.add("base", "is fixed to the world, as asked", "leave out --fixed-base")
        return
    tops = [body for body in spec.worldbody.bodies if any(True for _ in _joints_below(body))]
    if len(tops) != 1 or list(tops[0].joints):
        has = f"{len(tops)} moving bodies" if len(tops) != 1 else "a joint"
        raise ModelError(f"`floating`: the world carries {has}; put the robot into one body without a joint")
    tops[0].add_freejoint()
    # Compiled as a copy, because MuJoCo makes keyframes longer when it compiles a model with a new joint.
    model = spec.copy().compile()
    for key in spec.keys:
        key.qpos, key.qvel = [*model.qpos0[:_FREE_NUMBERS], *key.qpos], []
    decisions.add("base", "floats, as asked", "leave out --floating")


def _joints_below(body: mujoco.MjsBody) -> Iterator[mujoco.MjsJoint]:
    yield from body.joints
    for child in body.bodies:
        yield from _joints_below(child)


def _edited(spec: mujoco.MjSpec, still: set[str], renamed: dict[str, str], decisions: Decisions) -> mujoco.MjSpec:
    """The model with joints removed and renamed, wherever they are named."""
    model = spec.compile()
    root = fromstring(spec.to_xml())
    kept = np.ones(model.nq, bool)
    kept[[int(model.jnt_qposadr[model.joint(name).id]) for name in still]] = False
    for bodies in root.findall("worldbody"):
        for parent in bodies.iter():
            for joint in [one for one in parent.findall("joint") if one.get("name") in still]:
                parent.remove(joint)
            for joint in parent.findall("joint"):
                joint.set("name", renamed.get(joint.get("name", ""), joint.get("name", "")))
    _drop(root, _JOINT_KEYS, still)
    for element in _outside(root):
        for key in [key for key in _JOINT_KEYS if key in element.attrib]:
            element.set(key, renamed.get(element.attrib[key], element.attrib[key]))
    for name in sorted(still):
        decisions.add(name, "does not move, as asked", "leave out --fix")
    for key in root.iterfind("keyframe/key"):
        for name in ("qvel", "ctrl", "act"):
            key.attrib.pop(name, None)
        if key.get("qpos"):
            key.set("qpos", " ".join(np.array(key.get("qpos", "").split())[kept]))
    return mujoco.MjSpec.from_string(tostring(root, encoding="unicode"), assets=dict(spec.assets or {}))


def _with_followers(spec: mujoco.MjSpec, still: set[str]) -> set[str]:
    """Joints that an equality couples to one that does not move do not move either."""
    pairs = [{one.name1, one.name2} - {""} for one in spec.equalities if one.type == mujoco.mjtEq.mjEQ_JOINT]
    found, before = set(still), 0
    while len(found) > before:
        before = len(found)
        for pair in pairs:
            if pair & found:
                found |= pair
    return found


def _outside(root: Element) -> Iterator[Element]:
    """Elements that refer to joints: all but bodies and defaults."""
    for section in root:
        if section.tag not in ("worldbody", "default", "asset", "keyframe"):
            yield from section.iter()


def _drop(root: Element, keys: tuple[str, ...], names: set[str]) -> None:
    """Removes what refers to these names, and then what refers to that."""
    tendons, actuators = set[str](), set[str]()
    for section in root:
        if section.tag in ("worldbody", "default", "asset", "keyframe"):
            continue
        for parent in list(section.iter()):
            for element in [one for one in parent if any(one.get(key) in names for key in keys)]:
                parent.remove(element)
                if section.tag == "actuator":
                    actuators.add(element.get("name", ""))
        if section.tag == "tendon":
            for tendon in [tendon for tendon in section if not len(tendon)]:
                section.remove(tendon)
                tendons.add(tendon.get("name", ""))
    if tendons - {""}:
        _drop(root, ("tendon", "tendon1", "tendon2"), tendons - {""})
    if actuators - {""}:
        _drop(root, ("actuator",), actuators - {""})
