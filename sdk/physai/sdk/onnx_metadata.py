"""Reads the metadata of an ONNX file without the onnx package, so that a robot need not install it.

An ONNX file is one protobuf message, `ModelProto`; its field 14, `metadata_props`, holds one message per entry
with `key` (field 1) and `value` (field 2). Source: onnx/onnx.proto, https://github.com/onnx/onnx. The graph and
its weights are skipped, not read.
"""

import os
from collections.abc import Iterator
from io import BytesIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from physai.sdk.errors import ContractError
from physai.sdk.files import open_plain

MAX_ENTRY_BYTES = 2 << 20
"""Greatest size of one metadata entry; a contract has at most half of it."""

MAX_METADATA_BYTES = 8 << 20
"""Greatest size of all entries together."""

MAX_ENTRIES = 256
MAX_FIELDS = 10_000
"""Most top-level fields a file may have; a model of thousands of local functions stays below."""

_IR_VERSION, _METADATA_PROPS = 1, 14
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _MalformedError(Exception):
    """The bytes are not the protobuf message they should be."""


def read_onnx_metadata(path: Path) -> dict[str, str]:
    """The metadata entries of an ONNX file.

    Raises:
        ContractError: the file cannot be read, is no ONNX model, or holds more metadata than is allowed.
    """
    try:
        with open_plain(path) as file:
            return _checked(file, str(path))
    except OSError as error:
        raise ContractError(f"{path}: cannot be read: {error.strerror}") from None


def parse_onnx_metadata(data: bytes | memoryview, *, source: str) -> dict[str, str]:
    """The metadata entries of an ONNX file's bytes, of which no copy is made.

    Args:
        data: the file.
        source: where it came from, for messages.

    Raises:
        ContractError: it is no ONNX model, or holds more metadata than is allowed.
    """
    return _checked(cast("BinaryIO", _View(memoryview(data))), source)


class _View(RawIOBase):
    """Bytes as a file to read and seek in; unlike BytesIO it copies no part of a larger buffer."""

    def __init__(self, data: memoryview) -> None:
        super().__init__()
        self._data, self._position = data, 0

    def read(self, size: int = -1, /) -> bytes:
        stop = len(self._data) if size < 0 else self._position + size
        part = bytes(self._data[self._position : stop])
        self._position += len(part)
        return part

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._position = offset + (len(self._data) if whence == os.SEEK_END else 0)
        return self._position

    def tell(self) -> int:
        return self._position


def _checked(file: BinaryIO, source: str) -> dict[str, str]:
    try:
        return _metadata(file)
    except (_MalformedError, UnicodeDecodeError) as error:
        raise ContractError(f"{source}: not an ONNX model ({error})") from None


def _metadata(file: BinaryIO) -> dict[str, str]:
    entries: dict[str, str] = {}
    has_version = False
    total = 0
    for number, kind, size in _fields(file):
        has_version |= number == _IR_VERSION and kind == _VARINT
        if number == _METADATA_PROPS and kind == _BYTES:
            total += size
            if size > MAX_ENTRY_BYTES or total > MAX_METADATA_BYTES or len(entries) >= MAX_ENTRIES:
                raise _MalformedError(f"metadata entry {len(entries)} of {size} bytes is more than is allowed")
            key, value = _entry(file.read(size))
            if key in entries:
                raise _MalformedError(f"metadata key {key!r} occurs twice")
            entries[key] = value
    if not has_version:
        raise _MalformedError("no ir_version")
    return entries


def _entry(data: bytes) -> tuple[str, str]:
    texts = {1: "", 2: ""}
    file = BytesIO(data)
    for number, kind, size in _fields(file):
        if number in texts and kind == _BYTES:
            texts[number] = file.read(size).decode("utf-8")
    return texts[1], texts[2]


def _fields(file: BinaryIO) -> Iterator[tuple[int, int, int]]:
    """Field number, wire type and size of each field; the file stands at its value, and is moved past it."""
    end = file.seek(0, os.SEEK_END)
    position = file.seek(0)
    for _ in range(MAX_FIELDS):
        if position == end:
            return
        tag = _varint(file)
        kind = tag & 7
        size = _size(file, kind)
        start = file.tell()
        position = start + size
        if not position <= end:
            raise _MalformedError(f"a field of {size} bytes at byte {start} reaches past the end at {end}")
        yield tag >> 3, kind, size
        file.seek(position)
    raise _MalformedError(f"more than {MAX_FIELDS} fields")


def _size(file: BinaryIO, kind: int) -> int:
    if kind == _BYTES:
        return _varint(file)
    if kind == _VARINT:
        start = file.tell()
        _varint(file)
        size = file.tell() - start
        file.seek(start)
        return size
    if kind in (_FIXED64, _FIXED32):
        return 8 if kind == _FIXED64 else 4
    raise _MalformedError(f"unknown wire type {kind} at byte {file.tell()}")


def _varint(file: BinaryIO) -> int:
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    raise _MalformedError(f"no number ends at byte {file.tell()}")
