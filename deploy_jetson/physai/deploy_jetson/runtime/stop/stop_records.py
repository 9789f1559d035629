"""Durable records of stops that were not reset: they bind every later runtime, bundle and commander of the robot.

One record is in the robot's tree. It is allocated before the robot is driven and overwritten in place, so that a full
disk cannot refuse a stop. Another one per address of the robot (`SupportsAddresses`) is in a folder that other trees on
this computer share, from the stop to its reset. A record that a power cut or a disk error has damaged counts as a stop.
"""

import json
import os
import secrets
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from physai.deploy_jetson.update.slots.layout import DEFAULT_ROOT, seal, unseal
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as
from physai.sdk.base.terminal import printable

RECORD_FILE = "stop"
"""Name of the record in the tree."""

SHARED_FOLDER = "stops"

FOLDER_VARIABLE = "PHYSAI_STOPS"
"""Environment variable with another folder for the records that trees share."""

# One block of a file system: allocated once, written with one call.
RECORD_BYTES = 4096

MAX_ADDRESSES = 256


class StopRecordError(PhysaiError):
    """A record cannot be read or written."""


@dataclass(frozen=True, slots=True)
class StopRecord:
    """A stop that was not reset."""

    since: str
    """When it was requested, UTC."""
    why: str
    path: Path
    writable: bool
    """Whether this account may reset it."""
    readable: bool = True
    """Whether this account may read it; otherwise it is unknown whether there is one."""

    def __str__(self) -> str:
        return f"the stop of {self.since} ({self.why}), recorded in {self.path}"


def shared_folders() -> tuple[Path, ...]:
    """Folders with records of robots, the first one that can be written is used; all of them bind.

    Raises:
        StopRecordError: the environment names a relative folder, which is another one for each program.
    """
    if variable := os.environ.get(FOLDER_VARIABLE):
        named = Path(os.path.expanduser(variable))  # unlike Path.expanduser, keeps an unknown ~user as it is
        if not named.is_absolute():
            raise StopRecordError(
                f"{FOLDER_VARIABLE} is {variable!r}, expected an absolute path: runtimes in other folders would not "
                "find the stops there"
            )
        return (named,)
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path(os.path.expanduser("~/.local/state"))
    # An account may have no home.
    own = (state / "physai" / SHARED_FOLDER,) if state.is_absolute() else ()
    return DEFAULT_ROOT / SHARED_FOLDER, *own


class StopRecords:
    """Records of one robot; not thread-safe."""

    def __init__(self, root: Path, addresses: Collection[str] = ()) -> None:
        """Name the records without touching them.

        Args:
            root: the robot's tree.
            addresses: see `SupportsAddresses`.

        Raises:
            StopRecordError: the environment names no folder for shared records, see `shared_folders`.
        """
        self._own = root / RECORD_FILE
        names = [sha256(address.encode()).hexdigest()[:32] for address in sorted(set(addresses))[:MAX_ADDRESSES]]
        self._folders, self._names = shared_folders(), names
        # Content of the shared records that were found or written here: a reset lifts no others.
        self._known: dict[Path, bytes] = {}

    def prepare(self) -> None:
        """Allocate the tree's record, so that a stop can be recorded on a full disk.

        Raises:
            StopRecordError: it cannot be written.
        """
        path = self._own
        with oserror_as(StopRecordError, f"{path}: no stop can be recorded there"):
            known = _bytes(path)
            if known is None:
                known = _encode(stopped=False, why="")
            elif len(known) < RECORD_BYTES:
                # Cut off while it was written, so it stays a stop.
                known = _encode(stopped=True, why="its record was damaged")
            # Written in any case, which shows whether the disk still takes it.
            _write(path, known)
            _sync(path.parent)

    def found(self) -> StopRecord | None:
        """Return a stop that was not reset; None if there is none."""
        shared = self._shared()
        for path in shared:
            self._learn(path)
        records = [record for path in (self._own, *shared) if (record := _read(path)) is not None]
        # First the one that this account cannot reset, because it decides what the operator has to do.
        return min(records, key=lambda record: record.writable, default=None)

    def record(self, why: str) -> None:
        """Record a stop, durably.

        Raises:
            StopRecordError: the tree's record, or a shared one, cannot be written; the others are in any case.
        """
        data = _encode(stopped=True, why=why)
        refused = [*self._write_own(data), *(text for name in self._names if (text := self._share(name, data)))]
        if refused:
            raise StopRecordError("; ".join(refused))

    def clear(self) -> None:
        """Record that the stop was reset; a shared record of a stop that is not known here stays.

        Raises:
            StopRecordError: a record cannot be changed; the others are in any case.
        """
        refused = self._write_own(_encode(stopped=False, why=""))
        for path in self._shared():
            try:
                if (now := _bytes(path)) is not None and now == self._known.get(path):
                    path.unlink(missing_ok=True)
            except OSError as error:
                refused.append(f"{path}: {error.strerror or error}")
        if refused:
            raise StopRecordError("; ".join(refused))

    def _shared(self) -> list[Path]:
        return [folder / name for name in self._names for folder in self._folders]

    def _learn(self, path: Path) -> None:
        with suppress(OSError):
            self._known[path] = _bytes(path) or b""

    def _write_own(self, data: bytes) -> list[str]:
        try:
            _write(self._own, data)
            # The record may have been removed since it was allocated.
            _sync(self._own.parent)
        except OSError as error:
            return [f"{self._own}: {error.strerror or error}"]
        return []

    def _share(self, name: str, data: bytes) -> str:
        """Write a shared record in the first folder that accepts it; return why none does, empty if one does."""
        refused = ""
        for folder in self._folders:
            path = folder / name
            try:
                if not folder.is_dir():
                    folder.mkdir(parents=True, exist_ok=True)
                    _sync(folder.parent)
                _write(path, data)
                _sync(folder)
                self._known[path] = data
            except OSError as error:
                # It may be there regardless, cut off.
                self._learn(path)
                # Of another account, or on a full disk or a read-only file system.
                refused = f"other trees on this computer are not bound: {folder}: {error.strerror or error}"
            else:
                return ""
        return refused


def _encode(*, stopped: bool, why: str) -> bytes:
    since = datetime.now(UTC).isoformat(timespec="seconds") if stopped else ""
    record: dict[str, object] = {"format_version": 1, "stopped": stopped, "since": since, "why": why[:500]}
    if stopped:
        # Two stops of one second are two records.
        record["id"] = secrets.token_hex(8)
    return seal(json.dumps(record).encode()).ljust(RECORD_BYTES, b"\n")


def _write(path: Path, data: bytes) -> None:
    # In place: no name changes, and no block is allocated once the record has its size.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.pwrite(descriptor, data, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _bytes(path: Path) -> bytes | None:
    """Return the content of a record; None if there is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return os.read(descriptor, RECORD_BYTES)
    finally:
        os.close(descriptor)


def _read(path: Path) -> StopRecord | None:
    """Return the stop that a record holds; None without a record, or after a reset."""
    try:
        data = _bytes(path)
        if data is None:
            return None
        if len(data) < RECORD_BYTES:
            raise SlotError(f"{len(data)} of {RECORD_BYTES} bytes")
        document: Any = json.loads(unseal(data.rstrip(b"\n") + b"\n", source=str(path)))
        if not isinstance(document, dict) or not isinstance(document.get("stopped"), bool):  # pyright: ignore[reportUnknownMemberType]
            raise SlotError("no record")
        record = cast("dict[str, Any]", document)
    except OSError as error:
        why = f"its record cannot be read: {error.strerror}"
        return StopRecord("an unknown time", why, path, writable=False, readable=False)
    except (ValueError, SlotError, RecursionError):
        return StopRecord("an unknown time", "its record is damaged", path, writable=os.access(path, os.W_OK))
    if not record["stopped"]:
        return None
    since, why = (printable(str(record.get(name, "")))[:500] for name in ("since", "why"))
    return StopRecord(since, why, path, writable=os.access(path, os.W_OK))
