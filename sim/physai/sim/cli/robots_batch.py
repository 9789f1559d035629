"""`physai robots import` of several files or a folder: a line per file; one that fails does not stop the others."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, table

if TYPE_CHECKING:
    from physai.compute.pool import Workers
    from physai.sim.robots.importing.importer import ImportOptions

MAX_FILES = 10_000
"""Maximum number of files to import at once."""
MAX_LOOKED_AT = 200_000
"""Maximum number of files that are looked at in a folder."""
_HEAD_BYTES = 1 << 16
_MARKS = {
    ".urdf": re.compile(rb""),
    # Files that others include have no bodies, or macros only.
    ".xacro": re.compile(rb"<robot\b[^>]*\bname\s*="),
    ".xml": re.compile(rb"<mujoco\b.*<worldbody\b", re.DOTALL),
}


@dataclass(frozen=True)
class ImportRequest:
    """One file, and the folder to write."""

    file: Path
    folder: Path


def robot_files(paths: Sequence[Path]) -> list[Path]:
    """The files named, and those below the folders named that look like a robot.

    Raises:
        PhysaiError: a folder holds none, there are too many, or a path is named twice.
    """
    found: list[Path] = []
    for path in paths:
        below = sorted(_in_folder(path)) if path.is_dir() else [path]
        if not below:
            raise PhysaiError(f"{path}: no .urdf, .xacro or MJCF file of a robot in this folder; name the file")
        found += below
    if not len(found) <= MAX_FILES:
        raise PhysaiError(f"{len(found)} files; import at most {MAX_FILES} at once")
    twice = next((path for path in found if found.count(path) > 1), None) if len(found) < 1000 else None
    if twice is not None or len({*found}) != len(found):
        raise PhysaiError(f"{twice or 'a file'} is named twice")
    return found


def _in_folder(folder: Path) -> Iterator[Path]:
    for number, path in enumerate(folder.rglob("*")):
        if not number < MAX_LOOKED_AT:
            raise PhysaiError(f"{folder} holds more than {MAX_LOOKED_AT} files; name folders of robots in it")
        mark = _MARKS.get(path.suffix.lower())
        if mark is not None and path.is_file():
            with path.open("rb") as file:
                if mark.search(file.read(_HEAD_BYTES)):
                    yield path


def requests_for(files: Sequence[Path], out: Path) -> list[ImportRequest]:
    """A folder in `out` for each file: its stem, with its folder's name before it and a number where that is taken."""
    taken: set[str] = set()
    found: list[ImportRequest] = []
    for file in files:
        stem = file.name.split(".")[0]
        name = stem if stem not in taken else f"{file.resolve().parent.name}-{stem}"
        number = 2
        while name in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name)
        found.append(ImportRequest(file.resolve(), (out / name).resolve()))
    return found


def run_batch(
    arguments: argparse.Namespace,
    options: ImportOptions,
    import_one: Callable[[ImportOptions, ImportRequest], dict[str, Any]],
) -> int:
    """Imports all files with a function that returns a file's record; returns 0, or 1 if one failed."""
    from physai.compute.pool import Processes
    from physai.compute.ray.ray_pool import RayWorkers

    requests = requests_for(robot_files(arguments.files), arguments.out or Path())
    jobs = arguments.jobs if arguments.ray is not None else min(arguments.jobs or 1, len(requests))
    start = time.monotonic()
    if arguments.ray is not None:
        workers: Workers[ImportRequest, dict[str, Any]] = RayWorkers(
            import_one, options, arguments.ray, jobs=jobs, most=len(requests), isolate=True
        )
    else:
        workers = Processes(import_one, options, jobs, isolate=True)
    records = _imported(requests, workers)
    if arguments.json:
        print(json.dumps(records, indent=2))
    else:
        print(printable(_table(records)))
    failed = sum("error" in record for record in records)
    seconds = time.monotonic() - start
    print(f"{len(records)} files, {failed} failed, {seconds:.1f} s", file=sys.stderr)
    return 1 if failed else 0


def _imported(
    requests: Sequence[ImportRequest], workers: Workers[ImportRequest, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Records in the order of requests."""
    from physai.compute.pool import compute_all

    records: dict[int, dict[str, Any]] = {}
    for number, result in compute_all(workers, requests):
        file = str(requests[number].file)
        records[number] = {"file": file, "error": str(result)} if isinstance(result, PhysaiError) else result
        state = "failed" if "error" in records[number] else "imported"
        print(printable(f"{len(records)}/{len(requests)} {file}: {state}"), file=sys.stderr, flush=True)
    return [records[number] for number in range(len(requests))]


def _table(records: Sequence[dict[str, Any]]) -> str:
    rows: list[list[str]] = []
    for record in records:
        file = str(record["file"])
        if "error" in record:
            rows.append([file, "", "", "", "failed: " + " ".join(record["error"].split())[:160]])
            continue
        check = record["check"]
        state = "stable" if check["stable"] else "does not stand" if check["stands"] is False else "not stable"
        rows.append([file, record["robot"], str(len(record["joints"])), record["base"], f"{state}, {record['folder']}"])
    return table(["file", "robot", "joints", "base", "result"], rows, indent="")
