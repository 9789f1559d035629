"""Parallel coordinates of a sweep: an axis per varied setting, the metric last, a line per trial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physai.cluster.sweep.folder import SweepFolder
from physai.cluster.sweep.plan import Distribution
from physai.cluster.sweep.results import TrialResult

PLOT_FILE = "parallel_coordinates.png"
_TICKS = 5
_MAX_LABEL = 14


@dataclass(frozen=True)
class PlotAxis:
    """One vertical axis: where values lie on it, from 0 at the bottom to 1 at the top."""

    label: str
    ticks: tuple[tuple[float, str], ...]
    positions: tuple[float, ...]
    """Of each trial."""


def setting_axis(name: str, kind: Distribution, values: Sequence[str]) -> PlotAxis:
    """The axis of a setting: a choice's values evenly spaced, logarithmic for `loguniform`, otherwise linear."""
    if kind.choice is not None:
        order = list(dict.fromkeys(kind.choice))
        place = {text: 0.5 if len(order) == 1 else i / (len(order) - 1) for i, text in enumerate(order)}
        return PlotAxis(name, tuple((at, text) for text, at in place.items()), tuple(place[value] for value in values))
    bounds = kind.uniform or kind.loguniform or kind.ints
    assert bounds is not None
    scale = math.log if kind.loguniform is not None else float
    low, high = scale(bounds[0]), scale(bounds[1])
    shares = [number / (_TICKS - 1) for number in range(_TICKS)]
    marks = [low + share * (high - low) for share in shares]
    if kind.ints is not None:
        marks = list(dict.fromkeys(float(round(mark)) for mark in marks))
    elif kind.loguniform is not None:
        marks = [math.log(float(f"{math.exp(mark):.2g}")) for mark in marks]
    shown = [math.exp(mark) if kind.loguniform is not None else mark for mark in marks]
    ticks = tuple(((mark - low) / (high - low), f"{value:.3g}") for mark, value in zip(marks, shown, strict=True))
    return PlotAxis(name, ticks, tuple((scale(float(value)) - low) / (high - low) for value in values))


def metric_axis(name: str, values: Sequence[float]) -> PlotAxis:
    """The axis of the metric: from the worst to the best trial, success from 0 to 1."""
    low, high = (0.0, 1.0) if name == "success" else (min(values), max(values))
    span = high - low or 1.0
    ticks = [low + span * number / (_TICKS - 1) for number in range(_TICKS)]
    return PlotAxis(
        name, tuple(((at - low) / span, f"{at:.3g}") for at in ticks), tuple((value - low) / span for value in values)
    )


def draw(folder: SweepFolder, results: Sequence[TrialResult]) -> Path | None:
    """Draw all trials with a known value; returns the picture's path, None if there is none.

    Trials that were stopped early are dashed; the better a trial, the later and the lighter its line.
    """
    shown = sorted((result for result in results if result.value is not None), key=lambda result: result.value or 0.0)
    if not shown:
        return None
    sweep = folder.record.sweep
    axes = [
        setting_axis(name, kind, [result.trial.point[name] for result in shown])
        for name, kind in sweep.parameters.items()
    ]
    last = metric_axis(sweep.metric, [result.value or 0.0 for result in shown])
    path = folder.path / PLOT_FILE
    _draw(path, [*axes, last], [result.state == "ended" for result in shown], folder)
    return path


def _draw(path: Path, axes: Sequence[PlotAxis], whole: Sequence[bool], folder: SweepFolder) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure: Any
    plot: Any
    figure, plot = pyplot.subplots(figsize=(max(6.0, 1.9 * len(axes)), 4.8), layout="constrained")
    # viridis without its yellow end, which white paper swallows.
    colour: Any = pyplot.get_cmap("viridis")
    for index, is_whole in enumerate(whole):
        line = [axis.positions[index] for axis in axes]
        shade = colour(0.9 * min(1.0, max(0.0, axes[-1].positions[index])))
        style = "-" if is_whole else "--"
        plot.plot(range(len(axes)), line, style, color=shade, linewidth=1.8 if is_whole else 1.0, marker=".")
    for index, axis in enumerate(axes):
        plot.axvline(index, color="#888888", linewidth=0.8, zorder=0)
        for at, label in axis.ticks:
            text = label if len(label) <= _MAX_LABEL else label[: _MAX_LABEL - 1] + "…"
            right = index == len(axes) - 1
            plot.annotate(
                text,
                (index, at),
                xytext=(5 if right else -5, 0),
                textcoords="offset points",
                ha="left" if right else "right",
                va="center",
                fontsize=8,
                parse_math=False,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            )
    plot.set_xticks(range(len(axes)), [axis.label for axis in axes])
    plot.set(xlim=(-0.5, len(axes) - 0.5), ylim=(-0.05, 1.05), yticks=[])
    plot.spines[:].set_visible(False)
    plot.tick_params(length=0)
    title = f"{folder.record.base.task}: {len(whole)} trials"
    plot.set_title(title + ("; dashed: stopped early or unfinished" if not all(whole) else ""), parse_math=False)
    try:
        figure.savefig(path, dpi=130)
    finally:
        pyplot.close(figure)
