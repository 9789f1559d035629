"""The flight recorder's files, MCAP recordings that `physai logs check` and `physai sim calibrate` read; their folder.

The channels are those of `physai.sdk.evidence.recording_channels`, on the clock of the sensors' stamps. Measurements
are written when they are new, operator commands when they change, joint commands when they were sent, and every tick
as a message of its own.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from physai.deploy_jetson.telemetry.flight.flight_ring import Flight, RowLayout
from physai.deploy_jetson.telemetry.flight.shadow_memory import ShadowMemory
from physai.deploy_jetson.ticks.reasons import describe
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, write_atomic
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence import recording_channels as channels
from physai.sdk.evidence.recording_channels import ChannelWriter, Schema, joint_state, stamp, vector
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import Array

# Bounds of the folder's recordings, each for those of incidents and of scheduled segments: number, total size [bytes].
MAX_FILES = 20
MAX_SEGMENTS = 1000
MAX_BYTES = 512 << 20

INCIDENT, SCHEDULED = "incident", "scheduled"
"""Kinds of recordings, `segment` in their metadata: begun by an event, or at a time that was drawn before."""

# The number orders recordings; those of older versions have none and come first.
_NAME = re.compile(r"(?:(\d{8})-)?\d{8}T\d{6}\.\d{3}Z-v\d+-[a-z0-9-]{1,40}\.mcap")

MAX_NUMBER = 99_999_999
_SEGMENT = re.compile(rf".*-v\d+-{SCHEDULED}\.mcap")
_UNFINISHED = re.compile(rf"\.(?:{_NAME.pattern}|segments\.json)\.[0-9a-f]+")

FORMAT_VERSION = "1"
# Metadata record with format, contract, fingerprint, reasons and origin.
METADATA = "physai.flight"

TICK_TOPIC = "/physai/tick"
_FLAG: dict[str, Any] = {"type": "boolean"}
# One tick, stamped with its due time; durations of `physai.deploy_jetson.ticks.tick_ring.TICK_FIELDS`, in seconds.
TICK: Schema = (
    "physai.Tick",
    channels.record(
        timestamp=channels.TIME,
        tick=channels.INTEGER,
        state=channels.TEXT,
        reasons=channels.TEXT,
        missed=_FLAG,
        intervened=_FLAG,
        sensor_age_s=channels.NUMBER,
        late_s=channels.NUMBER,
        inference_s=channels.NUMBER,
        guard_s=channels.NUMBER,
        send_s=channels.NUMBER,
        whole_s=channels.NUMBER,
    ),
)

# What a shadow would have commanded, and one of its ticks.
SHADOW_TOPIC = "/physai/shadow/"
SHADOW_TICK_TOPIC = "/physai/shadow_tick"
SHADOW_TICK: Schema = (
    "physai.ShadowTick",
    channels.record(
        timestamp=channels.TIME,
        tick=channels.INTEGER,
        state=channels.TEXT,
        reasons=channels.TEXT,
        intervened=_FLAG,
        compute_s=channels.NUMBER,
    ),
)

# Field of a joint state by sensor.
JOINT_FIELDS = {"joint_pos": "position", "joint_vel": "velocity", "joint_effort": "effort"}


@dataclass(frozen=True)
class FlightShadow:
    """Answers of a shadow to the rows of the recording."""

    memory: ShadowMemory
    contract: PolicyContract


def flight_file(
    contract: PolicyContract,
    flight: Flight,
    *,
    wall_minus_monotonic_ns: int,
    origin: Mapping[str, str],
    shadow: FlightShadow | None = None,
) -> bytes:
    """Return the bytes of the file.

    Args:
        contract: of the policy.
        flight: the ticks.
        wall_minus_monotonic_ns: CLOCK_REALTIME - CLOCK_MONOTONIC [ns].
        origin: metadata on cause and origin of the recording.
        shadow: policy that computed on the same samples; None without one.
    """
    stream = BytesIO()
    writer = ChannelWriter(stream)
    head = {"format": FORMAT_VERSION, "contract": contract.model_dump_json(), "fingerprint": contract.fingerprint}
    # The file's own facts last: nothing in the origin may replace them.
    writer.add_metadata(METADATA, {"segment": INCIDENT, **origin, **head})
    fields = RowLayout.of(contract).fields
    # Fields that were never measured are left out; later gaps are null.
    seen = {name for name, part in fields.items() if not np.isnan(flight.rows[:, part]).all()}
    recording = _RecordingWriter(writer, contract, wall_minus_monotonic_ns, seen)
    for tick, row in zip(flight.ticks, flight.rows, strict=True):
        recording.add(tick, row)
    if shadow is not None:
        _add_shadow(writer, contract, flight, shadow, wall_minus_monotonic_ns)
    writer.finish()
    return stream.getvalue()


def _add_shadow(
    writer: ChannelWriter, contract: PolicyContract, flight: Flight, shadow: FlightShadow, offset_ns: int
) -> None:
    """Write what the shadow would have commanded, stamped with the due time of each tick."""
    answers = shadow.memory.between(flight.first, flight.first + len(flight.ticks))
    deadline_ns = round(contract.timing.deadline_s * channels.NANOSECONDS)
    for tick, answered, record, targets in zip(
        flight.ticks, answers.answered, answers.records, answers.targets, strict=True
    ):
        if not answered:
            continue
        due_ns = int(tick["deadline_ns"]) - deadline_ns + offset_ns
        start = 0
        for term in shadow.contract.action.terms:
            values = targets[start : start + len(term.joints)]
            start += len(term.joints)
            kind = "position" if term.target_name == "joint_pos_target" else "effort"
            message = joint_state(due_ns, term.joints, **{kind: values})
            writer.add(SHADOW_TOPIC + term.target_name, channels.JOINT_STATE, due_ns, message)
        message = {
            "timestamp": stamp(due_ns),
            "tick": int(tick["tick"]),
            "state": GuardState(int(record["state"])).name,
            "reasons": describe(int(record["reasons"])),
            "intervened": bool(record["intervened"]),
            "compute_s": 1e-9 * int(record["compute_ns"]),
        }
        writer.add(SHADOW_TICK_TOPIC, SHADOW_TICK, due_ns, message)


class _RecordingWriter:
    """Writes ticks as messages."""

    def __init__(self, writer: ChannelWriter, contract: PolicyContract, offset_ns: int, seen: set[str]) -> None:
        self._writer, self._contract, self._offset_ns = writer, contract, offset_ns
        self._sensors = [sensor for sensor in contract.robot.sensors if sensor.name in seen]
        self._layout = RowLayout.of(contract)
        self._deadline_ns = round(contract.timing.deadline_s * channels.NANOSECONDS)
        # Values written last, to skip repeated ones.
        self._stamp_ns = 0
        self._commands: dict[str, Array] = {}

    def add(self, tick: np.void, row: Array) -> None:
        # On the clock of the sensors' stamps; the records are on CLOCK_MONOTONIC.
        due_ns = int(tick["deadline_ns"]) - self._deadline_ns + self._offset_ns
        self._write_sensors(int(tick["sample_stamp_ns"]), due_ns, row)
        self._write_commands(due_ns, row)
        self._write_targets(due_ns + int(tick["whole_ns"]), row)
        self._writer.add(TICK_TOPIC, TICK, due_ns, _tick_message(tick, due_ns, self._deadline_ns))

    def _write_sensors(self, stamp_ns: int, due_ns: int, row: Array) -> None:
        """Write the measurements, if they are new."""
        # A sample without a new stamp is the same measurement, read again.
        if stamp_ns == self._stamp_ns:
            return
        self._stamp_ns = stamp_ns
        joints: dict[str, Array] = {}
        for sensor in self._sensors:
            values = row[self._layout.fields[sensor.name]]
            if sensor.name in JOINT_FIELDS:
                joints[JOINT_FIELDS[sensor.name]] = values
            else:
                message = vector(stamp_ns, sensor.unit, sensor.frame, values)
                self._writer.add(channels.SENSOR_TOPIC + sensor.name, channels.VECTOR, due_ns, message)
        message = joint_state(stamp_ns, self._contract.robot.joint_names, **joints)
        self._writer.add(channels.JOINTS_TOPIC, channels.JOINT_STATE, due_ns, message)

    def _write_commands(self, due_ns: int, row: Array) -> None:
        """Write the operator's commands that changed."""
        for command in self._contract.command.fields:
            values = row[self._layout.fields[command.name]]
            before = self._commands.get(command.name)
            if before is None or not np.array_equal(values, before, equal_nan=True):
                self._commands[command.name] = values
                message = vector(due_ns, command.unit, command.frame, values)
                self._writer.add(channels.COMMAND_TOPIC + command.name, channels.VECTOR, due_ns, message)

    def _write_targets(self, sent_ns: int, row: Array) -> None:
        """Write the joint commands, if any were sent."""
        for term in self._contract.action.terms:
            values = row[self._layout.targets[term.target_name]]
            # NaN marks a tick in which nothing was sent.
            if not np.isnan(values).all():
                kind = "position" if term.target_name == "joint_pos_target" else "effort"
                message = joint_state(sent_ns, term.joints, **{kind: values})
                self._writer.add(channels.TARGET_TOPIC + term.target_name, channels.JOINT_STATE, sent_ns, message)


def _tick_message(tick: np.void, due_ns: int, deadline_ns: int) -> dict[str, Any]:
    late_ns = int(tick["woke_ns"]) - (int(tick["deadline_ns"]) - deadline_ns)
    stages = ("sensor_age", "inference", "guard", "send", "whole")
    return {
        "timestamp": stamp(due_ns),
        "tick": int(tick["tick"]),
        "state": GuardState(int(tick["state"])).name,
        "reasons": describe(int(tick["reasons"])),
        "missed": bool(tick["missed"]),
        "intervened": bool(tick["intervened"]),
        "late_s": 1e-9 * late_ns,
        **{f"{stage}_s": 1e-9 * int(tick[f"{stage}_ns"]) for stage in stages},
    }


class FlightError(PhysaiError):
    """A recording cannot be stored."""


def file_name(number: int, when: datetime, version: int, cause: str) -> str:
    """Return the name of a recording.

    Args:
        number: see `FlightFolder.next_number`; a clock may be wrong or set back, so the time does not order recordings.
        when: time of the request.
        version: of the policy.
        cause: short text.
    """
    # Only letters, digits and hyphens: the cause may hold anything, such as the text of an exception.
    slug = re.sub(r"[^a-z0-9]+", "-", cause.lower()).strip("-")[:40].strip("-") or "unknown"
    if slug == SCHEDULED and cause != SCHEDULED:
        slug = f"{INCIDENT}-{SCHEDULED}"
    utc = when.astimezone(UTC)
    return f"{number:08d}-{utc:%Y%m%dT%H%M%S}.{utc.microsecond // 1000:03d}Z-v{version}-{slug}.mcap"


def is_scheduled(name: str) -> bool:
    """Whether a recording of that name is a scheduled segment."""
    return _SEGMENT.fullmatch(name) is not None


@dataclass(frozen=True)
class FlightFolder:
    """A folder of recordings; other files in it are left alone."""

    path: Path
    max_files: int = MAX_FILES
    """Bound of the number of recordings of incidents."""
    max_bytes: int = MAX_BYTES
    """Bound of the total size of each kind."""
    max_segments: int = MAX_SEGMENTS
    """Bound of the number of scheduled segments."""

    def prepare(self) -> None:
        """Create the folder, remove unfinished files of killed processes, and test that it is writable.

        Raises:
            FlightError: the folder is not writable.
        """
        with oserror_as(FlightError, f"{self.path}: no recordings can be written there"):
            self.path.mkdir(parents=True, exist_ok=True)
            for file in self.path.iterdir():
                # Left by a process that was killed while it wrote.
                if _UNFINISHED.fullmatch(file.name):
                    file.unlink(missing_ok=True)
            # The permission bits do not tell: the file system may be read-only, or full.
            probe = self.path / f".probe.{secrets.token_hex(8)}"
            probe.touch(exist_ok=False)
            probe.unlink()

    def store(self, name: str, data: bytes) -> Path:
        """Write or replace a recording; deletes the oldest ones of its kind to make room.

        Raises:
            FlightError: it exceeds `max_bytes` or cannot be written; an older one of that name is then unchanged.
        """
        path = self.path / name
        if not len(data) <= self.max_bytes:
            raise FlightError(f"{path}: the recording has {len(data)} bytes, at most {self.max_bytes} are kept")
        with oserror_as(FlightError, f"{path}: cannot be written"):
            self._make_room(name, len(data))
            write_atomic(path, data)
        return path

    def recordings(self) -> tuple[Path, ...]:
        """Return the recordings, oldest first.

        Raises:
            OSError: the folder cannot be read.
        """
        named = (file for file in self.path.iterdir() if _NAME.fullmatch(file.name))
        files = (file for file in named if file.is_file() and not file.is_symlink())
        return tuple(sorted(files, key=lambda file: (_number(file.name), file.name)))

    def next_number(self) -> int:
        """Return the number of the next recording, above those of all others; 0 if the folder cannot be read."""
        try:
            newest = max((_number(file.name) for file in self.recordings()), default=-1)
        except OSError:
            return 0
        return min(newest + 1, MAX_NUMBER)

    def _make_room(self, name: str, size: int) -> None:
        scheduled = is_scheduled(name)
        # Segments, which are many, leave the recordings of incidents alone.
        same = (file for file in self.recordings() if is_scheduled(file.name) == scheduled)
        others = [(file, file.stat().st_size) for file in same if file.name != name]
        total = size + sum(length for _, length in others)
        count = 1 + len(others)
        # Oldest first, until the new one fits.
        for file, length in others:
            if count <= (self.max_segments if scheduled else self.max_files) and total <= self.max_bytes:
                break
            file.unlink(missing_ok=True)
            count, total = count - 1, total - length


def _number(name: str) -> int:
    """Return the number in a recording's name; -1 for one without."""
    found = _NAME.fullmatch(name)
    return -1 if found is None or found[1] is None else int(found[1])
