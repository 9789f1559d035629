"""Brings meshes and textures into one folder, in formats that MuJoCo reads."""

import importlib
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import mujoco

from physai.sdk.base.errors import ModelError
from physai.sdk.base.files import read_plain
from physai.sim.robots.files.urdf import MESH_SUFFIXES, mesh_content
from physai.sim.robots.files.xmlfile import MAX_FILE_BYTES
from physai.sim.robots.importing.decisions import Decisions
from physai.sim.robots.importing.meshes import collada

MAX_STL_FACES = 200_000
"""MuJoCo reads no STL with more."""
HULL_VERTICES = 64
"""Corners of the convex hull with which a mesh collides."""
MAX_TOTAL_BYTES = 1 << 30
"""All files of a robot together."""

_CONVERTED = (".dae", ".ply", ".glb")
_STL_HEAD, _STL_FACE = 84, 50
"""Bytes of a binary STL before its faces, and of each."""


class UrdfMeshes:
    """The meshes of a URDF file, converted where MuJoCo does not read them."""

    def __init__(self, urdf: Path, decisions: Decisions) -> None:
        """Files are looked for in the URDF's folder and those above it."""
        self._urdf, self._decisions = urdf, decisions
        self._ready: dict[str, bytes] = {}
        self._given: dict[str, bytes | None] = {}
        self._units: dict[float, list[str]] = {}
        self._up: dict[str, str] = {}
        """Axis that points upwards, by COLLADA file."""

    def prepare(self, root: Element) -> None:
        """Converts what has another format, and gives it another name in the tree."""
        lacking: dict[str, list[str]] = {}
        meshes: dict[str, Any] = {}
        for mesh in root.iter("mesh"):
            name = mesh.get("filename", "")
            if Path(name).suffix.lower() not in _CONVERTED or name in meshes:
                continue
            meshes[name], reason = self._convert(name)
            if meshes[name] is None:
                lacking.setdefault(reason, []).append(name)
        for unit, names in self._units.items():
            self._decisions.add("meshes", f"{len(names)} in units of {unit:g} m, as {names[0]} says", "edit the file")
        self._turn_upwards(root, meshes)
        for mesh in root.iter("mesh"):
            name = mesh.get("filename", "")
            if meshes.get(name) is not None:
                self._ready[f"{name}.stl"] = self._ready.get(f"{name}.stl") or _binary_stl(meshes[name])
                mesh.set("filename", f"{name}.stl")
        for reason, names in lacking.items():
            self._decisions.add("meshes", f"{len(names)} left out, as {names[0]}: {reason}")

    def _turn_upwards(self, root: Element, meshes: dict[str, Any]) -> None:
        """Turns meshes whose file says that x or y is up, unless the links' centres of mass speak against it.

        COLLADA defines how they are turned. RViz does not turn them, and some robots were drawn for it.
        """
        tilted = {name: axis for name, axis in self._up.items() if axis != "Z" and meshes.get(name) is not None}
        if not tilted:
            return
        found: list[collada.Placed] = []
        for link in root.findall("link"):
            for shape in [*link.findall("visual"), *link.findall("collision")]:
                mesh = shape.find("geometry/mesh")
                name = "" if mesh is None else mesh.get("filename", "")
                where = collada.placed(meshes[name], tilted[name], link, shape) if name in tilted else None
                found += [] if where is None else [where]
        unturned, upright = collada.distances(found)
        turn = upright <= unturned
        near = f": so they are {1e3 * min(unturned, upright):.3g} mm from the links' centres of mass, else "
        near = f"{near}{1e3 * max(unturned, upright):.3g} mm" if found else ""
        what = "turned so that z is, as COLLADA defines" if turn else "taken as they are, as RViz does"
        axes = " or ".join(sorted({axis.lower() for axis in tilted.values()}))
        self._decisions.add(
            "meshes", f"{len(tilted)} say that {axes} is up, {what}{near}", "correct <up_axis> in the files"
        )
        if turn:
            meshes |= {name: collada.turned(meshes[name], axis) for name, axis in tilted.items()}

    def read(self, filename: str) -> bytes | None:
        """Content of a file that `read_urdf` asks for."""
        if filename not in self._given:
            self._given[filename] = self._ready.get(filename) or self._read(filename)
        return self._given[filename]

    def drop_broken(self, spec: mujoco.MjSpec) -> bool:
        """Removes meshes that MuJoCo cannot compile, with the shapes that are made of them; whether there are any."""
        broken: set[str] = set()
        problems: dict[str, str] = {}
        inline: dict[str, bytes] = dict(spec.assets or {})
        for mesh in spec.meshes:
            content = inline.get(mesh.file)
            problem = "" if content is None else mesh_problem(mesh, content, mesh.file)
            if problem:
                broken.add(mesh.name)
                name = next((name for name, known in self._given.items() if known == content), mesh.file)
                problems[name.removesuffix(".stl") if name in self._ready else name] = problem
        for name, problem in problems.items():
            self._decisions.add("meshes", f"{name} is left out: {problem}", "export it again")
        for geom in [geom for geom in spec.geoms if geom.meshname in broken]:
            spec.delete(geom)
        for mesh in [mesh for mesh in spec.meshes if mesh.name in broken]:
            spec.delete(mesh)
        return bool(broken)

    def _read(self, filename: str) -> bytes | None:
        content = mesh_content(self._urdf, filename)
        if content is None:
            # What could not be converted was said before.
            if Path(filename).suffix.lower() in MESH_SUFFIXES:
                why = "was not found in any folder above the URDF"
                self._decisions.add("meshes", f"{filename} {why}; left out", self._way_out(filename))
            elif Path(filename).suffix.lower() not in _CONVERTED:
                kinds = ", ".join((*MESH_SUFFIXES, *_CONVERTED))
                self._decisions.add("meshes", f"{filename} ends in none of {kinds}; left out", "convert it")
            return None
        if Path(filename).suffix.lower() == ".stl" and not _is_plain_stl(content):
            return self._mend(filename, content)
        return content

    def _way_out(self, filename: str) -> str:
        package = re.match(r"(?:package|model)://([^/]+)/", filename)
        folder = self._urdf.resolve().parent
        return (
            f"put the folder {package[1]} into {folder}"
            if package
            else f"put it there; relative names begin at {folder}"
        )

    def _mend(self, filename: str, content: bytes) -> bytes | None:
        """An STL as text, or with too many faces, as one that MuJoCo reads."""
        try:
            return _binary_stl(_loaded(content, "stl"))
        except Exception as error:  # whatever a damaged file makes the library raise
            self._decisions.add("meshes", f"{filename} is left out: {_short(error)}")
            return None

    def _convert(self, filename: str) -> tuple[Any, str]:
        """The mesh in metres; None, and why, if it cannot be had."""
        suffix = Path(filename).suffix.lower()
        content = mesh_content(self._urdf, filename, suffixes=_CONVERTED)
        if content is None:
            return None, "not found in any folder above the URDF"
        try:
            mesh = _loaded(content, suffix.removeprefix("."))
        except ImportError as error:
            return None, f"{suffix} needs {error.name}: pip install trimesh pycollada"
        except Exception as error:  # whatever a damaged file makes the library raise
            return None, _short(error)
        if suffix == ".dae":
            self._up[filename] = collada.up_axis(content)
            unit = collada.metres(content)
            if unit != 1.0:
                self._units.setdefault(unit, []).append(filename)
                mesh.apply_scale(unit)
        return mesh, ""


def compiled(spec: mujoco.MjSpec, decisions: Decisions, meshes: UrdfMeshes | None = None) -> mujoco.MjModel:
    """Compile a model; meshes that MuJoCo cannot compile are left out, and those without volume become shells.

    Raises:
        ValueError: the model does not compile for another reason.
    """
    shells: list[str] = []
    while True:
        try:
            model = spec.compile()
            break
        except ValueError as error:
            if meshes is not None and meshes.drop_broken(spec):
                meshes = None
                continue
            thin = _thin_mesh(spec, str(error))
            if thin is None:
                raise
            thin.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
            shells.append(thin.name)
    if shells:
        listed = ", ".join(shells[:4]) + (f" and {len(shells) - 4} more" if len(shells) > 4 else "")
        decisions.add("meshes", f"{listed}: no volume enclosed, so mass that follows from it is that of its shell")
    return model


def _thin_mesh(spec: mujoco.MjSpec, error: str) -> mujoco.MjsMesh | None:
    """The mesh whose volume or inertia an error of the compiler names; None for other errors, and if it is a shell."""
    named = re.search(r"Element name '.*', id (\d+)", error)
    if named is None or "mesh" not in error or not ("volume" in error or "inertia" in error):
        return None
    mesh = spec.meshes[int(named[1])] if int(named[1]) < len(spec.meshes) else None
    return None if mesh is None or mesh.inertia == mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL else mesh


def _short(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def mesh_problem(mesh: mujoco.MjsMesh, content: bytes, file: str) -> str:
    """MuJoCo's complaint about a mesh by itself, whose file has another name and content; empty if it compiles."""
    alone = mujoco.MjSpec()
    alone.assets = {file: content}
    alone.add_mesh(name="mesh", file=file, scale=mesh.scale, inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL)
    alone.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="mesh")
    try:
        alone.compile()
    except ValueError as error:
        return re.sub(r"^Error: ", "", _short(error)).replace(f" '{file}'", "")
    return ""


def _is_plain_stl(content: bytes) -> bool:
    faces = int.from_bytes(content[80:84], "little")
    return len(content) == _STL_HEAD + _STL_FACE * faces and faces <= MAX_STL_FACES


def _loaded(content: bytes, kind: str) -> Any:
    """One scene's geometry, in the unit and axes of the file."""
    if kind == "dae":
        importlib.import_module("collada")
    trimesh: Any = importlib.import_module("trimesh")
    loaded = trimesh.load(io.BytesIO(content), file_type=kind)
    mesh = loaded.to_geometry() if hasattr(loaded, "to_geometry") else loaded
    if not len(mesh.faces):
        raise ModelError("it has no faces")
    return mesh


def _binary_stl(mesh: Any) -> bytes:
    """The mesh, or its convex hull if it has too many faces."""
    return bytes((mesh.convex_hull if len(mesh.faces) > MAX_STL_FACES else mesh).export(file_type="stl"))


def gathered(spec: mujoco.MjSpec, folder: Path, reduced: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files that a model needs; changes its names to those under which they are returned, below `assets/`.

    Args:
        spec: the model; its meshes, height fields and textures get other file names.
        folder: where its relative names begin.
        reduced: STLs that replace meshes, by their names.

    Raises:
        ModelError: a file cannot be read, or they are too large.
    """
    files: dict[str, bytes] = {}
    known: dict[bytes, str] = {}
    groups: tuple[tuple[Any, str], ...] = (
        (spec.meshes, spec.meshdir),
        (spec.hfields, spec.meshdir),
        (spec.textures, spec.texturedir),
    )
    inline = dict(spec.assets or {})
    for elements, subfolder in groups:
        for element in elements:
            if not getattr(element, "file", ""):
                continue
            smaller = reduced.get(element.name) if isinstance(element, mujoco.MjsMesh) else None
            content = smaller or _content(element.file, inline, folder, subfolder)
            if content not in known:
                path = Path(element.file)
                known[content] = _free(path.with_suffix(".stl") if smaller else path, files)
                files[known[content]] = content
            element.file = known[content].removeprefix("assets/")
            if sum(map(len, files.values())) > MAX_TOTAL_BYTES:
                raise ModelError(f"its meshes and textures take more than {MAX_TOTAL_BYTES} bytes")
    spec.meshdir = spec.texturedir = "assets"
    return files


def model_file(spec: mujoco.MjSpec, folder: Path, mesh: mujoco.MjsMesh) -> bytes:
    """The content of a mesh's file.

    Raises:
        ModelError: it cannot be read.
    """
    return _content(mesh.file, dict(spec.assets or {}), folder, spec.meshdir)


def _content(name: str, inline: dict[str, bytes], folder: Path, subfolder: str) -> bytes:
    if name in inline:
        return inline[name]
    path = folder / subfolder / name
    try:
        return read_plain(path, limit=MAX_FILE_BYTES)
    except OSError as error:
        raise ModelError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def _free(path: Path, taken: dict[str, bytes]) -> str:
    stem, suffix = re.sub(r"[^A-Za-z0-9_\-]", "_", path.stem)[:60], path.suffix.lower()
    name, number = f"assets/{stem}{suffix}", 1
    while name in taken:
        number += 1
        name = f"assets/{stem}_{number}{suffix}"
    return name


def simplify_hulls(spec: mujoco.MjSpec) -> None:
    """Bounds the corners with which meshes collide; their looks stay."""
    for mesh in spec.meshes:
        if mesh.maxhullvert < 0:
            mesh.maxhullvert = HULL_VERTICES
