"""Files that are read with an input and are outside it, so that a stage does not see them.

Each reader says itself what it looks for beside a file: see `read_with` of recordings and `named_files` of models.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from physai.sdk.base.file_names import GOLDEN_FILE, POLICY_FILE

_MODELS = (".urdf", ".xml", ".xacro")
MAX_FILES = 10_000
"""Maximum number of files of a folder that are looked at."""


def named_outside(given: Path) -> Iterator[tuple[Path, Path]]:
    """Files of an input, each with a file outside the input that is read with it.

    Args:
        given: file or folder of the input.
    """
    inside = given.resolve()
    said: set[Path] = set()
    for file in _files(given):
        for candidates in _read_with(file):
            # Of the places where a file may be, the first counts.
            found = next((path.resolve() for path in candidates if os.path.isfile(path)), None)
            if found is not None and not found.is_relative_to(inside):
                if found not in said:
                    yield file, found
                said.add(found)
                break


def surplus(given: Path) -> int | None:
    """Number of files of a folder that `named_outside` looks at, if it has more."""
    found = next(islice(_walked(given), MAX_FILES, None), None) if given.is_dir() else None
    return None if found is None else MAX_FILES


def _files(given: Path) -> Iterable[Path]:
    return islice(_walked(given), MAX_FILES) if given.is_dir() else [given]


def _walked(folder: Path) -> Iterator[Path]:
    return (Path(path) / name for path, _, names in os.walk(folder) for name in names)


def _read_with(file: Path) -> Iterator[Iterable[Path]]:
    """For each file that is read with this one, where it may be."""
    from physai.gates.execution.subject import QUANTISED_FILE
    from physai.sim.robots.files.named_files import named_files
    from physai.twin.logs.reader import read_with
    from physai.twin.model.twin import robot_file

    suffix = file.suffix.lower()
    if suffix in _MODELS:
        yield from named_files(file)
    elif suffix == ".onnx":
        yield [file.with_name(GOLDEN_FILE)]
        # Gates judge the two files of an export together.
        if file.name in (POLICY_FILE, QUANTISED_FILE):
            yield [file.with_name(POLICY_FILE if file.name == QUANTISED_FILE else QUANTISED_FILE)]
    else:
        if suffix == ".json" and (robot := robot_file(file)) is not None:
            yield [robot]
        yield from ([path] for path in read_with(file))
