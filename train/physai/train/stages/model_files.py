"""Files that are read with an input and are outside it: not in the key of a stage, which does not see them.

Meshes of a robot's model, the column map beside a recording, the golden answers beside a policy.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from physai.sdk.base.errors import ModelError
from physai.sdk.policy.header import GOLDEN_FILE

_SUFFIXES = (".urdf", ".xml")
MAX_MODELS = 50
"""Maximum number of model files of a folder that are looked at."""
_FOLDERS = ("meshdir", "texturedir", "assetdir")


def named_outside(given: Path) -> Iterator[tuple[Path, Path]]:
    """Files of an input, each with a file outside the input that is read with it.

    Args:
        given: file or folder of the input.
    """
    inside = given.resolve()
    if given.is_file():
        yield from ((given, path) for path in _beside(given))
    for model in _models(given):
        for candidates in _named(model):
            # Of the places where a file may be, the first counts.
            found = next((path for path in candidates if os.path.isfile(path)), None)
            if found is not None and not found.resolve().is_relative_to(inside):
                yield model, found.resolve()
                break


def _beside(file: Path) -> Iterator[Path]:
    """Files that verbs look for beside a recording or a policy."""
    from physai.sim.logs.readers.find_map import map_file_beside

    if file.suffix == ".onnx":
        golden = file.with_name(GOLDEN_FILE)
        if golden.is_file():
            yield golden
    elif (found := map_file_beside(file)) is not None:
        yield found


def _models(given: Path) -> list[Path]:
    found = given.rglob("*") if given.is_dir() else iter([given])
    return list(islice((path for path in found if path.suffix.lower() in _SUFFIXES and path.is_file()), MAX_MODELS))


def _named(model: Path) -> Iterator[Iterable[Path]]:
    """Where each file may be that a model reads."""
    from physai.sim.robots.urdf import mesh_paths
    from physai.sim.robots.xmlfile import read_xml

    try:
        root = read_xml(model).root
    except ModelError:
        # The stage says why.
        return
    if root.tag == "robot":
        yield from (mesh_paths(model, mesh.get("filename", "")) for mesh in root.iter("mesh"))
    elif root.tag in ("mujoco", "mujocoinclude"):
        folders = ["", *(folder for one in root.iter("compiler") for key in _FOLDERS if (folder := one.get(key)))]
        for value in (value for one in root.iter() for key, value in one.items() if value and key.startswith("file")):
            yield [model.parent / folder / value for folder in folders]
