"""Reads the metadata of an ONNX file without the onnx package, so that a robot need not install it.

An ONNX file is one protobuf message, `ModelProto`; its field 14, `metadata_props`, holds one message per entry
with `key` (field 1) and `value` (field 2). Source: onnx/onnx.proto, https://github.com/onnx/onnx. The graph and
its weights are skipped, not read.
"""

import mmap
from pathlib import Path

from physai.sdk.base.errors import ContractError
from physai.sdk.base.files import open_plain
from physai.sdk.base.protobuf import BYTES, VARINT, MalformedError, fields

MAX_ENTRY_BYTES = 2 << 20
"""Greatest size of one metadata entry; a contract has at most half of it."""

MAX_METADATA_BYTES = 8 << 20
"""Greatest size of all entries together."""

MAX_ENTRIES = 256
MAX_FIELDS = 10_000
"""Most top-level fields a file may have; a model of thousands of local functions stays below."""

_IR_VERSION, _METADATA_PROPS = 1, 14


def read_onnx_metadata(path: Path) -> dict[str, str]:
    """The metadata entries of an ONNX file.

    Raises:
        ContractError: the file cannot be read, is no ONNX model, or holds more metadata than is allowed.
    """
    try:
        with open_plain(path) as file:
            if not file.read(1):
                return parse_onnx_metadata(b"", source=str(path))
            # Unmapped once nothing refers to it, an error's traceback included.
            return parse_onnx_metadata(
                memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), source=str(path)
            )
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
    try:
        return _metadata(memoryview(data))
    except (MalformedError, UnicodeDecodeError) as error:
        raise ContractError(f"{source}: not an ONNX model ({error})") from None


def _metadata(data: memoryview) -> dict[str, str]:
    has_version = False
    entries: list[memoryview] = []
    for number, kind, value in fields(data, limit=MAX_FIELDS):
        has_version |= number == _IR_VERSION and kind == VARINT
        if number == _METADATA_PROPS and isinstance(value, memoryview) and kind == BYTES:
            entries.append(value)
    if not has_version:
        raise MalformedError("no ir_version")
    return metadata_entries(entries)


def metadata_entries(messages: list[memoryview]) -> dict[str, str]:
    """The entries of `metadata_props`.

    Raises:
        MalformedError: an entry is malformed or occurs twice, or there is more than is allowed.
        UnicodeDecodeError: a key or a value is no UTF-8.
    """
    entries: dict[str, str] = {}
    total = 0
    for message in messages:
        total += len(message)
        if len(message) > MAX_ENTRY_BYTES or total > MAX_METADATA_BYTES or len(entries) >= MAX_ENTRIES:
            raise MalformedError(f"metadata entry {len(entries)} of {len(message)} bytes is more than is allowed")
        key, value = _entry(message)
        if key in entries:
            raise MalformedError(f"metadata key {key!r} occurs twice")
        entries[key] = value
    return entries


def _entry(message: memoryview) -> tuple[str, str]:
    texts: dict[int, str] = {}
    for number, kind, value in fields(message, limit=2):
        if number not in (1, 2) or number in texts or kind != BYTES or isinstance(value, int):
            raise MalformedError(f"field {number} in a metadata entry, which has one key and one value")
        texts[number] = str(value, "utf-8")
    return texts.get(1, ""), texts.get(2, "")
