"""Column blocks: rows of numbers as columns of integer differences, whose bytes compress well.

A column of integers is exact to half its step, and so is a column of floats if a step is given. Without one, floats are
exact as float32: their own grid is used if it reproduces every value (-0 is 0 there), otherwise the bits themselves are
the integers. A block can be read without any other block.

Layout: the length of the header (uint32, little-endian); the header, JSON, see `_Header`; then per column the bytes of
its differences: all least significant bytes first, then the next ones. Differences are taken modulo 2⁶⁴ and zigzag
coded. A block is not compressed: MCAP compresses its chunks.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from physai.sdk.base.errors import PhysaiError

MAX_BLOCK_ROWS = 1 << 16
MAX_BLOCK_NUMBERS = 1 << 22
"""Bound of rows times columns, 32 MiB once decoded: a constant column takes no bytes of its own."""
MAX_BLOCK_COLUMNS = 1 << 13
MAX_HEADER_BYTES = 4 << 20

_HEAD = struct.Struct("<I")
_MAX_ORDER = 2
# Counts of a step beyond this are not exact as float64.
_MAX_COUNT = float(1 << 53)
_MAX_ROUNDED = 1 << 62
_MOST_DIVISIONS = 8
# Share of a step that counts as rounding.
_SAME = 1e-3
_MAX_STEP = float(1 << 40)

_Numbers = npt.NDArray[Any]
_Unsigned = npt.NDArray[np.uint64]


class ColumnBlockError(PhysaiError):
    """A column block is damaged, or its columns cannot be encoded."""


@dataclass(frozen=True)
class ColumnBlock:
    """A decoded block."""

    rows: int
    columns: Mapping[str, npt.NDArray[Any]]
    """Values by name, shape (rows,): int64 or float64."""
    steps: Mapping[str, float | None]
    """Step of each column in its unit; None for the bits of float32."""


class _Column(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1, max_length=256)]
    kind: Literal["int", "float", "bits"]
    """`int`: count * step; `float`: origin + count * step; `bits`: float32, ordered as integers."""
    step: Annotated[float, Field(gt=0.0, lt=_MAX_STEP)] = 1.0
    origin: float = 0.0
    first: Annotated[tuple[Annotated[int, Field(ge=0, lt=1 << 64)], ...], Field(max_length=_MAX_ORDER)] = ()
    """First value of each order of differences, modulo 2⁶⁴; as many as orders."""
    width: Annotated[int, Field(ge=0, le=8)]
    """Bytes of a difference."""


class _Header(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rows: Annotated[int, Field(ge=0, le=MAX_BLOCK_ROWS)]
    columns: Annotated[tuple[_Column, ...], Field(max_length=MAX_BLOCK_COLUMNS)]


def encode_block(columns: Mapping[str, _Numbers], steps: Mapping[str, float] | None = None) -> bytes:
    """Encode columns of equal length.

    Args:
        columns: integers or floats by name, shape (rows,) each; bool counts as an integer.
        steps: step of each column that has a known one, in its unit; for integers a whole number.

    Raises:
        ColumnBlockError: the columns differ in length, or there are too many numbers.
    """
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ColumnBlockError(f"columns of {' and '.join(map(str, sorted(lengths)))} rows cannot share a block")
    rows = lengths.pop() if lengths else 0
    few = rows <= MAX_BLOCK_ROWS and len(columns) <= MAX_BLOCK_COLUMNS
    if not (few and rows * len(columns) <= MAX_BLOCK_NUMBERS):
        raise ColumnBlockError(
            f"{rows} rows of {len(columns)} columns; at most {MAX_BLOCK_ROWS} rows, {MAX_BLOCK_COLUMNS} columns and "
            f"{MAX_BLOCK_NUMBERS} numbers fit in a block; split them"
        )
    heads: list[_Column] = []
    parts: list[bytes] = []
    for name, step in (steps or {}).items():
        if not (0.0 < step < _MAX_STEP):
            raise ColumnBlockError(f"column {name}: a step lies above 0 and below {_MAX_STEP:g}, got {step}")
    for name, values in columns.items():
        head, counts = _counted(name, values, (steps or {}).get(name))
        first, differences = _shortest(counts)
        width = (int(differences.max()).bit_length() + 7) // 8 if len(differences) else 0
        heads.append(head.model_copy(update={"first": first, "width": width}))
        planes = differences.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
        parts.append(planes.T.tobytes())
    header = _Header(rows=rows, columns=tuple(heads)).model_dump_json(exclude_defaults=True).encode()
    return b"".join([_HEAD.pack(len(header)), header, *parts])


def decode_block(data: bytes) -> ColumnBlock:
    """Decode a block, which is not trusted.

    Raises:
        ColumnBlockError: it is truncated, damaged or too large.
    """
    header, start = _header(data)
    columns: dict[str, npt.NDArray[Any]] = {}
    for column in header.columns:
        count = max(0, header.rows - len(column.first))
        planes = np.frombuffer(data, np.uint8, count * column.width, start).reshape(column.width, count)
        start += count * column.width
        wide = np.zeros((count, 8), np.uint8)
        wide[:, : column.width] = planes.T
        columns[column.name] = _valued(column, _summed(column, wide.reshape(-1).view("<u8").astype(np.uint64)))
    steps = {column.name: None if column.kind == "bits" else column.step for column in header.columns}
    return ColumnBlock(header.rows, columns, steps)


def _header(data: bytes) -> tuple[_Header, int]:
    """Return the header and the place of the first column, with all sizes checked."""
    if len(data) < _HEAD.size:
        raise ColumnBlockError(f"a column block of {len(data)} bytes, at least {_HEAD.size} are needed")
    (length,) = _HEAD.unpack_from(data)
    start = _HEAD.size + length
    if not (length <= MAX_HEADER_BYTES and start <= len(data)):
        raise ColumnBlockError(
            f"a column block of {len(data)} bytes states a header of {length}; at most {MAX_HEADER_BYTES} are read"
        )
    try:
        header = _Header.model_validate_json(data[_HEAD.size : start])
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        place = ".".join(map(str, detail["loc"])) or "header"
        raise ColumnBlockError(
            f"a damaged column block: {place}: {detail['msg']} (got {detail['input']!r:.80})"
        ) from None
    numbers = header.rows * len(header.columns)
    if not numbers <= MAX_BLOCK_NUMBERS:
        raise ColumnBlockError(f"a column block of {numbers} numbers, at most {MAX_BLOCK_NUMBERS} are read")
    names = [column.name for column in header.columns]
    if len(set(names)) < len(names):
        raise ColumnBlockError(f"a damaged column block: {len(names)} columns have {len(set(names))} names")
    for column in header.columns:
        if len(column.first) > header.rows:
            raise ColumnBlockError(
                f"a damaged column block: {column.name} has {len(column.first)} first values of {header.rows} rows"
            )
    stated = start + sum((header.rows - len(column.first)) * column.width for column in header.columns)
    if stated != len(data):
        raise ColumnBlockError(f"a column block of {len(data)} bytes states {stated}; it is truncated or damaged")
    return header, start


def _counted(name: str, values: _Numbers, step: float | None) -> tuple[_Column, _Unsigned]:
    """Return how a column's values become integers, and these modulo 2⁶⁴."""
    if values.dtype.kind in "biu":
        whole = values.astype(np.int64)
        # Rounding must not leave int64.
        fits = step is not None and bool(((whole > -_MAX_ROUNDED) & (whole < _MAX_ROUNDED)).all())
        every = max(1, round(step)) if step is not None and fits else 1
        counts = whole // every + (2 * (whole % every) >= every) if every > 1 else whole
        return _Column(name=name, kind="int", step=float(every), width=0), counts.astype(np.int64).view(np.uint64)
    floats = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32)
    origin, grid = (0.0, step) if step is not None else _grid(floats, single)
    if grid is not None and len(floats):
        with np.errstate(over="ignore", invalid="ignore"):
            multiples = np.rint((floats - origin) / grid)
        # False for NaN and infinity, too, which only float32's bits can tell.
        if (np.abs(multiples) < _MAX_COUNT).all():
            head = _Column(name=name, kind="float", step=grid, origin=origin, width=0)
            return head, multiples.astype(np.int64).view(np.uint64)
    return _Column(name=name, kind="bits", width=0), _ordered(single.view(np.int32)).astype(np.int64).view(np.uint64)


def _grid(floats: npt.NDArray[np.float64], single: npt.NDArray[np.float32]) -> tuple[float, float | None]:
    """Return origin and step of a grid that reproduces each value as float32; no step if there is none."""
    if not np.isfinite(single).all():
        return 0.0, None
    distinct = np.unique(floats)
    if len(distinct) < 2:
        return 0.0, None
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = np.diff(distinct)
        total = float(distinct[-1] - distinct[0])
        unit = float(gaps.min())
        # Euclid's algorithm: what a gap is more or less than a multiple of the unit holds the step, too.
        for _ in range(_MOST_DIVISIONS):
            rests = np.abs(gaps - np.rint(gaps / unit) * unit)
            rests = rests[rests > _SAME * unit]
            if not len(rests):
                break
            unit = float(rests.min())
        many = np.rint(gaps / unit).sum()
    # Beyond 2²⁴ counts, float32's bits are as short.
    if not (0 < many < 1 << 24 and np.isfinite(total)):
        return 0.0, None
    step = total / float(many)
    if not 0.0 < step < _MAX_STEP:
        return 0.0, None
    # Of a grid through zero, zero itself has to be exact.
    for origin in (0.0, float(distinct[0])):
        if ((origin + np.rint((floats - origin) / step) * step).astype(np.float32) == single).all():
            return origin, step
    return 0.0, None


def _ordered(bits: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Map float32's bits to integers in the order of the values, or back."""
    return np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits)


def _shortest(counts: _Unsigned) -> tuple[tuple[int, ...], _Unsigned]:
    """Return the first values and the differences of the order that needs the fewest bits."""
    first: list[int] = []
    best: tuple[tuple[int, ...], _Unsigned] = ((), _zigzag(counts))
    least = _bits(best[1])
    for _ in range(min(_MAX_ORDER, len(counts))):
        first.append(int(counts[0]))
        counts = np.diff(counts)
        coded = _zigzag(counts)
        needed = _bits(coded)
        if needed < least:
            least, best = needed, (tuple(first), coded)
    return best


def _bits(coded: _Unsigned) -> float:
    return float(np.log2(1.0 + coded.astype(np.float64)).sum())


def _zigzag(counts: _Unsigned) -> _Unsigned:
    """Map 0, -1, 1, -2 … to 0, 1, 2, 3 …"""
    signed = counts.view(np.int64)
    return (signed << 1 ^ signed >> 63).view(np.uint64)


def _summed(column: _Column, coded: _Unsigned) -> npt.NDArray[np.int64]:
    """Undo the zigzag code and the differences."""
    counts = coded >> np.uint64(1) ^ (np.uint64(0) - (coded & np.uint64(1)))
    for first in reversed(column.first):
        # uint64 wraps, as the differences did.
        counts = np.cumsum(np.concatenate((np.array([first], np.uint64), counts)), dtype=np.uint64)
    return counts.view(np.int64)


def _valued(column: _Column, counts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    if column.kind == "int":
        return counts * np.int64(column.step)
    if column.kind == "float":
        with np.errstate(over="ignore"):
            return column.origin + counts * column.step
    return _ordered(counts.astype(np.int32)).view(np.float32).astype(np.float64)
