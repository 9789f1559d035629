"""Channels common to recordings of twins and robots, and a writer of MCAP files.

Messages are JSON in MCAP (mcap.dev/spec). Joint states and commands have the fields of ROS's sensor_msgs/JointState, so
that plotting tools and `physai logs` can read them.
"""

import json
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import numpy.typing as npt

JOINTS_TOPIC = "/joint_states"
COMMAND_TOPIC = "/commands/"
SENSOR_TOPIC = "/sensors/"
TARGET_TOPIC = "/targets/"

NANOSECONDS = 1_000_000_000

Schema = tuple[str, dict[str, Any]]
"""Name and JSON schema of a message."""

NUMBER: dict[str, Any] = {"type": "number"}
TEXT: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}
NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": ["number", "null"]}}


def record(**properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object with these properties, all required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


TIME = record(sec=INTEGER, nsec=INTEGER)
_HEADER = record(stamp=record(sec=INTEGER, nanosec=INTEGER), frame_id=TEXT)

JOINT_STATE: Schema = (
    "sensor_msgs/JointState",
    record(
        header=_HEADER,
        name={"type": "array", "items": TEXT},
        position=NUMBERS,
        velocity=NUMBERS,
        effort=NUMBERS,
    ),
)
VECTOR: Schema = ("physai.Vector", record(timestamp=TIME, unit=TEXT, frame_id=TEXT, value=NUMBERS))


def stamp(nanoseconds: int, fraction: str = "nsec") -> dict[str, int]:
    """Split a time into seconds and nanoseconds; ROS names the latter `nanosec`."""
    return {"sec": nanoseconds // NANOSECONDS, fraction: nanoseconds % NANOSECONDS}


def numbers(values: npt.NDArray[np.floating[Any]]) -> list[float | None]:
    """Convert a vector for JSON, with null for NaN and infinity."""
    items: list[float] = values.tolist()
    return [value if -np.inf < value < np.inf else None for value in items]


def joint_state(now_ns: int, joints: tuple[str, ...], **values: npt.NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Build a message of `JOINT_STATE`.

    Args:
        now_ns: time stamp [ns].
        joints: names of the joints.
        values: any of position, velocity, effort; shape (joints,) each.
    """
    return {
        "header": {"stamp": stamp(now_ns, "nanosec"), "frame_id": ""},
        "name": joints,
        **{kind: numbers(values[kind]) if kind in values else [] for kind in ("position", "velocity", "effort")},
    }


def vector(now_ns: int, unit: str, frame: str, values: npt.NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Build a message of `VECTOR`, stamped `now_ns` [ns]."""
    return {"timestamp": stamp(now_ns), "unit": unit, "frame_id": frame, "value": numbers(values)}


COLUMNS_ENCODING = "physai.columns"
"""Message encoding of a channel whose messages are column blocks, `physai.sdk.base.formats.column_blocks`.

Each row is a message of the channel's schema: `log_ns` is its time, `log_ns` + `delay_ns` its stamp, `position.JOINT`,
`velocity.JOINT` and `effort.JOINT` are the fields of a joint state, `value.INDEX` those of a vector; other columns have
the names of fields.
"""

ORIGIN_METADATA_KEY = "recorded_on"
"""Metadata key of the recording's origin, `physai.sdk.evidence.origin.Origin.mark`."""


class ChannelWriter:
    """Writes an MCAP file of JSON messages; channels and schemas are declared when they are first used."""

    def __init__(self, file: IO[bytes]) -> None:
        """Write the file header.

        Raises:
            OSError: it cannot be written.
        """
        from mcap.writer import Writer

        self._writer = Writer(file, enable_data_crcs=True)
        self._schemas: dict[str, int] = {}
        self._channels: dict[str, int] = {}
        self._sequence = 0
        self._writer.start(profile="", library="physai")

    def add_metadata(self, name: str, metadata: Mapping[str, str]) -> None:
        """Write a metadata record.

        Raises:
            OSError: it cannot be written.
        """
        self._writer.add_metadata(name, dict(metadata))

    def add(self, topic: str, schema: Schema, now_ns: int, message: Mapping[str, Any]) -> None:
        """Append a message, logged at `now_ns` [ns].

        Raises:
            OSError: it cannot be written.
        """
        self._append(topic, schema, "json", now_ns, json.dumps(message, allow_nan=False).encode())

    def add_block(self, topic: str, schema: Schema, now_ns: int, block: bytes) -> None:
        """Append a column block, see `COLUMNS_ENCODING`; a topic has either blocks or messages.

        Args:
            topic: of the channel.
            schema: of its rows.
            now_ns: time of the first row [ns].
            block: the encoded block.

        Raises:
            OSError: it cannot be written.
        """
        self._append(topic, schema, COLUMNS_ENCODING, now_ns, block)

    def _append(self, topic: str, schema: Schema, encoding: str, now_ns: int, data: bytes) -> None:
        if topic not in self._channels:
            name, definition = schema
            if name not in self._schemas:
                text = json.dumps({"title": name, **definition}).encode()
                self._schemas[name] = self._writer.register_schema(name, "jsonschema", text)
            self._channels[topic] = self._writer.register_channel(topic, encoding, self._schemas[name])
        self._sequence += 1
        self._writer.add_message(self._channels[topic], now_ns, data, publish_time=now_ns, sequence=self._sequence)

    def finish(self) -> None:
        """Write the index, which completes the file.

        Raises:
            OSError: it cannot be written.
        """
        self._writer.finish()
