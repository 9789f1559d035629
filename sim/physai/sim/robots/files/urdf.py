"""Converts a URDF file to an MjSpec, extending MuJoCo's importer.

MuJoCo imports links, joints, limits, friction, mimic joints and primitive shapes. This module adds a motor for every
joint with an effort limit, the velocity limits, the meshes, rods for links whose meshes are missing or for all links of
a robot without shapes, a site `ee` on the last link of an unbranched arm, and a floor. The base is fixed to the world
unless a joint of type "floating" connects it to the root link.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote
from xml.etree.ElementTree import Element, SubElement, tostring

import mujoco
import numpy as np

from physai.sdk.base.errors import ModelError
from physai.sdk.base.files import read_plain
from physai.sim.robots.files.urdf_rules import checked_joints
from physai.sim.robots.files.xmlfile import MAX_FILE_BYTES, XmlFile
from physai.sim.robots.scene import dress
from physai.sim.robots.spec import TIP_SITE, VELOCITY_LIMITS

MESH_SUFFIXES = (".stl", ".obj")
"""Mesh formats that both MuJoCo and URDF support."""

ROD_LENGTH_MIN = 1e-3
"""Shortest rod drawn for a link without shapes [m]."""


@dataclass(frozen=True, kw_only=True)
class UrdfModel:
    """The model of a URDF file."""

    spec: mujoco.MjSpec
    note: str
    """Omitted parts, empty if there are none."""


ReadMesh = Callable[[str], bytes | None]
"""Content of the mesh with this `filename`; None if it is left out."""


def read_urdf(
    parsed: XmlFile, read_mesh: ReadMesh | None = None, *, mark_tip: Callable[[mujoco.MjSpec], None] | None = None
) -> UrdfModel:
    """Convert a parsed URDF file to a model.

    Args:
        parsed: the file.
        read_mesh: finds the meshes; by default in the folder of the file and those above it.
        mark_tip: marks tip frames while links without mass are still there; by default that of an unbranched arm.

    Raises:
        ModelError: the file is a xacro, breaks a rule of `urdf_rules`, or MuJoCo cannot import or compile it.
    """
    if any(":" in element.tag for element in parsed.root.iter()):
        raise ModelError(f"{parsed.path}: this is a xacro file; convert it with xacro and load the resulting URDF")
    joints = checked_joints(parsed)
    all_bare = set[str]() if has_shapes(parsed.root) else {link.get("name", "") for link in parsed.root.findall("link")}
    assets, bare, missing = _resolve_meshes(parsed, read_mesh or (lambda name: mesh_content(parsed.path, name)))
    spec = _import(parsed, assets)
    _add_rods(spec, bare | all_bare)
    _add_actuation(spec, joints)
    (mark_tip or _add_tip)(spec)
    try:
        dress(spec)
    except ValueError as error:
        raise ModelError(f"{parsed.path}: {_reason(error)}") from error
    note = f"without {missing} mesh{'es' if missing > 1 else ''} that could not be read" if missing else ""
    return UrdfModel(spec=spec, note=note)


def has_shapes(root: Element) -> bool:
    """Whether a link of a URDF has a shape."""
    return any(link.find(tag) is not None for link in root.findall("link") for tag in ("visual", "collision"))


def _resolve_meshes(parsed: XmlFile, read_mesh: ReadMesh) -> tuple[dict[str, bytes], set[str], int]:
    """Load meshes as assets and remove those that cannot be read.

    Returns:
        Contents by asset name; names of links left without shapes; number of meshes removed.
    """
    assets: dict[str, bytes] = {}
    bare: set[str] = set()
    missing = 0
    for link in parsed.root.findall("link"):
        lost = False
        for shape in [*link.findall("visual"), *link.findall("collision")]:
            mesh = shape.find("geometry/mesh")
            if mesh is None:
                continue
            content = read_mesh(mesh.get("filename", ""))
            if content is None:
                link.remove(shape)
                lost, missing = True, missing + 1
            else:
                key = f"mesh{len(assets)}{Path(mesh.get('filename', '')).suffix.lower()}"
                mesh.set("filename", key)
                assets[key] = content
        if lost and not (link.findall("visual") or link.findall("collision")):
            bare.add(link.get("name", ""))
    return assets, bare, missing


def mesh_content(urdf: Path, filename: str, *, suffixes: tuple[str, ...] = MESH_SUFFIXES) -> bytes | None:
    """Bytes of a mesh given by a path relative to the URDF, file://, package:// or model://; None if there is none."""
    for candidate in mesh_paths(urdf, filename, suffixes=suffixes):
        try:
            data = read_plain(candidate, limit=MAX_FILE_BYTES)
            if len(data) <= MAX_FILE_BYTES:
                return data
        except OSError:
            continue
    return None


def mesh_paths(urdf: Path, filename: str, *, suffixes: tuple[str, ...] = MESH_SUFFIXES) -> Iterator[Path]:
    """Paths at which `mesh_content` looks for a mesh, in this order; none for another format."""
    relative = re.sub(r"^(package|model|file)://", "", filename).replace("\\", "/")
    if Path(relative).suffix.lower() not in suffixes:
        return
    folder = urdf.resolve().parent
    names = dict.fromkeys((relative, unquote(relative)))
    if not filename.startswith(("package://", "model://")):
        yield from (folder / name for name in names)
        return
    # Without ROS the package's path is unknown, and a copy of it may have another name: look in all folders above.
    inside = [name.partition("/")[2] for name in names]
    yield from (above / name for name in (*names, *inside) for above in (folder, *folder.parents))


def _import(parsed: XmlFile, assets: dict[str, bytes]) -> mujoco.MjSpec:
    # A missing texture would fail the import, and textures have no effect on the motion.
    for material in parsed.root.iter("material"):
        for texture in material.findall("texture"):
            material.remove(texture)
    _keep_visuals(parsed.root)
    try:
        spec = mujoco.MjSpec.from_string(tostring(parsed.root, encoding="unicode"), assets=assets)
    except ValueError as error:
        raise ModelError(f"{parsed.path}: {_reason(error)}") from error
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    if spec.compiler.inertiafromgeom != mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE:
        # A link without <inertial> has no mass; MuJoCo would give it that of its collision shapes, filled with water.
        for geom in spec.geoms:
            geom.mass = 0.0
    for body in spec.bodies:
        shapes = list(body.geoms)
        has_visual = any(not (shape.contype or shape.conaffinity) for shape in shapes)
        for shape in shapes:
            if shape.contype or shape.conaffinity:
                # A URDF has no list of links that may touch, so a robot meets the floor but not itself.
                shape.contype, shape.conaffinity = 1, 0
                shape.group = 3 if has_visual else 2
    return spec


def _keep_visuals(root: Element) -> None:
    """Make MuJoCo's importer keep visual shapes, which it discards by default."""
    extension = root.find("mujoco")
    if extension is None:
        extension = SubElement(root, "mujoco")
    compiler = extension.find("compiler")
    if compiler is None:
        compiler = SubElement(extension, "compiler")
    compiler.set("discardvisual", "false")


def _reason(error: ValueError) -> str:
    # MuJoCo parsed the rewritten tree, a single line, so its line number is meaningless.
    return " ".join(re.sub(r"(XML )?Error:|, line -?\d+", "", str(error)).split())


def _add_rods(spec: mujoco.MjSpec, bare: set[str]) -> None:
    """Add rods to links without meshes, from their origin to their children, or to the centre of mass of a leaf."""
    for body in [body for body in spec.bodies if body.name in bare]:
        ends = [np.array(child.pos, dtype=np.float64) for child in body.bodies]
        if not any(np.linalg.norm(end) > ROD_LENGTH_MIN for end in ends):
            ends.append(np.nan_to_num(np.array(body.ipos, dtype=np.float64)))
        for end in ends:
            length = float(np.linalg.norm(end))
            if length > ROD_LENGTH_MIN:
                rod = body.add_geom(type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=[0.0, 0.0, 0.0, *end.tolist()])
                rod.size = [min(0.025, 0.08 * length), 0.0, 0.0]
                rod.rgba = [0.55, 0.62, 0.72, 1.0]
                # Only for the eye: neither contacts nor mass.
                rod.contype, rod.conaffinity, rod.mass = 0, 0, 0.0


def _add_actuation(spec: mujoco.MjSpec, joints: dict[str, Element]) -> None:
    """Add a motor to every joint with an effort limit, and the velocity limits in joint order."""
    velocities: list[float] = []
    for joint in spec.joints:
        if joint.type == mujoco.mjtJoint.mjJNT_FREE:
            continue
        limit = joints[joint.name].find("limit")
        effort = 0.0 if limit is None else float(limit.get("effort", "0"))
        velocities.append(0.0 if limit is None else float(limit.get("velocity", "0")))
        if effort > 0.0 and joints[joint.name].find("mimic") is None:
            motor = spec.add_actuator(name=joint.name, target=joint.name)
            motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
            motor.set_to_motor()
            motor.forcerange, motor.forcelimited = [-effort, effort], 1
            motor.ctrlrange, motor.ctrllimited = [-effort, effort], 1
    if any(velocities):
        spec.add_numeric(name=VELOCITY_LIMITS, data=velocities)


def _add_tip(spec: mujoco.MjSpec) -> None:
    """Mark the last link of an unbranched chain as the tip frame."""
    body = spec.worldbody
    while True:
        children = list(body.bodies)
        if len(children) != 1:
            break
        body = children[0]
    # Forward kinematics in a contract supports hinges only.
    hinges_only = all(joint.type == mujoco.mjtJoint.mjJNT_HINGE for joint in spec.joints)
    if not list(body.bodies) and body.name != "world" and hinges_only:
        body.add_site(name=TIP_SITE, size=[0.01, 0.01, 0.01], group=3)
