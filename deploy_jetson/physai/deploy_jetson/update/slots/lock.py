"""A file lock on a slot tree; the kernel releases it when its holder dies."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from physai.deploy_jetson.update.slots.slot_errors import LockedError, SlotError

LOCK_FILE = "lock"
MAX_HOLDER_BYTES = 1024
_POLL_S = 0.05


@contextmanager
def locked(root: Path, purpose: str, *, wait_s: float = 0.0) -> Generator[None]:
    """Holds the lock of a slot tree.

    Args:
        root: the tree.
        purpose: command of the holder, shown to processes that find the tree locked.
        wait_s: how long to wait for the lock [s].

    Raises:
        LockedError: another process holds the lock; the message names it.
        SlotError: the tree does not exist or cannot be written.
    """
    path = root / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        raise SlotError(f"{root}: no such folder; create it with `physai robot setup`") from None
    except OSError as error:
        raise SlotError(f"{path}: cannot be opened for writing: {error.strerror}{_remedy(error)}") from None
    try:
        _acquire(descriptor, path, wait_s)
        _write_holder(descriptor, purpose)
        yield
    finally:
        os.close(descriptor)  # releases the lock


def _remedy(error: OSError) -> str:
    if error.errno == errno.EROFS:
        return "; the file system is mounted read-only (mount -o remount,rw)"
    return "; run as the user that owns it" if error.errno in (errno.EACCES, errno.EPERM) else ""


def _acquire(descriptor: int, path: Path, wait_s: float) -> None:
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise SlotError(f"{path}: cannot be locked: {error.strerror}") from None
        if not time.monotonic() < end:
            raise LockedError(f"{path.parent} is in use: {_holder(descriptor)}; try again, or wait with --wait-s S")
        time.sleep(_POLL_S)


def _write_holder(descriptor: int, purpose: str) -> None:
    note = json.dumps({"pid": os.getpid(), "purpose": purpose}).encode()
    # Only informative: a full disk must not fail the transaction.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, note, 0)


def _holder(descriptor: int) -> str:
    try:
        note = json.loads(os.pread(descriptor, MAX_HOLDER_BYTES, 0))
        return f"process {int(note['pid'])} is running `{str(note['purpose'])[:100]}`"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another process holds its lock"
