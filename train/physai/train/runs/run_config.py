"""The configuration of a run folder: where its task comes from, its settings and its origin. Needs no torch."""

import dataclasses
import fcntl
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, with_config

from physai.sdk.base.errors import CheckpointError, TaskError
from physai.sdk.base.files import oserror_as, write_atomic
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.io import CONTRACT_FILE, load_contract, save_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import Frozen
from physai.sdk.policy.run_identity import MAX_FACTS_BYTES, Run
from physai.sdk.policy.team_record import holds_team, require_one_robot
from physai.sim.policies.resolve import TaskSource, choose_task_source
from physai.sim.policies.saved_task import FOLDER, TWIN_FILE, keep_task, kept_task
from physai.sim.tasks.task import Task
from physai.train.runs.identity import (
    MAX_SESSIONS,
    SESSION_KEYS,
    combined,
    new_run,
    provenance,
    recorded_run,
    session_facts,
)
from physai.train.settings.config import RENAMED, TrainConfig
from physai.twin.model.measured_task import training_task
from physai.twin.model.twin import load_twin

CONFIG_FILE = "config.json"
CHECKPOINT_FILE = "checkpoint.pt"
FORMAT_VERSION = 1
MAX_CONFIG_BYTES = 1 << 20
_LOCK_FILE = ".lock"


def text_of(name: str | Path | None) -> str | None:
    """A name or path as text; None for None."""
    return None if name is None else str(name)


@with_config(ConfigDict(extra="forbid", strict=True))
@dataclass(frozen=True, kw_only=True)
class RunTaskSource(TaskSource):
    """Source of a run's task."""

    twin: str | None = None
    """Absolute path of the calibrated twin it was trained in."""

    def load(self) -> Task:
        """Loads the task."""
        task = super().load()
        return training_task(task, load_twin(self.twin)) if self.twin else task

    def chosen(self, folder: Path, *, task: str | Path | None, robot: str | Path | None) -> "RunTaskSource":
        """The recorded source, with the task or robot that the user names, or else the folder's copy of the robot.

        The twin is the folder's copy.

        Raises:
            TaskError: task or robot are files that the user did not name, see `choose_task_source`; or the folder
                keeps no twin, and the run had one.
        """
        recorded = {"task": self.task, "robot": self.robot, "preset": self.preset}
        named = {"task": text_of(task), "robot": text_of(robot)}
        origin = choose_task_source(recorded, source=str(folder / CONFIG_FILE), **named, run=folder)
        return RunTaskSource(**dataclasses.asdict(origin), twin=None if self.twin is None else self._twin_of(folder))

    def _twin_of(self, folder: Path) -> str:
        kept, copy = kept_task(folder), folder / FOLDER / TWIN_FILE
        if kept is not None and (twin := kept.twin()) is not None:
            return twin
        # Runs of older versions keep none.
        if not copy.is_file():
            raise TaskError(
                f"{folder} was trained in the twin {(self.twin or '')[:256]!r}, and no file is opened because another "
                f"file names its path; copy that twin to {copy}"
            )
        return str(copy)


def require_no_run(folder: Path, *, resumable: bool = False) -> None:
    """Refuses a folder that a new run would overwrite.

    Args:
        folder: where the run is to go.
        resumable: whether the verb that asks may continue a run that is there.

    Raises:
        CheckpointError: the folder holds a run, or those of a team.
    """
    held = "the runs of a team" if holds_team(folder) else "a run" if (folder / CHECKPOINT_FILE).exists() else None
    if held is not None:
        continued = f"continue it with --resume {folder}, or " if resumable else ""
        raise CheckpointError(f"{folder} already holds {held}; {continued}give another `out`")


@contextmanager
def training_alone(folder: Path) -> Generator[None]:
    """Hold a run folder, which is created if missing, so that no other process trains in it: both would write the same
    files. The lock ends with the process, however that ends.

    Raises:
        CheckpointError: another process trains in it, or the folder cannot be written.
    """
    new = not folder.exists()
    with oserror_as(CheckpointError, f"cannot write run folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        # Not a lock of the folder itself: NFS has none without a file that is open for writing.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(folder / _LOCK_FILE, flags, 0o666)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        # A run that was refused leaves no folder. Before the lock ends, so that no other process trains in it yet.
        if new and [entry.name for entry in folder.iterdir()] == [_LOCK_FILE]:
            with suppress(OSError):
                (folder / _LOCK_FILE).unlink()
                folder.rmdir()
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(
            f"another process trains in {folder}; wait for its end, or give another folder with `out`"
        ) from None
    except OSError:
        return  # a file system without locks


class _Config(Frozen):
    """Document written by `save_config`."""

    format_version: Literal[1]
    source: RunTaskSource
    config: TrainConfig
    provenance: dict[str, str]
    run: Annotated[str, Field(max_length=MAX_FACTS_BYTES)] | None = None
    """Facts of the run; None for runs of older versions."""
    sessions: Annotated[tuple[dict[str, str], ...], Field(max_length=MAX_SESSIONS)] = ()
    """Circumstances of later sessions that differ from all before."""


_KIND = DocumentKind(
    name="run's configuration",
    format_version=FORMAT_VERSION,
    max_bytes=MAX_CONFIG_BYTES,
    max_depth=4,
    error=CheckpointError,
)


def begin_run(
    folder: Path, source: RunTaskSource, config: TrainConfig, task: Task, *, origin: Mapping[str, str] | None = None
) -> list[str]:
    """Writes what a run needs on another computer: its configuration, contract and copies of task, robot and twin.

    Args:
        folder: run folder; created if missing.
        source: where the task comes from.
        config: settings.
        task: the loaded task.
        origin: further entries of the provenance.

    Returns:
        What the folder could not keep; see `keep_task`.

    Raises:
        CheckpointError: the folder cannot be created or written.
        TaskError: a copy cannot be written.
    """
    _make_folder(folder)
    notes = keep_task(folder, task, task=source.task, robot=source.robot, preset=source.preset, twin=source.twin)
    run = new_run(folder, config, task.contract, twin=source.twin, origin=origin or {})
    save_config(folder, source, config, task.contract, origin=origin, run=run)
    return notes


def save_config(
    folder: Path,
    source: RunTaskSource,
    config: TrainConfig,
    contract: PolicyContract,
    *,
    origin: Mapping[str, str] | None = None,
    run: Run | None = None,
) -> None:
    """Writes the resolved configuration, versions, commit, contract and identity of a run.

    Raises:
        CheckpointError: the folder cannot be created or written.
    """
    document = {
        "format_version": FORMAT_VERSION,
        "source": dataclasses.asdict(source),
        "config": dataclasses.asdict(config),
        "provenance": {**provenance(config), **(origin or {})},
        **({} if run is None else {"run": run.text}),
    }
    _make_folder(folder)
    _write_config(folder, document)
    with oserror_as(CheckpointError, f"cannot write run folder {folder}"):
        save_contract(contract, folder / CONTRACT_FILE)


def begin_session(folder: Path, origin: Mapping[str, str]) -> None:
    """Record the circumstances of a session that resumes a run, if they differ from those of all sessions before.

    Args:
        folder: run folder.
        origin: entries of the provenance that hold for this session.

    Raises:
        CheckpointError: the configuration cannot be read or written.
    """
    document, raw = _read_config(folder)
    sessions = list(document.sessions)
    now = session_facts(origin)
    first = {name: value for name, value in document.provenance.items() if name in SESSION_KEYS}
    if now not in (first, *sessions):
        # What is dropped, if ever, lies between the first sessions and the last.
        _write_config(folder, {**raw, "sessions": [*sessions[: MAX_SESSIONS - 1], now]})


def add_provenance(folder: Path, origin: Mapping[str, str]) -> None:
    """Add what is known only at the end to a run's provenance; the run remains that of its checkpoint.

    Args:
        folder: run folder.
        origin: further entries of the provenance.

    Raises:
        CheckpointError: the configuration cannot be read or written.
    """
    _, raw = _read_config(folder)
    _write_config(folder, {**raw, "provenance": {**raw["provenance"], **origin}})


def _make_folder(folder: Path) -> None:
    with oserror_as(CheckpointError, f"cannot write run folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def _write_config(folder: Path, document: Mapping[str, object]) -> None:
    with oserror_as(CheckpointError, f"cannot write run folder {folder}"):
        write_atomic(folder / CONFIG_FILE, json.dumps(document, indent=2).encode())


def load_config(folder: Path) -> tuple[RunTaskSource, TrainConfig, dict[str, str]]:
    """Reads `save_config` back; the provenance names the run and combines its sessions.

    Raises:
        CheckpointError: the folder is not a run folder, its configuration is damaged, or it is not that of its run.
        TaskError: it is the folder of a team.
    """
    document, raw = _read_config(folder)
    run = None if document.run is None else recorded_run(document.run, raw["config"], folder / CONFIG_FILE)
    entries = combined([document.provenance, *document.sessions])
    return document.source, document.config, {**entries, **(run.provenance if run else {})}


def _read_config(folder: Path) -> tuple[_Config, dict[str, Any]]:
    """The configuration, and as it is written."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        require_one_robot(folder)
        raise CheckpointError(f"{folder} is not a run folder: it has no {CONFIG_FILE}")
    with oserror_as(CheckpointError, f"{path}: cannot be read"), path.open("rb") as file:
        data = file.read(MAX_CONFIG_BYTES + 1)
    written = data
    # Keys as written by physai 0.1; the parser below rejects all other unknown keys.
    for old, new in RENAMED.items():
        data = data.replace(f'"{old}":'.encode(), f'"{new}":'.encode())
    return _KIND.parse(_Config, data, source=str(path)), json.loads(written)


def run_contract(folder: Path) -> PolicyContract:
    """The contract a run was started with."""
    return load_contract(folder / CONTRACT_FILE)
