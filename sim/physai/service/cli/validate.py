"""`physai sim validate`: validates an exported policy in a calibrated twin."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from physai.gates.report.validation_options import ValidationOptions, report_folder
from physai.sdk.base.terminal import printable, styled, table
from physai.sdk.cli.verb import AsJson, Option, verb
from physai.service.client.remote_validation import validate

if TYPE_CHECKING:
    from physai.gates.checks.gate import Context, GateFinding
    from physai.gates.runner import ProgressLine
    from physai.sdk.evidence.verdict import GateResult, Verdict

_STYLES = {"PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow"}
_ADVICE = {"PASS": "may be flashed", "FAIL": "must not be flashed", "INCONCLUSIVE": "must not be flashed yet"}


@verb(validate, summary="validate an exported policy in a calibrated twin")
def command(
    call: Callable[..., Verdict],
    *,
    policy: Path,
    options: Annotated[ValidationOptions, Option(flatten=True)],
    report: Path | None = None,
    as_json: AsJson = False,
) -> int:
    """Present the verdict.

    exit code: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or invalid input
    """
    verdict = call(progress=_progress, say=_say)
    if as_json:
        print(json.dumps(verdict.model_dump(mode="json")))
    else:
        print(printable(_text(verdict, report_folder(policy, report), _replay_options(options))))
        print(_conclusion(verdict))
    return verdict.outcome.exit_code


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _replay_options(options: ValidationOptions) -> list[str]:
    """The words with which the user named task and robot; others, a run folder keeps."""
    named = (("--task", options.task), ("--model", options.model))
    return [word for option, value in named if value is not None for word in (option, str(value))]


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
    from physai.gates.report.summary import field_line, reasons, replay_command, shadow_line
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
    if field := field_line(verdict):
        lines.append(f"field     {field}")
    if shadow := shadow_line(verdict):
        lines.append(f"shadow    {shadow}")
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
