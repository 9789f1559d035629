"""ONNX metadata, against bytes encoded by hand and against the onnx package where it is installed."""

from pathlib import Path

import pytest

from physai.sdk.base.errors import ContractError
from physai.sdk.base.formats.canonical import canonical_json
from physai.sdk.base.formats.onnx_metadata import MAX_FIELDS, read_onnx_metadata
from physai.sdk.contract.io import load_contract
from physai.sdk.contract.policy_contract import PolicyContract

IR_VERSION = b"\x08\x0a"
"""Field 1, varint: 10."""
GRAPH = b"\x3a\x03abc"
"""Field 7, three bytes that are never looked at."""


def length(size: int) -> bytes:
    """The size as a protobuf varint."""
    return bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80]) + length(size >> 7)


def entry(key: bytes, value: bytes) -> bytes:
    """Field 14 with a key and a value."""
    inner = b"\x0a" + length(len(key)) + key + b"\x12" + length(len(value)) + value
    return b"\x72" + length(len(inner)) + inner


def write(folder: Path, data: bytes) -> Path:
    path = folder / "policy.onnx"
    path.write_bytes(data)
    return path


def test_entries_are_found_around_the_graph(tmp_path: Path) -> None:
    data = entry(b"a", b"1") + IR_VERSION + GRAPH + entry(b"b", "µ".encode() * 100) + entry(b"empty", b"")
    assert read_onnx_metadata(write(tmp_path, data)) == {"a": "1", "b": "µ" * 100, "empty": ""}


def test_fixed_width_fields_are_skipped(tmp_path: Path) -> None:
    data = IR_VERSION + b"\xa1\x01" + b"\xff" * 8 + b"\xa5\x01" + b"\xff" * 4 + entry(b"a", b"1")
    assert read_onnx_metadata(write(tmp_path, data)) == {"a": "1"}


def test_a_large_graph_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    size = 1 << 28
    with path.open("wb") as file:
        file.write(IR_VERSION + b"\x3a" + length(size))
        file.seek(size, 1)
        file.write(entry(b"a", b"1"))
    assert read_onnx_metadata(path) == {"a": "1"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no ir_version"),
        (b"{}", "not an ONNX model"),
        (GRAPH, "no ir_version"),
        (IR_VERSION + b"\x3a\x04abc", "a field of 4 bytes at byte 4 reaches past the end at 7"),
        (IR_VERSION + b"\x3a", "no number ends at byte 3"),
        (IR_VERSION + b"\x3a" + b"\xff" * 12, "no number ends"),
        (IR_VERSION + b"\x0b", "unknown wire type 3 at byte 3"),
        (IR_VERSION + b"\xa1\x01\x00", "a field of 8 bytes at byte 4 reaches past the end at 5"),
        (IR_VERSION + entry(b"a", b"1") * 2, "metadata key 'a' occurs twice"),
        (IR_VERSION + entry(b"a", b"\xff"), "not an ONNX model"),
        (IR_VERSION + b"\x72\x02\x0a\x05", "reaches past the end at 2"),
        (IR_VERSION + entry(b"a", b"x" * (3 << 20)), "is more than is allowed"),
        (IR_VERSION + b"".join(entry(b"%d" % i, b"") for i in range(257)), "is more than is allowed"),
        (IR_VERSION * (MAX_FIELDS + 1), "more than 10000 fields"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(ContractError, match="not an ONNX model") as caught:
        read_onnx_metadata(write(tmp_path, data))
    assert message in str(caught.value)


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs /proc, whose files have content and size 0")
def test_a_file_of_the_system_is_refused() -> None:
    with pytest.raises(ContractError, match="/proc/version: not an ONNX model"):
        read_onnx_metadata(Path("/proc/version"))


def test_a_contract_in_an_onnx_file(tmp_path: Path, full_contract: PolicyContract) -> None:
    path = write(tmp_path, IR_VERSION + GRAPH + entry(b"physai.contract", canonical_json(full_contract)))
    assert load_contract(path) == full_contract


def test_an_onnx_file_without_one(tmp_path: Path) -> None:
    path = write(tmp_path, IR_VERSION + entry(b"author", b"me"))
    with pytest.raises(ContractError, match=r"no contract in the ONNX metadata .*; keys: 'author'"):
        load_contract(path)
    with pytest.raises(ContractError, match=r"none\.onnx: cannot be read: No such file"):
        load_contract(tmp_path / "none.onnx")


def test_the_onnx_package_writes_the_same(tmp_path: Path, full_contract: PolicyContract) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "graph", [value], [value])
    model = onnx.helper.make_model(graph, producer_name="test")
    onnx.helper.set_model_props(model, {"physai.contract": canonical_json(full_contract).decode(), "note": "µ"})
    path = tmp_path / "policy.onnx"
    onnx.save(model, str(path))
    assert read_onnx_metadata(path)["note"] == "µ"
    assert load_contract(path) == full_contract
