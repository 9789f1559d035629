"""A file system with injected errors."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem

WRITING = ("create", "link", "make_folder", "rename", "sync", "sync_folder")
"""Operations that may need space, unlike removal."""


class FaultyFileSystem(PosixFileSystem):
    """A real file system in which one operation fails, by default with ENOSPC."""

    def __init__(self, root: Path, *, at: int, code: int = errno.ENOSPC, lasting: bool = False) -> None:
        """Sets the operation that fails.

        Args:
            root: root folder.
            at: index of the writing operation that fails.
            code: its errno.
            lasting: whether all later writing operations fail, too, except renaming and syncing, for which a full
                disk has room.
        """
        super().__init__(root)
        self._at_count = at
        self._code = code
        self._lasting = lasting
        self.count = 0
        """Number of writing operations so far."""
        self.failed = False

    def create(self, path: str, data: bytes) -> None:
        """See FileSystem; a failing write leaves half of its data."""
        self._maybe_fail(lambda: super(FaultyFileSystem, self).create(path, data[: len(data) // 2]), needs_room=True)
        super().create(path, data)

    def link(self, path: str, target: str) -> None:
        """See FileSystem."""
        self._maybe_fail(needs_room=True)
        super().link(path, target)

    def make_folder(self, path: str) -> None:
        """See FileSystem."""
        self._maybe_fail(needs_room=True)
        super().make_folder(path)

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        self._maybe_fail()
        super().rename(old, new)

    def sync(self, path: str) -> None:
        """See FileSystem."""
        self._maybe_fail()
        super().sync(path)

    def sync_folder(self, path: str) -> None:
        """See FileSystem."""
        self._maybe_fail()
        super().sync_folder(path)

    def _maybe_fail(self, half: Callable[[], None] = lambda: None, *, needs_room: bool = False) -> None:
        number = self.count
        self.count += 1
        if number == self._at_count or (self.failed and self._lasting and needs_room):
            self.failed = True
            half()
            raise OSError(self._code, os.strerror(self._code))
