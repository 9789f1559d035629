"""A robot whose files are all in memory: nothing outside them is ever opened.

The model that MuJoCo gets is one text without includes, whose meshes and pictures have invented names without folders;
MuJoCo finds them in memory. A path in the package is therefore never a path of this computer.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element, tostring

from physai.sdk.base.errors import ModelError
from physai.sim.robots.files.archive import ASSET_SUFFIXES, MODEL_SUFFIXES, check_name, pack, unpack
from physai.sim.robots.files.package_rules import FILE_TAGS, check_elements
from physai.sim.robots.files.pictures import check_pictures
from physai.sim.robots.files.xmlfile import MAX_DEPTH, MAX_ELEMENTS, XmlFile, parse_xml

ZIP_START = b"PK"

Files = Mapping[str, bytes]

_ROS_TAGS = ("gazebo", "ros2_control", "transmission")


@dataclass(frozen=True, kw_only=True)
class RobotPackage:
    """One robot's files, checked; MuJoCo has not seen them yet."""

    files: dict[str, bytes]
    """The main file and those that it needs, by path in the package."""
    main: XmlFile
    """The model, with all includes in place, and without file names if it is MJCF."""
    assets: dict[str, bytes]
    """Contents by the names that an MJCF has for them now; empty for a URDF."""

    def mjcf(self) -> str:
        """The model for MuJoCo; an MJCF only."""
        return tostring(self.main.root, encoding="unicode")

    def read_mesh(self, filename: str) -> bytes | None:
        """A URDF's mesh; None if its format is not read.

        Raises:
            ModelError: it is not in the package.
        """
        found = _find_mesh(self.files, self.main.path, filename)
        return None if found is None else self.files[found]

    def archive(self) -> bytes:
        """The files as one zip, the same for the same files."""
        return pack(self.files)


def read_package(data: bytes, *, name: str = "robot", main: str | None = None) -> RobotPackage:
    """Reads a zip of a robot's files, or a single model file.

    Args:
        data: the zip or file.
        name: stem of a single file, which has no name of its own.
        main: path of the model in the zip; without it, the only model that no other file includes.

    Raises:
        ModelError: a file is damaged or exceeds a bound, it is not clear which file is the model, or the model names a
            file that is not in the package, runs code, or asks for too much.
    """
    if data.startswith(ZIP_START):
        files = unpack(data)
    else:
        if b"<" not in data[:1000]:
            raise ModelError(f"neither a zip nor an MJCF or URDF file, but {len(data)} bytes of something else")
        root = parse_xml(data, Path(f"{name}.xml")).root.tag
        files = {f"{name}.urdf" if root == "robot" else f"{name}.xml": data}
        check_name(next(iter(files)))
    models = _parse_all(files)
    chosen = _main(files, models, main)
    if models[chosen].root.tag == "robot":
        return _urdf(files, models[chosen])
    return _Flattened(files, models, chosen).package()


def _parse_all(files: Files) -> dict[str, XmlFile]:
    models: dict[str, XmlFile] = {}
    left = MAX_ELEMENTS
    for path in sorted(files):
        if PurePosixPath(path).suffix.lower() in MODEL_SUFFIXES:
            models[path] = parse_xml(files[path], Path(path), max_elements=left)
            left -= len(models[path].lines)
    return models


def _main(files: Files, models: Mapping[str, XmlFile], main: str | None) -> str:
    """Path of the model that is the robot."""
    roots = [path for path, parsed in models.items() if parsed.root.tag in ("mujoco", "robot")]
    if main is not None:
        if main not in roots:
            raise ModelError(f"{main[:80]!r} is no model in the zip; it has {_listed(roots)}")
        return main
    included: set[str] = set()
    for path, parsed in models.items():
        for element in parsed.root.iter("include"):
            folders = [posixpath.dirname(path), *{posixpath.dirname(root) for root in roots}]
            included |= {found for folder in folders if (found := _found(files, folder, element.get("file", "")))}
    tops = [path for path in roots if path not in included]
    if len(tops) == 1:
        return tops[0]
    if not roots:
        raise ModelError("no file has the root element <mujoco> (MJCF) or <robot> (URDF); add the robot's model")
    if not tops:
        raise ModelError(f"the models {_listed(roots)} include one another; one must be the robot")
    raise ModelError(f"the zip has {len(tops)} models, {_listed(tops)}; say which is the robot with ?main=PATH")


def _listed(paths: list[str]) -> str:
    return (", ".join(paths[:8]) or "none") + (", …" if len(paths) > 8 else "")


def _found(files: Files, folder: str, name: str) -> str | None:
    """Path in the package of a file named from a folder; None if there is none."""
    path = posixpath.normpath(posixpath.join(folder, name))
    return path if path in files else None


def _check_inside(file: XmlFile, element: Element, name: str) -> None:
    """Refuses absolute names at once; those with `..` are looked up, and nothing is found outside the package."""
    if not name or "\\" in name or ":" in name or name.startswith(("/", "~")):
        raise file.error(element, f"<{element.tag}> names the file {name[:80]!r}; name it relative to the model")


def _find_mesh(files: Files, urdf: Path, filename: str) -> str | None:
    relative = filename.removeprefix("package://")
    if PurePosixPath(relative).suffix.lower() not in (".stl", ".obj"):
        return None
    if relative.startswith("/") or ":" in relative or "\\" in relative:
        raise ModelError(f"{urdf}: the mesh {filename[:80]!r} is no path inside the upload; use package:// or a path")
    here = urdf.parent.as_posix()
    folders = [here]
    names = [relative]
    if relative != filename:
        # The zip may hold the package's folder or only what is in it.
        folders = [here, *(parent.as_posix() for parent in urdf.parent.parents)]
        names.append(relative.partition("/")[2])
    for folder in folders:
        for name in names:
            if found := _found(files, folder, name):
                return found
    way_out = "zip the folder that package:// names, or remove its <mesh>"
    raise ModelError(f"{urdf}: the mesh {filename[:80]!r} is not in the upload; {way_out}")


def _urdf(files: Files, parsed: XmlFile) -> RobotPackage:
    # For ROS and Gazebo; MuJoCo must not see their plugins.
    for element in [child for child in parsed.root if child.tag in _ROS_TAGS]:
        parsed.root.remove(element)
    check_elements(dict.fromkeys(parsed.root.iter(), parsed), parsed.root)
    name = parsed.path.as_posix()
    meshes = (_find_mesh(files, parsed.path, mesh.get("filename", "")) for mesh in parsed.root.iter("mesh"))
    kept = {name: files[name]} | {path: files[path] for path in meshes if path}
    return RobotPackage(files=kept, main=parsed, assets={})


class _Flattened:
    """An MJCF with all includes in place and all files in memory."""

    def __init__(self, files: Files, models: Mapping[str, XmlFile], main: str) -> None:
        self._files = files
        self._models = models
        self._main = models[main]
        self._folder = posixpath.dirname(main)
        self._used = {main}
        self._origins = dict.fromkeys(self._main.root.iter(), self._main)
        self._assets: dict[str, str] = {}

    def package(self) -> RobotPackage:
        self._expand(self._main.root, self._main, 1)
        root = self._main.root
        # Included elements belong to the files that they come from.
        check_elements(self._origins, root)
        folders = self._asset_folders(root)
        for element in root.iter():
            if element.tag in FILE_TAGS:
                self._name_assets(element, folders["texturedir" if element.tag == "texture" else "meshdir"])
        assets = {key: self._files[path] for path, key in self._assets.items()}
        check_pictures({path: self._files[path] for path in self._assets})
        used = self._used | set(self._assets)
        return RobotPackage(files={path: self._files[path] for path in used}, main=self._main, assets=assets)

    def _expand(self, element: Element, file: XmlFile, depth: int) -> None:
        """Replaces each `<include>` below an element by the elements of its file, as MuJoCo does."""
        if depth > MAX_DEPTH:
            raise file.error(element, f"elements nested deeper than {MAX_DEPTH} with their includes")
        children = list(element)
        element[:] = []
        for child in children:
            if child.tag != "include":
                self._expand(child, file, depth + 1)
                element.append(child)
                continue
            other = self._include(child, file)
            self._expand(other.root, other, depth + 1)
            element.extend(list(other.root))

    def _include(self, element: Element, file: XmlFile) -> XmlFile:
        name = element.get("file", "")
        _check_inside(file, element, name)
        found = _found(self._files, file.path.parent.as_posix(), name) or _found(self._files, self._folder, name)
        if found is None or found not in self._models:
            raise file.error(element, f"the included file {name[:80]!r} is not in the upload; add it")
        if found in self._used:
            raise file.error(element, f"{found!r} is included twice; include a file once")
        self._used.add(found)
        other = self._models[found]
        self._origins |= dict.fromkeys(other.root.iter(), other)
        return other

    def _asset_folders(self, root: Element) -> dict[str, str]:
        """Takes the folders of meshes and textures out of `<compiler>`; the last one counts, as in MuJoCo."""
        folders = {"meshdir": "", "texturedir": ""}
        strip = False
        for compiler in root.iter("compiler"):
            strip = compiler.attrib.pop("strippath", str(strip)).lower() == "true"
            both = compiler.attrib.pop("assetdir", None)
            for key in folders:
                folder = compiler.attrib.pop(key, both)
                if folder:
                    _check_inside(self._origins[compiler], compiler, folder)
                    folders[key] = folder
        self._strip = strip
        return folders

    def _name_assets(self, element: Element, folder: str) -> None:
        file = self._origins[element]
        for key in [key for key in element.attrib if key.startswith("file")]:
            name = element.attrib[key]
            _check_inside(file, element, name)
            if self._strip:
                name = posixpath.basename(name)
            suffix = PurePosixPath(name).suffix.lower()
            if suffix not in ASSET_SUFFIXES:
                raise file.error(element, f"{name[:80]!r}: convert it to one of {', '.join(ASSET_SUFFIXES)}")
            base = posixpath.join(self._folder, folder)
            below = posixpath.relpath(file.path.parent.as_posix(), self._folder or ".")
            found = _found(self._files, posixpath.join(base, below), name) or _found(self._files, base, name)
            if found is None:
                raise file.error(element, f"the file {name[:80]!r} is not in the upload; add it, next to the model")
            element.set(key, self._assets.setdefault(found, f"asset{len(self._assets)}{suffix}"))
            if key == "file" and "name" not in element.attrib:
                # MuJoCo names an asset after its file.
                element.set("name", PurePosixPath(name).stem)
