"""Status of a runtime as a ROS 2 diagnostic status: level, message and values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from physai.transport.dds.diagnostics import Level

# Diagnostic level by guard state.
GUARD_LEVELS = {
    "RUN": Level.OK,
    "STANDSTILL": Level.WARN,
    "HOLD": Level.WARN,
    "DAMP": Level.ERROR,
    "PROTECTIVE_STOP": Level.ERROR,
}

MAX_VALUES = 64


@dataclass(frozen=True)
class Diagnosis:
    """One status of the runtime."""

    level: Level
    message: str
    values: dict[str, str]


def diagnose(status: Mapping[str, Any]) -> Diagnosis:
    """Convert `Runtime.status`, empty if no policy is loaded, to a diagnostic status."""
    values = dict(_flat(status))
    lifecycle = str(status.get("lifecycle", "unconfigured"))
    if lifecycle != "active":
        waiting = str(status.get("waiting_for") or "")
        return Diagnosis(
            Level.WARN if waiting else Level.OK, f"{lifecycle}: waiting for {waiting}" if waiting else lifecycle, values
        )
    guard = str(status.get("guard", "RUN"))
    # A state that this version does not know counts as an error.
    level = GUARD_LEVELS.get(guard, Level.ERROR)
    why = str(status.get("why") or "")
    if status.get("unsafe_no_verdict"):
        # A robot that runs without a verdict is never shown as OK.
        level, why = max(level, Level.WARN), "; ".join(part for part in ("NO VALID VERDICT", why) if part)
    return Diagnosis(level, f"{guard}: {why}" if why else guard, values)


def _flat(record: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Return numbers and strings by dotted name, at most `MAX_VALUES` of them."""
    pairs: list[tuple[str, str]] = []
    for key, value in record.items():
        if isinstance(value, Mapping):
            pairs += _flat(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        elif isinstance(value, float):
            pairs.append((f"{prefix}{key}", f"{value:.6g}"))
        elif isinstance(value, str | int | bool):
            pairs.append((f"{prefix}{key}", str(value)))
    # Bounded, so that the message stays small whatever a status holds.
    return pairs[:MAX_VALUES]
