"""Plot a recording with the findings of its checks."""

from pathlib import Path
from typing import Any

import numpy as np

from physai.twin.logs.findings import SEVERITIES, LogFinding
from physai.twin.logs.quality import QualityReport
from physai.twin.logs.raw_log import RawColumn
from physai.twin.logs.robot_log import Array, LogError

MAX_JOINTS = 8
"""Maximum number of plotted joints: those with the worst findings, then the first ones."""

_MAX_POINTS = 4000
"""Maximum number of points per line; longer series are decimated."""

_RED = "#c0392b"
_COLOURS = {"defect": _RED, "warning": "#d98200", "note": "#5d6d7e"}
_MEASURED, _COMMANDED = "#1f5fa8", "#e08214"
_MAX_LINES = 14
_WIDTH, _HEAD, _ROW_HEIGHT, _LINE_HEIGHT = 15.0, 0.7, 2.0, 0.24
"""Width of the figure, height of its title, of a row of panels and of a line of text [inch]."""
_SERIES = ("joint_pos", "joint_vel", "joint_effort")


def draw(report: QualityReport, path: str | Path) -> None:
    """Plot positions, speeds, efforts and commands of each joint, the loop's period and the findings.

    Args:
        report: report of the recording.
        path: output file; its extension selects the format: .png, .svg or .pdf.

    Raises:
        LogError: the file cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    joints = _chosen(report)
    further = [channel for channel in report.log.channels if not channel.joint][:3]
    lines = report.findings[:_MAX_LINES]
    rows = len(joints) + bool(further) + 1
    text_height = _LINE_HEIGHT * (len(lines) + 1)
    height = _HEAD + rows * _ROW_HEIGHT + text_height
    # Any: matplotlib's own annotations are partial.
    figure: Any = Figure(figsize=(_WIDTH, height), dpi=100)
    FigureCanvasAgg(figure)
    # Fixed margins: automatic layout would draw everything twice.
    figure.subplots_adjust(
        left=0.05,
        right=0.99,
        top=1.0 - _HEAD / height,
        bottom=(text_height + 0.45) / height,
        hspace=0.45,
        wspace=0.13,
    )
    axes: Any = figure.subplots(rows, 3, squeeze=False)
    _write_title(figure, report, y=1.0 - 0.2 / height, left_out=len(report.log.joints) - len(joints))
    _draw_series(axes, report, joints, further)
    _write_findings(figure, report, lines, top=text_height / height, step=_LINE_HEIGHT / height)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise LogError(f"{path}: cannot be written: {error}") from error


def _chosen(report: QualityReport) -> list[int]:
    """Return the joints to plot, in the robot's order."""
    names = report.log.joint_names

    def worst(j: int) -> tuple[int, int]:
        ranks = [SEVERITIES.index(f.severity) for f in report.findings if f.joint == names[j]]
        return min(ranks, default=len(SEVERITIES)), j

    return sorted(sorted(range(len(names)), key=worst)[:MAX_JOINTS])


def _write_title(figure: Any, report: QualityReport, *, y: float, left_out: int) -> None:
    verdict = "suitable for calibration" if report.usable else "not suitable for calibration"
    counts = ", ".join(f"{n} {kind}{'s' * (n != 1)}" for kind in SEVERITIES[:2] if (n := report.count(kind)))
    text = f"{report.log.name}: {verdict}" + f", {counts}" * bool(counts)
    text += f" ({left_out} joints not shown)" * bool(left_out)
    figure.text(0.5, y, text, fontsize=13, ha="center", va="center", color="black" if report.usable else _RED)


def _draw_series(axes: Any, report: QualityReport, joints: list[int], further: list[RawColumn]) -> None:
    """Plot one row of panels per joint, one for extra channels and one for the clock."""
    for ax in axes[1:-1].flat:
        ax.sharex(axes[0, 0])
    for row, j in enumerate(joints):
        _draw_joint(axes[row], report, j)
    if further:
        _draw_further(axes[len(joints)], report, further)
    for ax in axes[:-2].flat:
        ax.tick_params(labelbottom=False)
    _draw_clock(axes[-1], report)


def _draw_joint(axes: Any, report: QualityReport, j: int) -> None:
    """Plot position, speed and effort of one joint, each with its command and findings."""
    log, joint = report.log, report.log.joints[j]
    slide = joint.kind == "prismatic"
    units = {"joint_pos": "m" if slide else "rad", "joint_vel": "m/s" if slide else "rad/s"}
    units["joint_effort"] = "N" if slide else "N·m"
    measured = dict(log.series())
    for ax, name in zip(axes, _SERIES, strict=True):
        ax.set_title(f"{joint.name}  {name} [{units[name]}]", fontsize=9, loc="left")
        ax.grid(alpha=0.25)
        drawn = False
        if name == log.command_kind and log.driven[j]:
            _line(ax, log.time, log.command[:, j], color=_COMMANDED, label="command", step=True)
            drawn = True
        if name in measured:
            _line(ax, log.time, measured[name][:, j], color=_MEASURED, label="measured")
            _mark(ax, log.time, measured[name][:, j], [f for f in report.findings if _is_about(f, joint.name, name)])
            drawn = True
        if not drawn:
            ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes, color=_COLOURS["note"])
        if name == log.command_kind:
            ax.legend(loc="upper right", fontsize=7, framealpha=0.8)
        if name == "joint_pos":
            _limits(ax, joint.position_lower, joint.position_upper)


def _draw_further(axes: Any, report: QualityReport, channels: list[RawColumn]) -> None:
    """Plot extra channels after conversion."""
    for ax in axes[len(channels) :]:
        ax.axis("off")
    for ax, channel in zip(axes, channels, strict=False):
        ax.set_title(f"{channel.label} (column {channel.column})", fontsize=9, loc="left")
        ax.grid(alpha=0.25)
        _line(ax, report.log.time, channel.values, color=_MEASURED, label=channel.label)
        _mark(ax, report.log.time, channel.values, [f for f in report.findings if f.channel == channel.label])


def _is_about(finding: LogFinding, joint: str, name: str) -> bool:
    return finding.joint == joint and finding.channel.startswith(name) and finding.severity != "note"


def _limits(ax: Any, lower: float | None, upper: float | None) -> None:
    for limit in (lower, upper):
        if limit is not None:
            ax.axhline(limit, color=_RED, linewidth=0.7, linestyle="--")


def _line(ax: Any, time: Array, values: Array, *, color: str, label: str, step: bool = False) -> None:
    where, drawn = _decimated(time, values)
    ax.plot(where, drawn, color=color, linewidth=0.9, label=label, drawstyle="steps-post" if step else "default")


def _decimated(time: Array, values: Array) -> tuple[Array, Array]:
    """Reduce to at most `_MAX_POINTS` points that look the same: minimum and maximum of each stretch."""
    if len(values) <= _MAX_POINTS:
        return time, values
    # Rounded up: each stretch contributes two points.
    size = -(-len(values) * 2 // _MAX_POINTS)
    keep: set[int] = set()
    for start in range(0, len(values), size):
        # argmin and argmax would return the first NaN.
        part = np.nan_to_num(values[start : start + size])
        keep |= {start + int(part.argmin()), start + int(part.argmax())}
    chosen = np.array(sorted(keep))
    return time[chosen], values[chosen]


def _mark(ax: Any, time: Array, values: Array, findings: list[LogFinding]) -> None:
    """Mark the samples of the findings, except notes, which would hide the line."""
    for finding in findings:
        if finding.severity == "note":
            continue
        at = np.array([i for i in finding.samples if i < len(time)], np.int64)
        if len(at):
            colour = _COLOURS[finding.severity]
            ax.plot(
                time[at], values[at], linestyle="", marker="o", markersize=4, color=colour, markerfacecolor="none",
                label=finding.check,
            )  # fmt: skip


def _draw_clock(axes: Any, report: QualityReport) -> None:
    """Plot the period over time, its histogram, and the lag of each joint."""
    over_time, histogram, lags = axes
    time = report.log.time
    periods = 1e3 * np.diff(time)
    finite = periods[np.isfinite(periods)]
    over_time.plot(time[1:], periods, color=_MEASURED, linewidth=0.6, marker=".", markersize=2)
    over_time.set_title("period [ms] over time [s]", fontsize=9, loc="left")
    over_time.grid(alpha=0.25)
    if len(finite):
        # The margin puts periods that differ only by rounding into one bin.
        ends = float(finite.min()) - 1e-3, float(finite.max()) + 1e-3
        histogram.hist(finite, bins=60, range=ends, color=_MEASURED, log=True)
    histogram.set_title("histogram of periods [ms]", fontsize=9, loc="left")
    histogram.grid(alpha=0.25)
    _draw_lags(lags, report)


def _draw_lags(ax: Any, report: QualityReport) -> None:
    known = [(name, lag) for name, lag in zip(report.log.joint_names, report.lags, strict=False) if lag is not None]
    identified = [(name, lag) for name, lag in known if lag.identified]
    ax.set_title("lag of effort behind command [ms], 95 % interval", fontsize=9, loc="left")
    ax.grid(alpha=0.25)
    if not identified:
        reason = "not identifiable from these commands" if known else "needs commanded and measured effort"
        ax.text(0.5, 0.5, reason, ha="center", va="center", transform=ax.transAxes, color=_COLOURS["note"])
        ax.set_xticks([])
        ax.set_yticks([])
        return
    for row, (_, lag) in enumerate(identified):
        ends = [[1e3 * (lag.lag_s - lag.lower_s)], [1e3 * (lag.upper_s - lag.lag_s)]]
        ax.errorbar([1e3 * lag.lag_s], [row], xerr=ends, fmt="o", color=_MEASURED, capsize=4)
    ax.set_yticks(range(len(identified)), [name for name, _ in identified])
    ax.set_ylim(len(identified) - 0.3, -0.7)
    ax.set_xlim(left=0.0)


def _write_findings(
    figure: Any, report: QualityReport, lines: tuple[LogFinding, ...], *, top: float, step: float
) -> None:
    """Write the findings below `top`, worst first; heights are fractions of the figure's."""
    for row, finding in enumerate(lines):
        text = f"{finding.severity}  {finding.check}: {finding.message}"
        # matplotlib would typeset text between two dollar signs as mathematics.
        text = (text if len(text) <= 190 else text[:187] + " …").replace("$", r"\$")
        figure.text(0.01, top - (row + 0.5) * step, text, fontsize=9, color=_COLOURS[finding.severity], va="center")
    more = len(report.findings) - len(lines)
    rest = f"and {more} more" if more else "" if lines else "no findings"
    figure.text(0.01, 0.5 * step, rest, fontsize=9, color=_COLOURS["note"], va="center")
