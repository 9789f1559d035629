"""Files that are wholly the old or wholly the new one, whatever happens while they are written; and reading one that
a user named, which may be anything.
"""

import errno
import os
import secrets
import stat
from pathlib import Path


def read_plain(path: Path, *, limit: int) -> bytes:
    """The content of a regular file, and at most one byte more than the limit.

    A pipe is not waited for, a device is not read: `with path.open() as file: file.read()` would do both.

    Args:
        path: the file; a symbolic link to one will do.
        limit: most bytes it may have; whoever parses says what is too long.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(limit + 1)


def write_atomic(path: Path, data: bytes) -> None:
    """Replaces the file by the data, through a new file beside it, synced to disk before it takes the name.

    Raises:
        OSError: the folder is missing, not writable or full; the old file is unchanged.
    """
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with new.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
