"""CDR serialisation as ROS 2 uses it (OMG DDSI-RTPS 2.5, 10.2: encapsulation, then XCDR1).

Every value is aligned to its own size, counted from the end of the 4-byte encapsulation header. Every float64 of a
message is therefore at offset 4 + 8·k, so all of them are elements of one array that starts at byte 4; numbers are read
and written there in place.
"""

import struct
from typing import Any

from physai.sdk.transport.protocol import TransportError
from physai.transport.dds.codec.messages import PRIMITIVES, MessageField, fields_of

# Size of the encapsulation header [bytes].
HEAD = 4
BIG_ENDIAN, LITTLE_ENDIAN = b"\x00\x00", b"\x00\x01"
MAX_MESSAGE_BYTES = 1 << 16

# Fields by name: numbers, strings, lists and nested messages.
Message = dict[str, Any]
# Byte offset and length of every run of float64 and every time stamp, by dotted path.
Places = dict[str, tuple[int, int]]


class EncodingError(TransportError):
    """The bytes are not a message of the expected type."""


def encode(kind: str, message: Message) -> tuple[bytearray, Places]:
    """Encode a message, little-endian; return the bytes and the places of its numbers.

    Args:
        kind: full name of the message type.
        message: its fields; missing ones are 0 or empty.
    """
    writer = _Writer()
    writer.message(kind, message, "")
    # A message is padded to a multiple of 4 bytes.
    writer.align(4)
    return writer.data, writer.places


def decode(kind: str, data: bytes) -> tuple[Message, Places, str]:
    """Decode a message; return it with the places of its numbers and their byte order (`<` or `>`).

    Raises:
        EncodingError: the bytes have another encoding, type or length.
    """
    if not HEAD <= len(data) <= MAX_MESSAGE_BYTES:
        raise EncodingError(f"{len(data)} bytes; a {kind} here has {HEAD} to {MAX_MESSAGE_BYTES}")
    # The first two bytes name the encoding, the other two its options, which plain CDR does not use.
    scheme = bytes(data[:2])
    if scheme not in (BIG_ENDIAN, LITTLE_ENDIAN):
        raise EncodingError(
            f"encoding 0x{scheme.hex()}; ROS 2 sends plain CDR, 0x0001: let the publisher use XCDR1 and final types"
        )
    reader = _Reader(kind, data, "<" if scheme == LITTLE_ENDIAN else ">")
    message = reader.message(kind, "")
    # Padding is shorter than the largest alignment; more than that is data of another type.
    if not len(data) - reader.at < 8:
        raise EncodingError(f"{len(data)} bytes, of which a {kind} takes {reader.at}: it is of another type")
    return message, reader.places, reader.order


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray(LITTLE_ENDIAN + b"\x00\x00")
        self.places: Places = {}

    def align(self, size: int) -> None:
        # Alignment counts from the end of the encapsulation header.
        self.data.extend(bytes(-(len(self.data) - HEAD) % size))

    def message(self, kind: str, message: Message, path: str) -> None:
        if kind == "builtin_interfaces/msg/Time":
            self.align(4)
            self.places[path.removesuffix(".")] = (len(self.data), 1)
        for field in fields_of(kind):
            self._field(field, message.get(field.name), path + field.name)

    def _field(self, field: MessageField, value: Any, path: str) -> None:
        if field.length is None:
            self._value(field.base, value, path)
            return
        values: list[Any] = list(value) if value is not None else [None] * field.length
        # A sequence begins with its length, an array does not.
        if field.length == 0:
            self.number("uint32", len(values))
        elif len(values) != field.length:
            raise ValueError(f"{path} has {len(values)} values, expected {field.length}")
        if field.base == "float64":
            self._run(values, path)
            return
        for index, element in enumerate(values):
            self._value(field.base, element, f"{path}.{index}")

    def _run(self, values: list[Any], path: str) -> None:
        # An empty sequence is not aligned, so it has no place.
        if values:
            self.align(8)
            self.places[path] = (len(self.data), len(values))
            self.data.extend(struct.pack(f"<{len(values)}d", *(0.0 if value is None else value for value in values)))

    def _value(self, base: str, value: Any, path: str) -> None:
        if base == "float64":
            self._run([value], path)
        elif base == "string":
            # The length of a string counts its terminating zero byte.
            text = (value or "").encode() + b"\x00"
            self.number("uint32", len(text))
            self.data.extend(text)
        elif base in PRIMITIVES:
            self.number(base, value or 0)
        else:
            self.message(base, value or {}, f"{path}.")

    def number(self, base: str, value: int) -> None:
        code = "<" + PRIMITIVES[base]
        self.align(struct.calcsize(code))
        self.data.extend(struct.pack(code, value))


class _Reader:
    def __init__(self, kind: str, data: bytes, order: str) -> None:
        self.kind = kind
        self.data = data
        self.order = order
        self.at = HEAD
        self.places: Places = {}

    def _take(self, size: int, alignment: int) -> int:
        # The smallest multiple of the alignment that is not before `at`.
        start = self.at + -(self.at - HEAD) % alignment
        if not start + size <= len(self.data):
            raise EncodingError(f"{len(self.data)} bytes are too few: cut off, or not a {self.kind}")
        self.at = start + size
        return start

    def message(self, kind: str, path: str) -> Message:
        if kind == "builtin_interfaces/msg/Time":
            self.at += -(self.at - HEAD) % 4
            self.places[path.removesuffix(".")] = (self.at, 1)
        return {field.name: self._field(field, path + field.name) for field in fields_of(kind)}

    def _field(self, field: MessageField, path: str) -> Any:
        if field.length is None:
            return self._value(field.base, path)
        count = field.length or self._number("uint32")
        # An element has at least one byte, which bounds the memory that a forged count can request.
        if not count <= len(self.data) - self.at:
            raise EncodingError(f"{path} claims {count} elements in a message of {len(self.data)} bytes")
        if field.base == "float64":
            return self._run(count, path)
        return [self._value(field.base, f"{path}.{index}") for index in range(count)]

    def _run(self, count: int, path: str) -> list[float]:
        if count == 0:
            return []
        start = self._take(8 * count, 8)
        self.places[path] = (start, count)
        return list(struct.unpack_from(f"{self.order}{count}d", self.data, start))

    def _value(self, base: str, path: str) -> Any:
        if base == "float64":
            return self._run(1, path)[0]
        if base == "string":
            return self._string(path)
        return self._number(base) if base in PRIMITIVES else self.message(base, f"{path}.")

    def _string(self, path: str) -> str:
        size = self._number("uint32")
        start = self._take(size, 1)
        text = bytes(self.data[start : start + size])
        if not text.endswith(b"\x00"):
            raise EncodingError(f"{path} is no string: it does not end with 0")
        try:
            return text[:-1].decode()
        except UnicodeDecodeError:
            raise EncodingError(f"{path} is no string: not UTF-8") from None

    def _number(self, base: str) -> int:
        code = self.order + PRIMITIVES[base]
        size = struct.calcsize(code)
        return struct.unpack_from(code, self.data, self._take(size, size))[0]
