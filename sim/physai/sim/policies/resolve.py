"""Resolves a run folder or exported policy to its policy file and task."""

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
"""Subfolder of a run that `physai export` writes to."""


def find_policy(path: Path) -> Path:
    """The policy file at a path: the file itself, or the export inside a run folder.

    Raises:
        PhysaiError: there is no policy.
    """
    if path.is_dir():
        for candidate in (path / EXPORT_FOLDER / POLICY_FILE, path / POLICY_FILE):
            if candidate.is_file():
                return candidate
        raise PhysaiError(f"{path} contains no exported policy; create one with: physai export {path}")
    if not path.is_file():
        raise PhysaiError(f"{path} is neither a run folder nor an exported policy; train one with: physai train TASK")
    return path


@dataclass(frozen=True, kw_only=True)
class TaskSource:
    """The arguments of `load_task`, from which another process can load the same task."""

    task: str
    """Built-in name or path of a task file."""
    robot: str | None = None
    """Built-in name or path of a robot that replaces the task's own."""
    preset: str | None = None
    """Variant of the task."""

    def load(self) -> Task:
        """Loads the task.

        Raises:
            TaskError: see `load_task`, which also raises UnknownNameError and ModelError.
        """
        return load_task(self.task, robot=self.robot, preset=self.preset)


def choose_task_source(
    recorded: Mapping[str, str | None],
    *,
    source: str,
    task: str | None = None,
    robot: str | None = None,
    preset: str | None = None,
) -> TaskSource:
    """Combines the user's choice with the names recorded in a file.

    Of the file's names only built-in ones are accepted, so that a file cannot choose a path to open or run.

    Args:
        recorded: `task`, `robot` and `preset` as recorded in the file.
        source: name of the file in messages.
        task: built-in name or Python file given by the user.
        robot: built-in name, MJCF or URDF file given by the user.
        preset: variant given by the user.

    Raises:
        TaskError: neither the user nor the file names a task, or a name in the file is not built in.
    """
    claimed = recorded.get("task") or None
    if task is None and claimed is None:
        raise TaskError(f"{source} does not say which task it was trained for; name one with --task")
    chosen = task or built_in_task(claimed or "", source=source)
    # The recorded robot and preset belong to the recorded task only.
    if claimed is not None and Path(chosen).name == Path(claimed).name:
        preset = preset or recorded.get("preset") or None
        robot = robot or _built_in_robot(recorded.get("robot"), source)
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
    """The task that a policy was trained for, see `choose_task_source`.

    Raises:
        TaskError: neither the user nor the file names a task, or a name in the file is not built in.
        ContractError: the file is not an ONNX file.
    """
    metadata = read_onnx_metadata(policy)
    recorded = {key: metadata.get(PROVENANCE_PREFIX + key) for key in ("task", "robot", "preset")}
    if task is None and not recorded["task"]:
        # Policies not exported by physai name the task in their contract only. A damaged contract is not an error
        # here: reporting it is up to the contract gate.
        with suppress(PolicyError, ContractError):
            recorded["task"] = parse_header(metadata, source=str(policy)).contract.task
    return choose_task_source(recorded, source=str(policy), task=task, robot=robot, preset=preset)
