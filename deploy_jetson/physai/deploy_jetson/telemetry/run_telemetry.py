"""Outputs of a run, as a user names them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.deploy_jetson.telemetry.telemetry import Telemetry

RECORDINGS_FOLDER = "recordings"
"""Default folder, in the robot's tree."""


@dataclass(frozen=True, kw_only=True)
class RunTelemetry:
    """Outputs of a run: metrics, flight recordings, evidence of latency.

    Attributes:
        metrics: serve Prometheus on 127.0.0.1 at this port; 0: any free port.
        flight_recordings: folder of flight recordings. None for recordings in --root.
        record_s: length of a recording [s]; 0: none.
        latency: write the duration of every tick; disables hot swap.
    """

    metrics: Annotated[int | None, Option(metavar="PORT")] = None
    flight_recordings: Annotated[Path | str | None, Option(old=("--record",), metavar="DIR")] = None
    record_s: Annotated[float, Option(old=("--record-seconds",))] = 30.0
    latency: Annotated[Path | str | None, Option(metavar="JSON")] = None


def make_telemetry(outputs: RunTelemetry, root: Path) -> Telemetry:
    """Create the telemetry, without opening anything.

    Args:
        outputs: the outputs.
        root: the robot's tree.

    Raises:
        PhysaiError: a value is out of range.
    """
    from physai.deploy_jetson.telemetry.flight.recorder import MAX_SECONDS, FlightOptions
    from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions

    seconds = outputs.record_s
    if not (math.isfinite(seconds) and 0.0 <= seconds <= MAX_SECONDS):
        raise PhysaiError(f"`record_s` must lie in 0 … {MAX_SECONDS:g}, got {seconds}")
    # Found out now rather than after an hour on the robot.
    if outputs.latency is not None and not Path(outputs.latency).parent.is_dir():
        raise PhysaiError(f"`latency` {outputs.latency}: no folder {Path(outputs.latency).parent}")
    folder = Path(outputs.flight_recordings or root / RECORDINGS_FOLDER)
    return Telemetry(
        TelemetryOptions(
            metrics_port=outputs.metrics,
            flight=FlightOptions(folder=folder, seconds=seconds) if seconds else None,
            keep_ticks=outputs.latency is not None,
        )
    )
