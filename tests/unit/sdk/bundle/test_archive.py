"""The one form of a bundle's zip file: what it is, byte for byte, and that nothing else is taken for it."""

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sdk.bundle.archive import (
    MAX_SIGNATURE_BYTES,
    POLICY_FILES,
    BundleError,
    archive_parts,
    read_archive,
    signature_file,
    write_archive,
)

SIGNATURE = signature_file("ab" * 32)
NAMES = ("manifest.json", "contract.json", *POLICY_FILES, "golden.npz", "safety.json", "verdict.dsse", SIGNATURE)
SMALL = {"manifest.json": b"{}", "policy.onnx": b"weights", SIGNATURE: b"signed"}


def test_one_member_byte_for_byte() -> None:
    checksum = struct.pack("<I", zlib.crc32(b"{}"))
    fixed = b"\0\0" + b"\0\0" + b"\0\0" + b"\x21\0" + checksum + b"\2\0\0\0" + b"\2\0\0\0" + b"\x0d\0" + b"\0\0"
    local = b"PK\3\4" + b"\x0a\0" + fixed + b"manifest.json" + b"{}"
    permissions = b"\0\0\xa4\x81"  # 0o100644 << 16: a regular file, rw-r--r--
    central = b"PK\1\2" + b"\x14\3" + b"\x0a\0" + fixed + bytes(6) + permissions + bytes(4) + b"manifest.json"
    end = b"PK\5\6" + bytes(4) + b"\1\0\1\0" + struct.pack("<II", len(central), len(local)) + b"\0\0"
    assert write_archive({"manifest.json": b"{}"}) == local + central + end


def test_any_zip_reader_can_read_it() -> None:
    with zipfile.ZipFile(io.BytesIO(write_archive(SMALL))) as archive:
        assert archive.testzip() is None
        assert {info.filename: archive.read(info) for info in archive.infolist()} == SMALL
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=200)), st.randoms())
def test_what_is_written_is_read_whatever_the_order(members: dict[str, bytes], shuffle: random.Random) -> None:
    names = list(members)
    shuffle.shuffle(names)
    data = write_archive({name: members[name] for name in names})
    read = read_archive(data)
    assert dict(read) == members
    assert list(read) == [name for name in NAMES if name in members]
    assert write_archive(read) == data
    assert b"".join(archive_parts({name: read.view(name) for name in read})) == data


def test_members_are_views_until_they_are_asked_for() -> None:
    members = read_archive(write_archive(SMALL))
    assert members.view("policy.onnx").obj is members.data.obj
    assert members["policy.onnx"] == b"weights"
    assert members.size("policy.onnx") == 7
    assert members.sha256("policy.onnx") == sha256(b"weights").hexdigest()
    assert "golden.npz" not in members
    with pytest.raises(KeyError):
        members["golden.npz"]
    with pytest.raises(TypeError):
        members.view("policy.onnx")[0] = 1  # pyright: ignore[reportIndexIssue]


def with_library(edit: Callable[[zipfile.ZipFile], None]) -> bytes:
    """The small bundle as Python's zip library writes it, with something more."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, content in SMALL.items():
            info = zipfile.ZipInfo(name)
            info.create_version, info.extract_version = 20, 10
            info.external_attr = 0o100644 << 16
            archive.writestr(info, content)
        edit(archive)
    return data.getvalue()


def info(name: str, *, mode: int = 0o100644, method: int = zipfile.ZIP_STORED, extra: bytes = b"") -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr, made.compress_type, made.extra = mode << 16, method, extra
    return made


def _comment(archive: zipfile.ZipFile) -> None:
    archive.comment = b"hello"


TRICKS: dict[str, Callable[[zipfile.ZipFile], None]] = {
    "traversal": lambda z: z.writestr(info("../../etc/passwd"), b"root"),
    "traversal inside": lambda z: z.writestr(info("signatures/../../x"), b"root"),
    "absolute": lambda z: z.writestr(info("/etc/passwd"), b"root"),
    "backslash": lambda z: z.writestr(info("signatures\\x.json"), b"root"),
    "folder": lambda z: z.writestr(info("signatures/"), b""),
    "unknown": lambda z: z.writestr(info("run.sh"), b"#!/bin/sh"),
    "upper case": lambda z: z.writestr(info("Policy.onnx"), b"other"),
    "look-alike": lambda z: z.writestr(info("signatures/publisher-" + "AB" * 32 + ".json"), b"{}"),
    "unicode": lambda z: z.writestr(info("pölicy.onnx"), b"other"),
    "empty name": lambda z: z.writestr(info(""), b""),
    "nul in the name": lambda z: z.writestr(info("policy.onnx\0.txt"), b"other"),
    "duplicate": lambda z: z.writestr(info("policy.onnx"), b"other"),
    "duplicate of the last": lambda z: z.writestr(info(SIGNATURE), b"signed"),
    "symbolic link": lambda z: z.writestr(info("verdict.dsse", mode=0o120777), b"/etc/shadow"),
    "bomb": lambda z: z.writestr(info("golden.npz", method=zipfile.ZIP_DEFLATED), bytes(10_000_000)),
    "extra field": lambda z: z.writestr(info("verdict.dsse", extra=b"\x99\x99\4\0abcd"), b"x"),
    "comment": _comment,
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("trick", TRICKS)
def test_zip_tricks_are_refused(trick: str) -> None:
    with pytest.raises(BundleError):
        read_archive(with_library(TRICKS[trick]))


def test_the_librarys_plain_file_is_the_one_form() -> None:
    """So that the tricks above are refused for the trick."""
    assert read_archive(with_library(lambda _: None)) == SMALL


def test_appended_prepended_and_inserted_bytes_are_refused() -> None:
    data = write_archive(SMALL)
    inserted = (data[:at] + b"\0" + data[at:] for at in range(len(data) + 1))
    for forged in (data + data, *inserted):
        with pytest.raises(BundleError):
            read_archive(forged)


def test_every_truncation_is_refused() -> None:
    data = write_archive(SMALL)
    for size in range(len(data)):
        with pytest.raises(BundleError):
            read_archive(data[:size])
        with pytest.raises(BundleError):
            read_archive(data[size + 1 :])


def test_every_bit_is_checked() -> None:
    """Without any signature: checksums and headers alone notice a flipped bit."""
    data = bytearray(write_archive(SMALL))
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BundleError):
            read_archive(bytes(data))
        data[bit // 8] ^= 1 << bit % 8
    assert read_archive(bytes(data)) == SMALL


def test_a_gap_between_members_is_refused() -> None:
    """Bytes that no header tells of could carry anything past a signature over the members."""
    first, second = write_archive({"manifest.json": b"{}"}), write_archive({"policy.onnx": b"w"})
    local, central = slice(0, 45), slice(45, -22)
    gap = b"gap"
    moved = bytearray(second[32 + 10 : -22])
    struct.pack_into("<I", moved, 42, 45 + len(gap))
    directory = first[central] + bytes(moved)
    members = first[local] + gap + second[: 30 + len("policy.onnx") + 1]
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 2, 2, len(directory), len(members), 0)
    forged = members + directory + end
    with zipfile.ZipFile(io.BytesIO(forged)) as archive:
        assert archive.read("policy.onnx") == b"w", "a common reader sees nothing wrong"
    with pytest.raises(BundleError, match="not in canonical form"):
        read_archive(forged)


@pytest.mark.parametrize("inside", ["before the directory", "in the directory"])
def test_bytes_of_no_member_are_refused(inside: str) -> None:
    """The end record tells of them correctly; a common reader sees nothing wrong with the first."""
    data = write_archive(SMALL)
    size, offset = struct.unpack_from("<II", data, len(data) - 10)
    gap = b"gap"
    if inside == "before the directory":
        body, size, offset = data[:offset] + gap + data[offset:-22], size, offset + len(gap)
    else:
        body, size = data[:-22] + gap, size + len(gap)
    forged = body + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 3, 3, size, offset, 0)
    if inside == "before the directory":
        with zipfile.ZipFile(io.BytesIO(forged)) as archive:
            assert archive.read("policy.onnx") == b"weights"
    with pytest.raises(BundleError, match="belong to no member"):
        read_archive(forged)


def test_two_entries_of_one_content_are_refused() -> None:
    """Directory entries that share their bytes are how small files become large ones."""
    data = write_archive({"manifest.json": b"{}", "policy.onnx": b"w"})
    count_at = len(data) - 22 + 8
    entry = data[-22 - 46 - len("policy.onnx") : -22]
    size, offset = struct.unpack_from("<II", data, len(data) - 10)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 3, 3, size + len(entry), offset, 0)
    assert data[count_at : count_at + 2] == b"\2\0"
    with pytest.raises(BundleError, match="twice"):
        read_archive(data[:-22] + entry + end)


@pytest.mark.parametrize(
    ("name", "size"), [("manifest.json", (1 << 18) + 1), (SIGNATURE, MAX_SIGNATURE_BYTES + 1), ("safety.json", 2 << 20)]
)
def test_members_have_bounds(name: str, size: int) -> None:
    with pytest.raises(BundleError, match=f"{size} bytes, at most"):
        write_archive({name: bytes(size)})
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(info(name), bytes(size))
    with pytest.raises(BundleError, match=f"{size} bytes, at most"):
        read_archive(data.getvalue())


def test_the_size_an_entry_claims_is_bounded_by_the_file() -> None:
    data = bytearray(write_archive({"policy.onnx": b"w"}))
    directory = len(data) - 22 - 46 - len("policy.onnx")
    for at in (18, 22, directory + 20, directory + 24):
        struct.pack_into("<I", data, at, 200 << 20)
    with pytest.raises(BundleError, match="reaches past the end"):
        read_archive(bytes(data))


def test_the_number_of_members_is_bounded() -> None:
    signatures = {signature_file(f"{index:064x}"): b"{}" for index in range(40)}
    with pytest.raises(BundleError, match="40 members"):
        write_archive(signatures)


@pytest.mark.parametrize("name", ["", "x", "policy.onnx/", "signatures/validator-" + "0" * 64 + ".json", "a" * 70_000])
def test_unknown_names_are_not_written(name: str) -> None:
    with pytest.raises(BundleError, match="is not a valid member name"):
        write_archive({name: b""})


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(BundleError):
        read_archive(data)
    with pytest.raises(BundleError):
        read_archive(data + write_archive({})[-22:] if data else b"")
