"""Flight-recorder process: writes the shared memory to a file on request, or when the runtime dies.

A separate process, because writing a file takes a second of Python, which would delay the loop, and because it outlives
a runtime that is killed or crashes.
"""

import json
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from physai.deploy_jetson.telemetry.flight.file import FlightError, FlightFolder, FlightShadow, file_name, flight_file
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightView
from physai.deploy_jetson.telemetry.flight.segment_recorder import SegmentRecorder
from physai.deploy_jetson.telemetry.flight.shadow_memory import ShadowMemory
from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.io import parse_contract
from physai.sdk.evidence.requirements import SegmentRules

MAX_MESSAGE_BYTES = 1 << 20
NICENESS = 10

GONE = "the runtime died"
ENDED = "the flight recorder has ended; no more recordings and segments in this run"


@dataclass
class _Open:
    """A recording on disk that is to be written again with the ticks that follow."""

    name: str
    causes: list[str]
    again_s: float
    first_count: int
    """Ticks recorded at the time of the request."""


class Recorder:
    """Writes recordings of the last seconds."""

    def __init__(self, view: FlightView, folder: FlightFolder, settings: Mapping[str, Any]) -> None:
        self._view, self._folder = view, folder
        self._capacity = int(settings["capacity"])
        self._shadow: FlightShadow | None = None
        self._contract = parse_contract(settings["contract"], source="the runtime")
        self._origin: dict[str, str] = dict(settings["origin"])
        period_s = self._contract.timing.control_dt
        self._before, self._after_s = round(settings["seconds"] / period_s), float(settings["after_s"])
        self._after = round(self._after_s / period_s)
        self._open: _Open | None = None
        self._segments: SegmentRecorder | None = None
        self._look_s = math.inf
        if settings.get("segments") is not None:
            rules = SegmentRules.model_validate(settings["segments"])
            self._segments = SegmentRecorder(view, folder, self._contract, rules, self._origin, self._capacity)
            self._look_s = 0.0

    @property
    def wait_s(self) -> float | None:
        """Time until `due` has something to do [s]; None if only a request can bring something."""
        next_s = min(self._look_s, math.inf if self._open is None else self._open.again_s)
        return None if next_s == math.inf else max(0.0, next_s - time.monotonic())

    def due(self) -> list[dict[str, Any]]:
        """Do what is due by the clock; return the answers to the runtime."""
        answers: list[dict[str, Any] | None] = []
        if self._open is not None and self._open.again_s <= time.monotonic():
            answers.append(self.finish())
        if self._segments is not None and self._look_s <= time.monotonic():
            answers.append(self._segments.look())
            self._look_s = time.monotonic() + self._segments.look_s
        return [answer for answer in answers if answer is not None]

    def end(self, cause: str) -> list[dict[str, Any]]:
        """Write all that is open, because of the end of the run; return the answers to the runtime."""
        answers = [self.finish(), None if self._segments is None else self._segments.finish(cause)]
        return [answer for answer in answers if answer is not None]

    def add_shadow(self, descriptor: int, contract: str) -> None:
        """Write the answers of this shadow into later recordings.

        Args:
            descriptor: of its memory.
            contract: of the shadow, JSON.
        """
        of = parse_contract(contract, source="the shadow")
        self._shadow = FlightShadow(ShadowMemory(descriptor, of, self._capacity, writes=False), of)

    def set_origin(self, origin: Mapping[str, str]) -> dict[str, Any] | None:
        """Set the origin metadata of later recordings; return an answer to the runtime, if there is one."""
        self._origin = dict(origin)
        return None if self._segments is None else self._segments.set_origin(origin)

    def request(self, cause: str) -> dict[str, Any]:
        """Write a recording now and again `after_s` later; return the answer to the runtime."""
        # A fault rarely comes alone; further causes join the recording that is open already.
        if self._open is not None:
            self._open.causes.append(cause)
            return {"also": self._open.name, "cause": cause}
        number = self._folder.next_number()
        name = file_name(number, datetime.now(UTC), int(self._origin["version"]), cause)
        self._open = _Open(name, [cause], time.monotonic() + self._after_s, self._view.count)
        return self._write(self._open)

    def finish(self) -> dict[str, Any] | None:
        """Write the open recording for the last time; return the answer to the runtime."""
        opened, self._open = self._open, None
        return None if opened is None else self._write(opened)

    def _write(self, opened: _Open) -> dict[str, Any]:
        # Ticks after the request, without those that came after the end of the recording.
        since = min(self._view.count - opened.first_count, self._after)
        flight = self._view.last(self._before + since)
        if not len(flight.ticks):
            return {"problem": "nothing was recorded: there was no tick yet"}
        try:
            data = flight_file(
                self._contract,
                flight,
                # Read when the file is written, because the wall clock may be set during a run.
                wall_minus_monotonic_ns=time.time_ns() - time.monotonic_ns(),
                origin={**self._origin, "causes": "; ".join(opened.causes)},
                shadow=self._shadow,
            )
            path = self._folder.store(opened.name, data)
        except (FlightError, OSError, ImportError) as error:
            return {"problem": f"no flight recording: {error}"}
        return {"file": str(path), "bytes": len(data), "ticks": len(flight.ticks), "cause": opened.causes[0]}


def serve(connection: socket.socket, recorder: Recorder) -> None:
    """Serve requests until the runtime ends or dies."""
    while True:
        # Wakes for a request, the end of the runtime, the end of the open recording, or the ticks of a segment.
        ready = select.select([connection], [], [], recorder.wait_s)[0]
        for answer in recorder.due():
            _notify(connection, answer)
        if not ready:
            continue
        descriptors: list[int] = []
        try:
            data, descriptors, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, 1)
        except OSError:
            data = b""
        # An empty message means that the runtime's end was closed without a word: it was killed, or has crashed.
        message: dict[str, Any] = json.loads(data) if data else {"cause": GONE, "end": True}
        if "shadow" in message and descriptors:
            recorder.add_shadow(descriptors[0], message["shadow"])
        for descriptor in descriptors:
            os.close(descriptor)
        if "origin" in message:
            _notify(connection, recorder.set_origin(message["origin"]))
        if "cause" in message:
            _notify(connection, recorder.request(message["cause"]))
        if message.get("end"):
            for answer in recorder.end(GONE if not data else "the run ended"):
                _notify(connection, answer)
            return


def _notify(connection: socket.socket, answer: dict[str, Any] | None) -> None:
    """Send an answer to the runtime, if it is still there."""
    if answer is None:
        return
    try:
        connection.send(json.dumps(answer).encode()[:MAX_MESSAGE_BYTES], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        if answer.get("problem"):
            print(f"physai: {answer['problem']}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> None:
    """`python -m physai.deploy_jetson.telemetry.flight.flight_process SOCKET MEMORY`; settings on stdin."""
    # Writing a file takes a core for a second, which the control loop needs more.
    os.nice(NICENESS)
    # A service manager signals every process of a unit at once; this one writes its file first and ends by itself.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    descriptor, memory = map(int, arguments)
    settings: dict[str, Any] = json.load(sys.stdin)
    with socket.socket(fileno=descriptor) as connection:
        try:
            contract = parse_contract(settings["contract"], source="the runtime")
            view = FlightView(memory, contract, settings["capacity"])
            folder = FlightFolder(Path(settings["folder"]), settings["max_files"], settings["max_bytes"])
            serve(connection, Recorder(view, folder, settings))
        except PhysaiError as error:
            _notify(connection, {"problem": f"{ENDED}: {error}"})


if __name__ == "__main__":
    main(sys.argv[1:])
