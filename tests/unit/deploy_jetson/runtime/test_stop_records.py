"""Records of stops on disk, and the keeper that writes them: what is torn, refused, inherited and lifted."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.deploy_jetson.runtime.commands.queue import Command, CommandQueue
from physai.deploy_jetson.runtime.stop import keeper as keepers
from physai.deploy_jetson.runtime.stop.keeper import StopKeeper
from physai.deploy_jetson.runtime.stop.stop_records import (
    RECORD_BYTES,
    RECORD_FILE,
    StopRecordError,
    StopRecords,
    shared_folders,
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHYSAI_STOPS", str(tmp_path / "shared"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_a_stop_is_found_until_it_is_cleared(root: Path) -> None:
    records = StopRecords(root)
    assert records.found() is None
    records.prepare()
    assert records.found() is None
    records.record("JOINT_POSITION\x1b[2J")
    found = StopRecords(root).found()
    assert found is not None
    assert found.writable
    assert "\x1b" not in str(found)
    records.prepare()
    assert records.found() == found
    records.clear()
    assert StopRecords(root).found() is None


def test_trees_that_share_an_address_share_a_stop(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    mine, other = StopRecords(root, ["dds:0:/a", "dds:0:/b"]), StopRecords(tmp_path / "other", ["dds:0:/b"])
    elsewhere = StopRecords(tmp_path / "other", ["dds:1:/a"])
    for records in (mine, other, elsewhere):
        records.prepare()
    mine.record("x")
    assert other.found() is not None
    assert elsewhere.found() is None
    assert other.found() is not None
    other.clear()
    assert other.found() is None
    # The tree's own record is lifted by a reset of that tree only.
    assert mine.found() is not None


def test_a_reset_lifts_no_stop_that_it_does_not_know(root: Path, tmp_path: Path) -> None:
    """A stop at a second runtime was acknowledged as durable, and gone with the reset of an earlier one."""
    (tmp_path / "other").mkdir()
    mine, other, third = (StopRecords(folder, ["udp:x"]) for folder in (root, tmp_path / "other", tmp_path / "third"))
    mine.prepare()
    mine.record("x")
    other.record("x")
    mine.clear()
    assert third.found() is not None
    # Once it is read, it is reset.
    assert mine.found() is not None
    mine.clear()
    assert third.found() is None


def test_folders_of_shared_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative folder was another one for each program, and `~` a folder of that name."""
    monkeypatch.setenv("PHYSAI_STOPS", "stops")
    with pytest.raises(StopRecordError, match="PHYSAI_STOPS is 'stops', expected an absolute path"):
        shared_folders()
    monkeypatch.setenv("HOME", "/home/robot")
    monkeypatch.setenv("PHYSAI_STOPS", "~/stops")
    assert shared_folders() == (Path("/home/robot/stops"),)
    monkeypatch.delenv("PHYSAI_STOPS")
    first = Path("/var/lib/physai/stops")
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    assert shared_folders() == (first, Path("/home/robot/.local/state/physai/stops"))
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert shared_folders() == (first, Path("/state/physai/stops"))
    # An account without a home, as in a container.
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert shared_folders() == (first,)


@pytest.mark.parametrize("size", [0, 1, 100, RECORD_BYTES - 1])
def test_a_record_that_was_cut_off_is_a_stop(root: Path, size: int) -> None:
    records = StopRecords(root)
    records.prepare()
    os.truncate(root / RECORD_FILE, size)
    assert records.found() is not None
    records.prepare()
    assert records.found() is not None
    records.clear()
    assert records.found() is None


@given(st.data())
def test_a_write_that_a_power_cut_tears_never_reads_as_no_stop(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Of a stop that replaces a reset, any mixture of old and new sectors."""
    root = tmp_path_factory.mktemp("torn")
    records, path = StopRecords(root), root / RECORD_FILE
    records.prepare()
    before = path.read_bytes()
    records.record("the robot was stopped")
    after = path.read_bytes()
    first = next(i for i in range(RECORD_BYTES) if before[i] != after[i])
    cut = data.draw(st.integers(first + 1, RECORD_BYTES))
    path.write_bytes(after[:cut] + before[cut:])
    assert records.found() is not None


def test_a_link_or_a_folder_in_its_place(root: Path, tmp_path: Path) -> None:
    (root / RECORD_FILE).symlink_to(tmp_path / "elsewhere")
    records = StopRecords(root)
    with pytest.raises(StopRecordError, match="no stop can be recorded there"):
        records.prepare()
    assert records.found() is not None
    assert not (tmp_path / "elsewhere").exists()


@dataclass
class Bus:
    """Runtimes elsewhere, as a transport knows them."""

    told: list[bool] = field(default_factory=list[bool])
    elsewhere: str = ""
    orphan: str = ""
    driving: bool = False

    def share_stop(self, *, stopped: bool) -> None:
        self.told.append(stopped)

    def stop_elsewhere(self) -> str:
        return self.elsewhere

    def orphaned_stop(self) -> str:
        found, self.orphan = self.orphan, ""
        return found


def keeper(root: Path, queue: CommandQueue, bus: Bus | None = None) -> StopKeeper:
    records = StopRecords(root, ["address"])
    return StopKeeper(queue, records, shares=bus, why=lambda: "", drives=lambda: bus is not None and bus.driving)


def test_a_stop_is_settled_once_it_is_on_disk(root: Path) -> None:
    queue = CommandQueue()
    kept = keeper(root, queue)
    queue.put(Command.STOP)
    assert kept.settled(queue.stop) is None
    kept.step(1.0)
    assert kept.settled(queue.stop) == ""
    later = CommandQueue()
    again = keeper(root, later)
    assert later.stopped
    assert "requested" in again.inherited
    # Only a reset lifts it, and a newer stop keeps it.
    later.acknowledged = later.stop
    later.put(Command.STOP)
    again.step(1.0)
    assert StopRecords(root).found() is not None
    later.acknowledged = later.stop
    again.step(2.0)
    assert StopRecords(root, ["address"]).found() is None
    assert not keeper(root, CommandQueue()).inherited


def test_a_refused_record_is_tried_again(root: Path) -> None:
    queue = CommandQueue()
    kept = keeper(root, queue)
    (root / RECORD_FILE).unlink()
    (root / RECORD_FILE).mkdir()
    queue.put(Command.STOP)
    kept.step(1.0)
    assert str(kept.settled(queue.stop)).startswith("NOT DURABLE")
    (root / RECORD_FILE).rmdir()
    kept.step(1.0 + 0.5 * keepers.RETRY_S)
    assert str(kept.settled(queue.stop)).startswith("NOT DURABLE")
    kept.step(1.0 + 1.5 * keepers.RETRY_S)
    assert kept.settled(queue.stop) == ""


def test_a_record_that_cannot_be_read_says_what_to_do(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to belong to another account whose reset lifts it, which cannot be."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setenv("PHYSAI_STOPS", str(tmp_path / "loop"))
    kept = keeper(root, CommandQueue())
    assert "let this account read that folder" in kept.irresettable()
    assert "PHYSAI_STOPS" in kept.irresettable()


def test_stops_of_runtimes_elsewhere(root: Path) -> None:
    queue, bus = CommandQueue(), Bus()
    kept = keeper(root, queue, bus)
    bus.elsewhere = "jetson-2/7"
    kept.step(1.0)
    assert "jetson-2/7" in kept.elsewhere
    assert "is reset there" in kept.irresettable()
    assert not queue.stopped
    bus.elsewhere = ""
    kept.step(2.0)
    assert not kept.elsewhere
    bus.orphan = "jetson-2/7"
    bus.driving = True
    kept.step(2.5)
    assert not queue.stopped
    bus.driving = False
    kept.step(3.0)
    assert queue.stopped
    kept.step(4.0)
    assert bus.told[-1]
    assert StopRecords(root).found() is not None
