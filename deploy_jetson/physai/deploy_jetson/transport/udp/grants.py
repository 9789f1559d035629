"""Commander arbitration of a robot on UDP, for its endpoint and for firmware.

A runtime asks with a greeting. The robot grants it the lease if nobody has it, or if its holder has been silent for
`silence_s`; the lease's number is one more than that of the lease before. From then on it sends its sensors to that
runtime, and obeys targets that carry the holder's commander number and the lease's number (or 0: a runtime's watchdog
was not told). All other targets, and every greeting, are answered with a packet that says whom it obeys. A robot that
has started anew obeys nobody before it is asked, so a runtime that drove it has to be activated again.
"""

LEAST_SILENCE_S = 0.5
"""Least silence of a holder after which another may have the robot [s]."""

SILENT_PERIODS = 3.0
"""The same in control periods, where these are long."""

_WRAP = 1 << 32


class Grants:
    """A robot's memory of it."""

    def __init__(self, control_dt: float) -> None:
        """Obeys nobody.

        Args:
            control_dt: control period [s].
        """
        self.silence_s = max(LEAST_SILENCE_S, SILENT_PERIODS * control_dt)
        """Silence of the holder after which another may have the robot [s]."""
        self.holder = 0
        """The commander number of the runtime that is obeyed; 0 for none."""
        self.number = 0
        """Of the lease."""
        self._heard_s = 0.0

    def greeted(self, commander: int, now_s: float) -> bool:
        """A runtime asks; whether it has the robot now."""
        if commander == 0:
            return False
        if commander != self.holder:
            if self.holder and now_s - self._heard_s <= self.silence_s:
                return False
            self.holder, self.number = commander, self.number % (_WRAP - 1) + 1
        self._heard_s = now_s
        return True

    def commanded(self, commander: int, number: int, now_s: float) -> bool:
        """Whether targets are obeyed."""
        if not (commander == self.holder != 0 and number in (0, self.number)):
            return False
        self._heard_s = now_s
        return True
