"""Mutual exclusion of flashes of one robot; the holder can see whether another flash is waiting."""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from physai.deploy_jetson.update.slots.layout import INCOMING, SLOTS_FOLDER
from physai.deploy_jetson.update.slots.slot_errors import LockedError, SlotError

_POLL_S = 0.05


class Turn:
    """The turn of one process.

    Uses kernel locks, which are released when the process ends: the holder has an exclusive lock on the uploads'
    folder, waiting processes have a shared lock on the slots' folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: int | None = None

    @property
    def incoming(self) -> int:
        """Descriptor of the uploads' folder, opened without following links.

        Raises:
            SlotError: this process does not have the turn.
        """
        if self._held is None:
            raise SlotError("only the process that has the turn can upload")
        return self._held

    @property
    def is_held(self) -> bool:
        return self._held is not None

    def take(self, wait_s: float, waiting: Callable[[], None]) -> None:
        """Waits for the turn.

        Args:
            wait_s: timeout [s].
            waiting: called repeatedly while waiting; may raise to give up.

        Raises:
            SlotError: the tree does not exist.
            LockedError: the timeout expired.
        """
        held, queue = self._open(INCOMING), self._open(SLOTS_FOLDER)
        end = time.monotonic() + wait_s
        try:
            while not _lock(held, fcntl.LOCK_EX):
                _lock(queue, fcntl.LOCK_SH)
                if not time.monotonic() < end:
                    raise LockedError(
                        "another flash of this robot is in progress; try again later, or wait longer: --patience-s S"
                    )
                waiting()
                time.sleep(_POLL_S)
            self._held = held
        finally:
            os.close(queue)
            if not self.is_held:
                os.close(held)

    def others_wait(self) -> bool:
        """Whether another process is waiting for the turn."""
        with suppress(SlotError):
            queue = self._open(SLOTS_FOLDER)
            try:
                return not _lock(queue, fcntl.LOCK_EX)
            finally:
                os.close(queue)
        return False

    def end(self) -> None:
        """Releases the turn if this process has it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _open(self, name: str) -> int:
        folder = self._root / name
        try:
            return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            remedy = "create the tree with `physai robot setup`"
            raise SlotError(f"{folder}: cannot be opened: {error.strerror}; {remedy}") from None


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
