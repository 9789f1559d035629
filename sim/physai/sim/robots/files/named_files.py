"""Files that a model file names: meshes, textures, height fields, and the files it includes."""

import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from xml.etree.ElementTree import Element

from physai.sdk.base.errors import ModelError
from physai.sim.robots.files.urdf import mesh_paths
from physai.sim.robots.files.xmlfile import read_xml

READ_EVENT = "physai.read"
"""Audit event for a file that a library reads without Python's `open`; its argument is the path."""
MAX_INCLUDED = 1000
"""Maximum number of included MJCF files that are looked at."""
_FOLDERS = ("meshdir", "texturedir", "assetdir")
_INCLUDE = "xacro:include"


def named_files(model: Path) -> Iterator[Sequence[Path]]:
    """Paths where each file that a URDF, xacro or MJCF file names may be: the first that exists counts.

    Names that only xacro can evaluate are left out; so is what a damaged file names, since its reader refuses it.
    """
    try:
        root = read_xml(model).root
    except ModelError:
        return
    if root.tag == "robot":
        yield from (tuple(mesh_paths(model, mesh.get("filename", ""))) for mesh in root.iter("mesh"))
        yield from (_included(model, one.get("filename", "")) for one in root.iter(_INCLUDE))
    elif root.tag in ("mujoco", "mujocoinclude"):
        yield from _of_mjcf(model, root)


def announce_files(model: Path) -> None:
    """Raise an audit event for each file that MuJoCo has read with an MJCF file."""
    for paths in named_files(model):
        for path in paths:
            if path.is_file():
                sys.audit(READ_EVENT, str(path))
                break


def _included(model: Path, name: str) -> Sequence[Path]:
    """Candidate files of an xacro include; a package is looked for in all folders above."""
    if name.startswith("$(find ") and ")/" in name:
        package, _, rest = name.removeprefix("$(find ").partition(")/")
        return tuple(mesh_paths(model, f"package://{package.strip()}/{rest}", suffixes=(Path(rest).suffix.lower(),)))
    return () if "$" in name else (model.parent / name,)


def mjcf_parts(model: Path, root: Element) -> tuple[list[Element], list[Path]]:
    """Return the root elements of an MJCF file and of all files that it includes, and the paths of these.

    Args:
        model: path of the file.
        root: its root element.
    """
    roots, included = [root], list(_includes(root))
    seen: dict[Path, None] = {}
    for name in islice(_drained(included), MAX_INCLUDED):
        path = model.parent / name
        if path in seen:
            continue
        seen[path] = None
        try:
            more = read_xml(path).root
        except ModelError:
            continue
        roots.append(more)
        included += _includes(more)
    return roots, list(seen)


def _of_mjcf(model: Path, root: Element) -> Iterator[Sequence[Path]]:
    # Files are relative to the main file and to the folders that any compiler element names, of included files too.
    roots, included = mjcf_parts(model, root)
    yield from ((path,) for path in included)
    compilers = [one for each in roots for one in each.iter("compiler")]
    folders = ["", *(folder for one in compilers for key in _FOLDERS if (folder := one.get(key)))]
    stripped = any(one.get("strippath") == "true" for one in compilers)
    for element in (one for each in roots for one in each.iter() if one.tag != "include"):
        for value in (value for key, value in element.items() if value and key.startswith("file")):
            name = value.replace("\\", "/").rpartition("/")[2] if stripped else value
            yield [model.parent / folder / name for folder in folders]


def _includes(root: Element) -> Iterator[str]:
    return (name for one in root.iter("include") if (name := one.get("file")))


def _drained(waiting: list[str]) -> Iterator[str]:
    while waiting:
        yield waiting.pop()
