"""Render a closed-loop test as a self-contained HTML page: the verdict first, then the tests and the runs."""

from collections.abc import Iterator
from html import escape
from itertools import chain

import numpy as np
import numpy.typing as npt

from physai.sdk.pages.style import STYLE
from physai.sdk.pages.svg import WIDTH, Axis, PlotInterval, chart, intervals, line, rectangle, text, ticks
from physai.sdk.stats.statistics import clopper_pearson
from physai.twin.closed_loop.closed_loop import ClosedLoopResult
from physai.twin.closed_loop.compare import MARGIN
from physai.twin.model.closed_loop_evidence import POWER, TRAJECTORIES, ClosedLoopVerdict

Array = npt.NDArray[np.float64]

MAX_TWIN_CURVES = 30
"""Greatest number of the twin's runs in a plot."""
MAX_PLOTS = 24
_OUTCOME: dict[ClosedLoopVerdict, str] = {
    "reproduced": "PASS",
    "contradicted": "FAIL",
    "undecided": "INCONCLUSIVE",
}


def closed_loop_page(result: ClosedLoopResult, *, title: str) -> str:
    """Return the page: HTML with inline styles and SVG that loads no other resource.

    Args:
        result: the test.
        title: name of the twin, for instance its file.
    """
    parts = (_answer(result, title), _success(result), _tests(result), _plots(result), _offsets(result))
    body = "".join([*chain.from_iterable(parts), *_identity(result)])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Closed loop: {escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _answer(result: ClosedLoopResult, title: str) -> Iterator[str]:
    record, count = result.record, len(result.real)
    yield f"<h1>{escape(title)} · {escape(record.task)}</h1>"
    yield f'<div class="answer {_OUTCOME[record.verdict]}"><div>'
    yield '<div class="soft small">Does the policy fare in the twin as on the robot?</div>'
    yield f'<div class="word">{record.verdict.capitalize()}</div></div><div><ul>'
    rate = record.twin_successes / record.twin_runs
    yield (
        f"<li>success: {record.real_successes} of {count} on the robot, {rate:.0%} of {record.twin_runs} runs in the "
        "twin</li>"
    )
    yield (
        f"<li>{record.compared_runs} recorded runs that {record.compared} were compared with those of the twin in "
        "time, trajectory, speed and command</li>"
    )
    yield (
        f"<li>given the recorded measurements, the policy commands what was recorded in "
        f"{record.command_agreement:.1%} of the control periods</li>"
    )
    if result.depends_on:
        yield f"<li>{escape(result.depends_on)}</li>"
    yield "</ul></div></div>"
    yield f'<p class="soft">Success: {escape(record.criterion)}. A complete run lasts {record.length_s:g} s.</p>'


def _success(result: ClosedLoopResult) -> Iterator[str]:
    record, count = result.record, len(result.real)
    lower, upper = clopper_pearson(record.real_successes, count)
    rates = result.comparison.twin_success.mean(axis=1)
    low, high = np.quantile(rates, (0.025, 0.975)).tolist()
    rows = [
        PlotInterval("robot", record.real_successes / count, lower, upper, kind="mark", hint="95 % Clopper-Pearson"),
        PlotInterval("twin", float(rates.mean()), low, high, kind="second", hint="95 % of the draws"),
    ]
    yield '<h2>Success and means</h2><div class="grid">'
    drawing = intervals(rows, title="success rate", unit="", lower=0.0, upper=1.0, form=".0%")
    yield _panel("success rate", drawing, "Robot: 95 % interval of the rate. Twin: mean, and 95 % of its draws.")
    drawing = _means(result)
    if drawing:
        yield _panel(
            "the twin's means, relative to the robot's",
            drawing,
            f"Mean, and 95 % of the draws; a difference below {MARGIN:.0%} is negligible. 0: as on the robot.",
        )
    yield "</div>"


def _means(result: ClosedLoopResult) -> str:
    rows: list[PlotInterval] = []
    for test in result.record.tests:
        spread = result.comparison.spreads.get(test.name)
        if spread is not None and test.twin is not None and test.real != 0.0:
            ends = [end / test.real - 1.0 for end in spread]
            hint = f"{test.twin:.4g} {test.unit}, robot {test.real:.4g}"
            value = test.twin / test.real - 1.0
            rows.append(PlotInterval(test.name, value, min(ends), max(ends), kind="second", target=0.0, hint=hint))
    if not rows:
        return ""
    reach = 1.1 * max(MARGIN, *(max(abs(row.lower), abs(row.upper), abs(row.value)) for row in rows))
    return intervals(rows, title="means in the twin", unit="", lower=-reach, upper=reach, form="+.0%")


def _tests(result: ClosedLoopResult) -> Iterator[str]:
    yield "<h2>Tests</h2>"
    yield (
        "<table><thead><tr><th>property</th><th class='number'>robot</th><th class='number'>twin</th>"
        "<th class='number'>difference</th><th class='number'>negligible</th><th class='number'>p</th>"
        f"<th class='number'>found with {POWER:.0%}</th><th class='number'>needed</th><th>verdict</th><th></th></tr>"
        "</thead><tbody>"
    )
    for test in result.record.tests:
        twin = "none" if test.twin is None else f"{test.twin:.4g}"
        values = ("", "") if test.name == TRAJECTORIES else (f"{test.real:.4g}", twin)
        found = "none" if test.detectable is None else f"{test.detectable:.3g}"
        cells = (*values, f"{test.difference:+.3g}", f"{test.margin:.3g}", f"{test.p_value:.3g}", found)
        yield f"<tr><td>{escape(test.name)}</td>"
        yield from (f"<td class='number'>{cell}</td>" for cell in (*cells, f"{test.needed:.3g}"))
        note = test.unit if test.decides else f"{test.unit} · for information".strip(" ·")
        yield f"<td>{test.verdict}</td><td class='soft'>{escape(note)}</td></tr>"
    yield "</tbody></table>"
    yield (
        "<p class='soft small'>A test contradicts the twin if p, adjusted for all that decide, is below 0.05 and the "
        "difference is not negligible. A test that finds nothing counts only if it would have found the difference "
        "under “needed” with 80 % probability.</p>"
    )


def _plots(result: ClosedLoopResult) -> Iterator[str]:
    chosen = result.record.compared == "succeeded"
    alike = np.flatnonzero(result.comparison.twin_success.ravel() == chosen)
    shown = alike[np.unique(np.linspace(0, len(alike) - 1, min(MAX_TWIN_CURVES, len(alike))).round().astype(int))]
    real = result.real.position[result.comparison.real_success == chosen]
    yield f'<h2>Trajectories of runs that {result.record.compared}</h2><div class="grid">'
    for joint, name in enumerate(result.logs[0].joint_names[:MAX_PLOTS]):
        drawing = _curves(result.real.time, real[:, :, joint], result.twin.position[shown][:, :, joint], name)
        yield _panel(name, drawing, f"{len(real)} recorded runs over {len(shown)} of the twin's [rad or m]")
    yield "</div>"


def _curves(time: Array, real: Array, twin: Array, name: str) -> str:
    both = np.concatenate([real.ravel(), twin.ravel()])
    both = both[np.isfinite(both)]
    low, high = (float(both.min()), float(both.max())) if len(both) else (0.0, 1.0)
    pad = 0.05 * ((high - low) or 1.0)
    across, up = Axis(0.0, float(time[-1]), 52, WIDTH - 16), Axis(low - pad, high + pad, 190.0, 22.0)
    parts: list[str] = []
    for value in ticks(0.0, float(time[-1])):
        x = across.at(value)
        parts += [line(x, 22, x, 190, "grid"), text(x, 205, f"{value:g}", anchor="middle")]
    for value in ticks(up.lower, up.upper, 4):
        y = up.at(value)
        parts += [line(52, y, WIDTH - 16, y, "grid"), text(46, y + 4, f"{value:g}", anchor="end")]
    for rows, kind, width, opacity in ((twin, "second", 1.0, 0.35), (real, "mark", 1.4, 0.9)):
        for row in rows:
            points = " ".join(
                f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in zip(time.tolist(), row.tolist(), strict=True) if y == y
            )
            style = f'style="stroke-width:{width:g}" stroke-opacity="{opacity:g}"'
            parts.append(f'<polyline class="curve {kind}" {style} points="{points}"/>')
    for place, label, kind in ((52, "robot", "mark"), (130, "twin", "second")):
        parts += [rectangle(place, 4, 12, 4, kind), text(place + 18, 11, label)]
    parts.append(text(WIDTH - 16, 220, "s", anchor="end"))
    return chart(parts, 224, f"trajectories of {name}")


def _offsets(result: ClosedLoopResult) -> Iterator[str]:
    """Yield a table of the encoders' offset in each recorded run, if they were estimated."""
    logs = result.record.logs
    if not any(log.joint_pos_offset for log in logs):
        return
    yield "<h2>Encoder offsets</h2><table><thead><tr><th>run</th>"
    yield from (f"<th class='number'>{escape(name)}</th>" for name in result.logs[0].joint_names)
    yield "</tr></thead><tbody>"
    for log in logs:
        yield f"<tr><td>{escape(log.name)}</td>"
        for value, std in zip(log.joint_pos_offset, log.joint_pos_offset_std, strict=True):
            yield f"<td class='number'>{value:+.4f} ± {std:.4f}</td>"
        yield "</tr>"
    yield "</tbody></table>"
    yield "<p class='soft small'>Measured minus true position [rad or m], and its standard deviation, found from the "
    yield "run. The twin's runs have the same.</p>"


def _identity(result: ClosedLoopResult) -> Iterator[str]:
    record = result.record
    yield "<h2>Identity</h2><table><tbody>"
    yield f"<tr><td>twin</td><td class='hash'>{record.twin_sha256}</td></tr>"
    yield f"<tr><td>policy</td><td class='hash'>{record.policy_sha256}</td></tr>"
    yield f"<tr><td>contract</td><td class='hash'>{record.contract_fingerprint}</td></tr>"
    for log, success, length in zip(record.logs, result.comparison.real_success, result.real.length_s, strict=True):
        end = f"{'succeeded' if success else 'failed'}, {length:.2f} s"
        name = f"{log.name} ({end}, {log.origin})"
        yield f"<tr><td>{escape(name)}</td><td class='hash'>{log.sha256}</td></tr>"
    yield f"<tr><td>draws, seed</td><td>{record.draws}, {record.seed}</td></tr></tbody></table>"


def _panel(title: str, drawing: str, note: str) -> str:
    return f'<div class="panel"><h3>{escape(title)}</h3>{drawing}<p class="soft small">{escape(note)}</p></div>'
