"""Render a verdict as a self-contained HTML page: the answer first, then the evidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from physai.gates.execution.command_grid import CommandGrid
from physai.gates.report.pictures import Filmstrip
from physai.gates.report.plots import plots
from physai.gates.report.summary import field_line, reasons, shadow_line, who_accepts
from physai.sdk.evidence.verdict import GateResult, Measurement, Verdict, VerdictOutcome
from physai.sdk.pages.style import STYLE

WORDS = {VerdictOutcome.PASS: "Yes", VerdictOutcome.FAIL: "No", VerdictOutcome.INCONCLUSIVE: "Not yet"}
"""Answers to "may I flash it?"."""
CONDITIONAL = "Not by default"
"""Answer for a PASS on evidence that robots reject unless their owner accepts it."""

# More would push the table of gates off the first screen.
MAX_REASONS = 4
"""Blocking gates explained at the top of the page; further ones are only named."""


@dataclass(frozen=True)
class Page:
    """Content of a page in addition to the verdict."""

    task: str
    criterion: str
    """The task's success criterion in words."""
    policy: str
    """Path of the policy as the user gave it."""
    twin: str
    """Name or path of the twin."""
    charts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Numbers to plot, by gate."""
    folder: Path | None = None
    """Report folder, which holds the recordings of counterexamples."""
    options: Sequence[str] = ()
    """Words that name task and robot in the commands that replay them."""
    film: Filmstrip | None = None
    """Pictures of an episode."""
    commands: CommandGrid | None = None
    """Answers to a grid of commands."""


def html_report(verdict: Verdict, page: Page) -> str:
    """Return the page: HTML with inline styles and SVG that loads no other resource."""
    body = "".join(
        [
            *_answer(verdict, page),
            *_filmstrip(page.film),
            *_gates(verdict),
            *plots(verdict, page.charts, page.folder, page.options),
            *_commands(page.commands),
            *_details(verdict),
            *_identity(verdict, page),
        ]
    )
    title = f"May I flash it? {_word(verdict)}: {page.task}"
    # The content security policy backs up the escaping: text from a policy file can never run as a script.
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _answer(verdict: Verdict, page: Page) -> Iterator[str]:
    yield f"<h1>{escape(page.task)} · {escape(page.criterion)}</h1>"
    # Green is for what a robot accepts as it is delivered.
    tone = "conditional" if verdict.condition else verdict.outcome
    yield f'<div class="answer {tone}"><div><div class="soft small">May I flash it?</div>'
    yield f'<div class="word">{_word(verdict)}</div></div><div>'
    yield from _reasons(verdict)
    if field := field_line(verdict):
        yield f'<p class="soft">field: {escape(field)}</p>'
    if shadow := shadow_line(verdict):
        yield f'<p class="soft">shadow: {escape(shadow)}</p>'
    yield "</div></div>"


def _word(verdict: Verdict) -> str:
    return CONDITIONAL if verdict.condition else WORDS[verdict.outcome]


def _filmstrip(film: Filmstrip | None) -> Iterator[str]:
    if film is None:
        return
    yield '<figure class="film">'
    for number, (picture, time_s) in enumerate(zip(film.pictures, film.times_s, strict=True), 1):
        about = f"picture {number} of {len(film.pictures)}, after {time_s:.1f} s"
        yield f'<div><img src="{escape(picture)}" alt="{about}"><span class="soft small">{time_s:.1f} s</span></div>'
    yield f'<figcaption class="soft small">{escape(film.caption)}</figcaption></figure>'


def _reasons(verdict: Verdict) -> Iterator[str]:
    """Blocking gates with their next steps, or the evidence behind a PASS."""
    if verdict.outcome is VerdictOutcome.PASS:
        yield f"<p>{escape(verdict.passed)}.</p>"
        if robots := who_accepts(verdict):
            yield f"<p>Only {escape(robots)}.</p>"
        origins = f"twin from {verdict.evidence.twin}, latency from {verdict.evidence.latency}"
        yield f'<p class="soft">{escape(origins)}</p>'
        return
    summary = reasons(verdict)
    yield "<ul>"
    for gate in summary.blocking[:MAX_REASONS]:
        cause = f' <span class="soft">(cause: {escape(gate.cause)})</span>' if gate.cause else ""
        yield f"<li><b>{escape(gate.gate)}</b>{cause}: {_shortened(gate.message)}"
        yield f'<br><span class="soft">→ {_shortened(gate.next_step)}</span></li>'
    rest = summary.blocking[MAX_REASONS:]
    if rest:
        yield f"<li>and {', '.join(escape(gate.gate) for gate in rest)}</li>"
    if summary.waiting:
        yield f'<li class="soft">{escape(", ".join(summary.waiting))}: would pass in a credible twin</li>'
    yield "</ul>"


def _shortened(text: str, length: int = 260) -> str:
    first = text.strip().splitlines()[0] if text.strip() else ""
    return escape(first if len(first) <= length else first[: length - 1] + "…")


def _gates(verdict: Verdict) -> Iterator[str]:
    yield '<table class="gates"><thead><tr><th>gate</th><th></th><th class="optional">question</th><th>measured</th>'
    yield '<th class="number">episodes</th></tr></thead><tbody>'
    for gate in verdict.gates:
        # A finding lists its deciding measurement first.
        number = measurement_text(gate.measured[0]) if gate.measured else ""
        yield f'<tr class="{_tone(gate)}"><td><a href="#{escape(gate.gate)}">{escape(gate.gate)}</a></td>'
        yield f'<td><span class="pill">{gate.shown}</span></td><td class="optional">{escape(gate.question)}</td>'
        yield f'<td>{number}</td><td class="number">{gate.episodes or ""}</td></tr>'
    yield "</tbody></table>"


def _tone(gate: GateResult) -> str:
    return gate.outcome if gate.applies else "idle"


def measurement_text(m: Measurement) -> str:
    """Format a measurement as one line of HTML."""
    is_rate = m.name.startswith(
        ("success_rate", "worst_success_rate", "drop", "violation_rate", "missed", "success_lost")
    )
    percent = is_rate and m.name != "missed_in_a_row"  # a count in spite of the prefix
    value = _number(m.value, percent, m.unit)
    if m.lower is not None and m.upper is not None:
        value += f' <span class="soft">[{_number(m.lower, percent)}, {_number(m.upper, percent)}]</span>'
    elif m.upper is not None:
        value += f' <span class="soft">≤ {_number(m.upper, percent)}</span>'
    name, _, part = m.name.partition(".")
    name = name.replace("_", " ") + (f" ({part})" if part else "")
    limit = "" if m.threshold is None else f' <span class="soft">vs {_number(m.threshold, percent, m.unit)}</span>'
    return f"{escape(name)} {value}{limit}"


def _number(value: float, percent: bool, unit: str = "") -> str:
    if percent:
        return f"{value:.1%}"
    if unit == "s":
        return f"{1e3 * value:.3g} ms"
    return f"{value:.4g}{' ' + escape(unit) if unit else ''}"


def _commands(grid: CommandGrid | None) -> Iterator[str]:
    """Commands that the policy does not follow, and the answers to all; no gate depends on them."""
    if grid is None:
        return
    yield f"<h2>Commands</h2><p>{'<br>'.join(escape(line) for line in grid.text.splitlines())}</p>"
    yield '<details><summary>every command</summary><table class="gates"><thead><tr><th>forwards, left [m/s], turn '
    yield "[rad/s]</th><th>achieved</th><th>falls</th></tr></thead><tbody>"
    for cell in grid.cells:
        asked, reached = (
            "-" if values is None else ", ".join(f"{value:.2f}" for value in values)
            for values in (cell.command, cell.achieved)
        )
        yield f"<tr><td>{asked}</td><td>{reached}</td><td>{cell.falls} of {cell.episodes}</td></tr>"
    yield "</tbody></table></details>"


def _details(verdict: Verdict) -> Iterator[str]:
    yield "<h2>Every gate</h2>"
    for gate in verdict.gates:
        yield f'<details id="{escape(gate.gate)}"><summary class="{_tone(gate)}">'
        yield f'<span class="pill">{gate.shown}</span> '
        yield f"<b>{escape(gate.gate)}</b> · {escape(gate.question)}</summary>"
        yield f'<p class="soft">{escape(gate.method)}</p><p>Passes when: {escape(gate.threshold)}</p>'
        if gate.message:
            yield f"<pre>{escape(gate.message)}</pre>"
        if gate.next_step:
            yield f"<p>→ {escape(gate.next_step)}</p>"
        if gate.measured:
            yield f"<p>{'<br>'.join(measurement_text(m) for m in gate.measured)}</p>"
        if gate.seeds:
            seeds = "; ".join(f"stream {s.stream}, {s.first} to {s.first + s.count - 1}" for s in gate.seeds)
            yield f'<p class="soft small">seeds: {escape(seeds)}</p>'
        yield "</details>"


def _identity(verdict: Verdict, page: Page) -> Iterator[str]:
    rows: Sequence[tuple[str, str]] = (
        ("policy", page.policy),
        ("made by run", verdict.run or "unknown"),
        ("policy SHA-256", verdict.policy_sha256),
        ("contract fingerprint", verdict.contract_fingerprint),
        ("twin", page.twin),
        ("twin hash", verdict.twin_hash),
        ("gates SHA-256", verdict.gates_sha256),
        ("episodes", verdict.episodes),
        ("twin from", str(verdict.evidence.twin)),
        ("latency from", str(verdict.evidence.latency)),
        ("verdict SHA-256", verdict.sha256),
        ("created", verdict.created),
        ("computed on", verdict.device or "cpu"),
        ("physai", verdict.physai_version),
        ("software", str(verdict.software or "unknown")),
        ("with", ", ".join(f"{name} {version}" for name, version in sorted(verdict.versions.items()))),
    )
    learned = {} if verdict.preferences is None else verdict.preferences.entries
    rows = (*rows, *((name.replace(".", " "), value) for name, value in learned.items()))
    yield "<h2>Provenance</h2><table><tbody>"
    for label, value in rows:
        yield f'<tr><td class="soft">{escape(label)}</td><td class="hash">{escape(value)}</td></tr>'
    yield "</tbody></table>"
    yield '<p class="soft small">The verdict applies to exactly these bytes. This page is rendered from verdict.json, '
    yield "the authoritative record in this folder.</p>"
