"""Hashes of files and folders by content."""

import hashlib
import os
import stat
from pathlib import Path, PurePosixPath

from physai.cluster.workflow.workflow_file import WorkflowError
from physai.sdk.base.files import open_plain

MAX_FILES = 1_000_000
"""Maximum number of files in one folder, however deep."""


def output_hash(folder: Path, relative: str) -> str:
    """`content_hash` of what a stage wrote below a folder, if no link leads there: its target may change later.

    Raises:
        WorkflowError: as `content_hash`, or for a link on the way.
    """
    path = folder
    for part in ("", *PurePosixPath(relative).parts):
        path /= part
        if path.is_symlink():
            raise WorkflowError(f"{path} is a symbolic link, whose content may change; put a file in its place")
    return content_hash(path)


def content_hash(path: Path) -> str:
    """SHA-256 of a file's content, or of the names and contents of a folder's files; times and modes do not count.

    Returns:
        64 hexadecimal digits; a file and a folder never have the same.

    Raises:
        WorkflowError: it is missing, cannot be read, or contains links, devices or pipes.
    """
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            return _folder_hash(path)
        return _digest(b"file", _file_hash(path))
    except OSError as error:
        raise WorkflowError(
            f"{error.filename or path}: cannot be read: {(error.strerror or str(error)).lower()}"
        ) from None


def _file_hash(path: Path) -> bytes:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _folder_hash(folder: Path) -> str:
    entries: list[tuple[bytes, bytes, bytes]] = []
    unread = [folder]
    while unread:
        with os.scandir(unread.pop()) as found:
            for entry in found:
                path = Path(entry.path)
                name = os.fsencode(path.relative_to(folder))
                if entry.is_symlink():
                    raise WorkflowError(f"{path} is a symbolic link, whose content may change; put a file in its place")
                if entry.is_dir():
                    unread.append(path)
                    entries.append((name, b"folder", b""))
                else:
                    entries.append((name, b"file", _file_hash(path)))
        if not len(entries) <= MAX_FILES:
            raise WorkflowError(f"{folder}: more than {MAX_FILES} files; pack them into fewer")
    # A NUL ends a name, and hashes have a fixed length, so no two lists have the same bytes.
    return _digest(b"folder", b"".join(name + b"\0" + kind + b"\0" + digest for name, kind, digest in sorted(entries)))


def _digest(kind: bytes, data: bytes) -> str:
    return hashlib.sha256(kind + b"\0" + data).hexdigest()
