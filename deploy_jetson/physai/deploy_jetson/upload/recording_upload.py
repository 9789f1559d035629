"""`physai robot upload` as a function: sends finished recordings to a service or a folder."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.deploy_jetson.update.robot_tree import TreeOption, agent_of, tree_of
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.deploy_jetson.upload.receivers import OutgoingRecording, RecordingReceiver
    from physai.sdk.base.service import Service

PART_BYTES = 1 << 18
PART_S = 2.0
"""Duration of a part where the rate is limited [s]."""
LEAST_RATE = 1024.0
ATTEMPTS = 3
"""Failures without more bytes at the receiver than ever before, after which an upload ends."""
MOST_OFTEN = 10
"""How often the bytes of a recording are sent: several programs may send it, and parts may arrive damaged."""
RETRY_S = 1.0
SETTLE_S = 60.0
"""Age from which a recording is finished: the recorder writes each one again some seconds later [s]."""
MAX_TOKEN_BYTES = 1024


@dataclass(frozen=True)
class RecordingUpload:
    """Result of an upload."""

    sent: tuple[str, ...]
    """Names of the recordings that this upload completed, oldest first."""
    bytes_sent: int
    there: int
    """Number of recordings that had arrived before."""
    unfinished: int
    """Number of recordings that were too young to be sent."""
    filed: int
    """Number of signed documents that the service accepted or had."""
    problems: tuple[str, ...]
    """Why other documents were not filed, and other recordings not sent."""


def upload_recordings(
    *,
    to: Annotated[str, Option(metavar="URL|FOLDER")],
    flight_recordings: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    max_rate: Annotated[float | None, Option(metavar="BYTES/S")] = None,
    settle_s: float = SETTLE_S,
    token_file: Annotated[Path | str | None, Option(metavar="FILE")] = None,
    tree: TreeOption = None,
    progress: Callable[[str, float], None] = lambda name, share: None,
) -> RecordingUpload:
    """Send the robot's finished recordings that are not there yet, oldest first; nothing is deleted on the robot.

    A service also gets the robot's signed state and its latest shadow evidence. If a recording cannot be sent,
    `problems` says so, and the next ones are sent.

    Args:
        to: service of `physai sim serve`, or an existing folder, such as a mounted stick.
        flight_recordings: folder of flight recordings. None for recordings in the robot's tree.
        max_rate: limit of the rate [B/s]. None for no limit.
        settle_s: age from which a recording is sent [s].
        token_file: file with the token of the service. None for PHYSAI_TOKEN.
        tree: the robot's tree.
        progress: receives names of recordings and the share of each that has arrived.

    Raises:
        UploadError: the folder is full, removed or cannot be read.
        ServiceRequestError: the service cannot be reached, is full, or refuses the token.
        PhysaiError: an option is out of range, or the robot's tree cannot be read.
    """
    from physai.deploy_jetson.telemetry.flight.file import FlightFolder
    from physai.deploy_jetson.telemetry.run_telemetry import RECORDINGS_FOLDER
    from physai.deploy_jetson.upload.receivers import FolderReceiver, ServiceReceiver, UnsentRecordingError, UploadError
    from physai.deploy_jetson.upload.robot_documents import file_documents
    from physai.sdk.base.files import oserror_as

    if max_rate is not None and not (math.isfinite(max_rate) and max_rate >= LEAST_RATE):
        raise PhysaiError(f"`max_rate` must be at least {LEAST_RATE:g} B/s, got {max_rate:g}")
    if not (math.isfinite(settle_s) and settle_s >= 0.0):
        raise PhysaiError(f"`settle_s` must be at least 0 s, got {settle_s:g}")
    found = tree_of(tree)
    agent = agent_of(found)
    folder = Path(flight_recordings) if flight_recordings is not None else found.existing() / RECORDINGS_FOLDER
    robot = agent.config.identity().robot
    with ExitStack() as stack:
        filed, problems = 0, list[str]()
        if to.startswith(("http://", "https://")):
            service = _service(to, token_file)
            receiver = ServiceReceiver(service, robot)
            filed, problems = file_documents(agent, service, robot)
        else:
            receiver = FolderReceiver(Path(to), robot)
            stack.callback(receiver.close)
        sender = _Sender(receiver, max_rate, progress)
        with oserror_as(UploadError, f"{folder}: the recordings cannot be read"):
            files = FlightFolder(folder).recordings() if folder.exists() else ()
        for file in files:
            try:
                sender.send(file, settle_s)
            except UnsentRecordingError as error:
                problems.append(str(error))
    return RecordingUpload(
        sent=tuple(sender.sent),
        bytes_sent=sender.bytes_sent,
        there=sender.there,
        unfinished=sender.unfinished,
        filed=filed,
        problems=tuple(problems),
    )


def _service(url: str, token_file: Path | str | None) -> Service:
    from physai.sdk.base.files import read_bounded
    from physai.sdk.base.service import Service

    service = Service.parse(url)
    if token_file is None:
        return service
    text = read_bounded(Path(token_file), limit=MAX_TOKEN_BYTES, error=PhysaiError).decode("ascii", "replace").strip()
    if not (text.isascii() and text.isprintable()):
        raise PhysaiError(f"`token_file` {token_file}: it has characters that no token has; copy it again")
    return replace(service, token=text)


class _Sender:
    """Sends one recording after another, and counts."""

    def __init__(
        self, receiver: RecordingReceiver, max_rate: float | None, progress: Callable[[str, float], None]
    ) -> None:
        self._receiver, self._max_rate, self._progress = receiver, max_rate, progress
        self._part = PART_BYTES if max_rate is None else max(512, int(min(PART_BYTES, max_rate * PART_S)))
        self._next_s = time.monotonic()
        self.sent: list[str] = []
        self.bytes_sent = self.there = self.unfinished = 0

    def send(self, path: Path, settle_s: float) -> None:
        """Send a recording, unless it is there, unfinished, or deleted meanwhile to make room for others."""
        from physai.deploy_jetson.upload.receivers import OutgoingRecording, UnsentRecordingError
        from physai.sdk.base.files import open_plain, oserror_as

        with oserror_as(UnsentRecordingError, f"{path}: cannot be read"):
            try:
                # A recording that is replaced or deleted while it is sent stays as it was in this open file.
                file = open_plain(path)
            except FileNotFoundError:
                return
            with file:
                status = os.fstat(file.fileno())
                # An age below 0 is that of a file from before the clock was set back.
                if 0.0 <= time.time() - status.st_mtime < settle_s or not status.st_size:
                    self.unfinished += 1
                    return
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                self._send(OutgoingRecording(path.name, sha256, status.st_size), file.fileno())

    def _send(self, recording: OutgoingRecording, file: int) -> None:
        from physai.deploy_jetson.upload.receivers import UnsentRecordingError

        furthest, failures, offset = -1, 0, None
        for _ in range(MOST_OFTEN * (2 + recording.size // self._part)):
            try:
                if offset is None:
                    found = self._receiver.arrived(recording)
                    if found.complete and furthest < 0:
                        self.there += 1
                        return
                else:
                    data = os.pread(file, self._part, offset)
                    self._wait(len(data))
                    found = self._receiver.append(recording, offset, data)
                    self.bytes_sent += len(data)
            except PhysaiError:
                failures += 1
                if failures >= ATTEMPTS:
                    raise
                time.sleep(RETRY_S)
                # The part may have arrived without its answer.
                offset = None
                continue
            self._progress(recording.name, found.size / recording.size)
            if found.complete:
                self.sent.append(recording.name)
                return
            if found.size > furthest:
                failures = 0
            furthest, offset = max(furthest, found.size), found.size
        raise UnsentRecordingError(
            f"{recording.name}: its receiver asks for the same bytes again and again; {offset} are there"
        )

    def _wait(self, size: int) -> None:
        if self._max_rate is not None:
            self._next_s = max(self._next_s, time.monotonic()) + size / self._max_rate
            time.sleep(max(0.0, self._next_s - time.monotonic()))
