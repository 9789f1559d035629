"""The few operations on files that the slot store is made of, so that a harness can record, fail or replay each.

Paths are relative to one root and use `/`. Nothing here is durable until it is synced: the content of a file by `sync`,
the names in a folder by `sync_folder`.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Literal, Protocol

Kind = Literal["file", "folder", "link", "other"]

ROOT = ""
"""The root itself, where a folder is meant."""


class FileSystem(Protocol):
    """One tree of files. Every method raises OSError as the operating system does."""

    def read(self, path: str, *, limit: int) -> bytes:
        """The content of a file.

        Raises:
            OSError: it cannot be read, or holds more than `limit` bytes (EFBIG).
        """
        ...

    def entries(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        ...

    def kind(self, path: str) -> Kind | None:
        """What lies there, links not followed; None for nothing."""
        ...

    def size(self, path: str) -> int:
        """Bytes of a file."""
        ...

    def target(self, link: str) -> str:
        """What a symbolic link points to."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Writes a new file; fails where something lies already. May leave a part of it behind when it fails."""
        ...

    def link(self, path: str, target: str) -> None:
        """Makes a new symbolic link; fails where something lies already."""
        ...

    def make_folder(self, path: str) -> None:
        """Makes a new folder; fails where something lies already."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Gives a file or link another name and replaces what had that name, in one step."""
        ...

    def remove(self, path: str) -> None:
        """Removes a file or link."""
        ...

    def remove_folder(self, path: str) -> None:
        """Removes an empty folder."""
        ...

    def sync(self, path: str) -> None:
        """Returns once the content of a file is on the disk."""
        ...

    def sync_folder(self, path: str) -> None:
        """Returns once the names in a folder are on the disk."""
        ...


class PosixFileSystem:
    """The real thing: one system call or two per operation."""

    def __init__(self, root: Path, *, mode: int | None = None) -> None:
        """Prepares to work.

        Args:
            root: the tree.
            mode: permissions of new files; None leaves them to the umask.
        """
        self.root = root
        self._mode = mode

    def read(self, path: str, *, limit: int) -> bytes:
        """See FileSystem."""
        descriptor = os.open(self._at(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(limit + 1)
        if not len(data) <= limit:
            raise OSError(errno.EFBIG, f"larger than the {limit} bytes it may have", str(self._at(path)))
        return data

    def entries(self, folder: str) -> list[str]:
        """See FileSystem."""
        return sorted(os.listdir(self._at(folder)))

    def kind(self, path: str) -> Kind | None:
        """See FileSystem."""
        try:
            mode = self._at(path).lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISREG(mode):
            return "file"
        return "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"

    def size(self, path: str) -> int:
        """See FileSystem."""
        return self._at(path).lstat().st_size

    def target(self, link: str) -> str:
        """See FileSystem."""
        return os.readlink(self._at(link))

    def create(self, path: str, data: bytes) -> None:
        """See FileSystem."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._at(path), flags, 0o644)
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
        self._at(path).symlink_to(target)

    def make_folder(self, path: str) -> None:
        """See FileSystem."""
        self._at(path).mkdir()

    def rename(self, old: str, new: str) -> None:
        """See FileSystem."""
        self._at(old).rename(self._at(new))

    def remove(self, path: str) -> None:
        """See FileSystem."""
        self._at(path).unlink()

    def remove_folder(self, path: str) -> None:
        """See FileSystem."""
        self._at(path).rmdir()

    def sync(self, path: str) -> None:
        """See FileSystem."""
        self._sync(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def sync_folder(self, path: str) -> None:
        """See FileSystem."""
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _sync(self, path: str, flags: int) -> None:
        descriptor = os.open(self._at(path), flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _at(self, path: str) -> Path:
        return self.root / path if path else self.root


def exists(fs: FileSystem, path: str) -> bool:
    """Whether anything lies there."""
    return fs.kind(path) is not None


def remove_tree(fs: FileSystem, path: str) -> int:
    """Removes a file, link or folder with all in it, and returns the bytes its files had; 0 where nothing lies."""
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
    """Removes everything in a folder and returns the bytes its files had."""
    return sum(remove_tree(fs, f"{folder}/{name}") for name in fs.entries(folder))


def temporary(path: str) -> str:
    """Name under which the successor of a file is written; one writer at a time is the lock's business."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.new" if folder else f".{name}.new"


def folder_of(path: str) -> str:
    """The folder a path lies in; `ROOT` for the root."""
    return path.rpartition("/")[0]


def replace_files(fs: FileSystem, files: dict[str, bytes]) -> None:
    """Replaces files of one folder, each wholly and durably.

    The order is what makes it durable: write and sync every new file, sync the folder, rename, sync the folder.
    """
    (folder,) = {folder_of(path) for path in files}
    for path, data in files.items():
        remove_tree(fs, temporary(path))
        fs.create(temporary(path), data)
        fs.sync(temporary(path))
    fs.sync_folder(folder)
    for path in files:
        fs.rename(temporary(path), path)
    fs.sync_folder(folder)


def replace_links(fs: FileSystem, links: dict[str, str]) -> None:
    """Replaces symbolic links of one folder, each in one step, durably."""
    (folder,) = {folder_of(path) for path in links}
    for path, target in links.items():
        remove_tree(fs, temporary(path))
        fs.link(temporary(path), target)
    fs.sync_folder(folder)
    for path in links:
        fs.rename(temporary(path), path)
    fs.sync_folder(folder)
