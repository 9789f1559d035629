"""Plots the percentiles of every stage of a tick as an SVG.

python -m benchmarks.robot.latency_picture docs/images/tick-latencies.svg --seconds 120

A complete runtime drives a simulated robot at 500 Hz, with bundle, guard, telemetry, flight recorder and control
socket. For comparison, an idle timer of the same rate, measured afterwards, shows the delays of the machine.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10
from pathlib import Path

import numpy as np
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import SampleSigners, sample_contract, sample_policy
from tests.harness.fixtures.site import Site

from benchmarks.robot.runtime import PRIORITY, RATE_HZ, WIDTH, ram_disk
from physai.deploy_jetson.inference.evidence import device_text
from physai.deploy_jetson.runtime.loop.summary import summary_text
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.runtime.system.timer import DeadlineTimer
from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions
from physai.deploy_jetson.telemetry.histogram import Histogram
from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions
from physai.sdk.base.files import write_atomic

SECONDS = 60.0
SLOWER = 1.0 / (RATE_HZ * sample_contract().timing.control_dt)
"""Factor on the sample contract's times that gives `RATE_HZ`."""
POINTS = 120
"""Points per curve."""

LEAST_US = 1.0
"""Lower limit of plotted durations [µs]."""

_COLOURS = {
    "whole": "#b2182b",
    "wake-up": "#2166ac",
    "inference": "#1b7837",
    "guard": "#762a83",
    "send": "#b35806",
    "sensor age": "#878787",
    "timer alone": "#92c5de",
}
_WIDTH, _HEIGHT = 860, 470
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 130, 76, 52
_LABEL_GAP = 15.0
_SHARES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)


@dataclass(frozen=True)
class Curve:
    """Percentiles of one stage."""

    name: str
    shares: tuple[float, ...]
    values_us: tuple[float, ...]


def curve(name: str, histogram: Histogram) -> Curve:
    """Percentiles of a histogram, evenly spaced per decade of 1 - share, as far as its number of values supports."""
    decades = np.linspace(0.0, log10(max(2, histogram.count)), POINTS)
    shares = tuple((1.0 - 10.0**-decades).tolist())
    return Curve(name, shares, tuple(max(LEAST_US, value * 1e-3) for value in histogram.quantiles_ns(shares)))


def drawing(curves: Sequence[Curve], *, deadline_us: float, title: str, lines: Sequence[str]) -> str:
    """The SVG: shares of ticks on the x-axis, one decade of 1 - share per unit; time on a logarithmic y-axis.

    Args:
        curves: at least one.
        deadline_us: deadline of a command, measured like the stage `whole` [µs].
        title: title.
        lines: lines below the title, such as machine and conditions.
    """
    frame = _Frame.around(curves, deadline_us)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12" fill="#333">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _text(_LEFT, 24, title, 'font-size="16" font-weight="bold"'),
        *(_text(_LEFT, 44 + 16 * row, line, 'fill="#666"') for row, line in enumerate(lines)),
        *frame.grid(),
        *(_path(frame, one) for one in curves),
        *_deadline(frame, deadline_us),
        *_labels(frame, curves),
        "</svg>\n",
    ]
    return "\n".join(parts)


@dataclass(frozen=True)
class _Frame:
    """Maps shares and microseconds to coordinates."""

    decades: float
    lowest: int
    highest: int
    """Powers of ten [µs]."""

    @classmethod
    def around(cls, curves: Sequence[Curve], deadline_us: float) -> "_Frame":
        values = [value for one in curves for value in one.values_us]
        decades = max(-log10(1.0 - one.shares[-1]) for one in curves)
        return cls(decades, floor(log10(min(values))), ceil(log10(max(*values, deadline_us))))

    def x(self, share: float) -> float:
        return _LEFT - log10(1.0 - share) / self.decades * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value_us: float) -> float:
        part = (log10(value_us) - self.lowest) / (self.highest - self.lowest)
        return _HEIGHT - _BOTTOM - part * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> Iterator[str]:
        """Grid lines and tick labels."""
        for power in range(self.lowest, self.highest + 1):
            y = self.y(10.0**power)
            number = f"{10.0 ** (power - 3):g} ms" if power >= 3 else f"{10.0**power:g} µs"
            yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
            yield _text(_LEFT - 8, y + 4, number, 'text-anchor="end"')
        for share in _SHARES:
            if -log10(1.0 - share) <= self.decades:
                x = self.x(share)
                yield f'<path d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#eee"/>'
                yield _text(x, _HEIGHT - _BOTTOM + 18, f"{100.0 * share:.6g} %", 'text-anchor="middle"')
        yield _text(_LEFT, _HEIGHT - 12, "of all ticks take at most this long", 'fill="#666"')


def _path(frame: _Frame, one: Curve) -> str:
    points = "L".join(
        f"{frame.x(share):.1f} {frame.y(value):.1f}" for share, value in zip(one.shares, one.values_us, strict=True)
    )
    width = 2.5 if one.name == "whole" else 1.5
    return f'<path d="M{points}" fill="none" stroke="{_COLOURS[one.name]}" stroke-width="{width}"/>'


def _deadline(frame: _Frame, deadline_us: float) -> Iterator[str]:
    y = frame.y(deadline_us)
    yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#333" stroke-dasharray="6 4"/>'
    yield _text(_LEFT + 6, y - 6, f"deadline {deadline_us * 1e-3:g} ms", "")


def _labels(frame: _Frame, curves: Sequence[Curve]) -> Iterator[str]:
    """Names at the ends of the curves, moved apart where they would overlap."""
    ends = sorted((frame.y(one.values_us[-1]), one.name) for one in curves)
    last = -np.inf
    for y, name in ends:
        last = max(y + 4, last + _LABEL_GAP)
        yield _text(_WIDTH - _RIGHT + 8, last, name, f'fill="{_COLOURS[name]}" font-weight="bold"')


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def timer_alone(seconds: float) -> Histogram:
    """Wake-up latency of an idle timer of the same rate."""
    alarm, period_ns = DeadlineTimer(), round(1e9 / RATE_HZ)
    lates: list[int] = []
    due = alarm.wait(0) + period_ns
    for _ in range(round(seconds * RATE_HZ)):
        late = alarm.wait(due) - due
        lates.append(late)
        due += period_ns * (1 + late // period_ns)
    histogram = Histogram()
    histogram.add(np.array(lates))
    return histogram


def measured_run(folder: Path, seconds: float, realtime: Realtime) -> Runtime:
    """Runs a complete runtime, with everything that is on by default.

    Args:
        folder: parent of the robot's slots.
        seconds: how long it drives.
        realtime: requested scheduling.

    Raises:
        PhysaiError: the runtime does not start.
    """
    now = datetime.now(UTC)
    workshop = SampleSigners(created=now)
    data = workshop.published(sample_policy(width=WIDTH, slower=SLOWER), version=1)
    site = Site.make(folder / "robot", workshop, {1: data}, now=now)
    site.agent.install(data, unsafe_no_verdict=True)
    site.agent.activate()
    root = site.agent.root
    telemetry = Telemetry(TelemetryOptions(metrics_port=0, flight=FlightOptions(folder=root / "recordings")))
    options = RunOptions(root=root, seconds=seconds, realtime=realtime, unsafe_no_verdict=True)
    runtime = Runtime(options, LocalRobot(), telemetry=telemetry)
    runtime.run()
    return runtime


def main() -> None:
    """Measures, and writes the SVG."""
    parser = argparse.ArgumentParser(description="Percentiles of every stage of a tick, as an SVG.")
    parser.add_argument("output", type=Path, metavar="SVG")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S")
    parser.add_argument("--priority", type=int, default=PRIORITY, metavar="P", help="SCHED_FIFO priority")
    parser.add_argument("--load", default="", metavar="TEXT", help="description of other load on the machine")
    arguments = parser.parse_args()
    realtime = Realtime(priority=arguments.priority)
    with tempfile.TemporaryDirectory(dir=ram_disk()) as folder:
        load = os.getloadavg()[0]
        runtime = measured_run(Path(folder), arguments.seconds, realtime)
        summary = runtime.summary()
        # After the run, because this thread keeps the priority that the run requested.
        timer = timer_alone(arguments.seconds)
    print(summary_text(summary))
    stages = runtime.telemetry.meter.stages
    stolen = "" if summary.steal_s is None else f"; steal time {summary.steal_s:.2f} s"
    lines = [
        f"{summary.counts.ticks} ticks at {RATE_HZ:g} Hz, {summary.counts.missed} missed{stolen}",
        f"{device_text()}; {arguments.load or f'load average {load:.1f}'}",
    ]
    text = drawing(
        [*(curve(name, histogram) for name, histogram in stages.items()), curve("timer alone", timer)],
        deadline_us=sample_contract(slower=SLOWER).timing.deadline_s * 1e6,
        title="Latency of the stages of a tick",
        lines=lines,
    )
    write_atomic(arguments.output, text.encode())


if __name__ == "__main__":
    main()
