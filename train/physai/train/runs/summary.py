"""Outcome and progress of a run, from its folder. Needs no torch."""

import csv
import io
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from physai.sdk.base.errors import CheckpointError
from physai.sdk.base.files import open_plain, oserror_as, read_bounded, write_atomic
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen
from physai.train.runs.run_config import CONFIG_FILE, RunTaskSource, load_config
from physai.train.settings.config import TrainConfig

OUTCOME_FILE = "outcome.json"
CSV_FILE = "progress.csv"
MAX_PROGRESS_BYTES = 256 << 20
MAX_ROWS = 2_000_000
"""Greatest number of iterations whose progress is read."""
MAX_FOLDERS = 100_000
"""Greatest number of folders that are looked at to find runs."""
MAX_DEPTH = 6

_Count = Annotated[int, Field(ge=0)]
_Number = Annotated[float, Field(ge=0.0)]


class Outcome(Frozen):
    """Result of a session of a run; written at its end, removed when the run is continued."""

    format_version: Literal[1] = 1
    reason: Annotated[str, Field(max_length=1000)]
    interrupted: bool
    """Whether a signal ended it."""
    iterations: _Count
    env_steps: _Count
    seconds: _Number
    """Training time [s]."""
    success: Annotated[float, Field(ge=0.0, le=1.0)] | None
    """Success rate without exploration in the last evaluation."""


_KIND = DocumentKind(
    name="run's outcome", format_version=1, max_bytes=1 << 16, max_depth=2, error=CheckpointError, oldest_version=1
)


@dataclass(frozen=True)
class Progress:
    """The learning curve, one element per iteration."""

    env_steps: list[float]
    seconds: list[float]
    """Training time [s]."""
    success: list[float]
    """Success rate with exploration; NaN before the first judged episode."""
    reward_per_s: list[float]


@dataclass(frozen=True)
class RunSummary:
    """One run."""

    folder: Path
    source: RunTaskSource
    config: TrainConfig
    provenance: dict[str, str]
    outcome: Outcome | None
    """None while it is running, and after a kill."""
    progress: Progress

    @property
    def state(self) -> Literal["ended", "stopped", "unfinished"]:
        """`stopped` by a signal, `unfinished` if it is running or was killed."""
        if self.outcome is None:
            return "unfinished"
        return "stopped" if self.outcome.interrupted else "ended"

    @property
    def env_steps(self) -> int:
        """Environment steps of all sessions."""
        finite = [step for step in self.progress.env_steps if math.isfinite(step)]
        return self.outcome.env_steps if self.outcome is not None else int(finite[-1]) if finite else 0

    @property
    def success(self) -> tuple[float, bool] | None:
        """Last success rate, and whether it was measured without exploration; None if nothing was judged."""
        if self.outcome is not None and self.outcome.success is not None:
            return self.outcome.success, True
        judged = [value for value in self.progress.success if math.isfinite(value)]
        return (judged[-1], False) if judged else None


def save_outcome(folder: Path, outcome: Outcome) -> None:
    """Write how a session ended.

    Raises:
        CheckpointError: it cannot be written.
    """
    with oserror_as(CheckpointError, f"cannot write {folder / OUTCOME_FILE}"):
        write_atomic(folder / OUTCOME_FILE, json.dumps(outcome.model_dump(mode="json"), indent=2).encode())


def load_outcome(folder: Path) -> Outcome | None:
    """Result of a run's last session; None if it has not ended.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = folder / OUTCOME_FILE
    if not path.is_file():
        return None
    return _KIND.parse(Outcome, read_bounded(path, limit=_KIND.max_bytes, error=CheckpointError), source=str(path))


def load_summary(folder: Path) -> RunSummary:
    """Read a run folder; no code of its task is run.

    Raises:
        CheckpointError: it is no run folder, or a file in it is damaged.
    """
    source, config, provenance = load_config(folder)
    return RunSummary(folder, source, config, provenance, load_outcome(folder), _progress(folder / CSV_FILE))


def find_runs(folder: Path) -> list[Path]:
    """Run folders at and below a folder, in alphabetical order.

    Raises:
        CheckpointError: the folder does not exist, or holds too many folders.
    """
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder; train with: physai train TASK")
    found: list[Path] = []
    waiting = [(folder, 0)]
    seen = 0
    while waiting:
        here, depth = waiting.pop()
        seen += 1
        if seen > MAX_FOLDERS:
            raise CheckpointError(f"{folder} holds more than {MAX_FOLDERS} folders; name the folder of the runs")
        if (here / CONFIG_FILE).is_file():
            found.append(here)
        elif depth < MAX_DEPTH:
            waiting += [(path, depth + 1) for path in here.iterdir() if path.is_dir() and not path.is_symlink()]
    return sorted(found)


def progress_rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows of `progress.csv` by column; none if there is no such file.

    The file is appended to without waiting for the disk: rows that a kill, a full disk or a power cut left damaged are
    left out.

    Raises:
        CheckpointError: it cannot be read, or is too large.
    """
    if not path.is_file():
        return
    with (
        oserror_as(CheckpointError, f"{path}: cannot be read"),
        open_plain(path) as file,
        io.TextIOWrapper(file, "utf-8", "replace", newline="") as text,
    ):
        if os.fstat(file.fileno()).st_size > MAX_PROGRESS_BYTES:
            raise CheckpointError(f"{path}: more than {MAX_PROGRESS_BYTES} bytes")
        reader = csv.DictReader(text)
        for _ in range(MAX_ROWS):
            try:
                row: dict[Any, Any] = next(reader)
            except StopIteration:
                return
            except csv.Error:
                continue
            # Too many cells are under None, missing ones are None.
            if None not in row and None not in row.values():
                yield row
    raise CheckpointError(f"{path}: more than {MAX_ROWS} rows")


def _progress(path: Path) -> Progress:
    progress = Progress([], [], [], [])
    columns = vars(progress)
    for row in progress_rows(path):
        try:
            values = [float(row[name]) for name in columns]
        except (KeyError, ValueError):
            continue
        for values_of_column, value in zip(columns.values(), values, strict=True):
            values_of_column.append(value)
    return progress
