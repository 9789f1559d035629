"""SVG charts of a calibration's page."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from physai.sdk.pages.svg import (
    ROW_HEIGHT,
    WIDTH,
    Axis,
    PlotInterval,
    PlotSeries,
    chart,
    intervals,
    label_width,
    line,
    lines,
    rectangle,
    text,
    ticks,
)
from physai.twin.calibration.replay.curves import curves
from physai.twin.calibration.replay.replay import ReplayScore
from physai.twin.model.twin_file import FittedParameter

Array = npt.NDArray[np.float64]

KINDS = ("mark", "second", "third", "fourth")
MAX_POINTS = 1500
PRIOR_REACH = 1.96
"""Half width of a 95 % interval in standard deviations."""


def error_chart(twin: ReplayScore, nominal: ReplayScore, limits: Mapping[str, float] | None) -> str:
    """Draw the errors of the twin and the nominal robot, one row each per joint."""
    rows: list[PlotInterval] = []
    for name, fitted, before in zip(twin.joint_names, twin.rmse, nominal.rmse, strict=True):
        target = None if limits is None else limits[name]
        rows.append(_row(f"{name}, twin", fitted.value, fitted.lo, fitted.hi, "mark", target))
        rows.append(_row(f"{name}, nominal", before.value, before.lo, before.hi, "fourth", target))
    upper = 1.1 * max(max(row.upper, row.target or 0.0) for row in rows)
    return intervals(rows, title="replay error per joint", unit="rad or m", lower=0.0, upper=upper)


def _row(label: str, value: float, lower: float, upper: float, kind: str, target: float | None) -> PlotInterval:
    hint = f"{value:.4g} [{lower:.4g}, {upper:.4g}]"
    return PlotInterval(label, value, lower, upper, kind=kind, target=target, hint=hint)


def history_chart(history: Sequence[Sequence[float]], joints: Sequence[str]) -> str:
    """Draw the error per joint after each improvement of the fit, of those joints whose error was greatest at first."""
    across = [float(i) for i in range(len(history))]
    worst = sorted(sorted(range(len(joints)), key=lambda j: -history[0][j])[: len(KINDS)])
    series = [
        PlotSeries(joints[j], across, [row[j] for row in history], kind) for kind, j in zip(KINDS, worst, strict=False)
    ]
    return lines(series, title="error during the fit", x_unit="improvement", y_unit="rad or m")


def parameter_chart(parameters: Sequence[FittedParameter]) -> str:
    """Draw each fitted value with its interval, in standard deviations of its prior."""
    places = [(p.value - p.prior) / p.prior_std for p in parameters]
    reaches = [PRIOR_REACH * p.std / p.prior_std for p in parameters]
    far = max(PRIOR_REACH, *(abs(place) + reach for place, reach in zip(places, reaches, strict=True)))
    axis = Axis(-1.05 * far, 1.05 * far, label_width(p.name for p in parameters), WIDTH - 16)
    bottom = 8.0 + ROW_HEIGHT * len(parameters)
    parts: list[str] = []
    for value in ticks(axis.lower, axis.upper):
        x = axis.at(value)
        parts += [line(x, 4, x, bottom, "grid"), text(x, bottom + 15, f"{value:g}", anchor="middle")]
    for row, (parameter, place, reach) in enumerate(zip(parameters, places, reaches, strict=True)):
        y = 8.0 + ROW_HEIGHT * (row + 0.5)
        left, right = axis.at(-PRIOR_REACH), axis.at(PRIOR_REACH)
        parts.append(rectangle(left, y - 7, right - left, 14, "faint"))
        parts.append(text(axis.start - 10, y + 4, parameter.name, anchor="end"))
        parts.append(line(axis.at(place - reach), y, axis.at(place + reach), y, "whisker mark"))
        hint = f"{parameter.value:.4g} ± {PRIOR_REACH * parameter.std:.2g} {parameter.unit}"
        spot = f'cx="{axis.at(place):.1f}" cy="{y:.1f}" r="5"'
        parts.append(f'<circle class="mark" {spot}><title>{escape(hint)}</title></circle>')
    parts.append(line(axis.at(0.0), 4, axis.at(0.0), bottom, "target"))
    return chart(parts, bottom + 22, "fitted parameters")


def replay_chart(score: ReplayScore, number: int, joint: int) -> str:
    """Draw one joint of a recording as measured, and the twin's replays of windows that do not overlap.

    Of a floating base, the height and the angle to the first pose.
    """
    windows, log = score.windows, score.windows.logs[number]
    chosen = _apart(windows.start_s, np.flatnonzero(windows.log_index == number), windows.window_s)
    stride = max(1, len(log.time) // MAX_POINTS)
    measured, starts, paths = curves(score, number, joint)
    time, measured = log.time[::stride], measured[::stride]
    low, high = float(measured.min()), float(measured.max())
    pad = 0.1 * ((high - low) or 1.0)
    across, up = Axis(0.0, float(log.time[-1]), 52, WIDTH - 16), Axis(low - pad, high + pad, 170.0, 22.0)
    parts: list[str] = []
    for value in ticks(0.0, float(log.time[-1])):
        x = across.at(value)
        parts += [line(x, 22, x, 170, "grid"), text(x, 185, f"{value:g}", anchor="middle")]
    for value in ticks(up.lower, up.upper, 4):
        y = up.at(value)
        parts += [line(52, y, WIDTH - 16, y, "grid"), text(46, y + 4, f"{value:g}", anchor="end")]
    parts.append(_curve(across, up, time, measured, "mark", width=4.0))
    for w in chosen:
        moments = np.concatenate([[0.0], windows.sample_s[w]]) + windows.start_s[w]
        path = np.concatenate([[starts[w]], paths[w]])
        parts.append(_curve(across, up, moments, path, "second", width=1.3))
    for place, label, kind in ((52, "measured", "mark"), (150, "twin, from each window's start", "second")):
        parts += [rectangle(place, 4, 12, 4, kind), text(place + 18, 11, label)]
    parts.append(text(WIDTH - 16, 200, "s", anchor="end"))
    parts.append(text(WIDTH - 16, 11, "rad or m", anchor="end"))
    return chart(parts, 204, f"replay of {log.name}")


def _apart(start_s: Array, numbers: npt.NDArray[np.int64], window_s: float) -> list[int]:
    """Return windows in order of their starts, without those that overlap the one before."""
    chosen: list[int] = []
    for number in numbers.tolist():
        if not chosen or start_s[number] >= start_s[chosen[-1]] + window_s - 1e-9:
            chosen.append(number)
    return chosen


def _curve(across: Axis, up: Axis, x: Array, y: Array, kind: str, *, width: float) -> str:
    points = " ".join(
        f"{across.at(float(a)):.1f},{up.at(float(b)):.1f}" for a, b in zip(x, y, strict=True) if np.isfinite(b)
    )
    faint = ' stroke-opacity="0.4"' if width > 2.0 else ""
    return f'<polyline class="curve {kind}" style="stroke-width:{width:g}"{faint} points="{points}"/>'
