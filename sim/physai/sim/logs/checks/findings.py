"""What a check of a recording found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["defect", "warning", "note"]
"""A defect forbids calibration. A warning says what will be less certain. A note is good to know."""

SEVERITIES: tuple[Severity, ...] = ("defect", "warning", "note")
"""Worst first."""


@dataclass(frozen=True, kw_only=True)
class LogFinding:
    """One thing that is wrong with a recording, or good to know of it."""

    severity: Severity
    check: str
    """Which check found it: time, gap, jitter, rate, finite, units, wrap, clip, spike, stale, motion, follow, lag …"""
    joint: str = ""
    """Joint it concerns, empty for the whole recording."""
    channel: str = ""
    """What of the joint (joint_pos, joint_vel, joint_effort, command), or a further channel."""
    message: str
    """What was found, with numbers and units."""
    advice: str = ""
    """What to do about it."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    """The numbers, in SI units."""
    samples: tuple[int, ...] = ()
    """Where, as indices of samples, at most `MAX_SAMPLES`."""


MAX_SAMPLES = 1000
"""Most places that one finding lists."""


def places(samples: "list[int] | tuple[int, ...]") -> tuple[int, ...]:
    """The first `MAX_SAMPLES` indices."""
    return tuple(int(i) for i in samples[:MAX_SAMPLES])
