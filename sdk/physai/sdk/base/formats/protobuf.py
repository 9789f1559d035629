"""Read protobuf messages field by field: bounded, without copies, canonical encodings only.

Source: https://protobuf.dev/programming-guides/encoding/.
"""

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types; groups (3, 4) are not supported."""

_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES = 10

Value = int | memoryview


class MalformedError(Exception):
    """The bytes are not a valid message."""


def fields(data: memoryview, *, limit: int) -> Iterator[tuple[int, int, Value]]:
    """Yield number, wire type and value of each field: an unsigned integer for VARINT, else a view of the bytes.

    Args:
        data: one message.
        limit: maximum number of fields.

    Raises:
        MalformedError: a field is truncated or of an unknown wire type, or there are too many fields.
    """
    position, end, count = 0, len(data), 0
    while position < end:
        if count == limit:
            raise MalformedError(f"more than {limit} fields")
        count += 1
        tag, position = varint(data, position)
        kind = tag & 7
        if kind == VARINT:
            value, position = varint(data, position)
            yield tag >> 3, kind, value
            continue
        if kind == BYTES:
            size, position = varint(data, position)
        elif kind in _FIXED_SIZES:
            size = _FIXED_SIZES[kind]
        else:
            raise MalformedError(f"unknown wire type {kind} at byte {position}")
        start, position = position, position + size
        if not position <= end:
            raise MalformedError(f"a field of {size} bytes at byte {start} reaches past the end at {end}")
        yield tag >> 3, kind, data[start:position]


def varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return the unsigned integer at a position, and the position after it.

    Raises:
        MalformedError: it is truncated, has more than 64 bits, or is not in its shortest encoding.
    """
    value = shift = 0
    stop = min(position + _MAX_VARINT_BYTES, len(data))
    for index in range(position, stop):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64 or (not byte and shift):
                raise MalformedError(
                    f"the number at byte {position} has more bits than 64, or more bytes than it needs"
                )
            return value, index + 1
        shift += 7
    raise MalformedError(f"no number ends at byte {stop}")


def signed(value: int) -> int:
    """Reinterpret an unsigned 64-bit integer as two's complement."""
    return value - (1 << 64) if value >> 63 else value
