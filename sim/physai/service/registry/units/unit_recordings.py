"""Recordings that robots upload in parts: an upload goes on after a break where it stopped.

A part is appended at the offset that the sender names, and only there. The last part has the whole file hashed; only a
file with the promised SHA-256 is stored and listed.
"""

import errno
import hashlib
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from physai.compute.database import reading
from physai.sdk.base.formats.canonical import sha256_hex
from physai.service.database.tables import UnitRecordingRow
from physai.service.problems import ProblemError, invalid
from physai.service.registry.blobs import BlobStore
from physai.service.registry.units.unit_log import recording_json, require_known_or_place

MAX_RECORDING_BYTES = 1 << 30
MAX_RECORDINGS = 20_000
"""Recordings of one robot."""
MAX_PARTIAL = 1000
"""Uploads of all robots that are not finished."""
MAX_OWN_PARTIAL = 20
"""Uploads of one robot that are not finished; the oldest makes room for the next one."""
FORGOTTEN_S = 600.0
"""The oldest of all makes room for another robot's if nothing was added to it for this long [s]."""
RECORDING_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LOCKS = 64


class UnitRecordings:
    """Uploaded recordings; may be used from any thread."""

    def __init__(self, engine: Engine, blobs: BlobStore) -> None:
        self._engine = engine
        self._blobs = blobs
        # Uploads of one robot take turns, so that none is removed while it grows; others need not wait for a hash.
        self._turns = [threading.Lock() for _ in range(_LOCKS)]

    def all(self, robot: str, *, limit: int) -> list[dict[str, Any]]:
        """Recordings of a robot, the one that arrived last first."""
        wanted = select(UnitRecordingRow).where(UnitRecordingRow.robot == robot)
        with Session(reading(self._engine)) as session:
            rows = session.scalars(wanted.order_by(UnitRecordingRow.id.desc()).limit(limit))
            return [recording_json(row) for row in rows]

    def progress(self, robot: str, sha256: str) -> dict[str, Any]:
        """Number of bytes that have been received of a recording, and whether it is stored."""
        with self._turn(robot):
            return self._progress(robot, sha256)

    def append(
        self, robot: str, sha256: str, data: bytes, *, name: str, size: int, offset: int, by: str
    ) -> dict[str, Any]:
        """Add a part of a recording; returns the same as `progress`.

        Args:
            robot: the unit.
            sha256: of the whole recording.
            data: the part.
            name: file name of the recording, for lists.
            size: bytes of the whole recording.
            offset: where the part begins.
            by: name of the token.

        Raises:
            ProblemError: the part does not follow those before, the disk is full, or the content has another hash.
        """
        if not RECORDING_NAME.fullmatch(name):
            raise invalid(f"{name!r:.140} is no name of a recording: use letters, digits and . _ -, at most 128")
        if not offset + len(data) <= size:
            raise invalid(f"the part ends at byte {offset + len(data)} of a recording of {size} bytes")
        with self._turn(robot):
            found = self._progress(robot, sha256)
            if found["complete"]:
                return found
            path = self._partial(robot, sha256)
            if found["received"] > size:
                # Another sender promised more under this hash.
                path.unlink()
                found["received"] = 0
            if offset != found["received"]:
                raise ProblemError(
                    409,
                    "other-offset",
                    f"the part begins at byte {offset}, and {found['received']} bytes are here: go on from there",
                )
            if offset == 0:
                self._require_place(robot)
            if offset == 0 and self._is_stored(sha256, size):
                # Another robot, or an upload that was interrupted after its last part, has stored the same content.
                path.unlink(missing_ok=True)
            else:
                if not path.exists():
                    self._make_room(robot)
                received = _append(path, data, name)
                if received < size:
                    return {"received": received, "complete": False}
                self._finish(path, sha256)
            self._list(robot, sha256, name=name, size=size, by=by)
            return {"received": size, "complete": True}

    def _turn(self, robot: str) -> threading.Lock:
        return self._turns[hash(robot) % _LOCKS]

    def _partial(self, robot: str, sha256: str) -> Path:
        return self._blobs.partial(f"{sha256_hex(robot.encode())}-{sha256}")

    def _progress(self, robot: str, sha256: str) -> dict[str, Any]:
        of_robot = UnitRecordingRow.robot == robot
        with Session(reading(self._engine)) as session:
            size = session.scalar(select(UnitRecordingRow.size).where(of_robot, UnitRecordingRow.sha256 == sha256))
        if size is not None:
            return {"received": size, "complete": True}
        try:
            return {"received": self._partial(robot, sha256).stat().st_size, "complete": False}
        except FileNotFoundError:
            return {"received": 0, "complete": False}

    def _is_stored(self, sha256: str, size: int) -> bool:
        try:
            return self._blobs.path(sha256).stat().st_size == size
        except ProblemError:
            return False

    def _finish(self, path: Path, sha256: str) -> None:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            path.unlink()
            raise invalid(f"the recording arrived with SHA-256 {found}, {sha256} was promised: send it again")
        self._blobs.adopt(path, sha256)

    def _list(self, robot: str, sha256: str, *, name: str, size: int, by: str) -> None:
        row = UnitRecordingRow(robot=robot, name=name, sha256=sha256, size=size, received=time.time(), received_by=by)
        with Session(self._engine) as session, session.begin():
            session.add(row)

    def _require_place(self, robot: str) -> None:
        """Check the bounds before an upload begins."""
        counted = select(func.count()).where(UnitRecordingRow.robot == robot)
        with Session(reading(self._engine)) as session:
            if (session.scalar(counted) or 0) >= MAX_RECORDINGS:
                raise ProblemError(
                    409, "capacity", f"{MAX_RECORDINGS} recordings of {robot} are kept, which is the most"
                )
            require_known_or_place(session, robot)

    def _make_room(self, robot: str) -> None:
        """Remove the oldest upload of this robot if it has many, else of all if there are too many."""
        folder = self._partial(robot, "").parent
        files = sorted((file.stat().st_mtime, file) for file in folder.iterdir())
        own = [file for _, file in files if file.name.startswith(self._partial(robot, "").name)]
        if len(own) >= MAX_OWN_PARTIAL:
            own[0].unlink()
        elif len(files) >= MAX_PARTIAL:
            oldest_s, file = files[0]
            if time.time() - oldest_s < FORGOTTEN_S:
                raise ProblemError(
                    503, "capacity", f"{MAX_PARTIAL} uploads are not finished; finish some, then try again"
                )
            file.unlink(missing_ok=True)


def _append(path: Path, data: bytes, name: str) -> int:
    """Append durably; return the size of the file."""
    try:
        with path.open("ab", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
            return file.tell()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ProblemError(
            507, "disk-full", f"the disk of the service is full: make room there; what arrived of {name} is kept"
        ) from error
