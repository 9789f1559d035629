"""From folders to what is packed."""

from pathlib import Path

import pytest

from physai.sdk.bundle.archive import BundleError
from physai.sdk.bundle.source import find_export, read_members


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """A run folder with an export in it."""
    folder = tmp_path / "run" / "export"
    folder.mkdir(parents=True)
    for name in ("policy.onnx", "policy.int8.onnx", "golden.npz", "notes.txt"):
        (folder / name).write_bytes(name.encode())
    return folder


def test_every_way_to_name_an_export(export: Path) -> None:
    for path in (export, export.parent, export / "policy.onnx", export / "policy.int8.onnx"):
        assert find_export(path) == export


@pytest.mark.parametrize("path", ["", "missing", "run/export/../.."])
def test_no_export(export: Path, path: str) -> None:
    with pytest.raises(BundleError, match="physai export"):
        find_export(export.parent.parent / path)


def test_variants_are_those_that_are_there_or_asked_for(export: Path) -> None:
    assert sorted(read_members(export)) == ["golden.npz", "policy.int8.onnx", "policy.onnx"]
    assert read_members(export)["policy.int8.onnx"] == b"policy.int8.onnx"
    assert sorted(read_members(export, [])) == ["golden.npz", "policy.onnx"]
    with pytest.raises(BundleError, match=r"policy\.fp8\.onnx: cannot be read"):
        read_members(export, ["fp8"])


def test_missing_golden_states(export: Path) -> None:
    (export / "golden.npz").unlink()
    with pytest.raises(BundleError, match=r"golden\.npz: cannot be read"):
        read_members(export)


def test_files_have_bounds(export: Path) -> None:
    with (export / "policy.onnx").open("wb") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(BundleError, match="at most 268435456"):
        read_members(export)
