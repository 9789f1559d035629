"""Import of robots from elsewhere: a folder, a preview and a check for each file."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option
from physai.sdk.cli.shared.options import RayAddress
from physai.sim.playback.robot_import.import_settings import DEFAULTS, ImportSettings

if TYPE_CHECKING:
    from physai.compute.pool import Workers
    from physai.sim.robots import Robot
    from physai.sim.robots.checks.check import RobotCheck
    from physai.sim.robots.importing.decisions import Decisions
    from physai.sim.robots.importing.importer import Imported, ImportOptions

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


@dataclass(frozen=True, kw_only=True)
class RobotImport:
    """An imported robot in its folder, with its preview and check."""

    robot: Robot
    folder: Path
    decisions: Decisions
    """Decisions about what the file leaves open."""
    decisions_file: Path
    preview: Path | None
    """Picture of the robot; None if none could be drawn."""
    check: RobotCheck
    seconds: float

    def record(self) -> dict[str, Any]:
        """The import as JSON."""
        spec = self.robot.spec
        return {
            "robot": self.robot.name,
            "folder": str(self.folder),
            "base": spec.base,
            "joints": [joint.name for joint in spec.joints],
            "chains": [chain.name for chain in spec.chains],
            "preview": None if self.preview is None else str(self.preview),
            "seconds": round(self.seconds, 3),
            "decisions": self.decisions.records(),
            "check": self.check.record(),
        }


def import_robot(
    file: str | Path,
    out: str | Path | None = None,
    options: ImportSettings = DEFAULTS,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> RobotImport:
    """Make a folder of a robot that physai and plain MuJoCo load, draw a preview, and check the robot.

    Args:
        file: URDF (with meshes), xacro (with the package xacro installed) or MJCF file.
        out: folder to write, whose name is the robot's; must not exist, or be empty or an earlier import. None for the
            file's stem.
        options: decisions about what the file leaves open.
        say: called with a line about each step.

    Returns:
        The robot, its folder, the decisions and the findings of the check.

    Raises:
        ModelError: the file is missing, unreadable or no robot that can be simulated, or the folder is taken.
        PhysaiError: an option is malformed or out of range.
    """
    source = Path(file)
    folder = Path(out) if out is not None else Path(source.name.split(".")[0])
    return _imported(source, folder, options.options(), say)


def _imported(source: Path, folder: Path, options: ImportOptions, say: Callable[[str], None]) -> RobotImport:
    from physai.sim.robots.checks.check import check_robot
    from physai.sim.robots.importing.importer import import_robot as write_folder

    start = time.monotonic()
    say(f"importing {source} into {folder}")
    imported = write_folder(source, folder, options)
    preview = _preview(imported, say)
    say("checking that it holds still and moves")
    check = check_robot(imported.robot)
    imported.keep(check.record())
    return RobotImport(
        robot=imported.robot,
        folder=folder,
        decisions=imported.decisions,
        decisions_file=imported.record,
        preview=preview,
        check=check,
        seconds=time.monotonic() - start,
    )


def _preview(imported: Imported, say: Callable[[str], None]) -> Path | None:
    from physai.sim.robots.importing.importer import PREVIEW_FILE

    try:
        return draw_robot(imported.robot, imported.folder / PREVIEW_FILE)
    except PhysaiError as error:
        say(f"no preview: {error}")
        return None


def draw_robot(model: str | Path | Robot, out: str | Path | None = None) -> Path:
    """Draw a robot in its home pose, with the axes of the end effector.

    Args:
        model: a robot's name, file or folder, or the robot.
        out: PNG file to write. None for the robot's name with .png, in this folder.

    Returns:
        The file.

    Raises:
        ModelError: the robot's file is unusable.
        PhysaiError: nothing can be drawn here, or the file cannot be written.
    """
    from physai.sim.playback.markers import end_effector_axes
    from physai.sim.playback.rendering import render_png
    from physai.sim.robots import home_qpos, load_robot

    robot = load_robot(model) if isinstance(model, str | Path) else model
    file = Path(out) if out is not None else Path(f"{robot.name}.png")
    render_png(robot.model, home_qpos(robot.model), file, strokes=end_effector_axes(robot.model))
    return file


@dataclass(frozen=True)
class ImportRequest:
    """One file, and the folder to write."""

    file: Path
    folder: Path


def import_robots(
    files: Sequence[str | Path],
    *,
    out: Annotated[Path | str | None, Option(flags=("-o",), metavar="DIR")] = None,
    jobs: int | None = None,
    ray: RayAddress = None,
    options: Annotated[ImportSettings, Option(flatten=True)] = DEFAULTS,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[dict[str, Any], ...]:
    """Import files of robots, each in a process of its own; one that fails does not stop the others.

    Args:
        files: URDF (.urdf), xacro (.xacro) or MJCF (.xml) file; several, or a folder of them, are imported one by one.
        out: folder to write (default: the file's stem); of several files, where their folders go (default: here).
        jobs: number of worker processes. None for 1, with `ray` the number of processors of the cluster.
        ray: run the workers on Ray: auto (the cluster of RAY_ADDRESS or of this computer, else one started here), local
            (one started here), or HOST:PORT of a cluster.
        options: decisions about what the files leave open.
        say: called with a line about each file.

    Returns:
        A record of each import, with its `file`, and with `error` if it failed.

    Raises:
        PhysaiError: an option is malformed, or a folder holds no robot.
    """
    from physai.compute.pool import Processes, compute_all, require_jobs
    from physai.compute.ray.cluster import check_address
    from physai.compute.ray.ray_pool import RayWorkers

    if jobs is not None:
        require_jobs(jobs)
    given = options.options()
    workers: Workers[ImportRequest, dict[str, Any]]
    if ray is not None:
        check_address(ray)
    requests = requests_for(robot_files([Path(file) for file in files]), Path(out or ""))
    if ray is not None:
        workers = RayWorkers(_import_one, given, ray, jobs=jobs, most=len(requests), isolate=True)
    else:
        workers = Processes(_import_one, given, min(jobs or 1, len(requests)), isolate=True)
    records: dict[int, dict[str, Any]] = {}
    for number, result in compute_all(workers, requests):
        file = str(requests[number].file)
        records[number] = {"file": file, "error": str(result)} if isinstance(result, PhysaiError) else result
        state = "failed" if "error" in records[number] else "imported"
        say(f"{len(records)}/{len(requests)} {file}: {state}")
    return tuple(records[number] for number in range(len(requests)))


def _import_one(options: ImportOptions, request: ImportRequest) -> dict[str, Any]:
    """Import a file; the work of a worker. Problems of the file, and bugs, are in the record."""
    try:
        found = _imported(request.file, request.folder, options, lambda text: None)
        return {"file": str(request.file), **found.record()}
    except PhysaiError as error:
        problem = str(error)
    except Exception as error:  # the others are imported all the same, and the record says what to report
        problem = f"a bug in physai: {type(error).__name__}: {error}"
    return {"file": str(request.file), "error": problem}


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
