"""Layout of a contract's fields in a topic's messages: computed once, then copied in place."""

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import JOINT_SENSORS
from physai.sdk.transport.protocol import Array, TransportError
from physai.transport.binding import ARRAY_TYPE, JOINT_NAMES, JOINT_PARTS, NUMBER_PARTS, TopicBinding
from physai.transport.dds.codec.cdr import HEAD, Message, Places, decode, encode
from physai.transport.dds.codec.messages import fields_of
from physai.transport.stamps import NANOSECONDS

# Bound of a message; larger than a JointState of 64 joints with the longest names.
MAX_INCOMING_BYTES = 16 * 1024
STAMP = "header.stamp"
_STAMP = struct.Struct("<iI")


@dataclass(frozen=True)
class Vector:
    """A field of the contract."""

    name: str
    size: int
    joints: tuple[str, ...] | None
    """Joint of each element; None if the elements are not joints."""


@dataclass(frozen=True)
class FieldMapping:
    """A vector and the place of each element: a path in the message, with a joint's name or an index."""

    vector: Vector
    elements: tuple[tuple[str, str | int], ...]


@dataclass(frozen=True)
class TopicLayout:
    """The fields of a contract in one topic."""

    binding: TopicBinding
    placed: tuple[FieldMapping, ...]
    joints: tuple[str, ...]
    """The robot's joint names in message order; empty without joints."""

    @property
    def size(self) -> int:
        """Total number of elements."""
        return sum(placed.vector.size for placed in self.placed)

    @property
    def is_stamped(self) -> bool:
        """Whether the stamp in the header is the time of measurement or computation."""
        # In a JointTrajectory it is the start of the motion, and zero means now: joint_trajectory_controller drops
        # trajectories that end in the past by its own clock.
        return self.has_header and self.binding.type != "trajectory_msgs/msg/JointTrajectory"

    @property
    def has_header(self) -> bool:
        """Whether the message has a header."""
        return any(field.name == "header" for field in fields_of(self.binding.type))


def read_vectors(contract: PolicyContract) -> dict[str, Vector]:
    """Return the sensor and command fields of a contract by name."""
    robot = contract.robot
    sensors = [Vector(s.name, s.size, robot.joint_names if s.name in JOINT_SENSORS else None) for s in robot.sensors]
    commands = [Vector(field.name, field.size, None) for field in contract.command.fields]
    return {vector.name: vector for vector in (*sensors, *commands)}


def written_vectors(contract: PolicyContract) -> dict[str, Vector]:
    """Return the outputs of a contract's graph by name."""
    joints = {term.target_name: term.joints for term in contract.action.terms}
    return {n: Vector(n, size, joints[n]) for n, size in graph_interface(contract).targets.items()}


def topic_layout(binding: TopicBinding, vectors: Mapping[str, Vector]) -> TopicLayout | None:
    """Return the layout of the contract's vectors in a topic; None if it has none of them.

    Raises:
        TransportError: a vector does not fit its part.
    """
    placed = [
        FieldMapping(vectors[name], _elements(binding, vectors[name])) for name in binding.fields if name in vectors
    ]
    if not placed:
        return None
    joints: tuple[str, ...] = ()
    if binding.type in JOINT_PARTS:
        # Each joint once, in the order of the first vector that has it.
        joints = tuple(dict.fromkeys(str(key) for one in placed for _, key in one.elements))
    return TopicLayout(binding, tuple(placed), joints)


def _elements(binding: TopicBinding, vector: Vector) -> tuple[tuple[str, str | int], ...]:
    parts = binding.fields[vector.name]
    if binding.type in JOINT_PARTS:
        if vector.joints is None:
            raise TransportError(f"{binding.topic}: {vector.name} has no joints, {parts} of a {binding.type} has")
        path = JOINT_PARTS[binding.type][str(parts)]
        return tuple((path, binding.joints.get(joint, joint)) for joint in vector.joints)
    if binding.type == ARRAY_TYPE:
        return tuple(("data", index) for index in _order(binding, vector))
    known = NUMBER_PARTS[binding.type]
    paths = [path for part in ((parts,) if isinstance(parts, str) else parts) for path in known[part]]
    if len(paths) != vector.size:
        raise TransportError(f"{binding.topic}: {vector.name} has {vector.size} elements, {parts} has {len(paths)}")
    return tuple((path, 0) for path in paths)


def _order(binding: TopicBinding, vector: Vector) -> list[int]:
    """Return the array index of each element of a vector."""
    if not binding.joints:
        return list(range(vector.size))
    # The keys of `joints`, in the order in which the robot expects the numbers.
    order = list(binding.joints)
    if vector.joints is None or sorted(order) != sorted(vector.joints):
        raise TransportError(
            f"{binding.topic}: its joints are {', '.join(order)}; {vector.name} has "
            f"{', '.join(vector.joints or ()) or 'none'}"
        )
    return [order.index(joint) for joint in vector.joints]


class MessageReader:
    """Reads the vectors of a topic from its messages; caches the layout of the first one and then copies in place."""

    def __init__(self, layout: TopicLayout, required: Collection[str]) -> None:
        """Allocate `values`, which receives all vectors of the layout one after the other.

        Args:
            layout: of the topic.
            required: vectors without which a message is rejected; others are NaN if empty or marked as not measured.
        """
        self.layout = layout
        self._required = required
        self._unmeasured: list[slice] = []
        self.values: Array = np.full(layout.size, np.nan)
        self._length = -1
        # Everything but the numbers and the stamp of the message learned last, and where it stands.
        self._fixed: tuple[bytes, ...] = ()
        self._starts: tuple[int, ...] = ()
        self._gather = np.zeros(layout.size, np.intp)
        self._room = memoryview(b"")
        self._numbers: npt.NDArray[np.float64] = np.zeros(0)
        self._stamp = _STAMP
        self._stamp_at = 0
        self.stamp_ns = 0
        """Header stamp of the last message [ns]; 0 without a header."""

    def read(self, data: bytes) -> None:
        """Read the vectors and the stamp of a message.

        Raises:
            TransportError: the message is malformed or has other joints, lengths or another frame.
        """
        # A message that agrees with the last one in all but its numbers has their places, too.
        if len(data) != self._length or not all(map(data.startswith, self._fixed, self._starts)):
            self._learn(data)
        # In place, because allocations are slow when the caches are cold after the pause between two messages.
        self._room[:] = data
        # `clip` skips the bounds check and writes to `out` without a buffer; `_learn` has checked the places.
        self._numbers.take(self._gather, out=self.values, mode="clip")
        for part in self._unmeasured:
            self.values[part] = np.nan
        if self._stamp_at:
            seconds, nanoseconds = self._stamp.unpack_from(data, self._stamp_at)
            self.stamp_ns = seconds * NANOSECONDS + nanoseconds

    def _learn(self, data: bytes) -> None:
        """Decode and check a message field by field, and cache its layout."""
        self._length = -1
        # Before decoding, as the message may come from anyone in the network.
        if not len(data) <= MAX_INCOMING_BYTES:
            raise TransportError(f"a message of {len(data)} bytes, at most {MAX_INCOMING_BYTES} are read")
        binding = self.layout.binding
        message, places, order = decode(binding.type, data)
        self._check_frame(message)
        joints = _joint_index(binding, message)
        gather: list[int] = []
        unmeasured: list[slice] = []
        for one in self.layout.placed:
            if self._is_measured(one, message, places):
                gather += [self._place(path, key, places, joints) for path, key in one.elements]
            else:
                unmeasured.append(slice(len(gather), len(gather) + one.vector.size))
                # Any place that exists; `read` overwrites what it finds there.
                gather += [0] * one.vector.size
        self._unmeasured = unmeasured
        self._gather[:] = gather
        self._room = _aligned_room(len(data))
        self._numbers = np.frombuffer(self._room[HEAD:], f"{order}f8", (len(data) - HEAD) // 8)
        self._stamp = struct.Struct(f"{order}iI")
        self._stamp_at = places.get(STAMP, (0, 0))[0]
        self._starts, self._fixed = _fixed_parts(data, places)
        self._length = len(data)

    def _check_frame(self, message: Message) -> None:
        expected = self.layout.binding.frame
        if expected is not None and self.layout.has_header and message["header"]["frame_id"] != expected:
            raise TransportError(f"frame_id is {message['header']['frame_id']!r}, expected {expected!r}")

    def _is_measured(self, placed: FieldMapping, message: Message, places: Places) -> bool:
        """Whether a vector has values."""
        # ROS: a JointState may omit fields, and a covariance that starts with -1 marks a field as not measured.
        path, name = placed.elements[0][0], placed.vector.name
        marked = message.get(f"{path.partition('.')[0]}_covariance", [0.0])[0] == -1.0
        if name in self._required:
            if marked:
                raise TransportError(f"{path.partition('.')[0]} is marked as not measured; {name} is needed")
            return True
        return not marked and path in places

    def _place(self, path: str, key: str | int, places: Places, joints: dict[str, int]) -> int:
        """Return the index of a number in the message's array of float64."""
        binding = self.layout.binding
        start, count = places.get(path, (0, 0))
        if isinstance(key, str):
            if key not in joints:
                names = ", ".join(self.layout.joints)
                raise TransportError(f"it names the joints {', '.join(joints) or '(none)'}; expected {names}")
            expected, index = len(joints), joints[key]
        elif binding.type == ARRAY_TYPE:
            expected, index = self.layout.size, key
        else:
            expected, index = 1, 0
        if count != expected:
            raise TransportError(f"{path} has {count} values, expected {expected}")
        return (start - HEAD) // 8 + index


def _joint_index(binding: TopicBinding, message: Message) -> dict[str, int]:
    if binding.type not in JOINT_NAMES:
        return {}
    names: list[str] = message[JOINT_NAMES[binding.type]]
    index = {name: position for position, name in enumerate(names)}
    if len(index) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TransportError(f"it names joint {twice!r} twice")
    if len(message.get("points", [None])) != 1:
        raise TransportError(f"a trajectory of {len(message['points'])} points, expected 1")
    return index


def _aligned_room(size: int) -> memoryview:
    """Allocate a message whose payload after the encapsulation header is aligned to 8 bytes, for float64 views."""
    room = np.zeros(size + 16, np.uint8)
    # numpy promises no more than the alignment of one element, so the offset is computed.
    aligned = -room.ctypes.data % 8
    start = (aligned if aligned >= HEAD else aligned + 8) - HEAD
    return room.data[start : start + size]


def _fixed_parts(data: bytes, places: Places) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
    """Return the offsets and bytes of everything but numbers and stamps; messages that agree in it share a layout."""
    parts: dict[int, bytes] = {}
    start = 0
    for place, count in sorted(places.values()):
        # Between two places lie names, lengths and padding, which must not change.
        if place > start:
            parts[start] = bytes(data[start:place])
        start = place + 8 * count
    if start < len(data):
        parts[start] = bytes(data[start:])
    return tuple(parts), tuple(parts.values())


class MessageWriter:
    """Writes vectors into a preallocated message of a topic."""

    def __init__(self, layout: TopicLayout, *, period_s: float) -> None:
        """Allocate the message.

        Args:
            layout: of the topic.
            period_s: time until the next message is due, at which a trajectory's point is reached [s].

        Raises:
            TransportError: the vectors of a message have different joints.
        """
        self.layout = layout
        message, places = encode(layout.binding.type, _template(layout, period_s))
        self.data = _aligned_room(len(message))
        """The message as last written."""
        self.data[:] = message
        self._numbers: Array = np.frombuffer(self.data[HEAD:], "<f8", (len(message) - HEAD) // 8)
        # Name and size of each vector, the array to write to, and its index.
        self._parts: list[tuple[str, int, Array, slice | npt.NDArray[np.intp]]] = []
        for one in layout.placed:
            part = self._scatter(one, places)
            # NaN until written, so that a missing value does not look like a measurement.
            self._numbers[part] = np.nan
            whole = isinstance(part, slice)
            among = self._numbers[part] if whole else self._numbers
            self._parts.append((one.vector.name, one.vector.size, among, slice(None) if whole else part))
        self._stamp_at = places.get(STAMP, (0, 0))[0] if layout.is_stamped else 0

    def _scatter(self, placed: FieldMapping, places: Places) -> slice | npt.NDArray[np.intp]:
        joints = self.layout.joints
        indices = [
            (places[path][0] - HEAD) // 8 + (joints.index(key) if isinstance(key, str) else key)
            for path, key in placed.elements
        ]
        # A slice is copied faster than a list of places.
        if indices == list(range(indices[0], indices[0] + len(indices))):
            return slice(indices[0], indices[0] + len(indices))
        return np.array(indices, np.intp)

    def write(self, vectors: Mapping[str, Array], stamp_ns: int) -> bool:
        """Write vectors and stamp into the message; return whether any of its vectors was given.

        Raises:
            TransportError: a vector has another number of elements than the contract's.
        """
        found = False
        for name, size, among, part in self._parts:
            values = vectors.get(name)
            if values is None:
                continue
            if values.size != size:
                raise TransportError(f"{name} has {values.size} elements, expected {size}")
            among[part] = values
            found = True
        if found and self._stamp_at:
            _STAMP.pack_into(self.data, self._stamp_at, *divmod(stamp_ns, NANOSECONDS))
        return found


def _template(layout: TopicLayout, period_s: float) -> Message:
    """Return a message of zeros with the names and lengths of the layout."""
    binding, joints = layout.binding, layout.joints
    message: Message = {"header": {"frame_id": binding.frame or ""}}
    if binding.type in JOINT_PARTS:
        for one in layout.placed:
            if len(one.elements) != len(joints):
                raise TransportError(
                    f"{binding.topic}: {one.vector.name} has {len(one.elements)} of the {len(joints)} joints in the "
                    "topic; give fields of different joints a topic each"
                )
        runs = {path.rpartition(".")[2]: [0.0] * len(joints) for one in layout.placed for path, _ in one.elements[:1]}
        message[JOINT_NAMES[binding.type]] = list(joints)
        if binding.type == "trajectory_msgs/msg/JointTrajectory":
            # The point is reached when the next one is due.
            seconds, nanoseconds = divmod(round(period_s * NANOSECONDS), NANOSECONDS)
            message["points"] = [{**runs, "time_from_start": {"sec": seconds, "nanosec": nanoseconds}}]
        else:
            message |= runs
    elif binding.type == ARRAY_TYPE:
        # Names the dimension for people who read the topic; no driver does.
        label = "joints" if binding.joints else ""
        message["layout"] = {"dim": [{"label": label, "size": layout.size, "stride": layout.size}]}
        message["data"] = [0.0] * layout.size
    elif binding.type == "sensor_msgs/msg/Imu":
        # ROS: a covariance that starts with -1 marks a field as not measured.
        bound = {str(parts) for parts in binding.fields.values()}
        for part in ("orientation", "angular_velocity", "linear_acceleration"):
            message[f"{part}_covariance"] = [0.0 if part in bound else -1.0] + [0.0] * 8
    return message
