"""A zip of a robot unpacks within its bounds, or is refused with a reason."""

import io
import random
import stat
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.robot_zips import GOOD_MJCF, stl_of, with_mode, zeros_bomb, zipped

from physai.sdk.base.errors import ModelError
from physai.sim.robots.files import archive
from physai.sim.robots.files.archive import check_name, pack, unpack

PARTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
CONTENTS = st.binary(max_size=200)
SAFE = st.from_regex(r"[a-z0-9_-]{1,8}(/[a-z0-9_-]{1,8}){0,3}\.(xml|obj|png)", fullmatch=True)


@given(files=st.dictionaries(SAFE, CONTENTS, max_size=6), data=st.data())
def test_packing_depends_on_the_files_only(files: dict[str, bytes], data: st.DataObject) -> None:
    order = data.draw(st.permutations(sorted(files)))
    uploaded = zipped({name: files[name] for name in order}, year=data.draw(st.integers(1980, 2100)))
    assert unpack(uploaded) == files
    assert pack(unpack(uploaded)) == pack(files)
    assert unpack(pack(files)) == files


@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "", "a", "b.xml", "\\", "c:", "\0", "\n", "\u202e"]) | PARTS, max_size=20
    )
)
def test_a_name_that_passes_is_a_plain_relative_path(parts: list[str]) -> None:
    name = "/".join(parts)
    try:
        check_name(name)
    except ModelError:
        return
    assert name.isprintable() or all(ord(character) >= 0x80 for character in name if not character.isprintable())
    assert not name.startswith("/")
    assert "\\" not in name
    assert ":" not in name
    assert len(name) <= 255
    assert all(part not in ("", ".", "..") for part in name.split("/"))


@pytest.mark.parametrize(
    "name",
    [
        "../a.xml",
        "a/../../b.xml",
        "/etc/a.xml",
        "C:/a.xml",
        "a\\..\\b.xml",
        "a//b.xml",
        "./a.xml",
        "a\n.xml",
        "a\0.xml",
    ],
)
def test_names_that_leave_the_zip_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match=r"is no path inside the zip|control or reserved characters"):
        unpack(zipped({"arm.xml": b"<mujoco/>", name: b"<mujoco/>"}))


def test_folders_and_names_are_bounded() -> None:
    deepest = "a/" * archive.MAX_FOLDERS + "b.xml"
    assert unpack(zipped({deepest: b"x"})) == {deepest: b"x"}
    with pytest.raises(ModelError, match="lies in 17 folders, at most 16"):
        unpack(zipped({"a/" + deepest: b"x"}))
    with pytest.raises(ModelError, match="more than 255 characters"):
        unpack(zipped({"a" * 252 + ".xml": b"x"}))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_and_devices_are_refused(kind: int) -> None:
    with pytest.raises(ModelError, match="is a link or device"):
        unpack(with_mode("a.xml", b"/etc/passwd", kind | 0o777))
    assert unpack(with_mode("a.xml", b"x", stat.S_IFREG | 0o644)) == {"a.xml": b"x"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["a.xml", "A.xml"])
def test_duplicates_are_refused(second: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a.xml", b"1")
        file.writestr(second, b"2")
    with pytest.raises(ModelError, match="is in the zip twice"):
        unpack(buffer.getvalue())


def test_only_models_meshes_and_pictures_are_unpacked() -> None:
    others = (
        "LICENSE",
        "README.md",
        "visual.dae",
        "__MACOSX/._arm.xml",
        "arm.srdf",
        "run.so",
        "model.mjb",
        "inner.zip",
    )
    assert unpack(zipped(GOOD_MJCF | dict.fromkeys(others, b"x"))) == GOOD_MJCF


def test_too_many_entries_are_refused() -> None:
    files = {f"{index}.xml": b"" for index in range(archive.MAX_FILES)}
    assert len(unpack(zipped(files))) == archive.MAX_FILES
    with pytest.raises(ModelError, match="more than 2000 entries"):
        unpack(zipped(files | {"one-more.xml": b""}))


def test_bombs_are_refused_while_they_unpack() -> None:
    with pytest.raises(ModelError, match="unpacks to more than 67108864 bytes"):
        unpack(zeros_bomb("a.stl", 10 * 1024))
    with pytest.raises(ModelError, match="unpacks to more than 200 times its packed size"):
        unpack(zeros_bomb("a.stl", 60))
    # The header lies: what comes out is cut at the declared size, and its checksum is wrong.
    with pytest.raises(ModelError, match="the zip cannot be read: Bad CRC-32"):
        unpack(zeros_bomb("a.stl", 10 * 1024, declared=1000))
    noise = random.Random(0).randbytes(2**20)
    with pytest.raises(ModelError, match="unpacks to more than 67108864 bytes"):
        unpack(zipped({"a.stl": noise * 65}, method=zipfile.ZIP_STORED))
    with pytest.raises(ModelError, match="unpacks to more than 134217728 bytes"):
        unpack(zipped({f"{name}.stl": noise * 50 for name in "abc"}, method=zipfile.ZIP_STORED))


def test_encrypted_and_exotic_zips_are_refused() -> None:
    data = bytearray(zipped({"a.xml": b"<mujoco/>"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(ModelError, match="is encrypted"):
        unpack(bytes(data))
    with pytest.raises(ModelError, match=r"has compression method 14; use deflate"):
        unpack(zipped({"a.xml": b"<mujoco/>"}, method=zipfile.ZIP_LZMA))


@settings(max_examples=300)
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=12), cut=st.integers(0, 200))
def test_a_damaged_zip_is_read_or_refused(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(zipped(GOOD_MJCF | {"big.stl": stl_of(10**9)}))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        files = unpack(bytes(data[: len(data) - cut]))
    except ModelError:
        return
    assert sum(map(len, files.values())) <= archive.MAX_TOTAL_BYTES
    for name in files:
        check_name(name)
