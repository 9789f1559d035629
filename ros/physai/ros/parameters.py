"""Parameters of the policy node: meaning, bounds, and whether they may change while a policy is loaded."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from physai.deploy_jetson.runtime.run_options import OptionNames, RunOptions
from physai.deploy_jetson.runtime.system.realtime import MAX_PRIORITY, Realtime
from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions
from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions
from physai.sdk.base.errors import PhysaiError

Value = str | int | float | bool


class ParameterError(PhysaiError):
    """A parameter has an invalid value."""


@dataclass(frozen=True)
class NodeParameter:
    """One parameter."""

    default: Value
    """Default value; determines the type."""
    description: str
    lower: float = -math.inf
    upper: float = math.inf
    live: bool = False
    """Whether it may change while a policy is loaded."""


# Names of the options in messages of the runtime.
NAMES = OptionNames(
    unsafe_no_verdict="the parameter unsafe_no_verdict: true (in the launch's params_file)",
    rate="the parameter rate (in the launch's params_file)",
)

DEFAULT_ROOT = os.environ.get("PHYSAI_ROBOT_ROOT") or "/var/lib/physai"

PARAMETERS: Mapping[str, NodeParameter] = {
    "root": NodeParameter(DEFAULT_ROOT, "folder of the robot's slots, see `physai robot setup`"),
    "binding": NodeParameter("", "YAML file of topics; empty: the built-in one of the robot"),
    "rate": NodeParameter(0.0, "refuse a policy of another rate [Hz]; 0: any", 0.0, 10_000.0),
    "cpu": NodeParameter(-1, "core to pin the control loop to; -1: any", -1, 1023),
    "priority": NodeParameter(0, "SCHED_FIFO priority of the loop; 0: default scheduling", 0, MAX_PRIORITY),
    "lock_memory": NodeParameter(True, "lock the memory of the process (mlockall)"),
    "heartbeat_s": NodeParameter(
        0.0, "hold if ~/heartbeat is not called for this long [s]; 0: no heartbeat required", 0.0, 3600.0
    ),
    "hot_swap": NodeParameter(True, "swap to policies that are activated while the loop runs"),
    "unsafe_no_verdict": NodeParameter(False, "run a policy that was installed without a valid verdict"),
    "recorder": NodeParameter("", "folder of the flight recorder; empty: none"),
    "metrics_port": NodeParameter(-1, "port for Prometheus on 127.0.0.1; 0: any free one, -1: none", -1, 65535),
    "activation_timeout_s": NodeParameter(
        5.0, "timeout for sound sensor samples at activation [s]", 0.1, 600.0, live=True
    ),
    "diagnostics_period_s": NodeParameter(1.0, "period of /diagnostics [s]", 0.1, 60.0, live=True),
}


def expected(name: str) -> str:
    """Type and range of a parameter, for messages."""
    parameter = PARAMETERS[name]
    if isinstance(parameter.default, bool):
        return "true or false"
    if isinstance(parameter.default, str):
        return "a string"
    kind = "a number with a decimal point" if isinstance(parameter.default, float) else "an integer"
    return f"{kind} from {parameter.lower:g} to {parameter.upper:g}"


def check(name: str, value: Value) -> None:
    """Raises ParameterError, with the allowed values, if a value has the wrong type or is out of range."""
    parameter = PARAMETERS[name]
    # Not `isinstance`: in Python True is an int, and ROS tells the types apart.
    if type(value) is not type(parameter.default):
        raise ParameterError(f"{name}: {value!r} is a {type(value).__name__}, expected {expected(name)}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not (math.isfinite(value) and parameter.lower <= value <= parameter.upper):
            raise ParameterError(f"{name}: {value} is outside {parameter.lower:g} to {parameter.upper:g}")
    # A path with control characters would corrupt the terminal that shows it.
    elif isinstance(value, str) and not (value.isprintable() and len(value) <= 4096):
        raise ParameterError(f"{name}: not a path: {value[:40]!r}")


def check_change(name: str, value: Value, *, loaded: bool) -> None:
    """Raises ParameterError if the value is invalid, or if the parameter must not change while a policy is loaded."""
    check(name, value)
    if loaded and not PARAMETERS[name].live:
        raise ParameterError(f"{name} takes effect at configure: clean the node up first (ros2 lifecycle set)")


def run_options(values: Mapping[str, Value]) -> RunOptions:
    """Converts the parameters to options of the runtime.

    Raises:
        ParameterError: a value is invalid.
    """
    for name, value in values.items():
        check(name, value)

    def positive(name: str) -> float | None:
        # ROS parameters have no None; 0 stands for it.
        return float(values[name]) or None

    cpu, priority = int(values["cpu"]), int(values["priority"])
    return RunOptions(
        root=Path(str(values["root"])),
        realtime=Realtime(
            priority=priority or None, cpu=None if cpu < 0 else cpu, lock_memory=bool(values["lock_memory"])
        ),
        unsafe_no_verdict=bool(values["unsafe_no_verdict"]),
        rate_hz=positive("rate"),
        heartbeat_s=positive("heartbeat_s"),
        stand_by=True,
        hot_swap=bool(values["hot_swap"]),
        names=NAMES,
    )


def telemetry(values: Mapping[str, Value]) -> Telemetry:
    """Converts the parameters to the telemetry of the runtime."""
    folder, port = str(values["recorder"]), int(values["metrics_port"])
    flight = FlightOptions(folder=Path(folder)) if folder else None
    return Telemetry(TelemetryOptions(metrics_port=None if port < 0 else port, flight=flight))


def transport_options(values: Mapping[str, Value]) -> dict[str, str]:
    """Converts the parameters to options of the transport."""
    binding = str(values["binding"])
    return {"binding": binding} if binding else {}
