"""Run all gates of a subject concurrently and resumably; the result does not depend on the number of jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from physai.compute.pool import Workers
from physai.gates.checks.contract import ContractGate
from physai.gates.checks.engine import EngineGate
from physai.gates.checks.falsification import FalsificationGate
from physai.gates.checks.gate import Context, Gate, GateFinding, Play, undecided
from physai.gates.checks.latency import LatencyGate
from physai.gates.checks.non_inferiority import NonInferiorityGate
from physai.gates.checks.parity import ParityGate
from physai.gates.checks.robustness import RobustnessGate
from physai.gates.checks.safety import SafetyGate
from physai.gates.checks.success import SuccessGate
from physai.gates.checks.twin import TwinGate
from physai.gates.execution.store import BatchStore
from physai.gates.execution.workers import WorkerResult, make_workers
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.plugins import PluginError, load_plugin
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.verdict import VerdictOutcome
from physai.twin.rollouts.batch import Batch, BatchResult

GATES: tuple[type[Gate], ...] = (
    ContractGate,
    TwinGate,
    ParityGate,
    SuccessGate,
    NonInferiorityGate,
    SafetyGate,
    RobustnessGate,
    EngineGate,
    FalsificationGate,
    LatencyGate,
)
"""All gates in the order in which a verdict lists them."""

PRIORITY = ("falsification", "engine", "success", "parity", "non-inferiority", "robustness", "safety")
"""Order in which batches are scheduled: gates with the longest chains of dependent batches first."""

GROUP = "physai.gates"
"""Entry-point group of gates of other packages, which `further` of the settings names."""

NOT_RUN = "Not run: the contract gate failed, so results of this policy would not apply to the robot."


class GateError(PluginError):
    """A gate of another package cannot be used."""


@dataclass
class ProgressLine:
    """Progress of a gate."""

    gate: Gate
    most: int
    """Maximum number of episodes; 0 for gates that play none."""
    episodes: int = 0
    running: bool = False
    finding: GateFinding | None = None


ReportProgress = Callable[[Sequence[ProgressLine]], None]


@dataclass
class _RunningGate:
    """A gate whose generator waits for batches."""

    line: ProgressLine
    generator: Play
    wanted: list[Batch] = field(default_factory=list[Batch])

    def send(self, results: Sequence[WorkerResult] | None) -> None:
        """Resume the generator with the results of its batches; None starts it."""
        self.line.running = True
        played = [result for result in results or () if isinstance(result, BatchResult)]
        errors = [result for result in results or () if isinstance(result, PhysaiError)]
        self.line.episodes += sum(len(result) for result in played)
        try:
            if results is None:
                batches = next(self.generator)
            else:
                # A gate may know what an error means: the engine gate turns a ModelError into its finding.
                batches = self.generator.throw(errors[0]) if errors else self.generator.send(played)
            self.wanted = list(batches)
        except StopIteration as stop:
            if not isinstance(stop.value, GateFinding):
                raise GateError(f"the gate {self.line.gate.name!r} returns {stop.value!r}, not a GateFinding") from None
            self.line.finding, self.line.running, self.wanted = stop.value, False, []
        except Exception as error:
            # One of ours that fails is a bug; one of another package may raise anything.
            if isinstance(error, PhysaiError) or type(self.line.gate) in GATES:
                raise
            name = self.line.gate.name
            raise GateError(f"the gate {name!r} fails: {type(error).__name__}: {error}") from error


def all_gates(evidence: LatencyEvidence | None, further: Sequence[str] = ()) -> dict[str, Gate]:
    """Return one gate of each kind by name, in the order of GATES, then those of installed packages.

    Args:
        evidence: latency measured on the target.
        further: names of gates in the entry-point group `physai.gates`.

    Raises:
        UnknownNameError: no installed package has a gate of a name.
        GateError: two packages have one, it is no gate, or it takes the name of one that is built in.
    """
    gates: dict[str, Gate] = {gate.name: gate() for gate in GATES}
    gates["latency"] = LatencyGate(evidence)
    for name in further:
        if name in gates:
            raise GateError(f"the gate {name!r} is built in; give another name to the one of the package")
        made: object = load_plugin(GROUP, "gate", name, error=GateError)
        if not (isinstance(made, type) and issubclass(made, Gate) and made.name == name):
            raise GateError(f"the gate {name!r} of the group {GROUP} is {made!r}; give a subclass of Gate of that name")
        gates[name] = made()
    return gates


def find_all(
    context: Context,
    gates: Mapping[str, Gate],
    report: Path,
    *,
    jobs: int | None,
    progress: ReportProgress,
    store: BatchStore | None = None,
    ray: str | None = None,
) -> dict[str, GateFinding]:
    """Run all gates and return their findings by name, in the order of GATES.

    Args:
        context: subject and settings of the run.
        gates: see `all_gates`.
        report: report folder, which holds the state of an unfinished run.
        jobs: number of batches to play at once, see `make_workers`.
        progress: called with the progress of all gates.
        store: results of batches; by default the state of the run in `report`.
        ray: where to play them, see `make_workers`.

    Raises:
        PhysaiError: a file cannot be written, a worker was killed, or the task cannot be played.
    """
    lines = {name: ProgressLine(gate, gate.most_episodes(context)) for name, gate in gates.items()}

    def run_direct(name: str) -> GateFinding:
        _RunningGate(lines[name], gates[name].play(context)).send(None)
        progress(list(lines.values()))
        finding = lines[name].finding
        if finding is None:
            raise RuntimeError(f"gate {name} must not request episodes")
        return finding

    if run_direct("contract").outcome is VerdictOutcome.FAIL:
        for line in lines.values():
            line.finding = line.finding or undecided(NOT_RUN, "fix the contract first")
    else:
        # The twin gate needs no episodes, and its finding shows while the others run.
        run_direct("twin")
        store = store or BatchStore.open(report, context.subject)
        workers = make_workers(context.subject, jobs, ray=ray)
        played = [*PRIORITY, *context.settings.further]
        _play_gates(context, [lines[name] for name in played], store, workers, lambda: progress(list(lines.values())))
        # Last: busy workers would distort its timing.
        run_direct("latency")
    progress(list(lines.values()))
    return {name: line.finding for name, line in lines.items() if line.finding is not None}


def _play_gates(
    context: Context,
    lines: list[ProgressLine],
    store: BatchStore,
    made: Workers[Batch, BatchResult],
    on_progress: Callable[[], None],
) -> None:
    with made as workers:
        running = [_RunningGate(line, line.gate.play(context)) for line in lines]
        scheduler = _Scheduler(workers, store)
        for gate in running:
            gate.send(None)
        while any(gate.line.finding is None for gate in running):
            if not _resume_ready(running, scheduler):
                scheduler.advance(running)
            on_progress()


def _resume_ready(running: list[_RunningGate], scheduler: "_Scheduler") -> bool:
    """Resume every gate whose batches are all done; whether there was one."""
    resumed = False
    for gate in running:
        if gate.line.finding is None and all(batch.key in scheduler.results for batch in gate.wanted):
            gate.send([scheduler.results[batch.key] for batch in gate.wanted])
            resumed = True
    return resumed


class _Scheduler:
    """Plays each batch once, however many gates request it."""

    def __init__(self, workers: Workers[Batch, BatchResult], store: BatchStore) -> None:
        self._workers, self._store = workers, store
        self._started: set[str] = set()
        self.results: dict[str, WorkerResult] = {}

    def advance(self, running: list[_RunningGate]) -> None:
        """Start requested batches on idle workers and wait for the next one to end."""
        for batch in [batch for gate in running for batch in gate.wanted]:
            if batch.key in self.results or batch.key in self._started:
                continue
            stored = self._store.get(batch)
            if stored is not None:
                # The gate may be able to resume now, so look there before starting anything else.
                self.results[batch.key] = stored
                return
            if not self._workers.idle:
                break
            self._started.add(batch.key)
            self._workers.start(batch)
        for batch, result in self._workers.finished():
            if isinstance(result, BatchResult):
                self._store.put(batch, result)
            self.results[batch.key] = result
