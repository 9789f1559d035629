"""Flashes of one robot take turns; who has the turn learns whether another waits for it."""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from physai.deploy_jetson.slots.errors import LockedError, SlotError
from physai.deploy_jetson.slots.layout import INCOMING, SLOTS_FOLDER

_POLL_S = 0.05


class Turn:
    """The turn of one process.

    Locks of the kernel, which end with the process: who has the turn holds the uploads' folder, who waits shares the
    slots' folder.
    """

    def __init__(self, root: Path) -> None:
        """Prepares to wait.

        Args:
            root: the robot's tree.
        """
        self._root = root
        self._held: int | None = None

    @property
    def incoming(self) -> int:
        """Descriptor of the uploads' folder, to which no link led.

        Raises:
            SlotError: this process does not have the turn.
        """
        if self._held is None:
            raise SlotError("uploads are for who has the turn")
        return self._held

    @property
    def is_held(self) -> bool:
        """Whether this process has the turn."""
        return self._held is not None

    def take(self, wait_s: float, waiting: Callable[[], None]) -> None:
        """Waits for the turn.

        Args:
            wait_s: for how long at most [s].
            waiting: called while it waits; may raise to end that.

        Raises:
            SlotError: there is no tree.
            LockedError: another had the turn all the time.
        """
        held, queue = self._open(INCOMING), self._open(SLOTS_FOLDER)
        end = time.monotonic() + wait_s
        try:
            while not _lock(held, fcntl.LOCK_EX):
                _lock(queue, fcntl.LOCK_SH)
                if not time.monotonic() < end:
                    raise LockedError(
                        "another flash of this robot is going on; wait for its end, or longer: --patience S"
                    )
                waiting()
                time.sleep(_POLL_S)
            self._held = held
        finally:
            os.close(queue)
            if not self.is_held:
                os.close(held)

    def others_wait(self) -> bool:
        """Whether another process waits for the turn."""
        with suppress(SlotError):
            queue = self._open(SLOTS_FOLDER)
            try:
                return not _lock(queue, fcntl.LOCK_EX)
            finally:
                os.close(queue)
        return False

    def end(self) -> None:
        """Gives the turn to the next, if this process has it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _open(self, name: str) -> int:
        folder = self._root / name
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            remedy = "`physai robot setup` makes a robot's tree"
            raise SlotError(f"{folder}: cannot be opened: {error.strerror}; {remedy}") from None


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
