"""Receivers of recordings: a service of `physai sim serve`, or a folder such as a mounted stick.

Both append parts in order, tell how far they are, and compare the SHA-256 of the whole at the end, so that an upload
that broke off goes on where it stopped. Neither is trusted: their answers are checked, and links are not followed.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.service import Service, ServiceRequestError

APPEND_S = 120.0
"""Longest silence of a service that stores a part [s]."""
_PART = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class UploadError(PhysaiError):
    """A recording cannot be sent."""


class UnsentRecordingError(UploadError):
    """One recording cannot be sent; the receiver may take others."""


@dataclass(frozen=True)
class OutgoingRecording:
    """A recording to send."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Arrived:
    """Progress of one recording at its receiver."""

    size: int
    complete: bool


class RecordingReceiver(ABC):
    """Receiver of the recordings of one robot."""

    @abstractmethod
    def arrived(self, recording: OutgoingRecording) -> Arrived:
        """Tell how much of a recording is there; raises PhysaiError."""

    @abstractmethod
    def append(self, recording: OutgoingRecording, offset: int, data: bytes) -> Arrived:
        """Add a part, which begins at `offset`; empty if only the end of the upload is missing.

        Raises:
            PhysaiError: the part is not stored.
        """


class ServiceReceiver(RecordingReceiver):
    """A service."""

    def __init__(self, service: Service, robot: str) -> None:
        """For the recordings of a unit, `ur10e/cell-3`."""
        self._service = service
        self._path = f"/v1/robots/{'/'.join(name_parts(robot, least=2))}/recordings"

    def arrived(self, recording: OutgoingRecording) -> Arrived:
        """See the base class."""
        return self._checked(self._service.get(f"{self._path}/{recording.sha256}"), recording)

    def append(self, recording: OutgoingRecording, offset: int, data: bytes) -> Arrived:
        """See the base class."""
        query = f"name={quote(recording.name)}&size={recording.size}&offset={offset}"
        path = f"{self._path}/{recording.sha256}?{query}"
        try:
            return self._checked(self._service.post(path, data, timeout_s=APPEND_S), recording)
        except ServiceRequestError as error:
            # Of a robot or a token that it does not take, it says so when it is asked how much is there.
            if str(error).endswith("(HTTP 422)"):
                raise UnsentRecordingError(f"{recording.name}: {error}") from None
            raise

    def _checked(self, answer: Any, recording: OutgoingRecording) -> Arrived:
        fields = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
        size, complete = fields.get("received"), fields.get("complete")
        if complete is False and type(size) is int and size > recording.size:
            # Another sender promised more; the service throws that away when this upload begins.
            size = 0
        if type(size) is not int or type(complete) is not bool or not 0 <= size <= recording.size:
            raise UploadError(
                f"{self._service.url} answers {answer!r:.100} about {recording.name}, which has {recording.size} bytes"
            )
        return Arrived(size, complete)


class FolderReceiver(RecordingReceiver):
    """A folder; recordings are in a folder per robot, and their names end in the first digits of their SHA-256.

    On a file system without locks, two uploads of one recording at once may have to send it again.
    """

    def __init__(self, folder: Path, robot: str) -> None:
        """Open the folder of a robot below an existing folder; `close` ends it.

        Raises:
            UploadError: the folder is missing, cannot be written, or has a link where a folder belongs.
        """
        self._path = folder.joinpath(*name_parts(robot, least=1))
        with ExitStack() as stack:
            try:
                parent = os.open(folder, os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, parent)
                for part in name_parts(robot, least=1):
                    with suppress(FileExistsError):
                        os.mkdir(part, dir_fd=parent)
                        _if_supported(os.fsync, parent)
                    parent = os.open(part, os.O_DIRECTORY | _OPEN, dir_fd=parent)
                    stack.callback(os.close, parent)
            except OSError as error:
                raise UploadError(f"{self._path}: {error.strerror}; mount it, or name a folder to write to") from None
            self._folder = parent
            self._closing = stack.pop_all()

    def close(self) -> None:
        """Close the folder."""
        self._closing.close()

    def arrived(self, recording: OutgoingRecording) -> Arrived:
        """See the base class."""
        if self._size(_final(recording)) == recording.size:
            return Arrived(recording.size, complete=True)
        return Arrived(max(0, self._size(_partial(recording))), complete=False)

    def append(self, recording: OutgoingRecording, offset: int, data: bytes) -> Arrived:
        """See the base class."""
        try:
            file = os.open(_partial(recording), os.O_RDWR | os.O_CREAT | _OPEN, 0o644, dir_fd=self._folder)
            with os.fdopen(file, "rb+", buffering=0) as part:
                # Two programs may send the same recording.
                _if_supported(fcntl.flock, part, fcntl.LOCK_EX)
                return self._append(recording, offset, data, part.fileno())
        except OSError as error:
            kept = f"; what arrived of {recording.name} is kept: make room, then go on" * (error.errno in _FULL)
            raise self._failed(_final(recording), error, kept) from None

    def _append(self, recording: OutgoingRecording, offset: int, data: bytes, file: int) -> Arrived:
        partial, final = _partial(recording), _final(recording)
        found = self.arrived(recording)
        if found.complete:
            with suppress(FileNotFoundError):
                os.unlink(partial, dir_fd=self._folder)
            return found
        here = os.fstat(file)
        if not stat.S_ISREG(here.st_mode):
            raise OSError(errno.EINVAL, f"{partial} is no regular file: remove it")
        # Another sender was faster, while this one waited.
        if not here.st_nlink or here.st_size != offset or offset + len(data) > recording.size:
            if here.st_size > recording.size:
                os.unlink(partial, dir_fd=self._folder)
            return self.arrived(recording)
        rest, at = memoryview(data), offset
        while rest:
            written = os.pwrite(file, rest, at)
            rest, at = rest[written:], at + written
        os.fsync(file)
        if at < recording.size:
            return Arrived(at, complete=False)
        with os.fdopen(os.dup(file), "rb") as whole:
            whole.seek(0)
            same = hashlib.file_digest(whole, "sha256").hexdigest() == recording.sha256
        if not same:
            os.unlink(partial, dir_fd=self._folder)
            raise UnsentRecordingError(
                f"{self._path}: {recording.name} is damaged there; it is sent again from its start"
            )
        os.rename(partial, final, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        _if_supported(os.fsync, self._folder)
        return Arrived(at, complete=True)

    def _size(self, name: str) -> int:
        """Return the size of a regular file; -1 for anything else."""
        try:
            found = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise self._failed(name, error) from None
        return found.st_size if stat.S_ISREG(found.st_mode) else -1

    def _failed(self, name: str, error: OSError, more: str = "") -> UploadError:
        kind = UploadError if error.errno in _RECEIVER else UnsentRecordingError
        return kind(f"{self._path / name}: {error.strerror or error}{more}")


_FULL = (errno.ENOSPC, errno.EDQUOT)
_RECEIVER = (
    *(*_FULL, errno.EROFS, errno.EIO, errno.ENOENT, errno.ENODEV, errno.ENXIO),
    *(errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH),
)
"""Errors of a receiver that is full, removed or cannot be reached; others are of one recording."""


def _if_supported(call: Callable[..., None], *arguments: Any) -> None:
    """Sync a folder or lock a file, which some file systems cannot: the SHA-256 at the end counts."""
    try:
        call(*arguments)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise


def name_parts(robot: str, *, least: int) -> tuple[str, ...]:
    """Split a robot's name into its model and its unit, which name folders and parts of addresses.

    Raises:
        UploadError: the name has fewer parts than `least`, more than two, or one that is no plain name.
    """
    parts = tuple(robot.split("/"))
    if not least <= len(parts) <= 2 or not all(_PART.fullmatch(part) for part in parts):
        raise UploadError(
            f"the robot is named {robot!r}, and uploads are filed by MODEL/UNIT, such as ur10e/cell-3: name it so with "
            "`physai robot setup --robot`"
        )
    return parts


def _final(recording: OutgoingRecording) -> str:
    stem, dot, suffix = recording.name.rpartition(".")
    return f"{stem}-{recording.sha256[:12]}{dot}{suffix}"


def _partial(recording: OutgoingRecording) -> str:
    return f".{recording.sha256}.part"
