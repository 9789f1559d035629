"""Findings of the checks of a recording."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["defect", "warning", "note"]
"""A defect rules out calibration, a warning reduces its accuracy, a note is information."""

SEVERITIES: tuple[Severity, ...] = ("defect", "warning", "note")
"""Worst first."""


@dataclass(frozen=True, kw_only=True)
class LogFinding:
    """One finding of a check."""

    severity: Severity
    check: str
    """Name of the check: time, gap, jitter, rate, finite, units, wrap, clip, spike, stale, motion, follow, lag …"""
    joint: str = ""
    """Joint concerned, empty for the whole recording."""
    channel: str = ""
    """Series of the joint (joint_pos, joint_vel, joint_effort, command), or an extra channel."""
    message: str
    """Description with numbers and units."""
    advice: str = ""
    """What to do about it."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    """The numbers of the message in SI units."""
    samples: tuple[int, ...] = ()
    """Indices of affected samples, at most `MAX_SAMPLES`."""


def note(message: str, advice: str = "") -> LogFinding:
    """Return a note on what a reader did."""
    return LogFinding(severity="note", check="rows", message=message, advice=advice)


MAX_SAMPLES = 1000
"""Maximum number of sample indices in a finding."""


def places(samples: list[int]) -> tuple[int, ...]:
    """Return the first `MAX_SAMPLES` indices."""
    return tuple(samples[:MAX_SAMPLES])
