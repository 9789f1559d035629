"""When a stand-in for a robot ends: at a signal, or once it is no longer commanded, or when its parent has gone."""

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

AGAIN_S = 2.0
"""Signals closer together are one: a terminal and `ros2 launch` both send it, on a busy machine not at once [s]."""
SILENT_S = 0.5
"""Time without a command after which the robot counts as no longer driven [s]."""


class EndCondition:
    """Whether it is time to end; SIGINT and SIGTERM are caught from now on."""

    def __init__(
        self, linger_s: float, parent: int | None, *, now_s: Callable[[], float] = time.monotonic, catch: bool = True
    ) -> None:
        """Begins to listen.

        Args:
            linger_s: longest time to go on after a signal while commands come [s]: a robot that vanishes under a
                policy looks like an accident. 0 to end at once.
            parent: process whose end is the end of this one, too; None for none.
            now_s: monotonic clock [s].
            catch: whether to catch the signals; False where `signalled` is called instead.
        """
        self._linger_s, self._parent, self._now_s = linger_s, parent, now_s
        self._asked_s: float | None = None
        self._again = False
        self._commands, self._commanded_s = 0, now_s()
        if catch:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self.signalled)

    def signalled(self, number: int = 0, frame: FrameType | None = None) -> None:
        """A signal asked this process to end."""
        del number, frame
        if self._asked_s is None:
            self._asked_s = self._now_s()
        elif self._now_s() - self._asked_s > AGAIN_S:
            self._again = True

    @property
    def lingered(self) -> bool:
        """Whether it was told to end and went on for those who commanded it."""
        return self._asked_s is not None and self._linger_s > 0.0 and self._commands > 0

    def due(self, commands: int) -> bool:
        """Whether it is time.

        Args:
            commands: how many have come so far.
        """
        # A stand-in that cannot be ended any more would keep its port.
        if self._parent is not None and os.getppid() != self._parent:
            return True
        asked_s, now_s = self._asked_s, self._now_s()
        if commands != self._commands:
            self._commands, self._commanded_s = commands, now_s
        if asked_s is None:
            return False
        return self._again or now_s - asked_s >= self._linger_s or now_s - self._commanded_s > SILENT_S
