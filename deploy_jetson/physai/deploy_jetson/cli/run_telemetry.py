"""Telemetry options of `physai robot run`, and the latency evidence at its end."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError

if TYPE_CHECKING:
    from physai.deploy_jetson.telemetry.telemetry import Telemetry

# Default folder, in the robot's tree.
RECORDINGS_FOLDER = "recordings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--metrics", type=int, metavar="PORT", help="serve Prometheus on 127.0.0.1; 0: any free port")
    parser.add_argument(
        "--record", type=Path, metavar="DIR", help="folder of flight recordings (default: recordings in --root)"
    )
    parser.add_argument(
        "--record-seconds", type=float, metavar="S", help="length of a recording; 0: none (default: 30)"
    )
    parser.add_argument(
        "--latency", type=Path, metavar="JSON", help="write the duration of every tick; disables hot swap"
    )


def open_telemetry(root: Path, arguments: argparse.Namespace) -> Telemetry:
    """Create the telemetry from the arguments, without opening anything.

    Raises:
        PhysaiError: an option is out of range.
    """
    from physai.deploy_jetson.telemetry.flight.recorder import MAX_SECONDS, SECONDS, FlightOptions
    from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions

    seconds = SECONDS if arguments.record_seconds is None else arguments.record_seconds
    if not (math.isfinite(seconds) and 0.0 <= seconds <= MAX_SECONDS):
        raise PhysaiError(f"--record-seconds must lie in 0 … {MAX_SECONDS:g}, got {seconds}")
    latency: Path | None = arguments.latency
    # Found out now rather than after an hour on the robot.
    if latency is not None and not latency.parent.is_dir():
        raise PhysaiError(f"--latency {latency}: no folder {latency.parent}")
    folder = arguments.record or root / RECORDINGS_FOLDER
    return Telemetry(
        TelemetryOptions(
            metrics_port=arguments.metrics,
            flight=FlightOptions(folder=folder, seconds=seconds) if seconds else None,
            keep_ticks=latency is not None,
        )
    )
