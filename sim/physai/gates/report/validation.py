"""Validate an exported policy in a twin and write the report; the Python API of `physai sim validate`."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from physai.gates.checks.gate import Context, GateFinding
from physai.gates.execution.store import BatchStore
from physai.gates.execution.subject import ValidationSubject, open_subject
from physai.gates.judgement import judge
from physai.gates.record import write_record
from physai.gates.report.html import Page, html_report
from physai.gates.report.junit import junit_xml
from physai.gates.report.pictures import filmstrip
from physai.gates.report.summary import replay_options
from physai.gates.runner import ProgressLine, all_gates, find_all
from physai.gates.settings import GateSettings, load_gates
from physai.sdk.base.errors import ContractError, PhysaiError
from physai.sdk.base.files import oserror_as, require_replaceable, write_atomic
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.origin import OriginKind
from physai.sdk.evidence.verdict import VERDICT_FILE, Verdict, save_verdict
from physai.sdk.onnx.device import CPU, PolicyDevice
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import PolicyError
from physai.sdk.signing.ed25519 import PublicKey
from physai.sdk.signing.exam import Exam
from physai.sim.policies.resolve import find_origin, find_policy
from physai.twin.model.twin import Twin, load_twin, nominal_twin

REPORT_FOLDER = "validation"
"""Default report folder, next to the policy."""

HTML_FILE, JUNIT_FILE = "report.html", "junit.xml"

Progress = Callable[[Context], AbstractContextManager[Callable[[Sequence[ProgressLine]], None]]]
"""Opens a progress display and yields a function that is called often, with the lines of all gates."""


@dataclass(frozen=True, kw_only=True)
class ValidationOptions:
    """Options of a validation; the defaults are those of `physai sim validate`."""

    task: str | None = None
    """Built-in task or task file; None for the built-in task that the policy names."""
    robot: str | None = None
    """Robot model file of the task, if the robot is not built in."""
    settings: GateSettings = field(default_factory=GateSettings)
    accept: tuple[OriginKind, ...] = ("robot",)
    """Origins of evidence that may let a gate pass."""
    validators: tuple[PublicKey, ...] = ()
    """Validators whose signatures vouch for a robot's twin and tick times; without one their origin is unknown."""
    latency: LatencyEvidence | None = None
    baseline: Path | None = None
    """Older policy that this one must not be inferior to."""
    reference: Path | None = None
    """Policy that this one was fine-tuned from by preferences; None for that in its run folder."""
    seed: int = 0
    """Seed of the episodes of a rehearsal."""
    exam: Exam | None = None
    """Exam whose episodes are played; None for a rehearsal."""
    jobs: int | None = 1
    """Workers; the verdict does not depend on their number. None for one, with Ray for one per processor."""
    ray: str | None = None
    """Ray cluster of the workers, see `physai.compute.ray.cluster.connected`; None for this computer, without Ray."""
    device: PolicyDevice = CPU
    """What computes the policies; `choose_policy_device` makes sure that it is there."""
    twin_name: str = ""
    """Name of the twin in the report."""


def validate(
    policy: str | Path,
    twin: Twin | str | Path | None = None,
    *,
    task: str | Path | None = None,
    gates: GateSettings | str | Path | None = None,
    report: str | Path | None = None,
    options: ValidationOptions | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Run the ten gates on a policy and write `verdict.json`, `report.html`, `junit.xml` and the record of the run.

    An interrupted run resumes when you start it again with the same arguments.

    Args:
        policy: run folder or exported policy file.
        twin: calibrated twin, or its file; None for the nominal robot, in which no policy passes.
        task: built-in task or task file; None for `options.task`.
        gates: settings of the gates, or their YAML file; None for `options.settings`.
        report: output folder; None for `validation` next to the policy.
        options: see `ValidationOptions`.
        progress: see `Progress`.

    Returns:
        The verdict: PASS, FAIL or INCONCLUSIVE, and the result of each gate.

    Raises:
        PhysaiError: the policy, the twin or the folder is unusable.
    """
    options = options or ValidationOptions()
    if task is not None:
        options = replace(options, task=str(task))
    if gates is not None:
        options = replace(options, settings=gates if isinstance(gates, GateSettings) else load_gates(Path(gates)))
    if isinstance(twin, str | Path):
        options = replace(options, twin_name=options.twin_name or str(twin))
        twin = load_twin(twin)
    path = Path(policy)
    context = open_validation(path, twin, options)
    subject = context.subject
    if options.exam is not None:
        options.exam.require_subject(context.examined)
    folder = _report_folder(Path(report) if report else (path if path.is_dir() else path.parent) / REPORT_FOLDER)
    judges = all_gates(options.latency, context.settings.further)
    store = BatchStore.open(folder, subject)
    with progress(context) if progress else nullcontext(_no_progress) as report_progress:
        findings = find_all(
            context, judges, folder, jobs=options.jobs, progress=report_progress, store=store, ray=options.ray
        )
    verdict = judge(context, judges, findings, folder)
    _write(verdict, findings, subject, folder, options.twin_name)
    # Last, because it moves the state that an interrupted run resumes from.
    write_record(folder, store, context, options.latency)
    return verdict


def _no_progress(lines: Sequence[ProgressLine]) -> None: ...


def open_validation(policy: Path, twin: Twin | None, options: ValidationOptions) -> Context:
    """Read what is validated; `validate` describes the arguments and errors."""
    path = find_policy(policy)
    origin = find_origin(path, task=options.task, robot=options.robot)
    twin = nominal_twin(origin.load().robot) if twin is None else twin
    subject = open_subject(
        path,
        twin,
        origin=origin,
        baseline=options.baseline,
        reference=options.reference,
        seed=options.seed,
        exam=options.exam,
        device=options.device,
    )
    for data in subject.arms.values():
        # The contract gate reports these two errors. A graph that hangs or exhausts memory must not reach any gate, so
        # every other error propagates.
        with contextlib.suppress(PolicyError, ContractError):
            try_policy(data, source=str(path))
    # A quantised policy of another run is refused before hours of simulation.
    _ = subject.run
    return Context(subject, options.settings, options.accept, options.validators)


def _report_folder(folder: Path) -> Path:
    """Create the folder and make sure that it can be written before hours of simulation."""
    with oserror_as(PhysaiError, f"report folder {folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        require_replaceable(probe)
        probe.write_bytes(b"")
        probe.unlink()
    return folder


def _write(
    verdict: Verdict, findings: dict[str, GateFinding], subject: ValidationSubject, folder: Path, twin_name: str
) -> None:
    task = subject.task
    # Before pictures are drawn, which take seconds.
    save_verdict(verdict, folder / VERDICT_FILE)
    page = Page(
        task=task.name,
        criterion=task.success.text,
        policy=str(subject.path),
        twin=twin_name or subject.twin.robot,
        charts={name: finding.chart for name, finding in findings.items()},
        folder=folder,
        options=replay_options(subject.origin),
        film=filmstrip(subject),
    )
    with oserror_as(PhysaiError, f"{folder} cannot be written"):
        write_atomic(folder / HTML_FILE, html_report(verdict, page).encode())
        write_atomic(folder / JUNIT_FILE, junit_xml(verdict, name=task.name))
