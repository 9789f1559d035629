"""A disk that is full, fails or cannot be written: at every operation, the policy that was active stays whole."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import SampleSigners, sample_policy
from tests.harness.fixtures.site import Site
from tests.harness.power_cuts.failing_files import FaultyFileSystem

from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.slots.slot_errors import SlotError

MAX_OPERATIONS = 100


def failing_at_every_write(site: Site, act: Callable[[UpdateAgent], object], *, lasting: bool) -> Iterator[int]:
    """Does something again and again, with its first, second, … writing operation failing, until none does.

    Yields the number of the operation after each failure; the caller asks, and puts things back.
    """
    for at in range(MAX_OPERATIONS):
        fs = FaultyFileSystem(site.agent.root, at=at, lasting=lasting)
        with suppress(SlotError):
            act(site.on(fs))
        if not fs.failed:
            return
        yield at
    pytest.fail(f"more than {MAX_OPERATIONS} operations")


FOR_HOW_LONG = pytest.mark.parametrize("lasting", [False, True], ids=["once", "for good"])


@FOR_HOW_LONG
def test_a_full_disk_at_every_write_of_an_installation(site: Site, lasting: bool) -> None:
    site.run(1)
    failures = 0
    for _ in failing_at_every_write(site, lambda agent: agent.install(site.bundles[2]), lasting=lasting):
        failures += 1
        assert open_active(site.agent.root).marker.version == 1
        site.agent.gc(idle=True)
    assert failures >= 6
    site.agent.activate()
    assert site.active_version == 2


@FOR_HOW_LONG
def test_a_full_disk_at_every_write_of_an_activation(site: Site, lasting: bool) -> None:
    site.run(1)
    site.agent.install(site.bundles[2])
    failures = 0
    for _ in failing_at_every_write(site, lambda agent: agent.activate(retry=True), lasting=lasting):
        failures += 1
        assert site.active_version in (1, 2)
        site.agent.recover()
        state = site.agent.store.state()
        assert (state.floor, state.committed) == (1, "a")
        assert site.active_version == (1 if state.trial is None else 2)
        if state.trial is not None:
            site.agent.rollback("the disk was full")
    assert failures >= 8
    assert site.active_version == 2


@FOR_HOW_LONG
def test_a_full_disk_at_every_write_of_a_commit(site: Site, lasting: bool) -> None:
    site.run(1)
    site.run(2, commit=False)
    failures = 0
    for _ in failing_at_every_write(site, lambda agent: agent.commit("healthy"), lasting=lasting):
        failures += 1
        state = site.agent.store.state()
        assert site.active_version == 2
        assert state.floor == (1 if state.trial is not None else 2)
        if state.trial is None:
            # The rename took place, and only its sync failed: committed, though nobody was told.
            break
    assert failures >= 4


@FOR_HOW_LONG
def test_a_full_disk_at_every_write_of_a_rollback(site: Site, lasting: bool) -> None:
    site.run(1)
    site.run(2, commit=False)
    failures = 0
    for _ in failing_at_every_write(site, lambda agent: agent.rollback("it limps"), lasting=lasting):
        failures += 1
        site.agent.recover()
        if site.agent.store.state().trial is not None:
            assert site.active_version == 2
            site.agent.rollback("it limps")
        assert site.active_version == 1
        assert site.agent.store.state().floor == 1
        site.agent.install(site.bundles[2])
        site.agent.activate(retry=True)
    assert failures >= 5
    assert site.active_version == 1


def test_a_full_disk_keeps_no_robot_from_going_back(site: Site) -> None:
    site.run(1)
    site.run(2, commit=False)
    room = {"left": 0}

    class FullDisk(FaultyFileSystem):
        """Full until the failed version is removed."""

        def create(self, path: str, data: bytes) -> None:
            if (site.agent.root / "slots/b/bundle.physai").exists():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            room["left"] += 1
            super().create(path, data)

        def link(self, path: str, target: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    site.on(FullDisk(site.agent.root, at=-1)).rollback("it limps")
    assert room["left"] == 2
    assert site.active_version == 1
    event = site.agent.store.state().last_rollback
    assert event is not None
    assert event.reason == "it limps"


def test_a_message_says_the_way_out(site: Site) -> None:
    with pytest.raises(SlotError, match=r"No space left on device; make room: `physai robot gc`"):
        site.on(FaultyFileSystem(site.agent.root, at=0)).install(site.bundles[1])
    with pytest.raises(SlotError, match=r"mounted read-only"):
        site.on(FaultyFileSystem(site.agent.root, at=0, code=errno.EROFS)).install(site.bundles[1])


def mounted(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A RAM disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounted(folder, "size=256k"):
        pytest.skip("this user may not mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full(
    small_disk: Path, site: Site, workshop: SampleSigners, bundles: dict[int, bytes]
) -> None:
    there = Site.make(small_disk / "robot", workshop, bundles, now=site.agent.clock())
    there.run(1)
    large = workshop.validated(workshop.published(sample_policy(seed=7, width=300), version=7))
    with pytest.raises(SlotError, match="version 7 not installed: No space left"):
        there.agent.install(large)
    assert there.active_version == 1
    there.run(2, commit=False)
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(1 << 20))
    there.agent.rollback("it limps")
    assert there.active_version == 1
    event = there.agent.store.state().last_rollback
    assert event is not None
    assert event.reason == "it limps"


def test_a_read_only_disk(small_disk: Path, workshop: SampleSigners, bundles: dict[int, bytes], now: datetime) -> None:
    there = Site.make(small_disk / "robot", workshop, bundles, now=now)
    there.run(1)
    there.agent.install(bundles[2])
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for act in (there.agent.activate, there.agent.gc, lambda: there.agent.install(bundles[3])):
        with pytest.raises(SlotError, match="mounted read-only"):
            act()
    assert open_active(there.agent.root).marker.version == 1
