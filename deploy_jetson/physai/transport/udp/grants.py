"""Commander arbitration of a robot on UDP, for its endpoint and for firmware.

A runtime requests the robot with a greeting. The robot grants the lease if it is free, or if its holder was silent for
`silence_s`; each grant increments the lease number. From then on the robot sends its sensors to that runtime, and obeys
targets with the holder's commander number and the lease number (or 0, as a runtime's watchdog does not know it). All
other targets, and every greeting, are answered with a packet that names the holder. A restarted robot has no holder, so
a runtime that drove it has to be activated again.
"""

# Lower bound of `Grants.silence_s` [s].
LEAST_SILENCE_S = 0.5

# Lower bound of `Grants.silence_s` [control periods].
SILENT_PERIODS = 3.0

_WRAP = 1 << 32


class Grants:
    """The lease state of a robot."""

    def __init__(self, control_dt: float) -> None:
        """Initialize without a holder.

        Args:
            control_dt: control period [s].
        """
        self.silence_s = max(LEAST_SILENCE_S, SILENT_PERIODS * control_dt)
        """Silence of the holder after which another runtime may take the robot [s]."""
        self.holder = 0
        """Commander number of the obeyed runtime; 0 for none."""
        self.number = 0
        """Lease number."""
        self._heard_s = 0.0

    def greeted(self, commander: int, now_s: float) -> bool:
        """Handle a greeting; return whether its sender holds the lease."""
        # Zero stands for no runtime, so it can hold nothing.
        if commander == 0:
            return False
        if commander != self.holder:
            if self.holder and now_s - self._heard_s <= self.silence_s:
                return False
            # Wraps to 1, as 0 means that a runtime does not know its lease.
            self.holder, self.number = commander, self.number % (_WRAP - 1) + 1
        self._heard_s = now_s
        return True

    def commanded(self, commander: int, number: int, now_s: float) -> bool:
        """Handle targets; return whether they are obeyed."""
        # A stale number belongs to a lease that has passed to another runtime meanwhile.
        if not (commander == self.holder != 0 and number in (0, self.number)):
            return False
        self._heard_s = now_s
        return True
