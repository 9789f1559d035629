"""The folder of a sweep: what it is to do, its trials' run folders, and how each trial stands.

What a sweep has done is in the run folders. Ray's own record is not read back: it is pickled, and would run code.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from physai.cluster.sweep.plan import MAX_TRIALS, Point, Sweep, SweepError, Text
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen
from physai.train.runs.run_config import CHECKPOINT_FILE
from physai.train.runs.summary import CSV_FILE, load_outcome, progress_rows

SWEEP_JSON = "sweep.json"
STATE_FILE = "state.json"
TRIALS_FOLDER, LOGS_FOLDER, BEST_FOLDER = "trials", "logs", "best"
MAX_BYTES = 1 << 24

State: TypeAlias = Literal["waiting", "unfinished", "ended", "stopped", "failed"]
"""`stopped` early because it fell behind; `unfinished` if it is training, or was interrupted or killed."""


class SweepBase(Frozen):
    """Settings that all trials of a sweep share."""

    task: Annotated[str, Field(max_length=4096)]
    robot: Annotated[str, Field(max_length=4096)] | None = None
    twin: Annotated[str, Field(max_length=4096)] | None = None
    preset: Annotated[str, Field(max_length=256)] | None = None
    device: Annotated[str, Field(max_length=64)] = "cpu"
    settings: dict[str, Text] = Field(default_factory=dict[str, Text], max_length=100)
    """Settings that do not vary, in the syntax of `--set`."""
    hashes: dict[str, str] = Field(default_factory=dict[str, str], max_length=3)
    """SHA-256 of task, robot and twin, if they are files."""


class SweepRecord(Frozen):
    """`sweep.json`: what the sweep is to do."""

    format_version: Literal[1] = 1
    base: SweepBase
    sweep: Sweep
    points: Annotated[list[dict[str, Text]], Field(max_length=MAX_TRIALS)]


class StateRecord(Frozen):
    """`state.json`: what run folders do not say."""

    format_version: Literal[1] = 1
    stopped: dict[str, float] = Field(default_factory=dict[str, float], max_length=MAX_TRIALS)
    """Names of trials that were stopped early, and when, in the unit of the budget."""
    failed: dict[str, str] = Field(default_factory=dict[str, str], max_length=MAX_TRIALS)
    """Names of trials that could not be trained, and why."""


_RECORD = DocumentKind(
    name="sweep's record", format_version=1, max_bytes=MAX_BYTES, max_depth=6, error=SweepError, oldest_version=1
)
_STATE = DocumentKind(
    name="sweep's state", format_version=1, max_bytes=MAX_BYTES, max_depth=3, error=SweepError, oldest_version=1
)


@dataclasses.dataclass(frozen=True)
class SweepTrial:
    """One training run of a sweep."""

    number: int
    """Of its point."""
    point: Point
    seed: int

    @property
    def name(self) -> str:
        """Name of its run folder."""
        return f"{self.number:04d}-seed-{self.seed}"


class SweepFolder:
    """A folder that holds a sweep."""

    def __init__(self, path: Path, record: SweepRecord, state: StateRecord) -> None:
        self.path, self.record, self.state = path, record, state
        self.trials = [
            SweepTrial(number, point, seed) for number, point in enumerate(record.points) for seed in record.sweep.seeds
        ]

    @classmethod
    def new(cls, path: Path, base: SweepBase, sweep: Sweep) -> "SweepFolder":
        """Draw the points and write what is to be done.

        Raises:
            SweepError: the folder holds a sweep, or cannot be written.
        """
        if (path / SWEEP_JSON).exists():
            raise SweepError(f"{path} already holds a sweep; continue it with `resume` {path}, or give another `out`")
        folder = cls(path, SweepRecord(base=base, sweep=sweep, points=sweep.points()), StateRecord())
        with oserror_as(SweepError, f"cannot write {path}"):
            (path / LOGS_FOLDER).mkdir(parents=True, exist_ok=True)
            (path / TRIALS_FOLDER).mkdir(exist_ok=True)
        _write(path / SWEEP_JSON, folder.record)
        return folder

    @classmethod
    def open(cls, path: Path) -> "SweepFolder":
        """Read a sweep's folder.

        Raises:
            SweepError: it is none, or a file in it is damaged.
        """
        if not (path / SWEEP_JSON).is_file():
            raise SweepError(f"{path} is not the folder of a sweep: it has no {SWEEP_JSON}")
        record = _RECORD.parse(SweepRecord, _read(path / SWEEP_JSON), source=str(path / SWEEP_JSON))
        if len(record.points) != record.sweep.trials:
            raise SweepError(f"{path / SWEEP_JSON}: {record.sweep.trials} trials, but {len(record.points)} points")
        for number, point in enumerate(record.points):
            _require_drawn(record.sweep, point, f"{path / SWEEP_JSON}: point {number}")
        state = StateRecord()
        if (path / STATE_FILE).exists():
            state = _STATE.parse(StateRecord, _read(path / STATE_FILE), source=str(path / STATE_FILE))
        return cls(path, record, state)

    def run(self, trial: SweepTrial) -> Path:
        """Run folder of a trial."""
        return self.path / TRIALS_FOLDER / trial.name

    def note_stopped(self, name: str, time: float) -> None:
        """Record that a trial was stopped early."""
        self.state = StateRecord(stopped={**self.state.stopped, name: time}, failed=self.state.failed)
        _write(self.path / STATE_FILE, self.state)

    def note_failed(self, name: str, reason: str) -> None:
        """Record that a trial cannot be trained."""
        self.state = StateRecord(stopped=self.state.stopped, failed={**self.state.failed, name: reason[:1000]})
        _write(self.path / STATE_FILE, self.state)

    def forget_failures(self) -> None:
        """Have failed trials tried again."""
        if self.state.failed:
            self.state = StateRecord(stopped=self.state.stopped)
            _write(self.path / STATE_FILE, self.state)

    def state_of(self, trial: SweepTrial) -> State:
        """Progress of a trial."""
        if trial.name in self.state.failed:
            return "failed"
        if trial.name in self.state.stopped:
            return "stopped"
        folder = self.run(trial)
        if not (folder / CHECKPOINT_FILE).exists():
            return "waiting"
        outcome = load_outcome(folder)
        return "ended" if outcome is not None and not outcome.interrupted else "unfinished"

    def curve(self, trial: SweepTrial) -> list[tuple[float, float]]:
        """Times and metric of a trial's iterations, until it ended or was stopped early."""
        until = self.state.stopped.get(trial.name, math.inf)
        sweep = self.record.sweep
        return [row for row in read_curve(self.run(trial), sweep.budget.clock, sweep.metric) if row[0] <= until]


def read_curve(run: Path, clock: str, metric: str) -> list[tuple[float, float]]:
    """Two columns of a run's `progress.csv`; damaged rows are left out, values that are not known yet are NaN."""
    found: list[tuple[float, float]] = []
    for row in progress_rows(run / CSV_FILE):
        try:
            time, value = float(row[clock]), float(row[metric])
        except (KeyError, ValueError):
            continue
        if math.isfinite(time):
            found.append((time, value))
    return found


def _require_drawn(sweep: Sweep, point: Point, which: str) -> None:
    if point.keys() != sweep.parameters.keys():
        raise SweepError(
            f"{which} gives {', '.join(point) or 'nothing':.200}, the sweep varies {', '.join(sweep.parameters)}"
        )
    for name, kind in sweep.parameters.items():
        if not kind.holds(point[name]):
            raise SweepError(f"{which}: {name} {point[name]} is no value of {kind.model_dump(exclude_none=True)}")


def _read(path: Path) -> bytes:
    with oserror_as(SweepError, f"{path}: cannot be read"):
        return read_plain(path, limit=MAX_BYTES)


def _write(path: Path, record: Frozen) -> None:
    with oserror_as(SweepError, f"cannot write {path}"):
        write_atomic(path, json.dumps(record.model_dump(mode="json"), indent=2).encode())
