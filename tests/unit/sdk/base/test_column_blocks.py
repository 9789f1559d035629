"""Column blocks: what goes in comes out, for another decoder too, and a damaged block is refused with both values."""

import json
import math
import struct
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from physai.sdk.base.formats.column_blocks import (
    MAX_BLOCK_NUMBERS,
    MAX_BLOCK_ROWS,
    ColumnBlockError,
    decode_block,
    encode_block,
)

ROWS = st.integers(0, 40)
WHOLE = 1 << 64


def plain_decoder(data: bytes) -> dict[str, list[float | int]]:
    """The layout as documented, one number at a time in Python's own integers."""
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    place = 4 + length
    found: dict[str, list[float | int]] = {}
    for column in header["columns"]:
        first = column.get("first", [])
        count = max(0, header["rows"] - len(first))
        planes = [data[place + plane * count : place + (plane + 1) * count] for plane in range(column["width"])]
        place += count * column["width"]
        counts = [sum(plane[row] << 8 * at for at, plane in enumerate(planes)) for row in range(count)]
        counts = [code // 2 if code % 2 == 0 else -(code + 1) // 2 for code in counts]
        for start in reversed(first):
            summed = [start]
            for difference in counts:
                summed.append(summed[-1] + difference)
            counts = summed
        # Modulo 2**64, as a number of two's complement.
        counts = [(count + WHOLE // 2) % WHOLE - WHOLE // 2 for count in counts]
        step, origin = column.get("step", 1.0), column.get("origin", 0.0)
        if column["kind"] == "int":
            found[column["name"]] = [count * int(step) for count in counts]
        elif column["kind"] == "float":
            found[column["name"]] = [origin + count * step for count in counts]
        else:
            bits = [count if count >= 0 else count ^ 0x7FFFFFFF for count in counts]
            found[column["name"]] = [struct.unpack("<f", struct.pack("<i", one))[0] for one in bits]
    assert place == len(data)
    return found


def float_bits(values: npt.NDArray[Any]) -> list[int]:
    """Bits of float32, with those of all NaN alike, and of both zeros."""
    single = values.astype(np.float32) + np.float32(0.0)
    return np.where(np.isnan(single), np.float32(np.nan), single).astype(np.float32).view(np.uint32).tolist()


@given(ROWS.flatmap(lambda rows: arrays.arrays(np.int64, rows)))
def test_integers_are_exact(values: npt.NDArray[np.int64]) -> None:
    data = encode_block({"a": values, "b": values[::-1]})
    block = decode_block(data)
    assert (block.rows, block.steps) == (len(values), {"a": 1.0, "b": 1.0})
    assert block.columns["a"].tolist() == values.tolist() == plain_decoder(data)["a"]
    assert block.columns["b"].tolist() == values[::-1].tolist() == plain_decoder(data)["b"]


@given(ROWS.flatmap(lambda rows: arrays.arrays(np.float32, rows)))
def test_floats_without_a_step_are_exact_as_float32(values: npt.NDArray[np.float32]) -> None:
    data = encode_block({"a": values})
    block = decode_block(data)
    assert float_bits(block.columns["a"]) == float_bits(values)
    assert float_bits(np.array(plain_decoder(data)["a"], np.float64)) == float_bits(values)


@given(ROWS.flatmap(lambda rows: arrays.arrays(np.float64, rows)))
def test_numbers_of_double_precision_are_those_of_float32(values: npt.NDArray[np.float64]) -> None:
    with np.errstate(over="ignore"):
        expected = float_bits(values)
    assert float_bits(decode_block(encode_block({"a": values})).columns["a"]) == expected


@given(
    st.lists(st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=20),
    st.floats(1e-6, 1e3),
)
def test_a_stated_step_bounds_the_error_and_else_float32_does(values: list[float], step: float) -> None:
    data = encode_block({"a": np.array(values, np.float64)}, {"a": step})
    block = decode_block(data)
    if values and all(math.isfinite(value) for value in values):
        assert block.steps["a"] == step
        rounding = 4 * np.finfo(np.float64).eps * 1e6
        assert np.abs(block.columns["a"] - values).max() <= 0.5 * step + rounding
    else:
        assert block.steps["a"] is None
        assert float_bits(block.columns["a"]) == float_bits(np.array(values, np.float64))
    assert np.array_equal(np.array(plain_decoder(data)["a"], np.float64), block.columns["a"], equal_nan=True)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 2**30))
def test_integers_with_a_step_are_rounded_to_it(values: list[int], step: int) -> None:
    block = decode_block(encode_block({"a": np.array(values, np.int64)}, {"a": float(step)}))
    stated = block.steps["a"]
    assert stated == step or (stated == 1.0 and any(abs(value) >= 2**62 for value in values))
    assert all(2 * abs(got - value) <= stated for got, value in zip(block.columns["a"].tolist(), values, strict=True))


def test_the_grid_of_an_encoder_is_found() -> None:
    step = 2 * math.pi / 4096
    counts = np.cumsum(np.random.default_rng(3).integers(-3, 4, 500))
    values = 0.3 + counts * step
    block = decode_block(encode_block({"a": values}))
    assert block.steps["a"] == pytest.approx(step, rel=1e-12)
    assert float_bits(block.columns["a"]) == float_bits(values)
    # The bits of float32 take three bytes or more of each value, counts of up to three one byte.
    assert len(encode_block({"a": values})) < 500 + 200


@pytest.mark.parametrize("strides", [(2, 3), (6, 10, 15), (5, 7)])
def test_the_grid_is_found_without_two_neighbours_on_it(strides: tuple[int, ...]) -> None:
    """A fast joint passes over most counts, so that no two values differ by one step."""
    step = 100.0 / 4095.0
    values = step * np.cumsum(np.resize(strides, 300))
    block = decode_block(encode_block({"a": values}))
    assert block.steps["a"] == pytest.approx(step, rel=1e-12)
    assert float_bits(block.columns["a"]) == float_bits(values)


def test_a_negative_zero_is_on_the_grid() -> None:
    values = np.rint(np.linspace(-2.4, 2.4, 99)) * 0.25
    assert np.signbit(values[values == 0.0]).any()
    assert decode_block(encode_block({"a": values})).steps["a"] == 0.25


def test_noise_has_no_grid() -> None:
    values = np.random.default_rng(3).normal(size=500)
    assert decode_block(encode_block({"a": values})).steps["a"] is None


def test_a_constant_takes_no_bytes_of_its_own() -> None:
    few, many = (len(encode_block({"a": np.full(rows, 3.3), "t": np.arange(rows)})) for rows in (100, 1000))
    assert many - few <= 8


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows: int) -> None:
    columns: Mapping[str, npt.NDArray[Any]] = {
        "a": np.full(rows, 7),
        "b": np.full(rows, -0.0),
        "c": np.full(rows, True),
    }
    block = decode_block(encode_block(columns))
    assert {name: values.tolist() for name, values in block.columns.items()} == {
        "a": [7] * rows,
        "b": [-0.0] * rows,
        "c": [1] * rows,
    }
    assert decode_block(encode_block({})).columns == {}


def refusal(data: bytes) -> str:
    with pytest.raises(ColumnBlockError) as caught:
        decode_block(data)
    return str(caught.value)


def with_header(header: object, tail: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<I", len(text)) + text + tail


def column(**more: object) -> dict[str, object]:
    return {"name": "a", "kind": "int", "width": 1, **more}


WHOLE_BLOCK = encode_block({"a": np.arange(50) ** 2, "b": np.linspace(0.0, 1.0, 50) ** 2})


def test_every_other_length_is_refused() -> None:
    for length in range(len(WHOLE_BLOCK)):
        assert f"of {length} bytes" in refusal(WHOLE_BLOCK[:length])
    longer = len(WHOLE_BLOCK) + 1
    assert refusal(WHOLE_BLOCK + b"0").startswith(f"a column block of {longer} bytes states {longer - 1}; ")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(ColumnBlockError):
        decode_block(data)


@given(st.integers(0, len(WHOLE_BLOCK) - 1), st.integers(1, 255))
def test_a_changed_byte_is_read_or_refused(place: int, change: int) -> None:
    data = bytearray(WHOLE_BLOCK)
    data[place] ^= change
    with suppress(ColumnBlockError):
        block = decode_block(bytes(data))
        assert {len(values) for values in block.columns.values()} <= {block.rows}


def test_what_is_damaged_is_named_with_both_values() -> None:
    assert refusal(b"ab") == "a column block of 2 bytes, at least 4 are needed"
    assert refusal(struct.pack("<I", 1 << 30)) == (
        "a column block of 4 bytes states a header of 1073741824; at most 4194304 are read"
    )
    assert "damaged column block: header: Invalid JSON" in refusal(with_header(b"{"))
    assert "rows: Input should be less than or equal to 65536 (got 65537)" in refusal(
        with_header({"rows": MAX_BLOCK_ROWS + 1, "columns": []})
    )
    assert "columns.0.width: Input should be less than or equal to 8 (got 9)" in refusal(
        with_header({"rows": 1, "columns": [column(width=9)]}, b"123456789")
    )
    assert "columns.0.kind" in refusal(with_header({"rows": 1, "columns": [column(kind="text")]}))
    assert "columns.0.step" in refusal(with_header({"rows": 1, "columns": [column(step=0.0)]}))
    assert "columns.0.step" in refusal(with_header(b'{"rows":0,"columns":[{"name":"a","kind":"float","step":NaN}]}'))
    assert "2 columns have 1 names" in refusal(with_header({"rows": 1, "columns": [column(), column()]}, b"12"))
    assert "a has 2 first values of 1 rows" in refusal(with_header({"rows": 1, "columns": [column(first=[1, 2])]}))
    short = with_header({"rows": 3, "columns": [column()]}, b"12")
    assert refusal(short) == f"a column block of {len(short)} bytes states {len(short) + 1}; it is truncated or damaged"


def test_memory_is_bounded_before_anything_is_decoded() -> None:
    rows = MAX_BLOCK_ROWS
    columns = [column(name=f"c{number}", width=0) for number in range(MAX_BLOCK_NUMBERS // rows + 1)]
    assert refusal(with_header({"rows": rows, "columns": columns})) == (
        f"a column block of {rows * len(columns)} numbers, at most {MAX_BLOCK_NUMBERS} are read"
    )


def test_what_cannot_be_encoded_is_refused() -> None:
    with pytest.raises(ColumnBlockError, match="columns of 1 and 2 rows cannot share a block"):
        encode_block({"a": np.zeros(1), "b": np.zeros(2)})
    with pytest.raises(ColumnBlockError, match="65537 rows of 1 columns; at most 65536 rows"):
        encode_block({"a": np.zeros(MAX_BLOCK_ROWS + 1)})
    for step in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ColumnBlockError, match=f"column a: a step lies above 0 and below .*, got {step}"):
            encode_block({"a": np.zeros(1)}, {"a": step})
