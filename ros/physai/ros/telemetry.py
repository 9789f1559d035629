"""Telemetry of the policy node's runtime, from its parameters."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions
from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions
from physai.ros.parameters import Value


def telemetry_arguments(values: Mapping[str, Value]) -> dict[str, Any]:
    """Converts the parameters to telemetry arguments of `Runtime`."""
    folder, port = str(values["recorder"]), int(values["metrics_port"])
    flight = FlightOptions(folder=Path(folder)) if folder else None
    options = TelemetryOptions(metrics_port=None if port < 0 else port, flight=flight)
    return {"telemetry": Telemetry(options)}
