"""The file operations of the slot store, behind a protocol so that tests can record, fail or replay each one.

Paths are relative to one root and use `/`. Nothing is durable until it is synced: file contents by `sync`, names in a
folder by `sync_folder`.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Literal, Protocol

EntryKind = Literal["file", "folder", "link", "other"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC

ROOT = ""
"""Path of the root folder."""


class FileSystem(Protocol):
    """A tree of files; every method raises OSError like the operating system."""

    def read(self, path: str, *, limit: int) -> bytes:
        """Reads a file.

        Raises:
            OSError: the file cannot be read, or has more than `limit` bytes (EFBIG).
        """
        ...

    def entries(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        ...

    def kind(self, path: str) -> EntryKind | None:
        """Kind of an entry without following links; None if it does not exist."""
        ...

    def size(self, path: str) -> int:
        """Size of a file in bytes."""
        ...

    def target(self, link: str) -> str:
        """Target of a symbolic link."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Writes a new file; fails if the path exists. A failed write can leave a partial file."""
        ...

    def link(self, path: str, target: str) -> None:
        """Creates a symbolic link; fails if the path exists."""
        ...

    def make_folder(self, path: str) -> None:
        """Creates a folder; fails if the path exists."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Renames a file or link atomically, replacing an existing target."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file or link."""
        ...

    def remove_folder(self, path: str) -> None:
        """Removes an empty folder."""
        ...

    def sync(self, path: str) -> None:
        """Makes the contents of a file durable."""
        ...

    def sync_folder(self, path: str) -> None:
        """Makes the names in a folder durable."""
        ...


class PosixFileSystem:
    """The real file system. The root may be a symbolic link; links below it are not followed."""

    def __init__(self, root: Path, *, mode: int | None = None) -> None:
        """Initialises the file system.

        Args:
            root: the tree.
            mode: permissions of new files; None applies the umask.
        """
        self.root = root
        self._mode = mode

    def read(self, path: str, *, limit: int) -> bytes:
        """See FileSystem."""
        with self.open(path) as file:
            data = file.read(limit + 1)
        if not len(data) <= limit:
            raise OSError(errno.EFBIG, f"larger than the {limit} bytes it may have", str(self.root / path))
        return data

    def open(self, path: str) -> BufferedReader:
        """Opens a file for reading.

        Raises:
            OSError: the file cannot be read or is not a regular file.
        """
        with self._within(path) as (folder, name):
            # O_NONBLOCK: opening a named pipe must not block.
            descriptor = os.open(name, _READ | os.O_NONBLOCK, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", str(self.root / path))
        return os.fdopen(descriptor, "rb")

    def entries(self, folder: str) -> list[str]:
        """See FileSystem."""
        with self._folder(folder) as descriptor:
            return sorted(os.listdir(descriptor))

    def kind(self, path: str) -> EntryKind | None:
        """See FileSystem."""
        try:
            mode = self._stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISREG(mode):
            return "file"
        return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"

    def size(self, path: str) -> int:
        """See FileSystem."""
        return self._stat(path).st_size

    def target(self, link: str) -> str:
        """See FileSystem."""
        with self._within(link) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def create(self, path: str, data: bytes) -> None:
        """See FileSystem."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._within(path) as (folder, name):
            descriptor = os.open(name, flags, 0o644, dir_fd=folder)
        try:
            if self._mode is not None:
                os.fchmod(descriptor, self._mode)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)

    def link(self, path: str, target: str) -> None:
        """See FileSystem."""
        with self._within(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def make_folder(self, path: str) -> None:
        """See FileSystem."""
        with self._within(path) as (folder, name):
            os.mkdir(name, dir_fd=folder)

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        with self._within(old) as (old_folder, old_name), self._within(new) as (new_folder, new_name):
            os.rename(old_name, new_name, src_dir_fd=old_folder, dst_dir_fd=new_folder)

    def remove(self, path: str) -> None:
        """See FileSystem."""
        with self._within(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove_folder(self, path: str) -> None:
        """See FileSystem."""
        with self._within(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def sync(self, path: str) -> None:
        """See FileSystem."""
        with self.open(path) as file:
            os.fsync(file.fileno())

    def sync_folder(self, path: str) -> None:
        """See FileSystem."""
        with self._folder(path) as descriptor:
            os.fsync(descriptor)

    def _stat(self, path: str) -> os.stat_result:
        with self._within(path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    @contextmanager
    def _within(self, path: str) -> Generator[tuple[int, str]]:
        """Descriptor of the folder that contains a path, and the name in it."""
        folder, _, name = path.rpartition("/")
        with self._folder(folder) as descriptor:
            yield descriptor, name or "."

    @contextmanager
    def _folder(self, path: str) -> Generator[int]:
        """Descriptor of a folder, opened one path component at a time without following links."""
        # An account that may write below the root could otherwise redirect root's writes with a symbolic link.
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in filter(None, path.split("/")):
                try:
                    inner = os.open(name, _READ | os.O_DIRECTORY, dir_fd=descriptor)
                except NotADirectoryError as error:
                    reason = f"{name} is a link or a file where a folder should be; remove it"
                    raise NotADirectoryError(error.errno, reason, str(self.root / path)) from None
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def exists(fs: FileSystem, path: str) -> bool:
    """Whether a path exists."""
    return fs.kind(path) is not None


def remove_tree(fs: FileSystem, path: str) -> int:
    """Removes a file, link or folder recursively if it exists; returns the size of its files in bytes."""
    kind = fs.kind(path)
    if kind is None:
        return 0
    if kind != "folder":
        size = fs.size(path) if kind == "file" else 0
        fs.remove(path)
        return size
    size = empty_folder(fs, path)
    fs.remove_folder(path)
    return size


def empty_folder(fs: FileSystem, folder: str) -> int:
    """Removes everything in a folder; returns the size of its files in bytes."""
    return sum(remove_tree(fs, f"{folder}/{name}") for name in fs.entries(folder))


def temporary(path: str) -> str:
    """Path of the temporary file that will replace a file."""
    # A fixed name is enough: the lock admits one writer.
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.new" if folder else f".{name}.new"


def folder_of(path: str) -> str:
    """The folder that contains a path; `ROOT` for the root."""
    return path.rpartition("/")[0]


def replace_files(fs: FileSystem, files: dict[str, bytes]) -> None:
    """Replaces files of one folder, each atomically and durably."""
    (folder,) = {folder_of(path) for path in files}
    # The order matters: every new file must be durable before a rename can make it visible.
    for path, data in files.items():
        remove_tree(fs, temporary(path))
        fs.create(temporary(path), data)
        fs.sync(temporary(path))
    fs.sync_folder(folder)
    for path in files:
        fs.rename(temporary(path), path)
    fs.sync_folder(folder)


def replace_links(fs: FileSystem, links: dict[str, str]) -> None:
    """Replaces symbolic links of one folder, each atomically and durably."""
    (folder,) = {folder_of(path) for path in links}
    for path, target in links.items():
        remove_tree(fs, temporary(path))
        fs.link(temporary(path), target)
    fs.sync_folder(folder)
    for path in links:
        fs.rename(temporary(path), path)
    fs.sync_folder(folder)
