"""Resolves a run folder or exported policy to its policy file and task."""

import dataclasses
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from physai.sdk.base.errors import ContractError, TaskError
from physai.sdk.base.formats.onnx_metadata import read_onnx_metadata
from physai.sdk.contract.io import load_contract
from physai.sdk.evidence.preferences import PREFIX
from physai.sdk.policy.header import POLICY_FILE, PROVENANCE_PREFIX, PolicyError, parse_header
from physai.sdk.policy.team_record import TEAM_KEY, require_one_robot
from physai.sim.policies.foreign_contract import following
from physai.sim.policies.saved_task import KeptTask, kept_task
from physai.sim.robots import robot_names
from physai.sim.tasks.registry import BUILT_IN, MAX_SHOWN, built_in_task, load_task
from physai.sim.tasks.task import Task

logger = logging.getLogger(__name__)

EXPORT_FOLDER = "export"
"""Subfolder of a run that `physai export` writes to."""


REFERENCE_FOLDER = "reference"
"""Folder in the folder of a fine-tuned run that holds the policy that was fine-tuned, as it was exported."""


def find_policy(path: Path) -> Path:
    """The policy file at a path: the file itself, or the one inside a run folder or a folder with an export.

    Raises:
        PolicyError: there is no policy.
        TaskError: the path is the folder of a team.
    """
    if path.is_dir():
        for candidate in (path / EXPORT_FOLDER / POLICY_FILE, path / POLICY_FILE):
            if candidate.is_file():
                return candidate
        require_one_robot(path)
        raise PolicyError(
            f"{path} contains no exported policy, neither {EXPORT_FOLDER}/{POLICY_FILE} nor {POLICY_FILE}; create one "
            f"with: physai export {path}"
        )
    if not path.is_file():
        raise PolicyError(f"{path} is neither a run folder nor an exported policy; train one with: physai train TASK")
    return path


def find_reference(policy: Path, given: Path | None) -> Path | None:
    """The file of the policy that another one was fine-tuned from by preferences.

    Args:
        policy: file of the fine-tuned policy.
        given: run folder or file that the user gives; None for the one in the policy's run folder.

    Returns:
        None if the policy names no reference, or its run folder has none. Whether it is the right one is left to
        `physai.gates.execution.subject.stated_preferences`.

    Raises:
        PhysaiError: there is no policy at the path that is given.
    """
    if given is not None:
        return find_policy(given)
    run = policy.parent.parent if policy.parent.name == EXPORT_FOLDER else policy.parent
    file = run / REFERENCE_FOLDER / POLICY_FILE
    # A malformed policy is reported by the contract gate.
    with suppress(ContractError):
        if file.is_file() and f"{PROVENANCE_PREFIX}{PREFIX}reference" in read_onnx_metadata(policy):
            return file
    return None


@dataclass(frozen=True, kw_only=True)
class TaskSource:
    """The arguments of `load_task`, from which another process can load the same task."""

    task: str
    """Built-in name or path of a task file."""
    robot: str | None = None
    """Built-in name or path of a robot that replaces the task's own."""
    preset: str | None = None
    """Variant of the task."""
    contract: str | None = None
    """Path of the contract of a policy from elsewhere, which the task follows; None for the task's own."""

    def load(self) -> Task:
        """Loads the task.

        Raises:
            TaskError: see `load_task`, which also raises UnknownNameError and ModelError; or the task cannot follow the
                contract, see `following`.
        """
        task = load_task(self.task, robot=self.robot, preset=self.preset)
        return task if self.contract is None else following(task, load_contract(self.contract))


Source = TypeVar("Source", bound=TaskSource)


def absolute(source: Source) -> Source:
    """The source with paths that hold in other working folders, too."""
    changed = {
        name: str(Path(value).resolve())
        for name in ("task", "robot", "contract")
        if (value := getattr(source, name)) is not None
        and value not in (*BUILT_IN, *robot_names())
        and Path(value).exists()
    }
    return dataclasses.replace(source, **changed)


def named_source(task: str, *, robot: str | None = None, preset: str | None = None) -> TaskSource:
    """Source of the task that the user named: a built-in name, a Python file, or a run folder that keeps a task.

    Raises:
        TaskError: the run folder keeps no task, or a kept file was changed.
    """
    if not _is_folder(task):
        return TaskSource(task=task, robot=robot, preset=preset)
    return choose_task_source({}, source=task, task=task, robot=robot, preset=preset)


def choose_task_source(
    recorded: Mapping[str, str | None],
    *,
    source: str,
    task: str | None = None,
    robot: str | None = None,
    preset: str | None = None,
    run: Path | None = None,
) -> TaskSource:
    """Combines the user's choice with the names recorded in a file.

    Of the file's names only built-in ones are accepted, so that a file cannot choose a path to open or run. A robot
    that the run folder keeps is data under a fixed name and is used; a task file in it is not.

    Args:
        recorded: `task`, `robot` and `preset` as recorded in the file.
        source: name of the file in messages.
        task: built-in name, Python file, or run folder whose task is to be run, given by the user.
        robot: built-in name, MJCF or URDF file given by the user.
        preset: variant given by the user.
        run: run folder that the user named, or that the file lies in.

    Raises:
        TaskError: neither the user nor the file names a task, a name in the file is not built in, or a kept file was
            changed.
    """
    if task is not None and _is_folder(task):
        run = Path(task)
        kept = _require_kept(run)
        recorded, task = kept.names, kept.file_to_run()
    else:
        kept = None if run is None else kept_task(run)
        if kept is not None and task is not None:
            kept.warn_if_changed(Path(task))
    claimed = recorded.get("task") or None
    if task is None and claimed is None:
        raise TaskError(f"{source} does not say which task it was trained for; name one with `task`")
    chosen = task or _built_in_task(claimed or "", source, kept)
    # The recorded robot and preset belong to the recorded task only.
    if claimed is not None and Path(chosen).name == Path(claimed).name:
        preset = preset or (kept and kept.motion()) or recorded.get("preset") or None
        robot = robot or _known_robot(recorded.get("robot"), source, kept)
    # Another task that the user names has its own contract.
    contract = kept.contract() if kept is not None and chosen == kept.names["task"] else None
    return TaskSource(task=chosen, robot=robot, preset=preset, contract=contract)


def _is_folder(task: str) -> bool:
    # A folder of runs may have the name of a task.
    return task not in BUILT_IN and Path(task).is_dir()


def _require_kept(run: Path) -> KeptTask:
    kept = kept_task(run)
    if kept is None:
        require_one_robot(run)
        raise TaskError(f"{run} is no run folder that keeps its task; name a task, or its Python file")
    return kept


def _built_in_task(name: str, source: str, kept: KeptTask | None) -> str:
    if name not in BUILT_IN and kept is not None and kept.source is not None:
        raise TaskError(
            f"{source} says it is for the task {name[:MAX_SHOWN]!r}, and no Python file is run because another file "
            f"names it; read {kept.source}, then run it with `task` {kept.run}, or name another file with `task` PATH"
        )
    return built_in_task(name, source=source)


def _known_robot(name: str | None, source: str, kept: KeptTask | None) -> str | None:
    """A built-in robot, or the copy in the run folder."""
    if not name or name in robot_names():
        return name or None
    copy = None if kept is None else kept.robot()
    if copy is None:
        raise TaskError(
            f"{source} says it is for the robot {name[:MAX_SHOWN]!r}, which is not built in, and no model is opened "
            f"because a file names its path; name it with `model` PATH, or a built-in one ({', '.join(robot_names())})"
        )
    return copy


def run_folder_of(policy: Path) -> Path | None:
    """The run folder that a policy or its report was written in; None if it keeps no task."""
    folder = policy if policy.is_dir() else policy.parent
    return next((run for run in (folder, folder.parent) if kept_task(run) is not None), None)


def find_origin(
    policy: Path, *, task: str | None = None, robot: str | None = None, preset: str | None = None
) -> TaskSource:
    """The task that a policy was trained for, see `choose_task_source`; warns if it learned in a team.

    Raises:
        TaskError: neither the user nor the file names a task, or a name in the file is not built in.
        ContractError: the file is not an ONNX file.
    """
    metadata = read_onnx_metadata(policy)
    if team := metadata.get(PROVENANCE_PREFIX + TEAM_KEY):
        logger.warning(
            "%s learned in the team %r; here its robot is alone, and physai eval of the team's folder plays all",
            policy,
            team[:MAX_SHOWN],
        )
    recorded = {key: metadata.get(PROVENANCE_PREFIX + key) for key in ("task", "robot", "preset")}
    if task is None and not recorded["task"]:
        # Policies not exported by physai name the task in their contract only. A damaged contract is not an error
        # here: reporting it is up to the contract gate.
        with suppress(PolicyError, ContractError):
            recorded["task"] = parse_header(metadata, source=str(policy)).contract.task
    run = run_folder_of(policy)
    return choose_task_source(recorded, source=str(policy), task=task, robot=robot, preset=preset, run=run)
