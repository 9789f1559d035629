"""Files that are wholly the old or wholly the new one, whatever happens while they are written; and reading one that
a user named, which may be anything.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_plain(path: Path) -> BufferedReader:
    """Opens a regular file, or a link to one, for reading.

    A pipe is not waited for and a device is not read, which `path.open("rb")` would do for ever.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _require_plain(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, *, limit: int) -> bytes:
    """The content of a regular file, and at most one byte more than the limit.

    Args:
        path: the file; a symbolic link to one will do.
        limit: maximum number of bytes to read; the parser reports longer files.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_plain(path) as file:
        return file.read(limit + 1)


def require_replaceable(path: Path) -> None:
    """Refuses to write where something else than a file lies: it would be gone, or written to.

    A device, pipe or folder must not give way to a file (`-o /dev/null` as root). A symbolic link is refused, too: to
    replace it would leave the file it points to as it was, and to follow it would write where the user did not say.

    Raises:
        OSError: something else lies there.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "it is a symbolic link; name the file it points to", str(path))
    _require_plain(mode, path)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the file atomically: write a temporary file in the same folder, sync it to disk and rename it.

    Raises:
        OSError: the folder is missing, not writable or full, or something else than a file lies there; nothing changed.
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
    """Makes a new file, whole or not at all.

    Args:
        path: the file, which does not exist.
        data: what it holds.
        mode: its permissions from the first moment on; the umask may take some away.

    Raises:
        FileExistsError: something lies there.
        OSError: the folder is missing, not writable or full; nothing is left behind.
    """
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
    finally:
        new.unlink()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Returns once the names in a folder are on the disk."""
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
