"""Why a control loop ended, and what it counted."""

from dataclasses import dataclass
from enum import StrEnum


class LoopEnd(StrEnum):
    """Why a loop ended."""

    SHUTDOWN = "shutdown"
    DEACTIVATED = "deactivated"
    FINISHED = "finished"
    """The requested duration has elapsed."""
    OTHER_CONTRACT = "other contract"
    """A policy with a different contract was activated; this process cannot load it."""
    LEASE_LOST = "lease lost"
    """Another runtime now commands the robot."""


@dataclass
class Counts:
    """Event counts since the loop began."""

    ticks: int = 0
    missed: int = 0
    skipped: int = 0
    """Control periods without a tick; also counted as missed."""
    interventions: int = 0
    """Ticks in which the guard replaced the policy's command because the command was not finite or beyond a limit, or
    because the policy or the guard failed to compute.

    Ticks in which the guard takes over for another reason (a measurement, a late command, a request, a silent operator)
    are not among them: see `rises` and `RobotRun.taken_over`.
    """
    rises: int = 0
    """Times the guard's state rose, for instance from RUN to HOLD, for any reason."""
    swaps: int = 0
    repeated: int = 0
    """Ticks without a new sample."""
