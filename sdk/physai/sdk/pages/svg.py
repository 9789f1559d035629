"""Small charts as static SVG, without scripts or fonts; the page's style sheet sets the colours."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 560
LABEL_WIDTH, LABEL_MAX = 110, 250
"""Minimum and maximum width of the label column [px]."""
CHARACTER = 7.2
"""Average width of a label's character, at the size of narrow pages [px]."""
MAX_LABEL = 32
"""Greatest number of characters of a label that its column holds."""
ROW_HEIGHT = 26


@dataclass(frozen=True)
class Axis:
    """Linear map from values to pixels."""

    lower: float
    upper: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value, clamped to the axis."""
        # An axis of zero length would divide by zero; its values all lie at the start.
        share = (value - self.lower) / ((self.upper - self.lower) or 1.0)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def ticks(lower: float, upper: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers (multiples of 1, 2 or 5 · 10ⁿ) between two values."""
    span = (upper - lower) or 1.0
    step = 10.0 ** math.floor(math.log10(span / count))
    step *= next((m for m in (1.0, 2.0, 5.0, 10.0) if span / (m * step) <= count), 10.0)
    # The tolerance keeps ticks that rounding moves just outside the range.
    first = math.ceil(lower / step - 1e-9)
    return [i * step for i in range(first, math.floor(upper / step + 1e-9) + 1)]


def chart(body: Sequence[str], height: float, title: str) -> str:
    """Wrap drawn elements in an SVG element of the standard width."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )


def text(x: float, y: float, content: str, *, anchor: str = "start", kind: str = "label") -> str:
    """Return a line of text as SVG."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line as SVG."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def rectangle(x: float, y: float, width: float, height: float, kind: str, hint: str = "") -> str:
    """Return a filled rectangle as SVG; `hint` is its tooltip."""
    shape = f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.1f}" height="{height:.1f}" rx="2"'
    return f"{shape}><title>{escape(hint)}</title></rect>" if hint else f"{shape}/>"


def label_width(labels: Iterable[str]) -> float:
    """Width of the label column that fits the longest label, within LABEL_WIDTH … LABEL_MAX [px]."""
    longest = max((len(label) for label in labels), default=0)
    return min(LABEL_MAX, max(LABEL_WIDTH, CHARACTER * longest + 14))


def _grid(axis: Axis, top: float, bottom: float, unit: str, form: str) -> list[str]:
    parts: list[str] = []
    for value in ticks(axis.lower, axis.upper):
        x = axis.at(value)
        parts += [line(x, top, x, bottom, "grid"), text(x, bottom + 15, format(value, form), anchor="middle")]
    if unit:
        parts.append(text(axis.end, bottom + 30, unit, anchor="end"))
    return parts


@dataclass(frozen=True)
class PlotInterval:
    """One row of `intervals`."""

    label: str
    value: float
    lower: float
    upper: float
    kind: str = "mark"
    """CSS class that sets the colour."""
    target: float | None = None
    hint: str = ""


def intervals(
    rows: Sequence[PlotInterval], *, title: str, unit: str, lower: float, upper: float, form: str = "g"
) -> str:
    """Draw one row per value: point, interval and target."""
    axis = Axis(lower, upper, label_width(row.label for row in rows), WIDTH - 16)
    bottom = 8.0 + ROW_HEIGHT * len(rows)
    parts = _grid(axis, 4, bottom, unit, form)
    for index, row in enumerate(rows):
        y = 8.0 + ROW_HEIGHT * (index + 0.5)
        parts.append(text(axis.start - 10, y + 4, row.label, anchor="end"))
        if row.target is not None:
            x = axis.at(row.target)
            parts.append(line(x, y - 10, x, y + 10, "target"))
        parts.append(line(axis.at(row.lower), y, axis.at(row.upper), y, f"whisker {row.kind}"))
        hint = f"<title>{escape(row.hint)}</title>" if row.hint else ""
        parts.append(f'<circle class="{row.kind}" cx="{axis.at(row.value):.1f}" cy="{y:.1f}" r="5">{hint}</circle>')
    return chart(parts, bottom + (34 if unit else 22), title)


def histogram(counts: Sequence[int], edges: Sequence[float], *, title: str, unit: str, limit: float) -> str:
    """Draw counts per bin and a limit; the logarithmic scale keeps single outliers visible."""
    axis = Axis(edges[0], edges[-1], 40, WIDTH - 16)
    top, bottom = 16.0, 150.0
    most = math.log10(max([*counts, 1]) + 1.0)
    parts = _grid(axis, top, bottom, unit, "g")
    for count, left, right in zip(counts, edges, edges[1:], strict=False):
        if count:
            height = (bottom - top) * math.log10(count + 1.0) / most
            x, width = axis.at(left), axis.at(right) - axis.at(left) - 1.0
            kind = "bad" if left >= limit else "mark"
            hint = f"{count} between {left:.3g} and {right:.3g} {unit}"
            parts.append(rectangle(x, bottom - height, width, height, kind, hint))
    x = axis.at(limit)
    parts += [
        line(x, top - 4, x, bottom, "target"),
        text(x - 6, top + 4, "deadline", anchor="end", kind="label strong"),
    ]
    return chart(parts, bottom + 34, title)


@dataclass(frozen=True)
class Bar:
    """One row of `bars`."""

    label: str
    typical: float
    greatest: float
    hint: str = ""


def bars(rows: Sequence[Bar], *, title: str, limit: float, upper: float) -> str:
    """Draw one row per limit with its typical and greatest use."""
    axis = Axis(0.0, upper, label_width(row.label for row in rows), WIDTH - 16)
    bottom = 8.0 + ROW_HEIGHT * len(rows)
    parts = _grid(axis, 4, bottom, "", ".0%")
    for index, row in enumerate(rows):
        y = 8.0 + ROW_HEIGHT * index + 6
        parts.append(text(axis.start - 10, y + 11, row.label, anchor="end"))
        kind = "bad" if row.greatest > limit else "faint"
        parts.append(rectangle(axis.start, y, axis.at(row.greatest) - axis.start, 14, kind, row.hint))
        parts.append(rectangle(axis.start, y + 4, axis.at(row.typical) - axis.start, 6, "mark", row.hint))
    x = axis.at(limit)
    parts.append(line(x, 2, x, bottom, "target"))
    return chart(parts, bottom + 22, title)


@dataclass(frozen=True)
class PlotSeries:
    """One curve of `lines`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str


MAX_POINTS = 600


def lines(series: Sequence[PlotSeries], *, title: str, x_unit: str, y_unit: str, mark: float | None = None) -> str:
    """Draw curves over a common x axis; `mark` is an x value to highlight."""
    finite = [value for one in series for value in one.y if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    pad = 0.05 * ((high - low) or 1.0)
    xs = [value for one in series for value in (one.x[0], one.x[-1]) if len(one.x)]
    across = Axis(min(xs, default=0.0), max(xs, default=1.0), 52, WIDTH - 16)
    top, bottom = 22.0, 170.0
    up = Axis(low - pad, high + pad, bottom, top)
    parts = _grid(across, top, bottom, x_unit, "g")
    for value in ticks(up.lower, up.upper, 4):
        y = up.at(value)
        parts += [
            line(across.start, y, across.end, y, "grid"),
            text(across.start - 6, y + 4, f"{value:g}", anchor="end"),
        ]
    if mark is not None:
        x = across.at(mark)
        parts.append(line(x, top, x, bottom, "target"))
    legend = across.start
    for one in series:
        # More points than the chart has pixels would only make the page larger.
        stride = max(1, len(one.x) // MAX_POINTS)
        points = [
            f"{across.at(x):.1f},{up.at(y):.1f}"
            for x, y in zip(one.x[::stride], one.y[::stride], strict=True)
            if math.isfinite(y)
        ]
        parts.append(f'<polyline class="curve {one.kind}" points="{" ".join(points)}"/>')
        parts += [rectangle(legend, 4, 12, 4, one.kind), text(legend + 18, 11, one.label)]
        legend += CHARACTER * len(one.label) + 34
    parts.append(text(across.end, 11, y_unit, anchor="end"))
    return chart(parts, bottom + 34, title)
