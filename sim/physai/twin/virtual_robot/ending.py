"""When a virtual robot exits: on a signal, after the last command, or with its parent process."""

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

AGAIN_S = 2.0
"""Signals closer together than this count as one [s]: a terminal and `ros2 launch` each send it on Ctrl-C."""
SILENT_S = 0.5
"""Time without a command after which the robot is no longer driven [s]."""


class EndCondition:
    """Decides when to exit; handles SIGINT and SIGTERM."""

    def __init__(
        self, linger_s: float, parent: int | None, *, now_s: Callable[[], float] = time.monotonic, catch: bool = True
    ) -> None:
        """Installs the signal handlers.

        Args:
            linger_s: longest time to keep running after a signal while commands arrive [s], so that the policy's
                process can stop first and does not report a lost robot; 0 to exit at once.
            parent: exit when this is no longer the parent process; None to ignore the parent.
            now_s: monotonic clock [s].
            catch: install signal handlers; if False, the caller calls `signalled`.
        """
        self._linger_s, self._parent, self._now_s = linger_s, parent, now_s
        self._asked_s: float | None = None
        self._again = False
        self._commands, self._commanded_s = 0, now_s()
        if catch:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, self.signalled)

    def signalled(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Handles SIGINT or SIGTERM."""
        del number, frame
        if self._asked_s is None:
            self._asked_s = self._now_s()
        # A second signal well after the first means that the user does not want to wait for the commander.
        elif self._now_s() - self._asked_s > AGAIN_S:
            self._again = True

    @property
    def lingered(self) -> bool:
        """Whether a signal arrived and the process kept running for its commander."""
        return self._asked_s is not None and self._linger_s > 0.0 and self._commands > 0

    def due(self, commands: int) -> bool:
        """Whether to exit now.

        Args:
            commands: number of commands received so far.
        """
        # An orphan would keep its port or DDS domain occupied.
        if self._parent is not None and os.getppid() != self._parent:
            return True
        asked_s, now_s = self._asked_s, self._now_s()
        if commands != self._commands:
            self._commands, self._commanded_s = commands, now_s
        if asked_s is None:
            return False
        return self._again or now_s - asked_s >= self._linger_s or now_s - self._commanded_s > SILENT_S
