"""The runtime's health counters, and the health window that judges a version on trial by them.

The runtime updates a small memory-mapped file on a RAM disk (`/run/physai/health`) every tick, without system calls.
Layout, little-endian, 304 bytes: magic `PHYSAIHC`, format (u32), CRC-32 of the rest (u32), boot id, run id (16 bytes
each), SHA-256 of the bundle (32 bytes), process id (u32), length of the message (u32), start and latest heartbeat on
CLOCK_MONOTONIC (i64) [ns], longest gap between two heartbeats (i64) [ns], ticks, missed deadlines, guard interventions,
faults (u64 each), message of the last fault (160 bytes, UTF-8). The CRC detects a half-written file.
"""

import math
import mmap
import os
import struct
import uuid
import zlib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from physai.deploy_jetson.update.slots.layout import DEFAULT_ROOT
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.deploy_jetson.update.slots.slot_records import HealthLimits
from physai.sdk.base.files import oserror_as, read_plain

MAGIC = b"PHYSAIHC"
FORMAT_VERSION = 1
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
RUN_FOLDER = Path("/run/physai")
HEALTH_FILE = "health"

_HEAD = struct.Struct("<8sII")
_BODY = struct.Struct("<16s16s32sIIqqqQQQQ160s")
SIZE = _HEAD.size + _BODY.size
_MESSAGE_BYTES = 160
_READS = 8
"""Attempts to read the file between two writes of the runtime."""


def boot_id() -> str:
    """Random id of the current boot."""
    return BOOT_ID_FILE.read_text(encoding="ascii").strip()


def health_path(root: Path) -> Path:
    """Path of the runtime's counters: `/run/physai/health` for the default tree, `health` in any other tree."""
    # /run is a RAM disk: a file on disk would be written every tick.
    return (RUN_FOLDER if root == DEFAULT_ROOT else root) / HEALTH_FILE


@dataclass(frozen=True)
class Counters:
    """Counters of one run of the runtime."""

    boot_id: str
    run_id: bytes
    """16 random bytes, new in every run."""
    bundle_sha256: str
    """SHA-256 of the active bundle."""
    pid: int
    started_ns: int
    """CLOCK_MONOTONIC at the start of the run [ns]."""
    alive_ns: int
    """CLOCK_MONOTONIC of the latest heartbeat [ns]."""
    silence_ns: int
    """Longest gap between two heartbeats [ns]."""
    ticks: int
    """Control periods in which the policy ran."""
    missed: int
    """Ticks that missed their deadline."""
    interventions: int
    """Ticks in which the guard changed or withheld a command."""
    faults: int
    """Errors that kept the runtime from continuing: no engine, lost sensor, emergency stop."""
    message: str
    """Message of the last fault."""


class HealthWriter:
    """Writes the counters of one run; not thread-safe."""

    def __init__(self, path: Path, *, bundle_sha256: str, now_ns: int) -> None:
        """Starts a run with all counters at zero.

        Args:
            path: the file, replaced if it exists.
            bundle_sha256: SHA-256 of the active bundle, 64 hexadecimal digits.
            now_ns: CLOCK_MONOTONIC [ns], as in every method.

        Raises:
            SlotError: the file cannot be created.
        """
        self._counts = [0, 0, 0, 0]
        self._message = b""
        self._head = (uuid.UUID(boot_id()).bytes, uuid.uuid4().bytes, bytes.fromhex(bundle_sha256), os.getpid())
        self._started_ns = self._alive_ns = now_ns
        self._silence_ns = 0
        new = path.with_name(f".{path.name}.{os.getpid()}")
        with oserror_as(SlotError, f"{path}: the runtime's counters cannot be written"):
            new.write_bytes(bytes(SIZE))
            with new.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), SIZE)
            self._store(now_ns)
            new.replace(path)

    def beat(self, now_ns: int) -> None:
        """Records a heartbeat without a tick, while the runtime waits for its robot or operator."""
        self._store(now_ns)

    def tick(self, now_ns: int, *, missed: bool = False, intervened: bool = False) -> None:
        """Records one control period of the policy."""
        self._counts[0] += 1
        self._counts[1] += missed
        self._counts[2] += intervened
        self._store(now_ns)

    def fault(self, now_ns: int, message: str) -> None:
        """Records a fault, which fails a trial."""
        self._counts[3] += 1
        self._message = message.encode("utf-8", "replace")[:_MESSAGE_BYTES]
        self._store(now_ns)

    def close(self) -> None:
        """Closes the file; the counters stay readable."""
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _store(self, now_ns: int) -> None:
        self._silence_ns = max(self._silence_ns, now_ns - self._alive_ns)
        self._alive_ns = now_ns
        self._map[:SIZE] = self._packed()

    def _packed(self) -> bytes:
        times = (len(self._message), self._started_ns, self._alive_ns, self._silence_ns)
        body = _BODY.pack(*self._head, *times, *self._counts, self._message)
        return _HEAD.pack(MAGIC, FORMAT_VERSION, zlib.crc32(body)) + body


def read_counters(path: Path) -> Counters | None:
    """Reads the counters; None if the file is missing, damaged or in another format."""
    # A CRC mismatch usually means that the runtime was writing: read again.
    for _ in range(_READS):
        try:
            data = read_plain(path, limit=SIZE)
        except OSError:
            return None
        if len(data) != SIZE:
            return None
        magic, version, checksum = _HEAD.unpack_from(data)
        if (magic, version) != (MAGIC, FORMAT_VERSION):
            return None
        body = data[_HEAD.size :]
        if zlib.crc32(body) == checksum:
            return _counters(body)
    return None


def _counters(body: bytes) -> Counters:
    boot, run, bundle, pid, length, started, alive, silence, ticks, missed, interventions, faults, text = _BODY.unpack(
        body
    )
    message = text[: min(length, _MESSAGE_BYTES)].decode("utf-8", "replace")
    return Counters(
        str(uuid.UUID(bytes=boot)),
        run,
        bundle.hex(),
        pid,
        started,
        alive,
        silence,
        ticks,
        missed,
        interventions,
        faults,
        "".join(char if char.isprintable() else "?" for char in message),
    )


class Health(StrEnum):
    """Health of the version on trial."""

    WATCHING = "watching"
    """No problem, but it has not run long enough."""
    HEALTHY = "healthy"
    FAILED = "failed"


@dataclass(frozen=True)
class HealthFinding:
    """The state of a health window."""

    health: Health
    reason: str
    progress: float
    """Fraction of the window that has passed, in [0, 1]."""


class HealthWindow:
    """Judges one trial from successive samples of the counters; reads no clock itself.

    The window is measured in ticks, not in seconds: while a robot waits for its operator, the trial is paused.
    """

    def __init__(
        self, limits: HealthLimits, *, bundle_sha256: str, control_dt: float, boot_id: str, now_ns: int
    ) -> None:
        """Starts a health window.

        Args:
            limits: limits that the version must meet.
            bundle_sha256: SHA-256 of the bundle on trial; counters of other bundles are ignored.
            control_dt: control period of its contract [s].
            boot_id: id of the current boot.
            now_ns: CLOCK_MONOTONIC [ns].
        """
        self._limits = limits
        self._bundle = bundle_sha256
        self._boot = boot_id
        self._needed = max(1, round(limits.window_s / control_dt))
        self._heard_ns = now_ns
        self._last: Counters | None = None
        self._restarts = 0

    def update(self, counters: Counters | None, now_ns: int) -> HealthFinding:
        """Judges the trial with a new sample of the counters.

        Args:
            counters: the current counters; None if there are none.
            now_ns: CLOCK_MONOTONIC [ns].
        """
        limits = self._limits
        if counters is not None and self._applies(counters, now_ns):
            problem = self._follow(counters)
            if problem:
                return self._finding(Health.FAILED, problem)
        silence_s = (now_ns - self._heard_ns) * 1e-9
        if not silence_s <= limits.start_timeout_s:
            state = "has not started" if self._last is None else "has stopped reporting"
            return self._finding(Health.FAILED, f"the runtime {state}: no heartbeat for {silence_s:.0f} s")
        if self._last is None:
            return self._finding(Health.WATCHING, "waiting for the runtime to start")
        if not silence_s <= limits.alive_timeout_s:
            return self._finding(Health.WATCHING, f"the runtime has been silent for {silence_s:.1f} s")
        return self._judge(self._last)

    def _applies(self, counters: Counters, now_ns: int) -> bool:
        # Counters from before a reboot or with a heartbeat in the future are stale.
        return counters.bundle_sha256 == self._bundle and counters.boot_id == self._boot and counters.alive_ns <= now_ns

    def _follow(self, counters: Counters) -> str:
        """Records a sample; returns a problem with restarts or heartbeats, empty if there is none."""
        last, limits = self._last, self._limits
        self._last = counters
        self._heard_ns = counters.alive_ns if last is None else max(self._heard_ns, counters.alive_ns)
        if last is not None and counters.run_id != last.run_id:
            self._restarts += 1
        if self._restarts > limits.max_restarts:
            return f"the runtime restarted {self._restarts} times, at most {limits.max_restarts} are allowed"
        silence_s = counters.silence_ns * 1e-9
        if not silence_s <= limits.alive_timeout_s:
            return f"the runtime stalled for {silence_s:.1f} s, at most {limits.alive_timeout_s:g} s are allowed"
        return ""

    def _judge(self, counters: Counters) -> HealthFinding:
        limits = self._limits
        if counters.faults:
            return self._finding(Health.FAILED, f"the runtime reports a fault: {counters.message or 'no message'}")
        if not counters.interventions <= limits.max_interventions:
            count = f"the guard intervened in {counters.interventions} ticks"
            return self._finding(Health.FAILED, f"{count}, at most {limits.max_interventions} are allowed")
        # The share applies to the whole window: one early miss must not fail a trial that has just begun.
        allowed = limits.max_missed_share * max(counters.ticks, self._needed)
        if not counters.missed <= allowed:
            count = f"{counters.missed} of {counters.ticks} ticks missed their deadline"
            return self._finding(Health.FAILED, f"{count}, at most {math.floor(allowed)} are allowed")
        if counters.ticks >= self._needed:
            return self._finding(Health.HEALTHY, f"{counters.ticks} ticks, {counters.missed} missed, no fault")
        return self._finding(Health.WATCHING, f"{counters.ticks} of {self._needed} ticks have passed")

    def _finding(self, health: Health, reason: str) -> HealthFinding:
        ticks = 0 if self._last is None else self._last.ticks
        return HealthFinding(health, reason, min(1.0, ticks / self._needed))
