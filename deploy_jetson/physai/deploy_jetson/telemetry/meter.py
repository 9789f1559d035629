"""Statistics over all ticks of a run: durations of every stage, reasons, and changes of state."""

import numpy as np

from physai.deploy_jetson.telemetry.histogram import Histogram, Nanoseconds
from physai.deploy_jetson.ticks.reasons import RuntimeFault
from physai.deploy_jetson.ticks.tick_ring import TickRing, Ticks
from physai.sdk.safety import GuardState, Reason

# Sensor stamp to the decision of the guard; due time of a tick to its start; in the graph; in the guard;
# in the transport's `send`; from the due time of a tick until its command is sent.
STAGES = ("sensor age", "wake-up", "inference", "guard", "send", "whole")

# Reasons by name, in the order of their bits.
BITS = {(member.name or "").lower(): int(member) for kind in (Reason, RuntimeFault) for member in kind}


class Meter:
    """Counts every tick of a run once; one thread writes, any thread may read."""

    def __init__(self, deadline_ns: int) -> None:
        """Initialize without ticks.

        Args:
            deadline_ns: from the due time of a tick until its command must be sent [ns].
        """
        self.stages = {stage: Histogram() for stage in STAGES}
        self.ticks = 0
        self.lost = 0
        """Ticks that were overwritten in the ring before they were counted."""
        self.reasons = dict.fromkeys(BITS, 0)
        """Ticks by reason; one tick may have several."""
        self.rises = {state.name: 0 for state in GuardState}
        """Changes of the guard's state, by the new state."""
        self._deadline_ns = deadline_ns
        self._read = 0
        self._state = int(GuardState.RUN)
        self._masks = np.array(list(BITS.values()), np.uint32)

    def read(self, ring: TickRing) -> Ticks:
        """Count the new ticks of the ring, and return them."""
        end = ring.count
        ticks = ring.between(self._read, end)
        # The ring may have overwritten some since the last look.
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
            # A stage that was not run takes 0 ns, which would distort its percentiles.
            taken = ticks[f"{stage}_ns"]
            self.stages[stage].add(taken[taken > 0])
        self.stages["whole"].add(ticks["whole_ns"])
        reasons = ticks["reasons"]
        # Most ticks have none, so the loop over all bits is rarely run.
        if reasons.any():
            for name, count in zip(BITS, (reasons[:, None] & self._masks != 0).sum(0).tolist(), strict=True):
                self.reasons[name] += count
        # Starts with the last state of the records before, so that a change between two reads is counted.
        states = np.concatenate(([self._state], ticks["state"]))
        self._state = int(states[-1])
        for state in states[1:][np.diff(states) != 0].tolist():
            self.rises[GuardState(state).name] += 1


def late_ns(ticks: Ticks, deadline_ns: int) -> Nanoseconds:
    """Return the delay from the due time of each tick to its start [ns].

    Args:
        ticks: records.
        deadline_ns: from the due time of a tick until its command must be sent [ns].
    """
    return ticks["woke_ns"] - (ticks["deadline_ns"] - deadline_ns)
