"""Judge an exported policy in a twin, and write the report: what `physai sim validate` does, for programs."""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from physai.sdk.base.errors import ContractError, PhysaiError
from physai.sdk.base.files import require_replaceable, write_atomic
from physai.sdk.evidence.latency import LatencyEvidence
from physai.sdk.evidence.origin import OriginKind
from physai.sdk.evidence.verdict import VERDICT_FILE, Verdict, save_verdict
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import PolicyError
from physai.sim.gates.checks.gate import Context, GateFinding
from physai.sim.gates.execution.store import Store
from physai.sim.gates.execution.subject import ValidationSubject, open_subject
from physai.sim.gates.judgement import judge
from physai.sim.gates.record import write_record
from physai.sim.gates.runner import ProgressLine, all_gates, find_all
from physai.sim.gates.settings import GateSettings
from physai.sim.policies.resolve import find_origin, find_policy
from physai.sim.report.html import Page, html_report
from physai.sim.report.junit import junit_xml
from physai.sim.twin.twin import Twin, nominal_twin

REPORT_FOLDER = "validation"
"""Folder of the report, next to the policy, where no other is named."""

HTML_FILE, JUNIT_FILE = "report.html", "junit.xml"

Progress = Callable[[Context], AbstractContextManager[Callable[[Sequence[ProgressLine]], None]]]
"""Opens a display of the progress; what it yields is called with the lines of all gates, often."""


@dataclass(frozen=True, kw_only=True)
class ValidationOptions:
    """What to ask for; the defaults are those of `physai sim validate`."""

    task: str | None = None
    """Built-in task or task file to play; None for the built-in one that the policy names."""
    robot: str | None = None
    """Robot model of the task, where it is a file."""
    settings: GateSettings = field(default_factory=GateSettings)
    accept: tuple[OriginKind, ...] = ("robot",)
    """Origins of evidence that may count as the robot's."""
    latency: LatencyEvidence | None = None
    baseline: Path | None = None
    """Older policy that this one must not be worse than."""
    seed: int = 0
    jobs: int = 1
    """Worker processes; the verdict does not depend on their number."""
    twin_name: str = ""
    """What the report calls the twin."""


def validate(
    policy: str | Path,
    twin: Twin | None = None,
    *,
    report: str | Path | None = None,
    options: ValidationOptions | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Run the ten gates on a policy and write `verdict.json`, `report.html`, `junit.xml` and the record of the run.

    An interrupted run continues where it stopped when it is started again with the same arguments.

    Args:
        policy: run folder or exported policy file.
        twin: calibrated twin; None for the nominal robot, in which no policy passes.
        report: folder for the results; None for `validation` next to the policy.
        options: see `ValidationOptions`.
        progress: see `Progress`.

    Returns:
        The verdict: PASS, FAIL or INCONCLUSIVE, and the result of each gate.

    Raises:
        PhysaiError: the policy, the twin or the folder cannot be used.
    """
    given = options or ValidationOptions()
    subject = _open(Path(policy), twin, given)
    path = Path(policy)
    folder = _report_folder(Path(report) if report else (path if path.is_dir() else path.parent) / REPORT_FOLDER)
    context, gates = Context(subject, given.settings, given.accept), all_gates(given.latency)
    store = Store.open(folder, subject)
    with progress(context) if progress else nullcontext(_ignore) as tell:
        findings = find_all(context, gates, folder, jobs=given.jobs, tell=tell, store=store)
    verdict = judge(context, gates, findings, folder)
    _write(verdict, findings, subject, folder, given.twin_name)
    write_record(folder, store, context, given.latency)
    return verdict


def _ignore(lines: Sequence[ProgressLine]) -> None:
    """No progress is shown."""


def _open(policy: Path, twin: Twin | None, options: ValidationOptions) -> ValidationSubject:
    path = find_policy(policy)
    origin = find_origin(path, task=options.task, robot=options.robot)
    judged_in = nominal_twin(origin.load().robot) if twin is None else twin
    subject = open_subject(path, judged_in, origin=origin, baseline=options.baseline, seed=options.seed)
    for data in subject.arms.values():
        # The contract gate reports what is refused here. A graph that hangs or takes all memory must not be loaded
        # by any gate, so that error is not suppressed.
        with contextlib.suppress(PolicyError, ContractError):
            try_policy(data, source=str(path))
    return subject


def _report_folder(folder: Path) -> Path:
    """Create the folder and make sure that it can be written before hours of simulation."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        require_replaceable(probe)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise PhysaiError(f"report folder {folder} cannot be written: {error.strerror}") from None
    return folder


def _write(
    verdict: Verdict, findings: dict[str, GateFinding], subject: ValidationSubject, folder: Path, twin_name: str
) -> None:
    task = subject.task
    page = Page(
        task=task.name,
        criterion=task.success.text,
        policy=str(subject.path),
        twin=twin_name or subject.twin.robot,
        charts={name: finding.chart for name, finding in findings.items()},
        folder=folder,
    )
    save_verdict(verdict, folder / VERDICT_FILE)
    try:
        write_atomic(folder / HTML_FILE, html_report(verdict, page).encode())
        write_atomic(folder / JUNIT_FILE, junit_xml(verdict, name=task.name))
    except OSError as error:
        raise PhysaiError(f"{folder} cannot be written: {error.strerror}") from None
