"""Runs a workflow: independent stages at the same time, finished ones never again."""

import os
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from physai.cluster.workflow.cache.content import content_hash, output_hash
from physai.cluster.workflow.cache.reads import ABSENT, NOTE, noted_reads, shown
from physai.cluster.workflow.cache.store import OUTPUTS_FOLDER, Result, ResultStore, stage_key
from physai.cluster.workflow.executors.place import Ended, Given, Place, disk_problem
from physai.cluster.workflow.model import Workflow, WorkflowStage
from physai.cluster.workflow.workflow_file import WorkflowError, in_order

MAX_LOSSES = 5
"""How often the computer of a stage may be lost before the stage fails."""
_MAX_APPENDED = 1 << 20
"""Bytes of a failed command's output that its log keeps, the last ones."""
_LOG_TAIL = 400
"""Characters of a log that a message repeats."""


@dataclass(frozen=True, kw_only=True)
class StageReport:
    """Result of a stage."""

    stage: str
    state: Literal["cached", "done", "failed", "skipped"]
    """`cached`: an earlier result has the same key; `skipped`: a stage that it needs failed."""
    key: str | None = None
    """Hash of what the result depends on."""
    attempts: int = 0
    seconds: float = 0.0
    """How long the last attempt took, also if that was in an earlier run [s]."""
    host: str = ""
    """Computer that the last attempt ran on; empty for this one, and for an earlier result."""
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    """Paths of the outputs by name."""
    message: str = ""

    def as_record(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A stage whose inputs are there."""

    key: str
    inputs: dict[str, Given]
    fresh: Path = Path()
    """Folder of the running attempt."""


class WorkflowRun:
    """One run of a workflow.

    Args:
        workflow: a workflow without findings of `physai.cluster.workflow.lint.lint`.
        source: folder of its file.
        store: earlier results, and where to put new ones; locked by the caller.
        place: where stages run.
        say: receives one line of progress.
        again: stages to run even if they have a result, such as measurements.
    """

    def __init__(
        self,
        workflow: Workflow,
        source: Path,
        store: ResultStore,
        place: Place,
        say: Callable[[str], None],
        *,
        again: Collection[str] = (),
    ) -> None:
        self._again = again
        self._workflow, self._source, self._store, self._say = workflow, source.absolute(), store, say
        self._place = place
        self._reports: dict[str, StageReport] = {}
        self._running: dict[str, _Ready] = {}
        self._attempts: dict[str, int] = {}
        self._losses: dict[str, int] = {}
        self._results: dict[str, Result] = {}

    def run(self, until: str | None = None) -> list[StageReport]:
        """Run all stages, or one and those it needs.

        Returns:
            A report per stage, in an order of dependency.

        Raises:
            WorkflowError: a stage cannot run here.
            KeyboardInterrupt: after the running stages were stopped; finished ones are kept.
        """
        wanted = self._wanted(until)
        self._take_cached(wanted)
        # What a single stage needs may have been made elsewhere, on a larger computer.
        for name in wanted if until is None else [until]:
            if name not in self._reports:
                self._require_possible(name)
        try:
            while self._start(wanted):
                for ended in self._place.wait():
                    self._settle(ended)
        finally:
            self._place.stop()
        return [self._reports[name] for name in wanted]

    def _wanted(self, until: str | None) -> list[str]:
        order = in_order(self._workflow)
        if until is None:
            return order
        needed = {until}
        for name in reversed(order):
            needed |= self._workflow.needs(name) if name in needed else set()
        return [name for name in order if name in needed]

    def _require_possible(self, name: str) -> None:
        stage = self._workflow.stages[name]
        self._place.require(name, stage)
        for credential in stage.credentials:
            if not os.environ.get(credential.env):
                raise WorkflowError(
                    f"stage {name} needs the secret {credential.secret}/{credential.key} in the environment variable "
                    f"{credential.env}, which is not set; export it"
                )

    def _start(self, wanted: list[str]) -> bool:
        """Start what can start; returns whether anything runs."""
        for name in wanted:
            if name in self._reports or name in self._running:
                continue
            needs = self._workflow.needs(name)
            lost = [other for other in needs if other in self._reports and other not in self._results]
            if lost:
                self._report(StageReport(stage=name, state="skipped", message=f"{', '.join(sorted(lost))} failed"))
            elif needs <= set(self._results):
                self._begin(name)
        return bool(self._running)

    def _take_cached(self, wanted: list[str]) -> None:
        """Take earlier results, as far as no stage has to run for them."""
        for name in wanted:
            if self._workflow.needs(name) <= set(self._results):
                self._attempted(name, self._take)

    def _begin(self, name: str) -> None:
        """Take an earlier result of a stage, or start it if its resources are free."""
        self._attempted(name, self._take_or_launch)

    def _attempted(self, name: str, action: Callable[[str], object]) -> None:
        try:
            action(name)
        except (OSError, WorkflowError) as error:
            attempts = self._attempts.get(name, 0)
            self._report(StageReport(stage=name, state="failed", attempts=attempts, message=self._one_line(error)))

    def _take(self, name: str) -> _Ready | None:
        """Take an earlier result; what to run the stage with if there is none."""
        stage = self._workflow.stages[name]
        ready = self._ready(name, stage)
        # Of stages that are the same but for their names, one runs.
        if any(other.key == ready.key for other in self._running.values()):
            return None
        result = None if name in self._again else self._store.find(ready.key, stage)
        if result is None:
            return ready
        self._succeed(name, result, "cached")
        return None

    def _take_or_launch(self, name: str) -> None:
        if (ready := self._take(name)) is not None:
            self._require_possible(name)
            self._launch(name, ready)

    def _launch(self, name: str, ready: _Ready) -> None:
        stage, number = self._workflow.stages[name], self._attempts.get(name, 0) + 1
        log = self._store.log(name)
        fresh = self._place.start(name, stage, ready.inputs, lambda: self._store.begin(name), log, first=number == 1)
        if fresh is not None:
            self._attempts[name] = number
            self._running[name] = replace(ready, fresh=fresh)
            self._say(f"{name}: started" + ("" if number == 1 else f", attempt {number}"))

    def _ready(self, name: str, stage: WorkflowStage) -> _Ready:
        inputs: dict[str, Given] = {}
        for key, given in stage.inputs.items():
            if given.origin is None:
                path = (self._source / str(given.path)).resolve()
                content = content_hash(path)
            else:
                source, output = given.origin
                result = self._results[source]
                path = self._store.output(result.key, self._workflow.stages[source].outputs[output].path)
                content = result.hashes[output]
            if self._store.folder.resolve().is_relative_to(path):
                raise WorkflowError(
                    f"its input {key} ({path}) holds the folder of results, {self._store.folder}; give another "
                    "`folder`, or name a folder without it"
                )
            inputs[key] = Given(path=path, hash=content, shown=self._store.inputs(name) / key / path.name)
        named = {key: (given.path.name, given.hash) for key, given in inputs.items()}
        return _Ready(key=stage_key(stage, named), inputs=inputs)

    def _settle(self, ended: Ended) -> None:
        name = ended.stage
        ready = self._running.pop(name)
        try:
            result = self._checked(ended, ready)
            self._store.commit(ready.fresh, result)
            self._succeed(name, result, "done", ended.host)
        except (OSError, WorkflowError) as error:
            self._fail(ended, ready, self._one_line(error))

    def _checked(self, ended: Ended, ready: _Ready) -> Result:
        """The result of an attempt that ended.

        Raises:
            WorkflowError: it failed, wrote too little, or an input changed meanwhile.
        """
        if ended.problem:
            raise WorkflowError(ended.problem)
        code = ended.code
        stage, log = self._workflow.stages[ended.stage], self._store.log(ended.stage)
        if code not in stage.exit_codes:
            accepted = " or ".join(map(str, stage.exit_codes))
            how = f"signal {-code} ended it" if code < 0 else f"exit code {code}"
            if stage.stdout is not None:
                # The folder with this output goes away, and the reason is often in it.
                _append_end(ready.fresh / OUTPUTS_FOLDER / stage.outputs[stage.stdout].path, log)
            raise WorkflowError(f"{how}, expected {accepted}; {log} ends with: {log_tail(log)}")
        hashes: dict[str, str] = {}
        for output, written in stage.outputs.items():
            if not os.path.lexists(ready.fresh / OUTPUTS_FOLDER / written.path):
                raise WorkflowError(f"it ended without writing its output {output} to {written.path}; see {log}")
            hashes[output] = output_hash(ready.fresh, f"{OUTPUTS_FOLDER}/{written.path}")
        for key, given in ready.inputs.items():
            if content_hash(given.shown) != given.hash:
                raise WorkflowError(
                    f"its input {key} changed while it ran ({given.path}); if it writes there itself, declare an "
                    f"output with `copy_of: {key}`"
                )
        return Result(
            key=ready.key,
            stage=ended.stage,
            exit_code=code,
            seconds=ended.seconds,
            hashes=hashes,
            outside=self._read_outside(ended.stage, ready.fresh / NOTE),
        )

    def _read_outside(self, name: str, note: Path) -> dict[str, str]:
        outside = noted_reads(note)
        note.unlink(missing_ok=True)
        if found := [path for path, content in outside.items() if content != ABSENT]:
            self._say(
                f"{name}: read {len(found)} file{'s'[: len(found) > 1]} outside its inputs, such as {shown(found[0])}, "
                "which another computer or a cluster may not have; name a folder with all that it reads as its input"
            )
        return outside

    def _fail(self, ended: Ended, ready: _Ready, message: str) -> None:
        name = ended.stage
        # The death of a computer is no failure of the stage.
        losses = self._losses[name] = self._losses.get(name, 0) + ended.lost
        if ended.lost and losses <= MAX_LOSSES:
            self._say(f"{name}: lost: {message}")
            return
        if self._attempts[name] - losses <= self._workflow.stages[name].retries and not ended.lost:
            self._say(f"{name}: {message}")
            return
        self._report(
            StageReport(
                stage=name,
                state="failed",
                key=ready.key,
                attempts=self._attempts[name],
                seconds=ended.seconds,
                host=ended.host,
                message=message,
            )
        )

    def _succeed(self, name: str, result: Result, state: Literal["cached", "done"], host: str = "") -> None:
        # The cached one may be of a stage with another name.
        result = result.model_copy(update={"stage": name})
        self._store.publish(result)
        self._results[name] = result
        outputs = self._workflow.stages[name].outputs
        paths = {output: str(self._store.output(result.key, written.path)) for output, written in outputs.items()}
        self._report(
            StageReport(
                stage=name,
                state=state,
                key=result.key,
                attempts=self._attempts.get(name, 0),
                seconds=result.seconds,
                host=host,
                outputs=paths,
            )
        )

    def _one_line(self, error: OSError | WorkflowError) -> str:
        if isinstance(error, OSError):
            return disk_problem(error, self._store.folder)
        return str(error)

    def _report(self, report: StageReport) -> None:
        self._reports[report.stage] = report
        duration = f" in {report.seconds:.1f} s" if report.state == "done" else ""
        duration += f" on {report.host}" if report.host and report.state == "done" else ""
        self._say(f"{report.stage}: {report.state}{duration}{f': {report.message}' if report.message else ''}")


def _append_end(printed: Path, log: Path) -> None:
    with printed.open("rb") as source, log.open("ab") as target:
        source.seek(max(0, printed.stat().st_size - _MAX_APPENDED))
        target.write(source.read())


def log_tail(log: Path) -> str:
    """The end of a log in one line."""
    with log.open("rb") as file:
        skipped = max(0, log.stat().st_size - _LOG_TAIL)
        file.seek(skipped)
        words = file.read().decode("utf-8", errors="replace").split()
    # The first word was cut; a single one has no better place.
    return " ".join(["…", *words[1:]] if skipped and len(words) > 1 else words)
