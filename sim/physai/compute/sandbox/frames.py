"""Messages in the pipes between a user's reward and this program: lengths, JSON and plain numbers, no objects.

A request is `REQUEST`, a JSON object and bytes; its arrays are named in the object and their numbers are the bytes. A
reply is `REPLY` and bytes: float64 numbers, or a JSON object.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

# NumPy is loaded in the functions: the child loads this module before it is locked down, and NumPy after.

REQUEST = struct.Struct("<II")
"""Lengths of a request's object and bytes."""
REPLY = struct.Struct("<QBI")
"""Number of the request, kind and length of a reply."""
NUMBERS, FACTS, ERROR = 0, 1, 2
"""Kinds of a reply."""


def pack(facts: Mapping[str, Any], data: bytes = b"") -> bytes:
    """A request."""
    head = json.dumps(facts).encode()
    return REQUEST.pack(len(head), len(data)) + head + data


def pack_arrays(facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A request with arrays: flags as bool, all other numbers as float64."""
    import numpy as np

    listed: list[tuple[str, str, list[int]]] = []
    parts: list[bytes] = []
    for name, array in arrays.items():
        kind = "|b1" if array.dtype.kind == "b" else "<f8"
        listed.append((name, kind, list(array.shape)))
        parts.append(np.ascontiguousarray(array, kind).tobytes())
    return pack({**facts, "arrays": listed}, b"".join(parts))


def unpack_arrays(facts: Mapping[str, Any], data: bytearray) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a request; they may be written to."""
    import numpy as np

    arrays: dict[str, npt.NDArray[Any]] = {}
    offset = 0
    for name, kind, shape in facts["arrays"]:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(data, kind, count, offset).reshape(shape)
        offset += arrays[name].nbytes
    return arrays
