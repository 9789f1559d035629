"""Messages of the session protocol: msgpack maps in which arrays travel as raw bytes.

An array is a map of exactly three keys: `dtype` (numpy's name with byte order, such as `<f4`), `shape` and `data`. Any
msgpack library can read and write it.
"""

import math
from typing import Any, cast

import msgpack
import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError

Message = dict[str, Any]

DTYPES = frozenset({"<f4", "<f8", "<i4", "<i8", "<u8", "|b1"})
_ARRAY_KEYS = {"dtype", "shape", "data"}
_MAX_DIMENSIONS = 4
_MAX_ENTRIES = 4096


class WireError(PhysaiError):
    """A message cannot be decoded, or holds what the protocol does not allow."""


def pack(message: Message) -> bytes:
    """Encodes a message of numbers, strings, lists, maps and numpy arrays.

    Raises:
        WireError: an array's dtype is not one of `DTYPES`, or a value has no encoding.
    """
    try:
        return msgpack.packb(message, default=_encode)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"a message cannot be encoded: {error}") from None


def _encode(value: object) -> object:
    if isinstance(value, np.ndarray):
        given = cast("npt.NDArray[Any]", value)
        array = np.ascontiguousarray(given)
        if array.dtype.str not in DTYPES:
            raise WireError(f"an array of {array.dtype.str} cannot be sent; send one of {', '.join(sorted(DTYPES))}")
        # reshape, because ascontiguousarray makes a scalar array one-dimensional.
        return {
            "dtype": array.dtype.str,
            "shape": list(given.shape),
            "data": array.data.cast("B") if array.size else b"",
        }
    if isinstance(value, np.bool | np.integer | np.floating):
        return cast("object", value.item())
    raise TypeError(f"a value of type {type(value).__name__} has no encoding")


def unpack(data: bytes, *, writable: bool = False) -> Message:
    """Decodes a message.

    Args:
        data: the message.
        writable: copy the arrays, so that they may be changed; else they are read-only views of `data`.

    Raises:
        WireError: the data is no msgpack map with string keys, or an array in it is malformed.
    """
    decode = _decode_writable if writable else _decode
    try:
        message = msgpack.unpackb(
            data,
            object_hook=decode,
            max_array_len=_MAX_ENTRIES,
            max_map_len=_MAX_ENTRIES,
            max_ext_len=0,
        )
    except WireError:
        raise
    except (ValueError, TypeError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise WireError(f"{len(data)} bytes are not a msgpack message: {error or type(error).__name__}") from None
    if not isinstance(message, dict):
        raise WireError(f"a message must be a map, got {type(message).__name__}")
    return cast("Message", message)


def _decode(entries: dict[str, Any]) -> object:
    if entries.keys() != _ARRAY_KEYS:
        return entries
    dtype, shape, data = entries["dtype"], entries["shape"], entries["data"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise WireError(f"an array has dtype {dtype!r}; send one of {', '.join(sorted(DTYPES))}")
    if (
        not isinstance(shape, list)
        or len(cast("list[object]", shape)) > _MAX_DIMENSIONS
        or not all(type(size) is int and size >= 0 for size in cast("list[object]", shape))
    ):
        raise WireError(f"an array has shape {shape!r}; send at most {_MAX_DIMENSIONS} sizes")
    sizes = cast("list[int]", shape)
    expected = math.prod(sizes) * np.dtype(dtype).itemsize
    if not isinstance(data, bytes) or len(data) != expected:
        got = f"{len(data)} bytes" if isinstance(data, bytes) else type(data).__name__
        raise WireError(f"an array of {dtype} with shape {sizes} has {expected} bytes, got {got}")
    return np.frombuffer(data, dtype).reshape(sizes)


def _decode_writable(entries: dict[str, Any]) -> object:
    value = _decode(entries)
    return cast("npt.NDArray[Any]", value).copy() if isinstance(value, np.ndarray) else value
