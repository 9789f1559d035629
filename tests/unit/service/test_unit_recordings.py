"""An uploaded recording is whole or not there, whatever order its parts come in and wherever the upload breaks off."""

import hashlib
import os
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from physai.service.database.engine import open_database
from physai.service.problems import ProblemError
from physai.service.registry.blobs import BlobStore
from physai.service.registry.units import unit_log, unit_recordings
from physai.service.registry.units.unit_log import UnitLog, require_known_or_place
from physai.service.registry.units.unit_recordings import UnitRecordings

UNIT, OTHER = "ur10e/cell-3", "ur10e/cell-4"
DATA = bytes(range(256)) * 4
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return open_database(f"sqlite:///{tmp_path}/service.db")


@pytest.fixture
def recordings(engine: Engine, tmp_path: Path) -> UnitRecordings:
    return UnitRecordings(engine, BlobStore(tmp_path / "blobs"))


def add(
    recordings: UnitRecordings, data: bytes, offset: int, *, robot: str = UNIT, name: str = "a.mcap", size: int = 1024
) -> tuple[int, bool]:
    answer = recordings.append(robot, SHA256, data, name=name, size=size, offset=offset, by="cell-3")
    return answer["received"], answer["complete"]


def stored(tmp_path: Path) -> list[Path]:
    return [file for file in (tmp_path / "blobs").rglob("*") if file.is_file()]


def test_parts_in_order_are_a_recording(recordings: UnitRecordings, tmp_path: Path) -> None:
    assert recordings.progress(UNIT, SHA256) == {"received": 0, "complete": False}
    assert add(recordings, DATA[:600], 0) == (600, False)
    assert recordings.all(UNIT, limit=9) == []
    assert add(recordings, DATA[600:], 600) == (1024, True)
    (listed,) = recordings.all(UNIT, limit=9)
    assert (listed["name"], listed["sha256"], listed["size"], listed["received_by"]) == (
        *("a.mcap", SHA256),
        *(1024, "cell-3"),
    )
    assert [file.read_bytes() for file in stored(tmp_path)] == [DATA]
    assert recordings.all(OTHER, limit=9) == []


def test_a_part_elsewhere_than_at_the_end_changes_nothing(recordings: UnitRecordings) -> None:
    add(recordings, DATA[:600], 0)
    for offset in (0, 100, 700):
        with pytest.raises(ProblemError, match=f"begins at byte {offset}, and 600 bytes are here: go on from there"):
            add(recordings, DATA[:100], offset)
    with pytest.raises(ProblemError, match="the part ends at byte 1200 of a recording of 1024 bytes"):
        add(recordings, DATA[:600], 600)
    assert recordings.progress(UNIT, SHA256) == {"received": 600, "complete": False}


def test_another_content_than_promised_is_thrown_away(recordings: UnitRecordings, tmp_path: Path) -> None:
    add(recordings, DATA[:600], 0)
    with pytest.raises(ProblemError, match=rf"arrived with SHA-256 [0-9a-f]{{64}}, {SHA256} was promised"):
        add(recordings, bytes(424), 600)
    assert recordings.progress(UNIT, SHA256) == {"received": 0, "complete": False}
    assert stored(tmp_path) == []
    assert recordings.all(UNIT, limit=9) == []


def test_the_same_recording_again_is_one_entry(recordings: UnitRecordings) -> None:
    for _ in range(2):
        assert add(recordings, DATA, 0) == (1024, True)
    assert add(recordings, b"", 5, name="b.mcap") == (1024, True)
    assert [one["name"] for one in recordings.all(UNIT, limit=9)] == ["a.mcap"]


def test_the_same_content_of_another_robot_is_stored_once_and_listed_twice(
    recordings: UnitRecordings, tmp_path: Path
) -> None:
    add(recordings, DATA, 0)
    assert add(recordings, DATA[:10], 0, robot=OTHER) == (1024, True)
    assert len(stored(tmp_path)) == len(recordings.all(OTHER, limit=9)) == 1


def test_a_service_that_died_after_the_last_part_ends_the_upload_without_it(
    engine: Engine, recordings: UnitRecordings, tmp_path: Path
) -> None:
    add(recordings, DATA[:600], 0)
    (partial,) = stored(tmp_path)
    # As if it was killed after the last write, and before the file was hashed.
    partial.write_bytes(DATA)
    again = UnitRecordings(engine, BlobStore(tmp_path / "blobs"))
    assert again.progress(UNIT, SHA256) == {"received": 1024, "complete": False}
    assert add(again, b"", 1024) == (1024, True)


def test_a_service_that_died_before_it_listed_a_recording_lists_it_at_the_next_attempt(
    recordings: UnitRecordings, tmp_path: Path
) -> None:
    BlobStore(tmp_path / "blobs").put(DATA)
    assert recordings.progress(UNIT, SHA256) == {"received": 0, "complete": False}
    assert add(recordings, DATA[:100], 0) == (1024, True)
    assert len(stored(tmp_path)) == 1


def test_more_than_a_recording_has_is_thrown_away(recordings: UnitRecordings) -> None:
    """Another holder of a token promised a larger file under the same hash."""
    assert add(recordings, bytes(1025), 0, size=1 << 30) == (1025, False)
    assert add(recordings, DATA, 0) == (1024, True)
    other = hashlib.sha256(b"x").hexdigest()
    assert recordings.append(UNIT, other, b"yyy", name="b.mcap", size=9, offset=0, by="")["received"] == 3
    with pytest.raises(ProblemError, match="begins at byte 1, and 0 bytes are here: go on from there"):
        recordings.append(UNIT, other, b"", name="b.mcap", size=1, offset=1, by="")


@pytest.mark.parametrize("name", ["../a.mcap", "/etc/passwd", "a/b.mcap", "", ".mcap", "a\n.mcap", "ä.mcap", "a" * 129])
def test_a_name_is_no_path(recordings: UnitRecordings, name: str) -> None:
    with pytest.raises(ProblemError, match="is no name of a recording"):
        add(recordings, DATA, 0, name=name)


def test_unfinished_uploads_are_bounded_and_old_ones_make_room(
    recordings: UnitRecordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_recordings, "MAX_PARTIAL", 1)
    add(recordings, DATA[:600], 0)
    with pytest.raises(ProblemError, match="1 uploads are not finished"):
        add(recordings, DATA[:600], 0, robot=OTHER)
    monkeypatch.setattr(unit_recordings, "FORGOTTEN_S", -1.0)
    assert add(recordings, DATA[:600], 0, robot=OTHER) == (600, False)
    assert recordings.progress(UNIT, SHA256)["received"] == 0
    assert len(stored(tmp_path)) == 1


def begin(recordings: UnitRecordings, robot: str, number: int) -> str:
    """Begin an upload of which one byte arrives."""
    digest = hashlib.sha256(b"%d" % number).hexdigest()
    recordings.append(robot, digest, b"x", name="a.mcap", size=100, offset=0, by="")
    return digest


def test_a_robot_that_finishes_nothing_costs_no_other_robot_its_upload(
    recordings: UnitRecordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_recordings, "MAX_OWN_PARTIAL", 3)
    monkeypatch.setattr(unit_recordings, "MAX_PARTIAL", 5)
    other = begin(recordings, OTHER, 0)
    started: list[str] = []
    for number in range(9):
        for age, file in enumerate(sorted(stored(tmp_path), key=lambda file: file.stat().st_mtime_ns, reverse=True)):
            os.utime(file, (0, 1e9 - age))
        started.append(begin(recordings, UNIT, number))
    assert [recordings.progress(UNIT, one)["received"] for one in started] == [0] * 6 + [1] * 3
    assert recordings.progress(OTHER, other)["received"] == 1
    begin(recordings, OTHER, 1)
    assert len(stored(tmp_path)) == 5


def test_robots_that_have_recordings_only_are_counted(
    engine: Engine, recordings: UnitRecordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_log, "MAX_UNITS", 2)
    add(recordings, DATA, 0)
    add(recordings, DATA, 0, robot=OTHER)
    # Also of one whose content is here already.
    for data in (DATA, DATA[:600]):
        with pytest.raises(ProblemError, match="2 robots are known already, as many as one service keeps"):
            add(recordings, data, 0, robot="ur10e/cell-5")
    begin(recordings, OTHER, 0)
    assert UnitLog(engine).names(after="", limit=9) == [UNIT, OTHER]
    with Session(engine) as session, pytest.raises(ProblemError, match="2 robots are known already"):
        require_known_or_place(session, "ur10e/cell-5")


def test_the_number_of_recordings_of_a_robot_is_bounded(
    recordings: UnitRecordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(recordings, DATA, 0)
    monkeypatch.setattr(unit_recordings, "MAX_RECORDINGS", 1)
    other = hashlib.sha256(b"x").hexdigest()
    with pytest.raises(ProblemError, match=f"1 recordings of {UNIT} are kept, which is the most"):
        recordings.append(UNIT, other, b"x", name="b.mcap", size=1, offset=0, by="")
