"""Golden files: what was recorded is what is read, and nothing else is."""

import io
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.policy.golden import GoldenError, read_golden
from physai.sdk.policy.header import PolicyHeader

Workshop = Any
MakeGolden = Callable[..., bytes]


@pytest.fixture(scope="module")
def header(workshop: Workshop) -> PolicyHeader:
    """Reads joint_pos, writes joint_effort_target, one value each."""
    return workshop.header()


def test_what_was_recorded_is_read(header: PolicyHeader, make_golden: MakeGolden) -> None:
    recorded = np.array([[0.5], [-1.25], [3.0]], np.float32)
    zeros = np.zeros((3, 1), np.float32)
    golden = read_golden(make_golden(header, rows=3, joint_pos=recorded), header)
    assert golden.rows == 3
    assert golden.inputs.keys() == {"joint_pos"}
    assert np.array_equal(golden.inputs["joint_pos"], recorded)
    assert np.array_equal(golden.outputs["joint_effort_target"], zeros)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 1)), "float64"),
        (np.zeros((2, 2), np.float32), "shape"),
        (np.zeros(2, np.float32), "shape"),
        (np.zeros((3, 1), np.float32), "same number of rows"),
        (np.asfortranarray(np.zeros((2, 2), np.float32)), "column order|shape"),
        (np.array([[np.nan], [0.0]], np.float32), "not finite"),
        (np.array([[np.inf], [0.0]], np.float32), "not finite"),
        (np.zeros((2, 1), ">f4"), "float32"),
        (np.zeros((0, 1), np.float32), "same number of rows"),
    ],
)
def test_other_arrays_are_refused(header: PolicyHeader, make_golden: MakeGolden, array: Any, message: str) -> None:
    with pytest.raises(GoldenError, match=message):
        read_golden(make_golden(header, joint_pos=array), header)


def test_no_rows_are_refused(header: PolicyHeader, make_golden: MakeGolden) -> None:
    with pytest.raises(GoldenError, match="at least one"):
        read_golden(make_golden(header, rows=0), header)


def test_missing_and_further_arrays(header: PolicyHeader, make_golden: MakeGolden) -> None:
    with pytest.raises(GoldenError, match="more unexpected"):
        read_golden(make_golden(header, more=np.zeros((2, 1), np.float32)), header)
    wider = PolicyHeader(header.contract, {"hidden": 2})
    with pytest.raises(GoldenError, match=r"next\.hidden, state\.hidden missing"):
        read_golden(make_golden(header), wider)


@pytest.mark.parametrize("fingerprint", ["0" * 64, "0" * 63, "", 7])
def test_another_contract(header: PolicyHeader, make_golden: MakeGolden, fingerprint: Any) -> None:
    with pytest.raises(GoldenError):
        read_golden(make_golden(header, fingerprint=np.array(fingerprint)), header)


def rezipped(data: bytes, **options: Any) -> bytes:
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(new, "w", **options) as archive:
        for name in old.namelist():
            archive.writestr(name, old.read(name))
    return new.getvalue()


def test_compressed_files_are_refused(header: PolicyHeader, make_golden: MakeGolden) -> None:
    """So that a small file cannot become a large one."""
    data = make_golden(header)
    assert read_golden(rezipped(data), header).rows == 2
    with pytest.raises(GoldenError, match="compressed"):
        read_golden(rezipped(data, compression=zipfile.ZIP_DEFLATED), header)


def npy(header: bytes, data: bytes = bytes(8)) -> bytes:
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "member",
    [
        b"",
        b"junk",
        npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (2, 1), }"),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 1), }"),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 1), }"),
        npy(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 1), }"),
        npy(b"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2, 1), }"),
        npy(b"__import__('os').system('false')"),
        npy(b"(" * 4000),
        npy(b"{" * 9000),
        npy(b"\xff\xfe"),
    ],
)
def test_malformed_arrays(header: PolicyHeader, make_golden: MakeGolden, member: bytes) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(make_golden(header))) as old, zipfile.ZipFile(data, "w") as archive:
        for name in old.namelist():
            archive.writestr(name, member if name == "joint_pos.npy" else old.read(name))
    with pytest.raises(GoldenError):
        read_golden(data.getvalue(), header)


def test_nothing_is_unpickled(header: PolicyHeader, make_golden: MakeGolden) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
            return (pytest.fail, ("it was unpickled",))

    array = np.empty((2, 1), object)
    array[0, 0] = Trap()
    with pytest.raises(GoldenError):
        read_golden(make_golden(header, joint_pos=array), header)


@given(at=st.integers(0, 2000), new=st.binary(min_size=1, max_size=20))
def test_damage_is_a_golden_error_or_harmless(
    header: PolicyHeader, make_golden: MakeGolden, at: int, new: bytes
) -> None:
    data = make_golden(header)
    at %= len(data)
    try:
        golden = read_golden(data[:at] + new + data[at + len(new) :], header)
    except GoldenError:
        return
    assert golden.rows == 2
