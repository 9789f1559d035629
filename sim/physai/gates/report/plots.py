"""Plots of a report, one panel each, from the chart data of the gates."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import cycle
from pathlib import Path
from typing import Any

from physai.gates.report.summary import replay_command
from physai.sdk.evidence.verdict import Counterexample, GateResult, Verdict, VerdictOutcome
from physai.sdk.pages.svg import MAX_LABEL, Bar, PlotInterval, PlotSeries, bars, histogram, intervals, lines
from physai.sdk.stats.statistics import wilson
from physai.sim.playback.recordings.recording_format import RecordingError
from physai.sim.playback.recordings.recording_reader import read_recording

Charts = Mapping[str, Mapping[str, Any]]
KINDS = ("mark", "second", "third", "fourth")
FREE_POSE = 7
"""Numbers in the pose of a floating base."""
MAX_PARAMETERS = 6


def plots(verdict: Verdict, charts: Charts, folder: Path | None, options: Sequence[str] = ()) -> Iterator[str]:
    """Render all panels that have data as HTML.

    Args:
        verdict: the verdict to illustrate.
        charts: chart data by gate.
        folder: report folder with the recordings of counterexamples; None to leave their curves out.
        options: words that name task and robot in the commands that replay them.
    """
    panels = [
        *_replay(charts.get("twin", {})),
        *_perturbations(verdict, charts),
        *_limits(charts.get("safety", {})),
        *_latency(charts.get("latency", {})),
        *_search(charts.get("falsification", {})),
        *_engines(charts.get("engine", {})),
    ]
    if panels:
        yield f'<h2>Evidence</h2><div class="grid">{"".join(panels)}</div>'
    cases: dict[int, list[GateResult]] = {}
    for gate in verdict.gates:
        if gate.counterexample is not None:
            cases.setdefault(gate.counterexample.index, []).append(gate)
    if cases:
        yield "<h2>Worst cases</h2>"
        yield '<div class="grid">'
        for gates in cases.values():
            yield from _case(gates, folder, options)
        yield "</div>"


def _panel(title: str, drawing: str, note: str) -> str:
    return f'<div class="panel"><h3>{escape(title)}</h3>{drawing}<p class="soft small">{escape(note)}</p></div>'


def _replay(chart: Mapping[str, Any]) -> Iterator[str]:
    if not chart:
        return
    rows: list[PlotInterval] = []
    for joint, twin, nominal in zip(chart["joints"], chart["twin"], chart["nominal"], strict=True):
        rows.append(PlotInterval(f"{joint}, twin", *twin, hint=f"{twin[0]:.4g} [{twin[1]:.4g}, {twin[2]:.4g}]"))
        rows.append(PlotInterval(f"{joint}, nominal", *nominal, kind="fourth", hint=f"{nominal[0]:.4g}"))
    upper = 1.1 * max(row.upper for row in rows)
    drawing = intervals(rows, title="replay error", unit="rad or m", lower=0.0, upper=upper)
    note = f"Root mean square error of {chart['window_s']:g} s open-loop replay of held-out recordings."
    yield _panel("Twin compared with the robot's logs", drawing, note)


def _perturbations(verdict: Verdict, charts: Charts) -> Iterator[str]:
    measured = {m.name: m for gate in verdict.gates for m in gate.measured}
    counts: dict[str, Sequence[int]] = {}
    success = charts.get("success", {}).get("success")
    if success:
        counts["calibrated"] = (sum(success), len(success))
    counts.update(charts.get("robustness", {}).get("conditions", {}))
    rows: list[PlotInterval] = []
    for name, (good, total) in counts.items():
        rate = measured.get("success_rate" if name == "calibrated" else f"success_rate.{name}")
        target = None if rate is None else rate.threshold
        lower, upper = wilson(good, total)
        # Red only if the interval rules the target out; a rate below it may be chance.
        kind = "bad" if target is not None and upper < target else "mark"
        hint = f"{good} of {total}, 95 % interval {lower:.1%} to {upper:.1%}"
        rows.append(PlotInterval(name, good / max(1, total), lower, upper, kind, target, hint))
    if rows:
        drawing = intervals(rows, title="success by perturbation", unit="", lower=0.0, upper=1.0, form=".0%")
        yield _panel("Success by perturbation", drawing, "Rate and 95 % Wilson interval; dashed: the target.")


def _limits(chart: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Bar] = []
    for kind, joints in chart.get("used", {}).items():
        for joint, used in zip(chart["joints"], joints, strict=True):
            if used is not None:
                hint = f"{joint} {kind}: median {used[0]:.0%}, greatest {used[1]:.0%}"
                rows.append(Bar(f"{joint} {kind}"[:MAX_LABEL], used[0], used[1], hint))
    if rows:
        # Always show the limit, and at most twice the limit, so that one outlier does not flatten the rest.
        upper = max(1.1, min(2.0, 1.05 * max(row.greatest for row in rows)))
        drawing = bars(rows, title="joint limits used", limit=1.0, upper=upper)
        share = chart.get("saturated", 0.0)
        note = f"Peak use per episode, median and maximum; commands are saturated {share:.1%} of the time."
        yield _panel("Joint limits used", drawing, note)


def _latency(chart: Mapping[str, Any]) -> Iterator[str]:
    if chart:
        edges = [1e3 * edge for edge in chart["edges_s"]]
        drawing = histogram(chart["counts"], edges, title="tick", unit="ms", limit=1e3 * chart["deadline_s"])
        yield _panel("Tick duration", drawing, "Logarithmic counts; the last bin includes all longer ticks.")


def _search(chart: Mapping[str, Any]) -> Iterator[str]:
    history: list[list[float]] = chart.get("history", [])
    if len(history) < 2:
        return
    generations = list(range(1, len(history) + 1))
    drawing = lines(
        [
            PlotSeries("worst robot", generations, [row[0] for row in history], "second"),
            PlotSeries("mean", generations, [row[1] for row in history], "mark"),
        ],
        title="falsification search",
        x_unit="generation",
        y_unit="score",
    )
    note = f"2: success throughout; below 1: some episodes fail. The worst robot is {chart['size']:.1f} σ from the fit."
    yield _panel("Search for a robot on which the policy fails", drawing, note)


def _engines(chart: Mapping[str, Any]) -> Iterator[str]:
    if "pairs" not in chart:
        return
    lost, won, count = chart["pairs"]
    rows = [
        PlotInterval("only in MuJoCo", lost / count, *wilson(lost, count), kind="second"),
        PlotInterval("only in Warp", won / count, *wilson(won, count)),
    ]
    drawing = intervals(rows, title="engines", unit="", lower=0.0, upper=1.0, form=".0%")
    early = chart["early_difference"]
    note = f"Share of {count} episodes that succeed in one engine only; early positions differ by {early:.2g} (median)."
    yield _panel("Two engines", drawing, note)


def _case(gates: Sequence[GateResult], folder: Path | None, options: Sequence[str]) -> Iterator[str]:
    """One failing episode, and what each of the gates that show it says about it."""
    found = [(gate, gate.counterexample) for gate in gates if gate.counterexample is not None]
    case = found[0][1]
    drawing = _traces(case, folder)
    moved = list(case.parameters.items())[:MAX_PARAMETERS]
    parameters = ", ".join(f"{name} {value:.4g}" for name, value in moved)
    more = len(case.parameters) - len(moved)
    command = (
        f"<code>{escape(replay_command(case.index, folder, options))}</code>"
        if case.recording
        else "The episode fails only as part of its batch, so there is no recording."
    )
    tone = VerdictOutcome(gates[0].outcome)
    names = ", ".join(gate.gate for gate in gates)
    yield f'<div class="panel {tone}"><h3>{case.index} · {escape(names)}</h3>'
    for text in dict.fromkeys(case.description for _, case in found):
        yield f"<p>{escape(text)}</p>"
    yield f'{drawing}<p class="small">{command}</p><p class="soft small">seed {escape(case.episode_seed or "none")}; '
    yield f"{escape(parameters)}{f' and {more} more' if more > 0 else ''}</p></div>"


def _traces(case: Counterexample, folder: Path | None) -> str:
    """Positions of all joints over time, a few in each drawing; empty without a readable recording."""
    if folder is None or case.recording is None:
        return ""
    try:
        recording = read_recording(folder / case.recording)
    except RecordingError:
        return ""
    if not recording.episodes:
        return ""
    episode, robot = recording.episodes[0], recording.contract.robot
    # A floating base comes before the joints, and the objects of a scene after them.
    first = FREE_POSE if robot.base == "floating" else 0
    series = [
        PlotSeries(
            name.removesuffix("_joint")[:14], episode.time_s.tolist(), episode.qpos[:, first + joint].tolist(), kind
        )
        for joint, (name, kind) in enumerate(zip(robot.joint_names, cycle(KINDS), strict=False))
    ]
    dt = recording.contract.timing.control_dt
    # The highlighted time is that of the step at which the case fails.
    mark = None if case.step is None or not math.isfinite(case.step) else case.step * dt
    return "".join(
        lines(series[at : at + len(KINDS)], title="joint positions", x_unit="s", y_unit="rad or m", mark=mark)
        for at in range(0, len(series), len(KINDS))
    )
