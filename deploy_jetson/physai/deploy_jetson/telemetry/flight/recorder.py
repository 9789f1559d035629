"""The runtime's side of the flight recorder: shares memory with the recorder process and requests recordings."""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from physai.deploy_jetson.telemetry.flight import flight_process
from physai.deploy_jetson.telemetry.flight.file import MAX_BYTES as FOLDER_BYTES
from physai.deploy_jetson.telemetry.flight.file import MAX_FILES, FlightError
from physai.deploy_jetson.telemetry.flight.flight_ring import MAX_BYTES, FlightRing, RowLayout
from physai.deploy_jetson.telemetry.flight.segment_schedule import SegmentLedger, SegmentLedgerError
from physai.sdk.base.files import oserror_as
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.requirements import SegmentRules
from physai.sdk.transport.protocol import Sample

# Default duration of a recording before its cause [s].
SECONDS = 30.0

MAX_SECONDS = 600.0
# Default duration of a recording after its cause [s].
AFTER_S = 5.0

# Longest wait for the last file [s].
PATIENCE_S = 20.0


@dataclass(frozen=True, kw_only=True)
class FlightOptions:
    """Options of the flight recorder."""

    folder: Path
    seconds: float = SECONDS
    """Duration before a cause [s]."""
    after_s: float = AFTER_S
    """Duration after it [s]."""
    max_files: int = MAX_FILES
    max_bytes: int = FOLDER_BYTES
    """Bound of the total size of all files of one kind."""
    segments: SegmentRules | None = None
    """Scheduled random segments; None for none."""


@dataclass
class FlightStatus:
    """State of the flight recorder."""

    files: int = 0
    """Recordings written in this run."""
    last: str = ""
    """Path of the last one."""
    problem: str = ""
    """Why the last one could not be written, or that the process has ended; empty if neither."""
    waiting: list[str] = field(default_factory=list[str])
    """Causes of requests that were not answered yet."""
    segments: dict[str, Any] = field(default_factory=dict[str, Any])
    """Scheduled segments of this robot that were `written` and `lost`, the `lost_ticks` of this run, and the `last`
    file; empty without."""


class FlightRecorder:
    """The flight recorder of one run; not thread-safe."""

    def __init__(
        self, options: FlightOptions, contract: PolicyContract, sample: Sample, origin: Mapping[str, str]
    ) -> None:
        """Allocate the memory and start the process.

        Args:
            options: of the recorder.
            contract: of the policy.
            sample: of the transport.
            origin: metadata of the files; `version` is that of the policy.

        Raises:
            FlightError: the memory cannot be allocated.
        """
        self.status = FlightStatus()
        wanted = round((options.seconds + options.after_s) / contract.timing.control_dt)
        # A robot with many joints gets a shorter recording rather than none.
        possible = (MAX_BYTES - RowLayout.of(contract).memory_size(0)) // RowLayout.of(contract).width
        capacity = max(1, min(wanted, possible))
        self.seconds = capacity * contract.timing.control_dt
        """Total duration that is kept [s]."""
        self.shortened = capacity < wanted
        """Whether that is less than requested, because of `MAX_BYTES`."""
        self._origin = dict(origin)
        self._options, self._period_s, self._closing = options, contract.timing.control_dt, False
        # Before the process reads it, and writes that it is ahead.
        self._begun_s = SegmentLedger.load(options.folder)[0].driven_s if options.segments else 0.0
        with oserror_as(FlightError, "no flight recorder"):
            self.ring = FlightRing(contract, sample, capacity)
            self._connection, self._process = self._start(options, contract, capacity)

    def _start(
        self, options: FlightOptions, contract: PolicyContract, capacity: int
    ) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        settings = {
            **vars(options),
            "folder": str(options.folder.absolute()),
            "contract": canonical_json(contract).decode(),
            "origin": self._origin,
            "capacity": capacity,
            "segments": None if options.segments is None else options.segments.model_dump(mode="json"),
        }
        # SEQPACKET keeps the boundaries of messages, and tells when the other process has ended.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        descriptors = [theirs.fileno(), self.ring.descriptor]
        command = [sys.executable, "-m", flight_process.__name__, *map(str, descriptors)]
        with theirs:
            # A session of its own, so that Ctrl-C at the terminal reaches the runtime only.
            process = subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.PIPE, start_new_session=True)
        if process.stdin is not None:
            # Not on the command line, which every user of the machine can read and whose length is limited.
            process.stdin.write(json.dumps(settings).encode())
            process.stdin.close()
        return ours, process

    def request(self, cause: str) -> None:
        """Request a recording; `read` returns the outcome."""
        if not self._has_ended:
            self._send({"cause": cause})
            self.status.waiting.append(cause)

    def set_origin(self, origin: Mapping[str, str]) -> None:
        """Set the origin metadata of later files."""
        if dict(origin) != self._origin:
            self._origin = dict(origin)
            self._send({"origin": self._origin})

    def add_shadow(self, descriptor: int, contract: PolicyContract) -> None:
        """Write the answers of a shadow into later recordings.

        Args:
            descriptor: of its memory, see `physai.deploy_jetson.telemetry.flight.shadow_memory`.
            contract: of the shadow.
        """
        message = json.dumps({"shadow": canonical_json(contract).decode()}).encode()
        try:
            socket.send_fds(self._connection, [message], [descriptor], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as error:
            self.status.problem = f"the flight recorder does not answer: {error.strerror or error}"

    def read(self) -> list[str]:
        """Return messages on what the process has done since the last call."""
        messages: list[str] = []
        while True:
            try:
                data = self._connection.recv(flight_process.MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except ConnectionResetError:
                # It ended before it had read all requests; its last answers follow.
                continue
            except OSError:
                return messages
            if not data:
                return messages + self._end()
            messages += self._take(json.loads(data))

    @property
    def _has_ended(self) -> bool:
        return self.status.problem.startswith(flight_process.ENDED)

    def _end(self) -> list[str]:
        """Note that the process has ended; return that once, unless it was asked to end."""
        if self._has_ended or (self._closing and self._process.returncode == 0):
            return []
        self.status.waiting.clear()
        self.status.problem = flight_process.ENDED
        return [self.status.problem]

    def _take(self, answer: Mapping[str, Any]) -> list[str]:
        status = self.status
        if "segments" in answer:
            status.segments = dict(answer["segments"])
            return [str(answer["problem"])] if answer["problem"] else []
        # An answer without a file, for a cause that joined an open recording, also answers its request.
        if answer.get("cause") in status.waiting:
            status.waiting.remove(answer["cause"])
        if "problem" in answer:
            status.waiting.clear()
            known, status.problem = status.problem, str(answer["problem"])
            return [] if known == status.problem else [status.problem]
        if "file" not in answer:
            return []
        # Each recording is written twice, at the cause and again when the ticks after it are known.
        again = answer["file"] == status.last
        status.problem, status.last = "", str(answer["file"])
        status.files += not again
        return [] if again else [f"the last ticks are in {status.last} ({answer['cause']})"]

    def close(self) -> list[str]:
        """Finish the open file and end the process; return its messages as `read` does."""
        self._closing = True
        self._send({"end": True})
        try:
            # It writes the open recording first, which may take seconds on an SD card.
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        messages = self.read() + self._count_driven()
        self._connection.close()
        self.ring.close()
        return messages

    def _count_driven(self) -> list[str]:
        """Write the driven time, which a process that ended early did not; return problems."""
        driven_s = self._begun_s + self.ring.count * self._period_s
        if self._options.segments is None:
            return []
        ledger, problem = SegmentLedger.load(self._options.folder)
        if ledger.driven_s == driven_s:
            return []
        try:
            replace(ledger, driven_s=driven_s).save(self._options.folder)
        except SegmentLedgerError as error:
            problem = str(error)
        return [problem] if problem else []

    def _send(self, message: Mapping[str, Any]) -> None:
        try:
            self._connection.send(json.dumps(message).encode(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as error:
            if not self._has_ended:
                self.status.problem = f"the flight recorder does not answer: {error.strerror or error}"
