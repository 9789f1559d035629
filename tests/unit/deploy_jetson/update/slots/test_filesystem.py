"""The file operations the slot store is made of, and the order in which they make a replacement durable."""

import errno
import os
from pathlib import Path

import pytest
from tests.harness.power_cuts.disk import Content, Names, Synced
from tests.harness.power_cuts.recorder import RecordingFileSystem

from physai.deploy_jetson.update.slots.filesystem import (
    PosixFileSystem,
    empty_folder,
    exists,
    remove_tree,
    replace_files,
    replace_links,
    temporary,
)


@pytest.fixture
def fs(tmp_path: Path) -> PosixFileSystem:
    return PosixFileSystem(tmp_path)


def test_a_file(fs: PosixFileSystem, tmp_path: Path) -> None:
    fs.create("a", b"abc")
    fs.sync("a")
    assert (fs.read("a", limit=3), fs.size("a"), fs.kind("a")) == (b"abc", 3, "file")
    with pytest.raises(FileExistsError):
        fs.create("a", b"other")
    with pytest.raises(OSError, match="larger than the 2 bytes") as error:
        fs.read("a", limit=2)
    assert error.value.errno == errno.EFBIG
    fs.remove("a")
    assert not exists(fs, "a")


def test_links_are_not_followed(fs: PosixFileSystem, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    fs.link("link", "secret")
    assert (fs.kind("link"), fs.target("link")) == ("link", "secret")
    with pytest.raises(OSError, match="symbolic links"):
        fs.read("link", limit=10)
    with pytest.raises(FileExistsError):
        fs.create("link", b"overwritten")
    assert remove_tree(fs, "link") == 0
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_trees_are_removed(fs: PosixFileSystem) -> None:
    fs.make_folder("folder")
    fs.make_folder("folder/inner")
    fs.create("folder/inner/a", b"123")
    fs.create("folder/b", b"45")
    fs.link("folder/c", "/nowhere")
    assert fs.entries("folder") == ["b", "c", "inner"]
    assert empty_folder(fs, "folder") == 5
    assert fs.entries("folder") == []
    assert remove_tree(fs, "folder") == 0
    assert remove_tree(fs, "folder") == 0


def test_kinds(fs: PosixFileSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert fs.kind("file/below") is None
    assert fs.kind("none") is None
    assert fs.kind("") == "folder"
    assert fs.kind("../../../../../../dev/null") == "other"


def test_leftovers_are_in_nobodys_way(fs: PosixFileSystem) -> None:
    fs.create(temporary("a"), b"half")
    fs.link(temporary("l"), "lost")
    replace_files(fs, {"a": b"whole"})
    replace_links(fs, {"l": "target"})
    assert (fs.read("a", limit=10), fs.target("l")) == (b"whole", "target")
    assert fs.entries("") == ["a", "l"]


def test_the_order_that_makes_a_replacement_durable(tmp_path: Path) -> None:
    fs = RecordingFileSystem(tmp_path)
    replace_files(fs, {"state": b"1"})
    done = [operation for operation, _ in fs.recording.made]
    assert done == [
        Names(0, ((".state.new", 1),)),
        Content(1, b"1"),
        Synced(1),
        Synced(0),
        Names(0, ((".state.new", None), ("state", 1))),
        Synced(0),
    ]


@pytest.mark.parametrize("link", ["slots", "slots/a"])
def test_no_operation_follows_a_link_on_the_way(fs: PosixFileSystem, tmp_path: Path, link: str) -> None:
    precious = tmp_path / "precious"
    (precious / "a").mkdir(parents=True)
    (precious / "a" / "file").write_bytes(b"kept")
    (precious / "file").write_bytes(b"kept")
    if link == "slots/a":
        fs.make_folder("slots")
    (tmp_path / link).symlink_to(precious, target_is_directory=True)
    path = f"{link}/file"
    fs.create("mine", b"")
    for operation in (
        lambda: fs.read(path, limit=10),
        lambda: fs.entries(link),
        lambda: fs.size(path),
        lambda: fs.target(path),
        lambda: fs.create(f"{link}/new", b"x"),
        lambda: fs.link(f"{link}/new", "x"),
        lambda: fs.make_folder(f"{link}/new"),
        lambda: fs.rename(path, "stolen"),
        lambda: fs.rename("mine", path),
        lambda: fs.remove(path),
        lambda: fs.remove_folder(f"{link}/a"),
        lambda: fs.sync(path),
        lambda: fs.sync_folder(link),
        lambda: empty_folder(fs, link),
        lambda: replace_files(fs, {path: b"x"}),
    ):
        with pytest.raises(NotADirectoryError, match="is a link or a file where a folder should be; remove it"):
            operation()
    assert (fs.kind(path), fs.kind(link)) == (None, "link")
    assert remove_tree(fs, link) == 0
    assert sorted(str(found.relative_to(precious)) for found in precious.rglob("*")) == ["a", "a/file", "file"]


def test_a_pipe_is_not_waited_for(fs: PosixFileSystem, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        fs.read("pipe", limit=10)
