"""The policy node's parameters as telemetry of its runtime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions
from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions
from physai.ros.parameters import Value


def telemetry_arguments(values: Mapping[str, Value]) -> dict[str, Any]:
    """Further arguments of `Runtime`, by the parameters."""
    folder, port = str(values["recorder"]), int(values["metrics_port"])
    flight = FlightOptions(folder=Path(folder)) if folder else None
    options = TelemetryOptions(metrics_port=None if port < 0 else port, flight=flight)
    return {"telemetry": Telemetry(options)}
