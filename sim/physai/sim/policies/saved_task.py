"""The task that a run folder keeps: copies of the task file, the robot's files and the twin, with their hashes.

A run folder works on another computer, because it holds what it was trained with under fixed names:

    RUN/task/task.json      names and SHA-256 of the files below; written last
    RUN/task/source/        the task file, and the robot's files that lie below its folder
    RUN/task/robot.zip      the robot that was named on the command line
    RUN/task/twin.json      the twin that it was trained in
    RUN/task/contract.json  the contract of a policy from elsewhere, which the task then follows
    RUN/task/motion.npz     the motion that such a policy follows, the preset of its task

Robot, twin and contract are data, and are used if you name the run folder. The task file is code: it runs only if you
name the run folder, or the file, as the task (docs/decisions/0015).
"""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from physai.sdk.base.errors import PhysaiError, TaskError
from physai.sdk.base.files import oserror_as, read_bounded, read_plain, write_atomic
from physai.sdk.base.formats.canonical import canonical_json, sha256_hex
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen, RobotSpec
from physai.sim.robots import load_robot, robot_names
from physai.sim.robots.files.archive import MAX_FILES, pack_model, read_zip
from physai.sim.robots.files.package import ZIP_START, RobotPackage, read_package
from physai.sim.robots.loader import load_package
from physai.sim.tasks.task import Task

FOLDER = "task"
"""Folder inside a run folder."""
MAX_FILE_BYTES = 128 << 20
"""Greatest size of a file; that of a robot's zip."""
MAX_SOURCE_BYTES = 1 << 20
"""Greatest size of a task file."""
MAX_ENTRIES = 20_000
"""Greatest number of files below a robot's folder that are looked at to find its meshes."""

TWIN_FILE, MOTION_FILE = "twin.json", "motion.npz"
"""Twin and motion in the folder."""

_RECORD, _SOURCE, _ROBOT, _CONTRACT = "task.json", "source", "robot.zip", "contract.json"
_BUILT_IN_ROBOTS = Path(load_robot.__code__.co_filename).parent

logger = logging.getLogger(__name__)

_Path = Annotated[str, Field(min_length=1, max_length=512)]
_Text = Annotated[str, Field(max_length=4096)]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Record(Frozen):
    """Document in `task.json`."""

    format_version: Literal[1]
    task: _Text
    """Name of a built-in task, or file name of the task file in `source/`."""
    preset: _Text | None
    robot: _Text | None
    """Name of a built-in robot, or the path of the robot's file as it was given."""
    files: Annotated[dict[_Path, _Sha256], Field(max_length=MAX_FILES + 3)]
    """SHA-256 of each file by its path in the folder."""


_KIND = DocumentKind(name="run's task", format_version=1, max_bytes=1 << 20, max_depth=3, error=TaskError)


@dataclass(frozen=True)
class KeptTask:
    """Contents of a run's folder `task`."""

    run: Path
    record: _Record

    @property
    def names(self) -> dict[str, str | None]:
        """Task, robot and preset as they were named for the run; files without their folders."""
        return {"task": self.record.task, "robot": self.record.robot, "preset": self.record.preset}

    @property
    def source(self) -> Path | None:
        """The task file; None for a built-in task."""
        name = self.record.task
        return self.run / FOLDER / _SOURCE / name if name.endswith(".py") else None

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of the task file and of the robot's zip, for the provenance of a policy."""
        files = {"task_sha256": f"{_SOURCE}/{self.record.task}", "robot_sha256": _ROBOT}
        return {name: self.record.files[path] for name, path in files.items() if path in self.record.files}

    def file_to_run(self) -> str:
        """The task to load after the user asked for it: the task file, whose path and hash are logged, or a name.

        Raises:
            TaskError: a file of the task is missing or was changed since the run began.
        """
        if self.source is None:
            return self.record.task
        for path in self.record.files:
            if path.startswith(f"{_SOURCE}/"):
                self._unchanged(path, remedy=f"name the file itself to run it nevertheless: --task {self.source}")
        logger.warning("running %s (SHA-256 %s…)", self.source, self._sha256(self.source)[:12])
        return str(self.source)

    def robot(self) -> str | None:
        """Path of the robot that was named for the run; None if none was, or if it could not be kept.

        Raises:
            TaskError: the file is missing or was changed since the run began.
        """
        return self._data(_ROBOT, "name the robot's file with --model FILE")

    def twin(self) -> str | None:
        """Path of the twin that the run was trained in; None if there was none.

        Raises:
            TaskError: the file is missing or was changed since the run began.
        """
        return self._data(TWIN_FILE, "copy the twin of the run to this place")

    def contract(self) -> str | None:
        """Path of the contract of a policy from elsewhere; None if the task has its own.

        Raises:
            TaskError: the file is missing or was changed since the run began.
        """
        return self._data(_CONTRACT, "import the policy again")

    def motion(self) -> str | None:
        """Path of the motion that a policy from elsewhere follows; None if it follows none.

        Raises:
            TaskError: the file is missing or was changed since the run began.
        """
        return self._data(MOTION_FILE, "import the policy again")

    def warn_if_changed(self, file: Path) -> None:
        """Log a warning if a task file of the same name is not the one that the run was trained with."""
        if file.name != self.record.task or self.source is None:
            return
        try:
            found = sha256_hex(read_plain(file, limit=MAX_SOURCE_BYTES))
        except OSError:
            return  # loading the task says why
        if found != (recorded := self._sha256(self.source)):
            logger.warning(
                "%s (SHA-256 %s…) is not the task file that %s was trained with (SHA-256 %s…)",
                *(file, found[:12], self.run, recorded[:12]),
            )

    def _data(self, name: str, remedy: str) -> str | None:
        if name not in self.record.files:
            return None
        self._unchanged(name, remedy=remedy)
        return str(self.run / FOLDER / name)

    def _sha256(self, path: Path) -> str:
        return self.record.files.get(path.relative_to(self.run / FOLDER).as_posix(), "")

    def _unchanged(self, name: str, *, remedy: str) -> None:
        path, recorded = self.run / FOLDER / name, self.record.files[name]
        try:
            found = sha256_hex(read_plain(path, limit=MAX_FILE_BYTES))
        except OSError as error:
            raise TaskError(
                f"{path}: cannot be read ({error.strerror}); the run kept it with SHA-256 {recorded[:12]}…; restore "
                f"it, or {remedy}"
            ) from None
        if found != recorded:
            raise TaskError(
                f"{path} was changed after the run began: SHA-256 {found[:12]}…, recorded {recorded[:12]}…; restore "
                f"it, or {remedy}"
            )


def kept_task(run: Path) -> KeptTask | None:
    """The task that a run folder keeps; None if it keeps none, as those of older versions.

    Raises:
        TaskError: its record is damaged.
    """
    path = run / FOLDER / _RECORD
    if not path.is_file():
        return None
    with oserror_as(TaskError, f"{path}: cannot be read"):
        data = read_plain(path, limit=_KIND.max_bytes)
    record = _KIND.parse(_Record, data, source=str(path))
    for name in (*record.files, record.task):
        parts = PurePosixPath(name).parts
        if "\\" in name or ":" in name or ".." in parts or name.startswith(("/", "~")):
            raise TaskError(f"{path}: {name[:80]!r} is no path inside the folder; the record was changed")
    if record.task.endswith(".py") and f"{_SOURCE}/{record.task}" not in record.files:
        raise TaskError(f"{path}: the task file {record.task[:80]!r} has no SHA-256; the record was changed")
    return KeptTask(run, record)


def keep_task(
    run: Path,
    loaded: Task,
    *,
    task: str,
    robot: str | None = None,
    preset: str | None = None,
    twin: str | None = None,
    foreign: bool = False,
    motion: bytes | None = None,
) -> list[str]:
    """Copy what a run is trained with into its folder.

    Args:
        run: run folder, which exists.
        loaded: the task.
        task: name or file that it was loaded from.
        robot: name, file or folder of the robot that replaces the task's own.
        preset: variant of the task.
        twin: twin that the run is trained in.
        foreign: whether the task follows the contract of a policy from elsewhere, which is kept, too.
        motion: file of the motion that the policy follows, the task's preset.

    Returns:
        What the folder does not keep and why, one sentence each; the run then needs these files on other computers.

    Raises:
        TaskError: the task file or the twin cannot be read, or a copy cannot be written.
    """
    notes: list[str] = []
    files: dict[str, bytes] = {}
    if task.endswith(".py"):
        files[f"{_SOURCE}/{Path(task).name}"] = read_bounded(Path(task), limit=MAX_SOURCE_BYTES, error=TaskError)
    if twin is not None:
        files[TWIN_FILE] = read_bounded(Path(twin), limit=MAX_FILE_BYTES, error=TaskError)
    if foreign:
        files[_CONTRACT] = canonical_json(loaded.contract)
    if motion is not None:
        files[MOTION_FILE], preset = motion, MOTION_FILE
    try:
        if robot is not None and robot not in robot_names():
            files[_ROBOT] = _packed(loaded.robot.path, loaded.robot.spec).archive()
        elif task.endswith(".py"):
            files |= _beside(Path(task), loaded)
    except PhysaiError as error:
        notes.append(f"the run folder does not keep its robot, name it on other computers: {error}")
    _write(run / FOLDER, files, {"task": Path(task).name, "preset": preset, "robot": robot})
    return notes


def _packed(path: Path, expected: RobotSpec) -> RobotPackage:
    """A robot's files, and no others, after checking that they are the whole robot."""
    data, main = read_zip(path), None
    if not data.startswith(ZIP_START):
        _require_few(path.resolve().parent)
        data, main = pack_model(path)
    package = read_package(data, main=main)
    if load_package(package, path).spec != expected:
        raise TaskError(f"{path}: the robot of its files alone is not the one that the task has")
    return package


def _require_few(folder: Path) -> None:
    """Raises TaskError for a folder, such as a home, that is too large to be searched for a robot's meshes."""
    entries = 0
    for _, folders, files in os.walk(folder):
        entries += len(folders) + len(files)
        if entries > MAX_ENTRIES:
            raise TaskError(f"{folder} holds more than {MAX_ENTRIES} files; move the robot to a folder of its own")


def _beside(task: Path, loaded: Task) -> Iterator[tuple[str, bytes]]:
    """The files of the robot that a task file loads, by their paths in the folder.

    Raises:
        TaskError: they lie elsewhere, so that the copied task file would not find them.
    """
    model, home = loaded.robot.path.resolve(), task.resolve().parent
    if model.parent == _BUILT_IN_ROBOTS:
        return
    if not model.is_relative_to(home):
        raise TaskError(f"{model} does not lie below {home}; put it there and load it from Path(__file__).parent")
    package = _packed(model, loaded.robot.spec)
    if package.main.path.suffix != model.suffix:
        yield f"{_SOURCE}/{model.relative_to(home).as_posix()}", read_zip(model)
        return
    # A package's paths begin at the model's folder, or above it if meshes are named by package.
    root = model.parents[len(package.main.path.parts) - 1]
    for name, data in package.files.items():
        path = root / name
        if not path.is_relative_to(home):
            raise TaskError(f"{path} does not lie below {home}; put the robot's folder there")
        yield f"{_SOURCE}/{path.relative_to(home).as_posix()}", data


def _write(folder: Path, files: dict[str, bytes], names: dict[str, str | None]) -> None:
    record = {"format_version": 1, **names, "files": {name: sha256_hex(data) for name, data in sorted(files.items())}}
    with oserror_as(TaskError, f"cannot write run folder {folder.parent}"):
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / name, data)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / _RECORD, json.dumps(record, indent=2).encode())
