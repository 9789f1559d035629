"""Runs all gates of a subject: side by side, resumable, and the same whatever the number of jobs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.verdict import VerdictOutcome
from physai.sim.gates.checks.contract import ContractGate
from physai.sim.gates.checks.engine import EngineGate
from physai.sim.gates.checks.falsification import FalsificationGate
from physai.sim.gates.checks.gate import Context, Gate, GateFinding, Play
from physai.sim.gates.checks.latency import LatencyGate
from physai.sim.gates.checks.non_inferiority import NonInferiorityGate
from physai.sim.gates.checks.parity import ParityGate
from physai.sim.gates.checks.robustness import RobustnessGate
from physai.sim.gates.checks.safety import SafetyGate
from physai.sim.gates.checks.success import SuccessGate
from physai.sim.gates.checks.twin import TwinGate
from physai.sim.gates.execution.batch import Batch, BatchResult
from physai.sim.gates.execution.store import Store
from physai.sim.gates.execution.workers import WorkerAnswer, Workers, make_workers

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
"""Whose batches are played first: those with the longest chain of batches that must follow one another."""

NOT_RUN = "Not asked: the contract gate failed, so whatever this policy does here says nothing of the robot."


@dataclass
class ProgressLine:
    """A gate while it runs, as a progress table shows it."""

    gate: Gate
    most: int
    """Most episodes it may ask for; 0 for gates that play none."""
    episodes: int = 0
    running: bool = False
    finding: GateFinding | None = None


ReportProgress = Callable[[Sequence[ProgressLine]], None]


@dataclass
class _Asking:
    """A gate whose generator waits for batches."""

    line: ProgressLine
    generator: Play
    wanted: list[Batch] = field(default_factory=list[Batch])

    def send(self, answers: Sequence[WorkerAnswer] | None) -> None:
        """Hands over what was played, or why it could not be, and takes what is wanted next or the finding."""
        self.line.running = True
        played = [answer for answer in answers or () if isinstance(answer, BatchResult)]
        refused = [answer for answer in answers or () if isinstance(answer, PhysaiError)]
        self.line.episodes += sum(len(answer) for answer in played)
        try:
            if answers is None:
                batches = next(self.generator)
            else:
                batches = self.generator.throw(refused[0]) if refused else self.generator.send(played)
            self.wanted = list(batches)
        except StopIteration as stop:
            self.line.finding, self.line.running, self.wanted = stop.value, False, []


def all_gates(evidence: LatencyEvidence | None) -> dict[str, Gate]:
    """A gate of each kind by name, in the order of GATES; `evidence` are ticks measured on the target, if there are."""
    gates: dict[str, Gate] = {gate.name: gate() for gate in GATES}
    gates["latency"] = LatencyGate(evidence)
    return gates


def find_all(
    context: Context,
    gates: Mapping[str, Gate],
    report: Path,
    *,
    jobs: int,
    tell: ReportProgress,
    store: Store | None = None,
) -> dict[str, GateFinding]:
    """The findings of all gates by name, in the order of GATES.

    Args:
        context: what is judged, and how.
        gates: see `all_gates`.
        report: folder of the report; holds the state of a run that is not finished.
        jobs: batches played at once.
        tell: gets the progress.
        store: batches that were played already, and gets the others; the state of the run in `report` by default.

    Raises:
        PhysaiError: a file cannot be written, a worker was killed, or the task cannot be played.
    """
    lines = {name: ProgressLine(gate, gate.most_episodes(context)) for name, gate in gates.items()}

    def finish(name: str) -> GateFinding:
        asking = _Asking(lines[name], gates[name].play(context))
        asking.send(None)
        tell(list(lines.values()))
        finding = lines[name].finding
        if finding is None:
            raise RuntimeError(f"gate {name} asks for episodes before it may")
        return finding

    if finish("contract").outcome is VerdictOutcome.FAIL:
        for name, line in lines.items():
            line.finding = line.finding or _not_run(name)
    else:
        finish("twin")
        store = store or Store.open(report, context.subject)
        _play_gates(context, [lines[name] for name in PRIORITY], store, jobs, lambda: tell(list(lines.values())))
        # Timed last, when no worker is busy any more.
        finish("latency")
    tell(list(lines.values()))
    return {name: line.finding for name, line in lines.items() if line.finding is not None}


def _not_run(name: str) -> GateFinding:
    return GateFinding(outcome=VerdictOutcome.INCONCLUSIVE, message=NOT_RUN, next_step="mend the contract first")


def _play_gates(context: Context, lines: list[ProgressLine], store: Store, jobs: int, tell: Callable[[], None]) -> None:
    with make_workers(context.subject, jobs) as workers:
        asking = [_Asking(line, line.gate.play(context)) for line in lines]
        played = _Playing(workers, store)
        for one in asking:
            one.send(None)
        while any(one.line.finding is None for one in asking):
            if not _serve(asking, played):
                played.go_on(asking)
            tell()


def _serve(asking: list[_Asking], playing: "_Playing") -> bool:
    """Answers every gate whose batches are all there; whether there was one."""
    served = False
    for one in asking:
        if one.line.finding is None:
            answers = [playing.answers.get(batch.key) for batch in one.wanted]
            ready = [answer for answer in answers if answer is not None]
            if len(ready) == len(answers):
                one.send(ready)
                served = True
    return served


class _Playing:
    """Batches that are played, each once, however many gates want it."""

    def __init__(self, workers: Workers, store: Store) -> None:
        self._workers, self._store = workers, store
        self._started: set[str] = set()
        self.answers: dict[str, WorkerAnswer] = {}

    def go_on(self, asking: list[_Asking]) -> None:
        """Starts what is wanted and not started yet, and waits for the next batch to end."""
        for batch in [batch for one in asking for batch in one.wanted]:
            if batch.key in self.answers or batch.key in self._started:
                continue
            stored = self._store.get(batch)
            if stored is not None:
                self.answers[batch.key] = stored
                return
            if not self._workers.idle:
                break
            self._started.add(batch.key)
            self._workers.start(batch)
        for batch, answer in self._workers.finished():
            if isinstance(answer, BatchResult):
                self._store.put(batch, answer)
            self.answers[batch.key] = answer
