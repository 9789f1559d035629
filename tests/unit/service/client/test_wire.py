"""Messages of the session protocol come back as they were sent, and nothing else is read."""

import contextlib

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from physai.service.client.wire import DTYPES, WireError, pack, unpack

ARRAYS = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), ARRAYS, max_size=4))
def test_arrays_come_back_bit_for_bit(arrays: dict[str, np.ndarray]) -> None:
    message = unpack(pack({"arrays": arrays}))["arrays"]
    assert message.keys() == arrays.keys()
    for name, array in arrays.items():
        assert message[name].dtype == array.dtype
        assert message[name].shape == array.shape
        assert message[name].tobytes() == array.tobytes()
        assert not message[name].flags.writeable
    copies = unpack(pack({"arrays": arrays}), writable=True)["arrays"]
    assert all(copies[name].tobytes() == array.tobytes() for name, array in arrays.items())
    assert all(copy.flags.writeable for copy in copies.values())


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4))
def test_plain_values_come_back(message: dict[str, object]) -> None:
    assert unpack(pack(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(WireError):
        unpack(data)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ({"dtype": "<f4", "shape": [2, 2], "data": b"\0" * 12}, "has 16 bytes, got 12 bytes"),
        ({"dtype": "|O", "shape": [1], "data": b"\0" * 8}, "dtype '|O'"),
        ({"dtype": "<f4", "shape": [-1], "data": b""}, "shape"),
        ({"dtype": "<f4", "shape": [2**62, 2**62], "data": b""}, "bytes, got 0 bytes"),
        ({"dtype": "<f4", "shape": [True], "data": b"\0" * 4}, "shape"),
        ({"dtype": "<f4", "shape": [1] * 9, "data": b"\0" * 4}, "at most 4 sizes"),
        ({"dtype": "<f4", "shape": [1], "data": "text"}, "got str"),
    ],
)
def test_malformed_arrays(array: dict[str, object], message: str) -> None:
    with pytest.raises(WireError, match=message.replace("|", r"\|")):
        unpack(msgpack.packb({"a": array}))


def test_what_cannot_be_sent() -> None:
    with pytest.raises(WireError, match=r"an array of \|O cannot be sent"):
        pack({"a": np.array([None])})
    with pytest.raises(WireError, match="a value of type object has no encoding"):
        pack({"a": object()})
    with pytest.raises(WireError, match="must be a map, got list"):
        unpack(msgpack.packb([1]))
