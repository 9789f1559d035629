"""The replay of power cuts: the model of the disk, the story as it is, and bugs it must find."""

import json
import random
import subprocess
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.power_cuts.crash import CrashBench, commands
from tests.harness.power_cuts.disk import (
    LOST_LINK,
    Content,
    Disk,
    DiskNode,
    Names,
    Synced,
    image_key,
    materialise,
)
from tests.harness.power_cuts.recorder import Ignores, RecordingFileSystem
from tests.harness.programs import program

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.slots.filesystem import replace_files, replace_links

CHANCE = random.Random(0)


def images(disk: Disk) -> list[dict[str, tuple[str, bytes]]]:
    return list({image_key(image): image for image in disk.images(CHANCE)}.values())


def fresh(**files: bytes) -> Disk:
    """A synced disk with files 1, 2, … in its root."""
    nodes = {0: DiskNode("d")}
    for number, (name, data) in enumerate(files.items(), 1):
        nodes[number] = DiskNode("f", data)
        nodes[0].names[name] = number
    return Disk(nodes)


def test_a_synced_disk_has_one_image() -> None:
    assert images(fresh(a=b"1")) == [{"a": ("f", b"1")}]


def test_a_new_file_may_be_missing_empty_cut_or_zero() -> None:
    disk = fresh()
    disk.add(1, DiskNode("f"))
    disk.apply(Names(0, (("a", 1),)))
    disk.apply(Content(1, b"abcd"))
    found = [image.get("a", ("-", b"gone"))[1] for image in images(disk)]
    zeros = bytes(4)
    assert set(found) == {b"gone", b"", b"a", b"ab", b"abc", b"abcd", zeros, b"ab\0\0", b"\0\0cd"}
    disk.apply(Synced(1))
    assert {image.get("a", ("-", b"gone"))[1] for image in images(disk)} == {b"gone", b"abcd"}
    disk.apply(Synced(0))
    assert images(disk) == [{"a": ("f", b"abcd")}]


def test_renames_are_atomic_but_come_in_any_order() -> None:
    disk = fresh(a=b"old a", b=b"old b", x=b"new a", y=b"new b")
    disk.apply(Names(0, (("x", None), ("a", 3))))
    disk.apply(Names(0, (("y", None), ("b", 4))))
    found = {(image["a"][1], image["b"][1], "x" in image, "y" in image) for image in images(disk)}
    assert found == {
        (b"old a", b"old b", True, True),
        (b"new a", b"old b", False, True),
        (b"old a", b"new b", True, False),
        (b"new a", b"new b", False, False),
    }


def test_a_new_link_may_point_nowhere() -> None:
    disk = fresh()
    disk.add(1, DiskNode("l", target="slots/a", loose=True))
    disk.apply(Names(0, (("current", 1),)))
    found = [image.get("current") for image in images(disk)]
    assert sorted(found, key=str) == [("l", LOST_LINK.encode()), ("l", b"slots/a"), None]
    disk.apply(Synced(0))
    assert images(disk) == [{"current": ("l", b"slots/a")}]


def test_the_recorder_and_the_disk_agree_with_the_real_one(tmp_path: Path) -> None:
    root = tmp_path / "real"
    (root / "folder").mkdir(parents=True)
    (root / "folder/old").write_bytes(b"1")
    (root / "link").symlink_to("folder")
    fs = RecordingFileSystem(root)
    replace_files(fs, {"folder/old": b"2", "folder/new": b"3"})
    replace_links(fs, {"link": "elsewhere"})
    fs.make_folder("more")
    fs.create("more/file", b"4")
    fs.remove("folder/new")
    fs.remove("more/file")
    fs.remove_folder("more")
    for folder in ("", "folder"):
        fs.sync_folder(folder)
    disk = fs.recording.disk()
    for index in range(len(fs.recording.made)):
        fs.recording.follow(disk, index)
    (image,) = images(disk)
    materialise(image, tmp_path / "copy")
    listing = [str(path.relative_to(tmp_path / "copy")) for path in sorted((tmp_path / "copy").rglob("*"))]
    assert listing == ["folder", "folder/old", "link"]
    assert (tmp_path / "copy/folder/old").read_bytes() == b"2"
    assert str((tmp_path / "copy/link").readlink()) == "elsewhere"


@pytest.fixture(scope="module")
def short_story(workshop: SampleSigners) -> list[tuple[str, Callable[[UpdateAgent], Any]]]:
    """The first policy stays, the second fails."""
    bundles = [workshop.bundle(version) for version in (1, 2)]
    return [
        ("install 1", lambda agent: agent.install(bundles[0])),
        ("activate 1", lambda agent: agent.activate()),
        ("commit 1", lambda agent: agent.commit("healthy")),
        ("install 2", lambda agent: agent.install(bundles[1])),
        ("activate 2", lambda agent: agent.activate()),
        ("roll back 2", lambda agent: agent.rollback("it limps")),
    ]


def test_no_power_cut_harms(folder: Path, workshop: SampleSigners, short_story: Any) -> None:
    bench = CrashBench(folder, workshop=workshop)
    result = bench.replay(bench.record(short_story), nested=False)
    assert result.bad == []
    assert result.sampled == 0
    assert result.operations > 50
    assert result.states > 150


def leaves_out(kind: str, names: str) -> Ignores:
    """Leaves out the syncs of what matches a pattern."""
    return lambda found, path: fnmatch(found, kind) and fnmatch(path, names)


@pytest.mark.parametrize(
    "ignores",
    [
        leaves_out("sync", "slots/*/bundle.physai"),
        leaves_out("sync", "slots/*/.installed.new"),
        leaves_out("sync", ".state*"),
        leaves_out("sync_folder", ""),
        leaves_out("sync_folder", "slots/*"),
    ],
    ids=["bundle", "marker", "state", "root folder", "slot folders"],
)
def test_a_sync_that_is_left_out_is_found(
    folder: Path, workshop: SampleSigners, short_story: Any, ignores: Ignores
) -> None:
    bench = CrashBench(folder, workshop=workshop)
    result = bench.replay(bench.record(short_story, ignores=ignores), nested=False, max_bad=1)
    assert result.bad


def test_the_whole_story_does_all_there_is_to_do(workshop: SampleSigners) -> None:
    words = {name.split()[0] for name, _ in commands(workshop)}
    assert words == {"install", "activate", "commit", "roll", "gc"}


def test_kills() -> None:
    kills = program("tests.harness.power_cuts.kills", "--kills", "6", "--seed", "1")
    result = subprocess.run(kills, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(result.stdout)
    assert (found["kills"], found["bad"]) == (6, [])
    assert sum(found["during"].values()) == 6
