"""Files of scheduled segments: the channels of a flight recording as column blocks, one block of each per `add`.

The durations of the stages of a tick are left out, as are the answers of a shadow.
"""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.deploy_jetson.telemetry.flight.file import FORMAT_VERSION, JOINT_FIELDS, METADATA, TICK_TOPIC
from physai.deploy_jetson.telemetry.flight.flight_ring import Flight, RowLayout
from physai.deploy_jetson.ticks.tick_ring import TICK_FIELDS
from physai.sdk.base.formats.column_blocks import MAX_BLOCK_NUMBERS, encode_block
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence import recording_channels as channels
from physai.sdk.evidence.recording_channels import ChannelWriter, Schema
from physai.sdk.transport.protocol import Array

BLOCK_ROWS = 4096
TIME_STEPS_NS = {"log_ns": 1000, "delay_ns": 10_000}
"""Steps of the times: two clocks agree no better, and an operating system wakes a process no more exactly."""

SEGMENT_TICK: Schema = (
    "physai.SegmentTick",
    channels.record(
        log_ns=channels.INTEGER,
        tick=channels.INTEGER,
        state=channels.INTEGER,
        reasons=channels.INTEGER,
        missed=channels.INTEGER,
        intervened=channels.INTEGER,
    ),
)
"""One tick; `state` is a `GuardState`, `reasons` are bits of `Reason` and `RuntimeFault`."""

_Columns = dict[str, npt.NDArray[Any]]
_Times = npt.NDArray[np.int64]


class SegmentFile:
    """One file, in memory until it is finished; it is small enough."""

    def __init__(self, contract: PolicyContract, offset_ns: int, steps: Mapping[str, float]) -> None:
        """Begin a file.

        Args:
            contract: of the policy.
            offset_ns: CLOCK_REALTIME - CLOCK_MONOTONIC [ns].
            steps: step of fields by name, in the field's unit.
        """
        self.ticks = 0
        """Ticks added so far."""
        self._contract, self._offset_ns, self._steps = contract, offset_ns, steps
        self._layout = RowLayout.of(contract)
        self._deadline_ns = round(contract.timing.deadline_s * channels.NANOSECONDS)
        self._stream = BytesIO()
        self._writer = ChannelWriter(self._stream)
        self._stamp_ns = 0
        self._commands: dict[str, Array] = {}

    @property
    def size(self) -> int:
        """Bytes so far, without those that wait for compression."""
        return self._stream.tell()

    def add(self, flight: Flight) -> None:
        """Append consecutive ticks."""
        rows = min(BLOCK_ROWS, MAX_BLOCK_NUMBERS // (self._layout.numbers + len(TICK_FIELDS)))
        for first in range(0, len(flight.ticks), rows):
            part = slice(first, first + rows)
            self._add(Flight(flight.ticks[part], flight.rows[part], flight.first + first))

    def finish(self, metadata: Mapping[str, str]) -> bytes:
        """Return the bytes of the file; the contract and the format are added to its metadata."""
        head = {"format": FORMAT_VERSION, "contract": self._contract.model_dump_json()}
        self._writer.add_metadata(METADATA, {**metadata, **head, "fingerprint": self._contract.fingerprint})
        self._writer.finish()
        return self._stream.getvalue()

    def _add(self, flight: Flight) -> None:
        ticks, rows = flight.ticks, flight.rows
        self.ticks += len(ticks)
        # On the clock of the sensors' stamps; the records are on CLOCK_MONOTONIC.
        due = ticks["deadline_ns"] - self._deadline_ns + self._offset_ns
        self._add_sensors(due, ticks["sample_stamp_ns"], rows)
        self._add_commands(due, rows)
        self._add_targets(due, ticks["whole_ns"], rows)
        plain = {name: ticks[name] for name in ("tick", "state", "reasons", "missed", "intervened")}
        self._block(TICK_TOPIC, SEGMENT_TICK, {"log_ns": due, **plain}, {})

    def _add_sensors(self, due: _Times, stamps: _Times, rows: Array) -> None:
        """Add the measurements that are new."""
        new = np.diff(stamps, prepend=self._stamp_ns) != 0
        self._stamp_ns = int(stamps[-1])
        times = {"log_ns": due[new], "delay_ns": (stamps - due)[new]}
        joints: _Columns = {}
        steps: dict[str, float] = {}
        for sensor in self._contract.robot.sensors:
            values = rows[new, self._layout.fields[sensor.name]]
            field = JOINT_FIELDS.get(sensor.name)
            names = self._contract.robot.joint_names if field else map(str, range(sensor.size))
            columns = _columns(field or "value", names, values)
            stepped = self._stepped(sensor.name, columns)
            if field:
                joints |= columns
                steps |= stepped
            else:
                self._block(channels.SENSOR_TOPIC + sensor.name, channels.VECTOR, {**times, **columns}, stepped)
        self._block(channels.JOINTS_TOPIC, channels.JOINT_STATE, {**times, **joints}, steps)

    def _add_commands(self, due: _Times, rows: Array) -> None:
        """Add the operator's commands that changed."""
        for command in self._contract.command.fields:
            values = rows[:, self._layout.fields[command.name]]
            before = self._commands.get(command.name)
            previous = np.concatenate((values[:1] if before is None else before[None], values[:-1]))
            changed = ((values != previous) & ~(np.isnan(values) & np.isnan(previous))).any(axis=1)
            changed[0] |= before is None
            self._commands[command.name] = values[-1]
            columns = _columns("value", map(str, range(command.size)), values[changed])
            times = {"log_ns": due[changed], "delay_ns": np.zeros(changed.sum(), np.int64)}
            stepped = self._stepped(command.name, columns)
            self._block(channels.COMMAND_TOPIC + command.name, channels.VECTOR, {**times, **columns}, stepped)

    def _add_targets(self, due: _Times, whole: _Times, rows: Array) -> None:
        """Add the joint commands that were sent."""
        for term in self._contract.action.terms:
            values = rows[:, self._layout.targets[term.target_name]]
            # NaN marks a tick in which nothing was sent.
            some = ~np.isnan(values).all(axis=1)
            kind = "position" if term.target_name == "joint_pos_target" else "effort"
            columns = _columns(kind, term.joints, values[some])
            times = {"log_ns": due[some], "delay_ns": whole[some]}
            topic = channels.TARGET_TOPIC + term.target_name
            stepped = self._stepped(term.target_name, columns)
            self._block(topic, channels.JOINT_STATE, {**times, **columns}, stepped)

    def _stepped(self, field: str, columns: _Columns) -> dict[str, float]:
        """Return the step of each of a field's columns that has one."""
        step = self._steps.get(field)
        return {} if step is None else dict.fromkeys(columns, step)

    def _block(self, topic: str, schema: Schema, columns: _Columns, steps: dict[str, float]) -> None:
        times = columns["log_ns"]
        # Times alone are no rows: a field that was never measured is left out.
        if len(times) and len(columns) > 2:
            self._writer.add_block(topic, schema, int(times[0]), encode_block(columns, {**steps, **TIME_STEPS_NS}))


def _columns(field: str, names: Any, values: Array) -> _Columns:
    """Return the columns of a field by name; none if nothing in it was measured."""
    if np.isnan(values).all():
        return {}
    return {f"{field}.{name}": values[:, index] for index, name in enumerate(names)}
