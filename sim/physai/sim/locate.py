"""From what a user names (a run folder, an exported policy) to the policy file and the task it plays."""

from pathlib import Path

from physai.sdk.errors import PhysaiError, TaskError
from physai.sdk.onnx_metadata import read_onnx_metadata
from physai.sdk.policy_file import POLICY_FILE, parse_header
from physai.sim.tasks.registry import load_task
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


def policy_task(policy: Path, *, task: str | None = None) -> Task:
    """The task a policy was trained for, by what its file says of its origin.

    Args:
        policy: an exported policy.
        task: built-in name or Python file to use instead.

    Raises:
        TaskError: the file does not say and no task was named.
    """
    origin = parse_header(read_onnx_metadata(policy), source=str(policy)).provenance
    name = task or origin.get("task")
    if not name:
        raise TaskError(f"{policy} does not say which task it was trained for; name one with --task")
    return load_task(name, robot=origin.get("robot") or None, preset=origin.get("preset") or None)
