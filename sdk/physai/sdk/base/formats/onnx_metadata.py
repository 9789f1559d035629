"""Read the metadata of an ONNX file without the onnx package, which robots need not install.

An ONNX file is a protobuf message, `ModelProto`. Its field 14, `metadata_props`, holds one message per entry with
`key` (field 1) and `value` (field 2). Source: onnx/onnx.proto, https://github.com/onnx/onnx. The graph and its weights
are skipped.
"""

import mmap
import os
from pathlib import Path

from physai.sdk.base.errors import ContractError
from physai.sdk.base.files import open_plain, oserror_as
from physai.sdk.base.formats.protobuf import BYTES, VARINT, MalformedError, fields

MAX_ENTRY_BYTES = 2 << 20
"""Maximum size of one metadata entry: twice that of a contract."""

MAX_METADATA_BYTES = 8 << 20
"""Maximum size of all entries together."""

MAX_ENTRIES = 256
MAX_FIELDS = 10_000
"""Maximum number of top-level fields; a model with thousands of local functions stays below."""

_IR_VERSION, _METADATA_PROPS = 1, 14


def read_onnx_metadata(path: Path) -> dict[str, str]:
    """Read the metadata entries of an ONNX file.

    Raises:
        ContractError: the file cannot be read, is not an ONNX model, or exceeds the metadata limits.
    """
    with oserror_as(ContractError, f"{path}: cannot be read"), open_plain(path) as file:
        # Of size 0 are empty files, and those of /proc, which have content.
        if os.fstat(file.fileno()).st_size == 0:
            return parse_onnx_metadata(file.read(MAX_ENTRY_BYTES), source=str(path))
        # Not closed explicitly: a traceback may still refer to the map. It is unmapped with the last reference.
        return parse_onnx_metadata(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), source=str(path))


def parse_onnx_metadata(data: bytes | memoryview, *, source: str) -> dict[str, str]:
    """Parse the metadata entries of an ONNX file without copying it.

    Args:
        data: content of the file.
        source: origin of the file, for messages.

    Raises:
        ContractError: it is not an ONNX model, or exceeds the metadata limits.
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
    """Parse the messages of `metadata_props`.

    Raises:
        MalformedError: an entry is malformed or occurs twice, or the limits are exceeded.
        UnicodeDecodeError: a key or a value is not UTF-8.
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
