"""Values of feedback in the first period, which LEAPP keeps in a safetensors file.

The format: https://huggingface.co/docs/safetensors: the length of a header, the header in JSON, and the numbers.
"""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, Field, RootModel, ValidationError

from physai.foreign.body.probe import Floats
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.files import read_bounded

MAX_BYTES, MAX_HEADER = 1 << 24, 1 << 16
_TYPES = {"F32": "<f4", "I32": "<i4", "I64": "<i8", "BOOL": "?"}


class _Entry(BaseModel):
    dtype: str
    shape: Annotated[list[Annotated[int, Field(ge=0, le=MAX_BYTES)]], Field(max_length=8)]
    data_offsets: tuple[Annotated[int, Field(ge=0)], int]


class _Header(RootModel[dict[str, _Entry]]):
    pass


def read_initial_values(path: Path) -> dict[str, Floats]:
    """Return the values by the inputs' keys, flat.

    Raises:
        ForeignPolicyError: the file cannot be read, or is damaged.
    """
    data = read_bounded(path, limit=MAX_BYTES, error=ForeignPolicyError)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not length <= min(MAX_HEADER, len(data) - 8):
        raise ForeignPolicyError(f"{path}: a header of {length} bytes in a file of {len(data)}, at most {MAX_HEADER}")
    try:
        header = _Header.model_validate_json(data[8 : 8 + length]).root
    except ValidationError as error:
        raise ForeignPolicyError(f"{path}: its header is damaged: {error.errors()[0]['msg']}") from None
    return {key: _values(entry, data[8 + length :], f"{path}: {key}") for key, entry in header.items()}


def _values(entry: _Entry, numbers: bytes, where: str) -> Floats:
    start, end = entry.data_offsets
    kind = _TYPES.get(entry.dtype)
    if kind is None:
        raise ForeignPolicyError(f"{where} is of type {entry.dtype[:16]}, supported are {', '.join(_TYPES)}")
    wanted = math.prod(entry.shape) * np.dtype(kind).itemsize
    if end - start != wanted or not end <= len(numbers):
        raise ForeignPolicyError(
            f"{where} is at {start} to {end} of {len(numbers)} bytes, its shape {entry.shape} takes {wanted}"
        )
    values = np.frombuffer(numbers[start:end], kind).astype(np.float32)
    if not np.isfinite(values).all():
        raise ForeignPolicyError(f"{where} has values that are not finite")
    return values
