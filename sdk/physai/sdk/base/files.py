"""Atomic, durable writes, and reads of user-supplied paths that may be devices, pipes or folders."""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from physai.sdk.base.errors import PhysaiError


@contextmanager
def oserror_as(error: type[PhysaiError], problem: str) -> Generator[None]:
    """Convert an OSError in the block: `problem`, a colon, and the reason that the operating system gives.

    Raises:
        PhysaiError: of type `error`.
    """
    try:
        yield
    except OSError as reason:
        raise error(f"{problem}: {reason.strerror or reason}") from reason


def open_plain(path: Path) -> BufferedReader:
    """Open a regular file, or a symbolic link to one, for reading.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    # O_NONBLOCK: opening a pipe without a writer must not block, as `path.open("rb")` would.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _require_plain(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, *, limit: int) -> bytes:
    """Read a regular file, at most `limit + 1` bytes, so that the caller can detect a file that is too large.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    with open_plain(path) as file:
        return file.read(limit + 1)


def require_replaceable(path: Path) -> None:
    """Check that a path is free or a regular file.

    Raises:
        OSError: it is a device, pipe, folder or symbolic link.
    """
    # A rename would replace a device (`-o /dev/null` as root). It would also replace a symbolic link and leave its
    # target unchanged, whereas following the link would write to a path the user did not name.
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file it points to", str(path))
    _require_plain(mode, path)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably: write a temporary file in the same folder, fsync it, rename it.

    Raises:
        OSError: the folder is missing, not writable or full, or the path is not a regular file; nothing has changed.
    """
    require_replaceable(path)
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with new.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def create_durable(path: Path, data: bytes, *, mode: int) -> None:
    """Create a file atomically and durably.

    Args:
        path: the file, which must not exist.
        data: its content.
        mode: its permissions from creation on, subject to the umask.

    Raises:
        FileExistsError: the path exists.
        OSError: the folder is missing, not writable or full; nothing is left behind.
    """
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # Unlike a rename, a link fails if the path exists.
        os.link(new, path)
    finally:
        new.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_plain(mode: int, path: Path) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
