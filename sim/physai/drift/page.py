"""Page of a drift monitor: the answer first, then each change over time."""

from collections.abc import Iterator
from html import escape

from physai.drift.report import DriftParameter, DriftReport
from physai.sdk.pages.style import STYLE
from physai.sdk.pages.svg import PlotSeries, lines

TONES = {"HOLDS": "PASS", "DRIFTED": "FAIL", "NO EVIDENCE": "INCONCLUSIVE"}
MAX_CHARTS = 60


def drift_page(report: DriftReport) -> str:
    """Return the page: HTML with inline styles and SVG that loads no other resource."""
    body = "".join([*_answer(report), *_steps(report), *_charts(report), *_table(report), *_identity(report)])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(report.robot)}: {report.outcome}</title><style>{STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _answer(report: DriftReport) -> Iterator[str]:
    yield f"<h1>{escape(report.twin)} · {escape(report.robot)}</h1>"
    yield f'<div class="answer {TONES[report.outcome]}"><div><div class="soft small">Does the twin hold?</div>'
    yield f'<div class="word">{report.outcome}</div></div><div><p>{escape(report.reason)}.</p>'
    yield (
        f'<p class="soft small">{report.usable_s:.0f} s of {report.recorded_s:.0f} s are usable; at most '
        f"{report.alarm_share:.1%} of unchanged runs of 10 minutes are said to have drifted.</p></div></div>"
    )
    if report.remarks:
        yield f'<p class="soft">{escape("; ".join(report.remarks))}</p>'


def _steps(report: DriftReport) -> Iterator[str]:
    if not report.steps:
        return
    yield "<h2>Next</h2><ul>"
    for step in report.steps:
        command = f"<br><code>{escape(step.command)}</code>" if step.command else ""
        yield f"<li>{escape(step.text)}{command}</li>"
    yield "</ul>"


def _charts(report: DriftReport) -> Iterator[str]:
    shown = [one for one in report.parameters if one.amounts]
    if not shown:
        return
    first = {one.name for one in report.named}
    shown.sort(key=lambda one: (one.name not in first, not one.watched))
    yield '<h2>Changes over time</h2><div class="grid">'
    for one in shown[:MAX_CHARTS]:
        yield f'<div class="panel"><h3>{escape(one.name)}</h3>{_chart(one, report.since_s)}'
        yield f'<p class="soft small">{escape(one.text)}; from {one.usable_s:.0f} s of motion.</p></div>'
    yield "</div>"


def _chart(one: DriftParameter, since: float | None) -> str:
    unit = one.unit or "relative"
    series = PlotSeries("difference from the twin, each block alone", one.time_s, one.amounts, "mark")
    return lines([series], title=one.name, x_unit="s", y_unit=unit, mark=since)


def _table(report: DriftReport) -> Iterator[str]:
    yield "<h2>Blocks</h2><table><tbody>"
    rows = [("usable", report.usable_s), *report.unusable_s.items()]
    for reason, seconds in rows:
        yield f'<tr><td class="soft">{escape(reason)}</td><td class="number">{seconds:.1f} s</td></tr>'
    yield "</tbody></table>"
    silent = [one.name for one in report.parameters if not one.watched]
    if silent:
        yield f'<p class="soft">Too little motion to tell anything of: {escape(", ".join(silent))}.</p>'


def _identity(report: DriftReport) -> Iterator[str]:
    yield "<h2>Provenance</h2><table><tbody>"
    for label, value in (
        ("twin", report.twin),
        ("twin hash", report.twin_hash),
        ("recordings", ", ".join(report.recordings)),
    ):
        yield f'<tr><td class="soft">{escape(label)}</td><td class="hash">{escape(value)}</td></tr>'
    yield "</tbody></table>"
