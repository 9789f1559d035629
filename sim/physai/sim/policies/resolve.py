"""From what a user names (a run folder, an exported policy) to the policy file and the task it plays."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from physai.sdk.base.errors import ContractError, PhysaiError, TaskError
from physai.sdk.base.onnx_metadata import read_onnx_metadata
from physai.sdk.policy.header import POLICY_FILE, PROVENANCE_PREFIX, PolicyError, parse_header
from physai.sim.robots import robot_names
from physai.sim.tasks.registry import MAX_SHOWN, built_in_task, load_task
from physai.sim.tasks.task import Task

EXPORT_FOLDER = "export"
"""Folder inside a run that `physai export` writes to."""


def find_policy(path: Path) -> Path:
    """The policy file a path names: the file itself, or the export inside a run folder.

    Raises:
        PhysaiError: there is none; says how to make one.
    """
    if path.is_dir():
        for candidate in (path / EXPORT_FOLDER / POLICY_FILE, path / POLICY_FILE):
            if candidate.is_file():
                return candidate
        raise PhysaiError(f"{path} holds no exported policy; make one with: physai export {path}")
    if not path.is_file():
        raise PhysaiError(f"{path} is neither a run folder nor an exported policy; train one with: physai train TASK")
    return path


@dataclass(frozen=True, kw_only=True)
class TaskSource:
    """How a task is found again, in another process or on another day."""

    task: str
    """Built-in name or path of a task file."""
    robot: str | None = None
    """Built-in name or path of the robot it is played with, in place of the task's own."""
    preset: str | None = None
    """Variant of the task."""

    def load(self) -> Task:
        """Makes the task.

        Raises:
            TaskError: see `load_task`; also UnknownNameError and ModelError.
        """
        return load_task(self.task, robot=self.robot, preset=self.preset)


def choose_task_source(
    said: Mapping[str, str | None],
    *,
    source: str,
    task: str | None = None,
    robot: str | None = None,
    preset: str | None = None,
) -> TaskSource:
    """What a user named and, for what they did not, what a file says: built-in names only, no path to open or run.

    Args:
        said: `task`, `robot` and `preset` as the file has them.
        source: the file, for messages.
        task: built-in name or Python file that the user named.
        robot: built-in name, MJCF or URDF file that the user named.
        preset: variant that the user named.

    Raises:
        TaskError: the file does not say and no task was named, or what it says is not built in.
    """
    claimed = said.get("task") or None
    if task is None and claimed is None:
        raise TaskError(f"{source} does not say which task it was trained for; name one with --task")
    chosen = task or built_in_task(claimed or "", source=source)
    # Another task than the file's has other robots and variants.
    if claimed is not None and Path(chosen).name == Path(claimed).name:
        preset = preset or said.get("preset") or None
        robot = robot or _built_in_robot(said.get("robot"), source)
    return TaskSource(task=chosen, robot=robot, preset=preset)


def _built_in_robot(name: str | None, source: str) -> str | None:
    if name and name not in robot_names():
        raise TaskError(
            f"{source} says it is for the robot {name[:MAX_SHOWN]!r}, which is not built in, and no model is opened "
            f"because a file names its path; name it with --robot PATH, or a built-in one ({', '.join(robot_names())})"
        )
    return name or None


def find_origin(
    policy: Path, *, task: str | None = None, robot: str | None = None, preset: str | None = None
) -> TaskSource:
    """Which task a policy is for, see `choose_task_source`.

    A file whose contract is damaged can still say where it came from: the contract gate is to judge it then.

    Raises:
        TaskError: the file does not say and no task was named, or what it says is not built in.
        ContractError: it is no ONNX file.
    """
    metadata = read_onnx_metadata(policy)
    said = {key: metadata.get(PROVENANCE_PREFIX + key) for key in ("task", "robot", "preset")}
    if task is None and not said["task"]:
        # A policy of another origin says in its contract which task it is for.
        with suppress(PolicyError, ContractError):
            said["task"] = parse_header(metadata, source=str(policy)).contract.task
    return choose_task_source(said, source=str(policy), task=task, robot=robot, preset=preset)
