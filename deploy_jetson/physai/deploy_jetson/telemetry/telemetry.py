"""All measurements of a run: counted, served to Prometheus, recorded, and written as evidence.

A separate thread reads the ring twice a second; a tick only writes its record to the ring.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from physai.deploy_jetson.telemetry.exposition import exposition
from physai.deploy_jetson.telemetry.fault_watch import FaultWatch
from physai.deploy_jetson.telemetry.flight.file import FlightError, FlightFolder
from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions, FlightRecorder
from physai.deploy_jetson.telemetry.meter import Meter
from physai.deploy_jetson.telemetry.metrics_server import MetricsServer
from physai.deploy_jetson.telemetry.steal_time import steal_s
from physai.deploy_jetson.telemetry.tick_log import TickLog
from physai.deploy_jetson.ticks.tick_ring import TickRing
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.requirements import SegmentRules
from physai.sdk.transport.protocol import Sample

# Capacity of the ring without a flight recorder: 16 s at 500 Hz.
RING_TICKS = 1 << 13

# Polling period of the ring [s].
LOOK_S = 0.5

REQUESTED = "requested"


@dataclass(frozen=True, kw_only=True)
class TelemetryOptions:
    """Outputs of the telemetry."""

    metrics_port: int | None = None
    """Port for Prometheus on 127.0.0.1, 0 for any free one; None to serve no metrics."""
    flight: FlightOptions | None = None
    """Options of the flight recorder; None to record nothing."""
    keep_ticks: bool = False
    """Whether to keep the duration of every tick, for the latency gate."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Callbacks to the runtime."""

    about: Callable[[], dict[str, Any]] = dict[str, Any]
    """Identifies the running policy: version, slot, digests."""
    status: Callable[[], dict[str, Any]] = dict[str, Any]
    """See `Runtime.status`."""
    say: Callable[[str], None] = print
    """Reports a message to the operator; must not block."""


class Telemetry:
    """Telemetry of one run: call `configure`, `start` and `finish` in this order; the rest is safe from any thread."""

    def __init__(self, options: TelemetryOptions | None = None) -> None:
        self.options = options or TelemetryOptions()
        self.meter = Meter(0)
        self._sources = Sources()
        self._steal_s = steal_s()
        self._ring: TickRing | None = None
        self._recorder: FlightRecorder | None = None
        self._server: MetricsServer | None = None
        self._log: TickLog | None = None
        self._watch: FaultWatch | None = None
        self._requested = threading.Event()
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def configure(
        self, contract: PolicyContract, sample: Sample, sources: Sources, segments: SegmentRules | None = None
    ) -> TickRing:
        """Open the outputs and return the sink of the tick records.

        Args:
            contract: of the policy.
            sample: of the transport.
            sources: callbacks to the runtime.
            segments: scheduled segments that the robot's settings demand of the flight recorder.

        Raises:
            MetricsError: the port is taken.
        """
        options, timing = self.options, contract.timing
        self._sources = sources
        self.meter = Meter(round(timing.deadline_s * 1e9))
        period_ns = round(timing.control_dt * 1e9)
        self._watch = FaultWatch(period_ns)
        if options.keep_ticks:
            self._log = TickLog(period_ns)
        if options.metrics_port is not None:
            self._server = MetricsServer(options.metrics_port, self._exposition)
            sources.say(f"metrics at {self._server.address}")
        if options.flight is not None:
            flight = options.flight if segments is None else replace(options.flight, segments=segments)
            self._recorder = self._open_recorder(flight, contract, sample)
        elif segments is not None:
            sources.say(
                "warning: no scheduled segments, which the robot's settings demand: there is no flight recorder"
            )
        self._ring = TickRing(RING_TICKS) if self._recorder is None else self._recorder.ring
        return self._ring

    @property
    def recorder(self) -> FlightRecorder | None:
        """The flight recorder, after `configure`; None without one."""
        return self._recorder

    def _open_recorder(self, options: FlightOptions, contract: PolicyContract, sample: Sample) -> FlightRecorder | None:
        """Open the flight recorder; a failure is a warning, as the robot can be driven without it."""
        try:
            FlightFolder(options.folder, options.max_files, options.max_bytes).prepare()
        except FlightError as error:
            self._sources.say(f"warning: flight recorder: {error}")
        try:
            recorder = FlightRecorder(options, contract, sample, _origin(self._sources.about()))
        except FlightError as error:
            self._sources.say(f"warning: {error}")
            return None
        if recorder.shortened:
            self._sources.say(
                f"warning: the flight recorder keeps {recorder.seconds:.1f} s only, as a tick has many numbers"
            )
        return recorder

    def _exposition(self) -> str:
        return exposition(self.meter, self._sources.status(), steal_s=self.steal_s())

    def steal_s(self) -> float | None:
        """Return the steal time of the hypervisor since this was created [s]; None if unknown."""
        before, now = self._steal_s, steal_s()
        return None if before is None or now is None else now - before

    def start(self) -> None:
        """Start counting and serving."""
        if self._ring is None:
            return
        self._thread = threading.Thread(target=self._serve, name="physai-telemetry", daemon=True)
        self._thread.start()
        if self._server is not None:
            self._server.start()

    def record(self) -> str:
        """Request a recording of the last seconds; return where it is written, or why it is not."""
        if self._recorder is None or self.options.flight is None:
            return "there is no flight recorder; start with --record-s"
        self._requested.set()
        self._wake.set()
        return f"being written to {self.options.flight.folder}"

    def status(self) -> dict[str, Any]:
        """Return the status for the control socket, as plain data."""
        record: dict[str, Any] = {"uncounted": self.meter.lost}
        if self._server is not None:
            record["metrics"] = self._server.address
        if self._recorder is not None and self.options.flight is not None:
            now = self._recorder.status
            record["recorder"] = {
                "folder": str(self.options.flight.folder),
                "seconds": self._recorder.seconds,
                **vars(now),
                "waiting": len(now.waiting),
            }
        return record

    def tick_seconds(self) -> tuple[float, ...]:
        """Return the durations of up to `MAX_TICKS` last ticks, after `finish`; see `TickLog` [s]."""
        return () if self._log is None else self._log.seconds()

    def finish(self, error: BaseException | None = None) -> None:
        """Count the remaining ticks, write pending recordings, and stop.

        Args:
            error: the exception that ended the run, if any.
        """
        # Before waking the thread, which otherwise would wait for another period.
        self._ended = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._server is not None:
            self._server.close()
        if self._ring is None:
            return
        self._look()
        if self._recorder is not None:
            # The last ticks explain a run that ended with an exception.
            if error is not None and self._ring.count:
                self._recorder.request(f"{type(error).__name__}: {error}"[:1000])
            for text in self._recorder.close():
                self._sources.say(text)

    def _serve(self) -> None:
        while not self._ended:
            self._wake.wait(LOOK_S)
            self._wake.clear()
            self._look()

    def _look(self) -> None:
        """Process the new ticks."""
        if self._ring is None or self._watch is None:
            return
        ticks = self.meter.read(self._ring)
        if self._log is not None:
            self._log.add(ticks)
        recorder = self._recorder
        if recorder is None:
            return
        causes = self._watch.look(ticks)
        # The policy may have been swapped since the last look.
        recorder.set_origin(_origin(self._sources.about()))
        if self._requested.is_set():
            self._requested.clear()
            causes.append(REQUESTED)
        for cause in causes:
            recorder.request(cause)
        for text in recorder.read():
            self._sources.say(text)


def _origin(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata that identifies a recording's origin."""
    return {"version": "0", **{name: str(value) for name, value in about.items()}}
