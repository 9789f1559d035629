"""Validate an exported policy in a twin and write the report; the Python API of `physai sim validate`."""

import contextlib
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

from physai.compute.pool import require_jobs
from physai.compute.ray.cluster import check_address
from physai.gates.checks.gate import Context, GateFinding
from physai.gates.execution.command_grid import COMMAND, CommandGrid, played_grid
from physai.gates.execution.shadow_facts import read_shadows, require_shadows_of
from physai.gates.execution.store import BatchStore
from physai.gates.execution.subject import ValidationSubject, open_subject
from physai.gates.judgement import judge
from physai.gates.record import write_record
from physai.gates.report.html import Page, html_report
from physai.gates.report.junit import junit_xml
from physai.gates.report.pictures import filmstrip
from physai.gates.report.summary import replay_options
from physai.gates.report.validation_options import ValidationOptions, report_folder
from physai.gates.runner import ProgressLine, all_gates, find_all
from physai.gates.settings import GateSettings, load_gates
from physai.sdk.base.errors import ContractError, PhysaiError
from physai.sdk.base.files import oserror_as, require_replaceable, write_atomic
from physai.sdk.base.parameters.arguments import require_range
from physai.sdk.evidence.field_episodes import load_field_episodes
from physai.sdk.evidence.latency import load_evidence
from physai.sdk.evidence.origin import parse_accepted
from physai.sdk.evidence.verdict import VERDICT_FILE, Verdict, save_verdict
from physai.sdk.onnx.trial import try_policy
from physai.sdk.policy.header import PolicyError
from physai.sdk.signing.exam import Exam, load_exam
from physai.sim.policies.devices import choose_policy_device
from physai.sim.policies.resolve import find_origin, find_policy
from physai.twin.model.twin import Twin, load_twin, nominal_twin

HTML_FILE, JUNIT_FILE, COMMANDS_FILE = "report.html", "junit.xml", "commands.json"

Progress = Callable[[Context], AbstractContextManager[Callable[[Sequence[ProgressLine]], None]]]
"""Opens a progress display and yields a function that is called often, with the lines of all gates."""


MAX_SEED = 2**20 - 1


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
        gates: settings of the gates, or their YAML file; None for `options.gates`.
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
        options = replace(options, task=task)
    if gates is not None:
        options = replace(options, gates=gates)
    require_range("seed", options.seed, 0, MAX_SEED)
    if options.jobs is not None:
        require_jobs(options.jobs)
    if options.ray is not None:
        check_address(options.ray)
    path = Path(policy)
    latency = load_evidence(Path(options.latency)) if isinstance(options.latency, str | Path) else options.latency
    exam = load_exam(Path(options.exam)) if isinstance(options.exam, str | Path) else options.exam
    context = open_validation(path, twin, options, exam)
    subject = context.subject
    if exam is not None:
        exam.require_subject(context.examined)
    folder = _writable(report_folder(path, report))
    judges = all_gates(latency, context.settings.further)
    store = BatchStore.open(folder, subject)
    with progress(context) if progress else nullcontext(_no_progress) as report_progress:
        findings = find_all(
            context, judges, folder, jobs=options.jobs, progress=report_progress, store=store, ray=options.ray
        )
    verdict = judge(context, judges, findings, folder)
    _write(verdict, findings, subject, folder, _twin_name(twin))
    # Last, because it moves the state that an interrupted run resumes from.
    write_record(folder, store, context, latency)
    return verdict


def _no_progress(lines: Sequence[ProgressLine]) -> None: ...


def open_validation(
    policy: Path, twin: Twin | str | Path | None, options: ValidationOptions, exam: Exam | None = None
) -> Context:
    """Read what is validated; `validate` describes the arguments and errors."""
    device = choose_policy_device(options.device) if isinstance(options.device, str) else options.device
    twin = load_twin(twin) if isinstance(twin, str | Path) else twin
    gates = options.gates or GateSettings()
    settings = gates if isinstance(gates, GateSettings) else load_gates(Path(gates))
    given = options.accept
    accept = parse_accepted(given, option="`accept`") if isinstance(given, str) else tuple(given)
    path = find_policy(policy)
    task, model = (None if word is None else str(word) for word in (options.task, options.model))
    origin = find_origin(path, task=task, robot=model)
    twin = nominal_twin(origin.load().robot) if twin is None else twin
    subject = open_subject(
        path,
        twin,
        origin=origin,
        baseline=None if options.baseline is None else Path(options.baseline),
        reference=None if options.reference is None else Path(options.reference),
        seed=options.seed,
        exam=exam,
        device=device,
    )
    for data in subject.arms.values():
        # The contract gate reports these two errors. A graph that hangs or exhausts memory must not reach any gate, so
        # every other error propagates.
        with contextlib.suppress(PolicyError, ContractError):
            try_policy(data, source=str(path))
    # A quantised policy of another run is refused before hours of simulation.
    _ = subject.run
    field = load_field_episodes(options.field) if isinstance(options.field, str | Path) else options.field
    shadows = read_shadows(options.shadow)
    require_shadows_of(shadows, subject, accept)
    return Context(subject, settings, accept, tuple(options.validators), field=field, shadows=shadows)


def _writable(folder: Path) -> Path:
    """Create the folder and make sure that it can be written before hours of simulation."""
    with oserror_as(PhysaiError, f"report folder {folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        require_replaceable(probe)
        probe.write_bytes(b"")
        probe.unlink()
    return folder


def _twin_name(twin: Twin | str | Path | None) -> str:
    """Name of the twin in the report."""
    if twin is None:
        return "the nominal robot, not calibrated"
    return "" if isinstance(twin, Twin) else str(twin)


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
        commands=_commands(subject),
    )
    with oserror_as(PhysaiError, f"{folder} cannot be written"):
        if page.commands is not None:
            write_atomic(folder / COMMANDS_FILE, json.dumps(page.commands.record, indent=2).encode())
        write_atomic(folder / HTML_FILE, html_report(verdict, page).encode())
        write_atomic(folder / JUNIT_FILE, junit_xml(verdict, name=task.name))


def _commands(subject: ValidationSubject) -> CommandGrid | None:
    """Answers of a policy that walks to a grid of commands; None for others, and for one that cannot be played."""
    if all(field.name != COMMAND for field in subject.task.contract.command.fields):
        return None
    # The contract gate says why.
    with contextlib.suppress(PhysaiError):
        return played_grid(subject.policy(), subject.task, subject.path)
    return None
