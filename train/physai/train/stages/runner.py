"""Runs a workflow on this computer: independent stages at the same time, finished ones never again."""

import os
import select
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from physai.train.stages.content import content_hash
from physai.train.stages.model import Stage, Workflow
from physai.train.stages.processes import Attempt
from physai.train.stages.resources import Limits, Pool
from physai.train.stages.store import OUTPUTS_FOLDER, Result, Store, stage_key
from physai.train.stages.workflow_file import WorkflowError, in_order

_LOG_TAIL = 400
"""Characters of a log that a message repeats."""


@dataclass(frozen=True, kw_only=True)
class StageReport:
    """What became of a stage."""

    stage: str
    state: Literal["cached", "done", "failed", "skipped"]
    """`cached`: an earlier result has the same key; `skipped`: a stage that it needs failed."""
    key: str | None = None
    """Hash of what the result depends on."""
    attempts: int = 0
    seconds: float = 0.0
    """How long the last attempt took, also if that was in an earlier run [s]."""
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
    paths: dict[str, Path]
    hashes: dict[str, str]


class WorkflowRun:
    """One run of a workflow.

    Args:
        workflow: a workflow without findings of `physai.train.stages.lint.lint`.
        source: folder of its file.
        store: earlier results, and where to put new ones; locked by the caller.
        limits: what stages that run at the same time may occupy together.
        say: receives one line of progress.
        again: stages to run even if they have a result, such as measurements.
    """

    def __init__(
        self,
        workflow: Workflow,
        source: Path,
        store: Store,
        limits: Limits,
        say: Callable[[str], None],
        *,
        again: Collection[str] = (),
    ) -> None:
        self._again = again
        self._workflow, self._source, self._store, self._say = workflow, source.absolute(), store, say
        self._pool = Pool(limits)
        self._reports: dict[str, StageReport] = {}
        self._running: dict[str, tuple[_Ready, Attempt, list[int]]] = {}
        self._attempts: dict[str, int] = {}
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
        # What a single stage needs may have been made elsewhere, on a larger computer.
        for name in wanted if until is None else [until]:
            self._require_possible(name)
        try:
            while self._start(wanted):
                self._wait()
        finally:
            for _, attempt, _ in self._running.values():
                attempt.stop()
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
        self._pool.require(name, stage)
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

    def _begin(self, name: str) -> None:
        """Take an earlier result of a stage, or start it if its resources are free."""
        stage = self._workflow.stages[name]
        try:
            ready = self._ready(name, stage)
            # Of stages that are the same but for their names, one runs.
            if any(other.key == ready.key for other, _, _ in self._running.values()):
                return
            result = None if name in self._again else self._store.find(ready.key, stage)
            if result is not None:
                self._succeed(name, result, "cached")
                return
            self._require_possible(name)
            if (gpus := self._pool.take(stage)) is not None:
                self._launch(name, ready, gpus)
        except WorkflowError as error:
            attempts = self._attempts.get(name, 0)
            self._report(StageReport(stage=name, state="failed", attempts=attempts, message=str(error)))

    def _launch(self, name: str, ready: _Ready, gpus: list[int]) -> None:
        self._attempts[name] = number = self._attempts.get(name, 0) + 1
        fresh, log = self._store.begin(name), self._store.log(name)
        attempt = Attempt(self._workflow.stages[name], ready.paths, fresh, log, gpus=gpus, first=number == 1)
        self._running[name] = (ready, attempt, gpus)
        self._say(f"{name}: started" + ("" if number == 1 else f", attempt {number}"))

    def _ready(self, name: str, stage: Stage) -> _Ready:
        paths: dict[str, Path] = {}
        hashes: dict[str, str] = {}
        for key, given in stage.inputs.items():
            if given.origin is None:
                paths[key] = (self._source / str(given.path)).resolve()
                hashes[key] = content_hash(paths[key])
            else:
                source, output = given.origin
                result = self._results[source]
                paths[key] = self._store.output(result.key, self._workflow.stages[source].outputs[output].path)
                hashes[key] = result.hashes[output]
        named = {key: (paths[key].name, hashes[key]) for key in paths}
        return _Ready(key=stage_key(stage, named), paths=paths, hashes=hashes)

    def _wait(self) -> None:
        """Wait until a stage ends, and settle those that did."""
        poll = select.poll()
        names = {attempt.pidfd: name for name, (_, attempt, _) in self._running.items()}
        for pidfd in names:
            poll.register(pidfd, select.POLLIN)
        for pidfd, _ in poll.poll():
            self._settle(names[pidfd])

    def _settle(self, name: str) -> None:
        stage = self._workflow.stages[name]
        ready, attempt, gpus = self._running[name]
        code = attempt.finish()
        del self._running[name]
        self._pool.give_back(stage, gpus)
        try:
            result = self._checked(name, ready, attempt, code)
        except WorkflowError as error:
            self._fail(name, ready, attempt, str(error))
        else:
            self._store.commit(attempt.fresh, result)
            self._succeed(name, result, "done")

    def _checked(self, name: str, ready: _Ready, attempt: Attempt, code: int) -> Result:
        """The result of an attempt that ended.

        Raises:
            WorkflowError: it failed, wrote too little, or an input changed meanwhile.
        """
        stage, log = self._workflow.stages[name], self._store.log(name)
        if code not in stage.exit_codes:
            accepted = " or ".join(map(str, stage.exit_codes))
            how = f"signal {-code} ended it" if code < 0 else f"exit code {code}"
            raise WorkflowError(f"{how}, expected {accepted}; {log} ends with: {_tail(log)}")
        hashes: dict[str, str] = {}
        for output, written in stage.outputs.items():
            path = attempt.fresh / OUTPUTS_FOLDER / written.path
            if not os.path.lexists(path):
                raise WorkflowError(f"it ended without writing its output {output} to {written.path}; see {log}")
            hashes[output] = content_hash(path)
        for key, path in ready.paths.items():
            if content_hash(path) != ready.hashes[key]:
                raise WorkflowError(
                    f"its input {key} changed while it ran ({path}); if it writes there itself, declare an output "
                    f"with `copy_of: {key}`"
                )
        return Result(key=ready.key, stage=name, exit_code=code, seconds=attempt.seconds, hashes=hashes)

    def _fail(self, name: str, ready: _Ready, attempt: Attempt, message: str) -> None:
        if self._attempts[name] <= self._workflow.stages[name].retries:
            self._say(f"{name}: {message}")
            return
        self._report(
            StageReport(
                stage=name,
                state="failed",
                key=ready.key,
                attempts=self._attempts[name],
                seconds=attempt.seconds,
                message=message,
            )
        )

    def _succeed(self, name: str, result: Result, state: Literal["cached", "done"]) -> None:
        # The cached one may be of a stage with another name.
        result = result.model_copy(update={"stage": name})
        self._results[name] = result
        self._store.publish(result)
        outputs = self._workflow.stages[name].outputs
        paths = {output: str(self._store.output(result.key, written.path)) for output, written in outputs.items()}
        self._report(
            StageReport(
                stage=name,
                state=state,
                key=result.key,
                attempts=self._attempts.get(name, 0),
                seconds=result.seconds,
                outputs=paths,
            )
        )

    def _report(self, report: StageReport) -> None:
        self._reports[report.stage] = report
        duration = f" in {report.seconds:.1f} s" if report.state == "done" else ""
        self._say(f"{report.stage}: {report.state}{duration}{f': {report.message}' if report.message else ''}")


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL))
        return " ".join(file.read().decode("utf-8", errors="replace").split())
