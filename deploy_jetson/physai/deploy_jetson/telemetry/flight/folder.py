"""Folder of flight recordings: files are complete or absent, and their number and total size are bounded."""

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import write_atomic

MAX_FILES = 20
MAX_BYTES = 512 << 20

_NAME = re.compile(r"\d{8}T\d{6}\.\d{3}Z-v\d+-[a-z0-9-]{1,40}\.mcap")
_UNFINISHED = re.compile(rf"\.{_NAME.pattern}\.[0-9a-f]+")


class FlightError(PhysaiError):
    """A recording cannot be stored."""


def file_name(when: datetime, version: int, cause: str) -> str:
    """Return the name of a recording, which sorts by time.

    Args:
        when: time of the request.
        version: of the policy.
        cause: short text.
    """
    # Only letters, digits and hyphens: the cause may hold anything, such as the text of an exception.
    slug = re.sub(r"[^a-z0-9]+", "-", cause.lower()).strip("-")[:40].strip("-") or "unknown"
    utc = when.astimezone(UTC)
    return f"{utc:%Y%m%dT%H%M%S}.{utc.microsecond // 1000:03d}Z-v{version}-{slug}.mcap"


@dataclass(frozen=True)
class FlightFolder:
    """A folder of recordings; other files in it are left alone."""

    path: Path
    max_files: int = MAX_FILES
    max_bytes: int = MAX_BYTES
    """Bound of the total size."""

    def prepare(self) -> None:
        """Create the folder, remove unfinished files of killed processes, and test that it is writable.

        Raises:
            FlightError: the folder is not writable.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for file in self.path.iterdir():
                # Left by a process that was killed while it wrote.
                if _UNFINISHED.fullmatch(file.name):
                    file.unlink(missing_ok=True)
            # The permission bits do not tell: the file system may be read-only, or full.
            probe = self.path / f".probe.{secrets.token_hex(8)}"
            probe.touch(exist_ok=False)
            probe.unlink()
        except OSError as error:
            raise FlightError(f"{self.path}: no recordings can be written there: {error.strerror or error}") from None

    def store(self, name: str, data: bytes) -> Path:
        """Write or replace a recording; deletes the oldest ones to make room.

        Raises:
            FlightError: it exceeds `max_bytes` or cannot be written; an older one of that name is then unchanged.
        """
        path = self.path / name
        if not len(data) <= self.max_bytes:
            raise FlightError(f"{path}: the recording has {len(data)} bytes, at most {self.max_bytes} are kept")
        try:
            self._make_room(name, len(data))
            write_atomic(path, data)
        except OSError as error:
            raise FlightError(f"{path}: cannot be written: {error.strerror or error}") from None
        return path

    def recordings(self) -> tuple[Path, ...]:
        """Return the recordings, oldest first.

        Raises:
            OSError: the folder cannot be read.
        """
        # Names begin with the time, so their order is that of the recordings.
        named = (file for file in self.path.iterdir() if _NAME.fullmatch(file.name))
        return tuple(sorted(file for file in named if file.is_file() and not file.is_symlink()))

    def _make_room(self, name: str, size: int) -> None:
        others = [(file, file.stat().st_size) for file in self.recordings() if file.name != name]
        total = size + sum(length for _, length in others)
        count = 1 + len(others)
        # Oldest first, until the new one fits.
        for file, length in others:
            if count <= self.max_files and total <= self.max_bytes:
                break
            file.unlink(missing_ok=True)
            count, total = count - 1, total - length
