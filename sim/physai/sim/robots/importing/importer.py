"""Reads somebody else's robot, decides what its file leaves open, and writes a folder that needs nothing else."""

import itertools
import json
import math
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement

import mujoco
import numpy as np
from numpy.typing import NDArray

from physai.sdk.base.errors import ModelError
from physai.sdk.base.files import write_atomic
from physai.sdk.contract.robot import MAX_JOINTS
from physai.sim.robots.checks.contacts import overlaps
from physai.sim.robots.files.physics_options import check_options
from physai.sim.robots.files.urdf import has_shapes, read_urdf
from physai.sim.robots.files.xmlfile import XmlFile
from physai.sim.robots.importing.actuation import Servos, actuate
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.meshes.assets import UrdfMeshes, compiled, gathered, simplify_hulls
from physai.sim.robots.importing.meshes.decimation import decimated
from physai.sim.robots.importing.mjcf import read_mjcf
from physai.sim.robots.importing.pose.floating import add_imu, require_touch, stand_on_floor
from physai.sim.robots.importing.pose.frames import mark_end_effector
from physai.sim.robots.importing.pose.home import controls_at_home, home_keyframe
from physai.sim.robots.importing.source_file import parsed_file
from physai.sim.robots.importing.timestep import stable_timestep
from physai.sim.robots.importing.urdf.masses import compare_mass, give_mass, link_masses, moving_mass, rigid_part
from physai.sim.robots.importing.urdf.urdf_joints import link_of, refuse_expressions
from physai.sim.robots.importing.urdf.urdf_repairs import repair
from physai.sim.robots.importing.wheels import note_wheels
from physai.sim.robots.loader import Robot, load_robot, robot_name
from physai.sim.robots.scene import dress
from physai.sim.robots.spec import has_floating_base, home_qpos, joint_ids, posed, robot_spec

Array = NDArray[np.float64]

DECISIONS_FILE = "decisions.json"
PREVIEW_FILE = "preview.png"
_JSON: dict[str, Any] = {"indent": 2, "ensure_ascii": False}
CONTACT_STEP_S = 0.002
"""Longest physics step of a robot that stands on its feet [s]."""
_LEG = re.compile(
    r"foot|sole|calf|shank|shin|thigh|(^|_)(leg|knee|ankle|hip)(_|$|[0-9])|^[lr][fhb]_|_[lr]eg", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Decisions that the user takes out of the importer's hands."""

    end_effector: str | None = None
    servos: Servos = field(default_factory=Servos)
    driven: tuple[str, ...] | None = None
    """Joints with a servo; None to decide by the file."""
    fixed: tuple[str, ...] = ()
    """Joints of a URDF that do not move."""
    floating: bool | None = None
    """Whether the base of a URDF is free; None to decide by its links' names."""
    compensate: bool = True
    """Whether the servos of a robot with a fixed base carry its weight."""
    counterbalance: bool = True
    """Whether weight beyond a stated effort limit is taken as carried by springs or counterweights."""
    balance: bool = False
    """Whether impossible inertia is replaced."""
    faces: int | None = None
    """Triangles that a visual mesh may have; None for all that it has."""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """An imported robot in its folder."""

    folder: Path
    robot: Robot
    decisions: Decisions

    @property
    def record(self) -> Path:
        """The file with the decisions."""
        return self.folder / DECISIONS_FILE

    def keep(self, check: dict[str, Any]) -> None:
        """Add what a check found to the file with the decisions."""
        _write(self.record, json.dumps({**json.loads(self.record.read_bytes()), "check": check}, **_JSON).encode())


def import_robot(source: Path, folder: Path, options: ImportOptions | None = None) -> Imported:
    """Makes a folder of a robot that physai and plain MuJoCo load.

    Args:
        source: URDF, xacro (with the package xacro installed) or MJCF file.
        folder: what to write; its name is the robot's. Must not exist, or be empty or an earlier import.
        options: what not to decide.

    Raises:
        ModelError: the file is missing, unreadable or no robot that can be simulated, or the folder is taken.
    """
    options, decisions = options or ImportOptions(), Decisions()
    _require_free(folder, source)
    parsed = parsed_file(source, decisions)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            spec = _read(parsed, options, decisions)
            check_options(source, spec)
            model = _finish(spec, options, decisions, stated=parsed.root.tag == "mujoco")
            _require_contract(model, robot_name(folder), kept=options.servos.keep)
            for text in sorted({" ".join(str(warning.message).split()) for warning in caught}):
                decisions.add("MuJoCo", text)
            return _written(spec, source, folder, options, decisions)
    except (ValueError, ArithmeticError, mujoco.FatalError) as error:
        raise ModelError(f"{source}: {' '.join(str(error).split())}") from error


def _require_contract(model: mujoco.MjModel, name: str, *, kept: bool) -> None:
    try:
        robot_spec(model, name=name)
    except ModelError as error:
        if not kept:
            raise
        raise ModelError(f"{error}; without `servo` none the import replaces the file's actuators") from error


def _read(parsed: XmlFile, options: ImportOptions, decisions: Decisions) -> mujoco.MjSpec:
    tag = parsed.root.tag
    if tag == "robot":
        return _from_urdf(parsed, options, decisions)
    if tag == "mujoco":
        return _from_mjcf(parsed, options, decisions)
    way_out = "; import the file that includes it" if tag == "mujocoinclude" else ""
    raise parsed.error(parsed.root, f"root element <{tag}>; expected <mujoco> (MJCF) or <robot> (URDF){way_out}")


def _require_free(folder: Path, source: Path) -> None:
    try:
        if folder.is_symlink() and not folder.exists():
            raise ModelError(f"{folder}: is a link to nothing; choose another folder with -o")
        if folder.exists() and not folder.is_dir():
            raise ModelError(f"{folder}: is a file; choose another folder with -o")
        if not folder.is_dir():
            return
        if source.is_file() and source.resolve().is_relative_to(folder.resolve()):
            raise ModelError(f"{source}: is in {folder}, which the import would write; name another with -o OTHER")
        if any(folder.iterdir()) and not (folder / DECISIONS_FILE).is_file():
            raise ModelError(f"{folder}: is not empty and no earlier import; choose another folder with -o")
        others = sorted(path.name for path in folder.glob("*.xml") if path.name != f"{robot_name(folder)}.xml")
    except OSError as error:
        raise ModelError(
            f"{folder}: {(error.strerror or str(error)).lower()}; choose another folder with -o"
        ) from error
    if others:
        raise ModelError(
            f"{folder}: has {others[0]}, and a robot's folder has one model; delete it or choose another folder with -o"
        )


def _from_urdf(parsed: XmlFile, options: ImportOptions, decisions: Decisions) -> mujoco.MjSpec:
    # Other prefixes, as <sensor:camera>, are extensions of simulators.
    if any(element.tag.startswith("xacro:") for element in parsed.root.iter()):
        raise ModelError(
            f"{parsed.path}: this is a xacro file; rename it to {parsed.path.stem}.xacro if you trust its expressions, "
            "and import that"
        )
    refuse_expressions(parsed)
    masses = link_masses(parsed.root)
    repair(parsed, decisions, balance=options.balance, fixed=options.fixed)
    _decide_base(parsed.root, options, decisions)
    stated = moving_mass(parsed.root, masses)
    given = [name for name, mass in link_masses(parsed.root).items() if mass > 0.0 and not masses.get(name)]
    if not has_shapes(parsed.root):
        decisions.add("shapes", "the file has none, so rods from joint to joint stand for the links", "edit the file")
    meshes = UrdfMeshes(parsed.path, decisions)
    meshes.prepare(parsed.root)

    def mark(spec: mujoco.MjSpec) -> None:
        mark_end_effector(spec, decisions, options.end_effector)
        scaled = spec.compiler.settotalmass > 0.0
        compare_mass(compiled(spec, decisions, meshes), stated, decisions, given=given, scaled=scaled)

    try:
        return read_urdf(parsed, meshes.read, mark_tip=mark).spec
    except ModelError as error:
        if options.balance or "principal moments" not in str(error):
            raise
        raise ModelError(f"{error}; or import with `balance`, which raises the smaller moments") from error


def _decide_base(root: Element, options: ImportOptions, decisions: Decisions) -> None:
    """Connects the root link to the world by a floating joint if the robot has legs."""
    children = {link_of(joint, "child") for joint in root.findall("joint")}
    roots = [link.get("name", "") for link in root.findall("link") if link.get("name", "") not in children]
    joints = [joint for joint in root.findall("joint") if joint.get("type") == "floating"]
    if joints or len(roots) != 1:
        return
    leaves = children - {link_of(joint, "parent") for joint in root.findall("joint")}
    legs = sorted(name for name in leaves if _LEG.search(name))
    if options.floating is None and len(legs) < 2:
        note_wheels(_names_of(root, "continuous"), decisions, floating=False)
        return
    if options.floating is False:
        return
    why = "as asked" if options.floating else f"it has legs: {', '.join(legs[:4])}"
    base = roots[0]
    top = base
    if base == "world":
        carried = [joint for joint in root.findall("joint") if link_of(joint, "parent") == "world"]
        if len(carried) != 1 or carried[0].get("type") != "fixed":
            raise ModelError("`floating`: the link 'world' carries more than one fixed link; name the base otherwise")
        carried[0].set("type", "floating")
        top = link_of(carried[0], "child")
    else:
        SubElement(root, "link", name="world")
        taken = {joint.get("name") for joint in root.findall("joint")}
        free = next(
            name for name in ("floating_base", "floating_base_joint", "physai_floating_base") if name not in taken
        )
        joint = SubElement(root, "joint", name=free, type="floating")
        SubElement(joint, "parent", link="world")
        SubElement(joint, "child", link=base)
    masses = link_masses(root)
    if not any(masses.get(part, 0.0) for part in rigid_part(root, top)):
        give_mass(root, top, "floats but has no mass", decisions)
    decisions.add("base", f"floats, {why}", "--fixed-base")


def _names_of(root: Element, kind: str) -> list[str]:
    return [joint.get("name", "") for joint in root.findall("joint") if joint.get("type") == kind]


def _from_mjcf(parsed: XmlFile, options: ImportOptions, decisions: Decisions) -> mujoco.MjSpec:
    spec = read_mjcf(parsed.path, decisions, fixed=options.fixed, floating=options.floating, balance=options.balance)
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    mark_end_effector(spec, decisions, options.end_effector)
    if list(spec.compiler.inertiagrouprange) != [0, mujoco.mjNGROUP - 1]:
        return spec  # the groups say which shapes have mass
    for body in spec.bodies:
        shapes = list(body.geoms)
        if any(not (shape.contype or shape.conaffinity) for shape in shapes):
            # What collides is not drawn over what is there to be seen.
            for shape in shapes:
                if shape.group < 3 and (shape.contype or shape.conaffinity):
                    shape.group = 3
    return spec


def _finish(spec: mujoco.MjSpec, options: ImportOptions, decisions: Decisions, *, stated: bool) -> mujoco.MjModel:
    """Adds what the file leaves open; returns the compiled model."""
    simplify_hulls(spec)
    _name_joints(spec, decisions)
    model = compiled(spec, decisions)
    floating = has_floating_base(model)
    if floating:
        require_touch(spec, decisions)
        model = spec.compile()
    names = [str(model.joint(joint).name) for joint in joint_ids(model)]
    if stated:
        endless = [not model.jnt_limited[joint] for joint in joint_ids(model)]
        note_wheels(list(itertools.compress(names, endless)), decisions, floating=floating)
    if len(names) > MAX_JOINTS:
        pattern = _prefix_to_fix(names, len(names) - MAX_JOINTS)
        raise ModelError(
            f"{len(names)} joints, policies command at most {MAX_JOINTS}; hold some still: `fix` {pattern}"
        )
    home = home_keyframe(spec, model, decisions)
    driven = None if options.driven is None else set(options.driven)
    actuate(
        spec,
        decisions,
        options.servos,
        driven=driven,
        compensate=options.compensate and not floating,
        counterbalance=options.counterbalance,
        stated=stated,
    )
    model = spec.compile()
    home.ctrl = controls_at_home(model)
    dress(spec)
    if floating:
        stand_on_floor(spec, decisions)
        add_imu(spec, decisions)
    model = spec.compile()
    _part_at_home(spec, model, decisions)
    step = min(stable_timestep(model), CONTACT_STEP_S) if floating else stable_timestep(model)
    if step != model.opt.timestep:
        why = "for motors" if options.servos.effort else "from the stiffest servo"
        decisions.add("physics step", f"{step:g} s, {why}", "edit <option timestep> in the result")
        spec.option.timestep = step
        model.opt.timestep = step
    return model


def _prefix_to_fix(names: list[str], excess: int) -> str:
    """A pattern for `--fix` that matches enough joints but few more; JOINT,… if their names have no such beginning."""
    parts = [name.split("_") for name in names]
    prefixes = {"_".join(part[:length]) + "_" for part in parts for length in range(1, len(part))}
    counts = {prefix: sum(name.startswith(prefix) for name in names) for prefix in prefixes}
    enough = [prefix for prefix, count in counts.items() if excess <= count < len(names)]
    return f"'{min(enough, key=lambda prefix: (counts[prefix], prefix))}*'" if enough else "JOINT,…"


def _name_joints(spec: mujoco.MjSpec, decisions: Decisions) -> None:
    """Joints are matched by name, so each gets one."""
    taken = {joint.name for joint in spec.joints}
    for joint in spec.joints:
        if joint.name or joint.type == mujoco.mjtJoint.mjJNT_FREE:
            continue
        name = f"{joint.parent.name or 'body'}_joint"
        while name in taken:
            name += "_"
        joint.name = name
        taken.add(name)
        decisions.add(name, "had no name", "edit the file")


def _part_at_home(spec: mujoco.MjSpec, model: mujoco.MjModel, decisions: Decisions) -> None:
    """Lets bodies that overlap at home pass through each other: convex hulls are larger than their parts."""
    for first, second in sorted(overlaps(model)):
        spec.add_exclude(bodyname1=first, bodyname2=second)
        decisions.add(f"{first}, {second}", "overlap at home, so they do not collide", "delete <exclude> in the result")


def _written(spec: mujoco.MjSpec, source: Path, folder: Path, options: ImportOptions, decisions: Decisions) -> Imported:
    name = robot_name(folder)
    spec.modelname = name
    here = Path(spec.modelfiledir or source.parent)
    reduced = decimated(spec, here, options.faces, decisions) if options.faces else {}
    files = gathered(spec, here, reduced)
    spec.dedup_assets()
    record = {"source": source.name, "robot": name, "decisions": decisions.records()}
    try:
        # First, as it tells an import that was interrupted from a folder with something else.
        _write(folder / DECISIONS_FILE, json.dumps(record, **_JSON).encode())
        for path, content in files.items():
            _write(folder / path, content)
        # MuJoCo compiles what it writes, and looks for the files where they are now.
        spec.modelfiledir = str(folder.resolve())
        _write(folder / f"{name}.xml", spec.to_xml().encode())
        robot = load_robot(folder / f"{name}.xml")
    except OSError as error:
        raise ModelError(
            f"{error.filename or folder}: {error.strerror or error}; choose another folder with -o"
        ) from error
    require_still(robot)
    return Imported(folder=folder, robot=robot, decisions=decisions)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, content)


def require_still(robot: Robot) -> None:
    """Raises ModelError if the model's state is not finite after a step from home."""
    data = posed(robot.model, home_qpos(robot.model), mujoco.mj_step)
    if not math.isfinite(float(np.abs(data.qvel).sum())):
        raise ModelError(f"{robot.path}: velocities are not finite after one step; check masses and inertia")
