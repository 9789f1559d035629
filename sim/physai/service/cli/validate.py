"""`physai sim validate`: validates an exported policy in a calibrated twin."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physai.compute.cli.options import add_device_argument, add_worker_arguments, check_worker_options, require_range
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.command import CliCommand
from physai.sdk.cli.shared.key_files import default_trust
from physai.sdk.cli.shared.signed_evidence import add_trust_argument, trusted_validators

if TYPE_CHECKING:
    from physai.gates.checks.gate import Context, GateFinding
    from physai.gates.runner import ProgressLine
    from physai.sdk.evidence.verdict import GateResult, Verdict

MAX_SEED = 2**20 - 1
_STYLES = {"PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow"}
_ADVICE = {"PASS": "may be flashed", "FAIL": "must not be flashed", "INCONCLUSIVE": "must not be flashed yet"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `physai sim validate`."""
    parser.add_argument("policy", type=Path, metavar="POLICY", help="run folder or exported policy.onnx")
    parser.add_argument(
        "--twin",
        type=Path,
        metavar="TWIN",
        help="twin.json of `physai sim calibrate`; without it the nominal robot is used and no policy can pass",
    )
    parser.add_argument(
        "--task", help="task name, Python file, or run folder whose copy is to be run, if the task is not built in"
    )
    parser.add_argument(
        "--robot", help="MJCF or URDF file that the policy was trained with, if its run folder does not keep it"
    )
    parser.add_argument("--gates", type=Path, metavar="YAML", help="gate settings (default: built in)")
    parser.add_argument(
        "--accept",
        metavar="KIND,…",
        default="robot",
        help="also accept evidence of these origins: stand-in, computer, unknown; robots reject it by default",
    )
    add_trust_argument(parser)
    parser.add_argument("--baseline", type=Path, metavar="POLICY", help="older policy that it must not underperform")
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="POLICY",
        help="policy that it was fine-tuned from by preferences (default: the one in its run folder)",
    )
    parser.add_argument("--latency", type=Path, metavar="JSON", help="tick durations measured on the target computer")
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="folder for the report (default: `validation`, next to the policy)"
    )
    add_worker_arguments(parser)
    episodes = parser.add_mutually_exclusive_group()
    episodes.add_argument("--seed", type=int, default=0, help="seed of the episodes of a rehearsal (default: 0)")
    episodes.add_argument("--exam", type=Path, metavar="FILE", help="play the episodes of this opened exam")
    add_device_argument(parser)
    parser.add_argument(
        "--server", metavar="URL", help="validate in this service of `physai sim serve`; token in PHYSAI_TOKEN"
    )
    parser.add_argument("--json", action="store_true", help="print the verdict as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Validates the policy; exit code 0 for PASS, 1 for FAIL, 2 for INCONCLUSIVE or invalid input."""
    from physai.gates.report.validation import REPORT_FOLDER, ValidationOptions, validate
    from physai.gates.settings import GateSettings, load_gates
    from physai.sdk.evidence.latency import load_evidence
    from physai.sdk.evidence.origin import parse_accepted
    from physai.sdk.signing.exam import load_exam
    from physai.sim.policies.devices import choose_policy_device
    from physai.twin.model.twin import load_twin

    require_range("--seed", arguments.seed, 0, MAX_SEED)
    check_worker_options(arguments)
    policy: Path = arguments.policy
    if arguments.server is not None:
        return _run_on_server(arguments)
    device = choose_policy_device(arguments.device)
    report: Path = arguments.report or (policy if policy.is_dir() else policy.parent) / REPORT_FOLDER
    twin = None if arguments.twin is None else load_twin(arguments.twin)
    options = ValidationOptions(
        task=arguments.task,
        robot=arguments.robot,
        settings=GateSettings() if arguments.gates is None else load_gates(arguments.gates),
        accept=parse_accepted(arguments.accept, option="--accept"),
        validators=trusted_validators(arguments.trust),
        latency=None if arguments.latency is None else load_evidence(arguments.latency),
        baseline=arguments.baseline,
        reference=arguments.reference,
        seed=arguments.seed,
        exam=None if arguments.exam is None else load_exam(arguments.exam),
        jobs=arguments.jobs,
        ray=arguments.ray,
        device=device,
        twin_name="the nominal robot, not calibrated" if twin is None else str(arguments.twin),
    )
    verdict = validate(policy, twin, report=report, options=options, progress=_progress)
    return _print(verdict, report, arguments)


def _run_on_server(arguments: argparse.Namespace) -> int:
    """Validates in a service and writes its report here."""
    import os

    from physai.gates.report.validation import REPORT_FOLDER
    from physai.sdk.evidence.verdict import VERDICT_FILE, load_verdict
    from physai.service.client.remote_validation import validate_on_server

    if arguments.baseline is not None:
        raise PhysaiError("--baseline works without --server only")
    if arguments.ray is not None:
        raise PhysaiError(f"--ray {arguments.ray} works without --server only; `physai sim serve --ray` has an own one")
    if arguments.device != "cpu":
        raise PhysaiError(
            f"--device {arguments.device} works without --server only; a service computes where "
            "`physai sim serve --device` says"
        )
    policy: Path = arguments.policy
    report: Path = arguments.report or (policy if policy.is_dir() else policy.parent) / REPORT_FOLDER
    validate_on_server(
        arguments.server,
        policy,
        report,
        twin=arguments.twin,
        robot=None if arguments.robot is None else Path(arguments.robot),
        gates=arguments.gates,
        latency=arguments.latency,
        exam=arguments.exam,
        trust=arguments.trust or (default_trust() if default_trust().exists() else None),
        reference=arguments.reference,
        options={"task": arguments.task, "seed": arguments.seed, "accept": arguments.accept},
        access_token=os.environ.get("PHYSAI_TOKEN"),
        progress=lambda line: print(line, file=sys.stderr, flush=True),
    )
    return _print(load_verdict(report / VERDICT_FILE), report, arguments)


def _replay_options(arguments: argparse.Namespace) -> list[str]:
    """The words with which the user named task and robot; others, a run folder keeps."""
    named = (("--task", arguments.task), ("--robot", arguments.robot))
    return [word for option, value in named if value is not None for word in (option, value)]


def _print(verdict: Verdict, report: Path, arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(verdict.model_dump(mode="json")))
    else:
        print(printable(_text(verdict, report, _replay_options(arguments))))
        print(_conclusion(verdict))
    return verdict.outcome.exit_code


@contextlib.contextmanager
def _progress(context: Context) -> Generator[Callable[[Sequence[ProgressLine]], None]]:
    """Shows a live table on a terminal, otherwise one line per finished gate, on stderr."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    # In a log file a table that redraws itself would be unreadable.
    if not sys.stderr.isatty():
        reported: set[str] = set()

        def report(lines: Sequence[ProgressLine]) -> None:
            for line in lines:
                if line.finding is not None and line.gate.name not in reported:
                    reported.add(line.gate.name)
                    text = " ".join(part for part in (line.finding.shown, _first_value(line.finding)) if part)
                    print(f"{line.gate.name}: {text}", file=sys.stderr, flush=True)

        yield report
        return
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        yield lambda lines: live.update(_live_table(lines, context))


def _live_table(lines: Sequence[ProgressLine], context: Context) -> Any:
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    grid = Table(title=f"{context.subject.task.name}: {context.subject.path}", title_justify="left", box=None)
    grid.add_column("gate")
    grid.add_column("")
    grid.add_column("episodes", justify="right")
    grid.add_column("measured")
    for line in lines:
        finding = line.finding
        state: Any = Text("waiting", "dim")
        if finding is not None:
            state = Text(finding.shown, _STYLES.get(finding.shown, "dim"))
        elif line.running:
            state = Spinner("dots", "playing")
        most = f" of ≤ {line.most}" if line.running and line.most else ""
        episodes = f"{line.episodes}{most}" if line.episodes or (line.running and line.most) else ""
        grid.add_row(line.gate.name, state, episodes, _first_value(finding))
    return grid


def _first_value(result: GateFinding | GateResult | None) -> str:
    """The measurement that decides, which findings list first."""
    if result is None or not result.measured:
        return ""
    first = result.measured[0]
    return f"{first.name} {first.value:.4g}"


def _text(verdict: Verdict, report: Path, options: Sequence[str]) -> str:
    """The gates as a table, then the reasons why the verdict is not PASS."""
    from physai.gates.report.summary import reasons, replay_command
    from physai.sdk.evidence.verdict import VerdictOutcome

    rows = [[g.gate, g.shown, str(g.episodes or ""), _first_value(g)] for g in verdict.gates]
    lines = [table(["gate", "outcome", "episodes", "measured"], rows, indent="")]
    summary = reasons(verdict)
    for gate in summary.blocking:
        cause = f" ({gate.cause.value})" if gate.cause else ""
        lines.append(f"\n{gate.gate}{cause}: {gate.message}\n  → {gate.next_step}")
        if gate.counterexample is not None and gate.counterexample.recording:
            lines.append(f"  → {replay_command(gate.counterexample.index, report, options)}")
    passed = [gate for gate in verdict.gates if gate.outcome is VerdictOutcome.PASS]
    lines += [f"\ncontract, a note: {gate.message}" for gate in passed if gate.gate == "contract" and gate.message]
    if summary.waiting:
        lines.append(f"\n{', '.join(summary.waiting)}: would pass in a credible twin")
    evidence = verdict.evidence
    lines.append(f"\ntwin      from {evidence.twin}\nlatency   from {evidence.latency}")
    lines.append(f"episodes  {verdict.episodes}")
    if verdict.device is not None:
        lines.append(f"device    {verdict.device}")
    lines.append(f"run       {verdict.run or 'unknown: the policy names none'}")
    if verdict.preferences is not None:
        learned = verdict.preferences
        lines.append(f"learned   from preferences {learned.database}, {learned.rater_count} raters {learned.raters}")
        lines.append(f"          reward model {learned.reward_model}, reference {learned.reference or 'none'}")
    lines.append(f"settings  {verdict.gates_sha256}")
    lines.append(f"report    {report / 'report.html'}")
    return "\n".join(lines)


def _conclusion(verdict: Verdict) -> str:
    from physai.gates.report.summary import who_accepts

    outcome = verdict.outcome.value
    colour = {"PASS": "green", "FAIL": "red"}.get(outcome, "bold")
    text = f"{styled(outcome, colour, sys.stdout)}: this policy {_ADVICE[outcome]}"
    return f"{text} {who_accepts(verdict)}".rstrip()


command = CliCommand(summary="validate an exported policy in a calibrated twin", add_arguments=add_arguments, run=run)
"""The verb `sim validate`."""
