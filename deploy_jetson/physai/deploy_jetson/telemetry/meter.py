"""Statistics over all ticks of a run: durations of every stage, reasons, and changes of state."""

import numpy as np

from physai.deploy_jetson.telemetry.histogram import Histogram, Nanoseconds
from physai.deploy_jetson.ticks.reasons import RuntimeFault
from physai.deploy_jetson.ticks.ring import TickRing, Ticks
from physai.sdk.safety import GuardState, Reason

STAGES = ("sensor age", "wake-up", "inference", "guard", "send", "whole")
"""From the sensor's stamp until the guard decides; from when a tick is due until it begins; in the graph; in the guard;
in the transport's `send`; from when a tick is due until its command is out."""

BITS = {(member.name or "").lower(): int(member) for kind in (Reason, RuntimeFault) for member in kind}
"""Reasons by name, in the order of their bits."""


class Meter:
    """Counts every tick of a run once; one thread writes, any may read."""

    def __init__(self, deadline_ns: int) -> None:
        """Nothing counted yet.

        Args:
            deadline_ns: from when a tick is due until its command must be out [ns].
        """
        self.stages = {stage: Histogram() for stage in STAGES}
        self.ticks = 0
        """Ticks counted."""
        self.lost = 0
        """Ticks that were overwritten in the ring before they were counted."""
        self.reasons = dict.fromkeys(BITS, 0)
        """Ticks in which each reason was found; one tick may have several."""
        self.rises = {state.name: 0 for state in GuardState}
        """Times the guard went up, or was reset, to each state."""
        self._deadline_ns = deadline_ns
        self._read = 0
        self._state = int(GuardState.RUN)
        self._masks = np.array(list(BITS.values()), np.uint32)

    def read(self, ring: TickRing) -> Ticks:
        """Counts what is new in the ring, and returns it."""
        end = ring.count
        ticks = ring.between(self._read, end)
        self.lost += end - self._read - len(ticks)
        self._read = end
        self._count(ticks)
        return ticks

    def _count(self, ticks: Ticks) -> None:
        if not len(ticks):
            return
        self.ticks += len(ticks)
        self.stages["sensor age"].add(ticks["sensor_age_ns"])
        self.stages["wake-up"].add(late_ns(ticks, self._deadline_ns))
        for stage in ("inference", "guard", "send"):
            taken = ticks[f"{stage}_ns"]
            self.stages[stage].add(taken[taken > 0])
        self.stages["whole"].add(ticks["whole_ns"])
        reasons = ticks["reasons"]
        if reasons.any():
            for name, found in zip(BITS, (reasons[:, None] & self._masks != 0).sum(0).tolist(), strict=True):
                self.reasons[name] += found
        states = np.concatenate(([self._state], ticks["state"]))
        self._state = int(states[-1])
        for state in states[1:][np.diff(states) != 0].tolist():
            self.rises[GuardState(state).name] += 1


def late_ns(ticks: Ticks, deadline_ns: int) -> Nanoseconds:
    """From when each tick was due until it began [ns].

    Args:
        ticks: records.
        deadline_ns: from when a tick is due until its command must be out [ns].
    """
    return ticks["woke_ns"] - (ticks["deadline_ns"] - deadline_ns)
