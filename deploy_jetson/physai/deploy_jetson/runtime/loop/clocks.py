"""The clocks of the control loop."""

import time
from collections.abc import Callable
from dataclasses import dataclass

Clock = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of a tick."""

    now_ns: Clock = time.monotonic_ns
    """CLOCK_MONOTONIC [ns]."""
    wall_ns: Clock = time.time_ns
    """CLOCK_REALTIME, the clock of sensor stamps [ns]."""
    asleep_ns: Clock = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    """Time for which the computer was suspended, which CLOCK_MONOTONIC leaves out, to within a preemption [ns]."""
