"""Functions that run on the nodes of a Ray cluster: one attempt at a stage, and a look at whether a node can run
any.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from physai.cluster.workflow.cache.content import content_hash
from physai.cluster.workflow.executors.place import Ended, Given, disk_problem
from physai.cluster.workflow.executors.processes import Attempt
from physai.cluster.workflow.executors.resources import this_platform
from physai.cluster.workflow.model import Platform, WorkflowStage
from physai.cluster.workflow.workflow_file import WorkflowError

QUESTION = "question"
"""File that a node must see in a fresh folder."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Facts that a node reports about itself."""

    host: str
    version: str
    """Of physai."""
    platform: Platform | None
    problem: str
    """Why it cannot use the folder of results; empty if it can."""


@dataclass(frozen=True, kw_only=True)
class StageAttempt:
    """An attempt."""

    name: str
    stage: WorkflowStage
    inputs: Mapping[str, Given]
    fresh: Path
    log: Path
    first: bool
    secrets: Mapping[str, str]
    """Credentials by environment variable."""
    version: str
    """Of physai where the workflow was started."""


def look(folder: Path, token: str, answer: str) -> Seen:
    """Read a token from a folder of the computer that asks, and write it back."""
    problem = ""
    try:
        if (folder / QUESTION).read_text() == token:
            (folder / answer).write_text(token)
        else:
            problem = f"has another {folder / QUESTION}"
    except OSError as error:
        problem = f"{error.filename or folder}: {(error.strerror or str(error)).lower()}"
    return Seen(host=socket.gethostname(), version=version("physai-sdk"), platform=this_platform(), problem=problem)


def attempt_stage(order: StageAttempt) -> Ended:
    """Run the commands of a stage in this process's children, and wait for them.

    Raises:
        WorkflowError: this computer has another physai, does not have the same files, or its disk is full.
    """
    host = socket.gethostname()
    try:
        _check(order, host)
        attempt = Attempt(
            order.stage, order.inputs, order.fresh, order.log, gpus=_gpus(), first=order.first, secrets=order.secrets
        )
        try:
            code = attempt.finish()
        finally:
            # Ray interrupts the task when the run is stopped.
            attempt.stop()
    except OSError as error:
        raise WorkflowError(f"{host}: {disk_problem(error, order.fresh)}") from None
    return Ended(stage=order.name, code=code, seconds=attempt.seconds, host=host)


def _check(order: StageAttempt, host: str) -> None:
    # Nodes may join a cluster after it was looked at.
    if (here := version("physai-sdk")) != order.version:
        raise WorkflowError(f"{host} has physai {here}, the run {order.version}; install the same version on all nodes")
    if not order.fresh.is_dir():
        raise WorkflowError(f"{host} does not see {order.fresh}; {SHARE}")
    for key, given in order.inputs.items():
        try:
            same = content_hash(given.path) == given.hash
        except WorkflowError as error:
            raise WorkflowError(f"{host}: {error}; {SHARE}") from None
        if not same:
            raise WorkflowError(f"{host} has another {given.path} (input {key}) than the run; {SHARE}")


SHARE = (
    "all nodes need the folder of results and that of the workflow file at the same paths, on a file system that they "
    "share; give --folder and a FILE there"
)


def _gpus() -> list[int | str]:
    import ray  # type: ignore[import-untyped]

    return list(ray.get_gpu_ids())
