"""A folder gets recordings whole, once and nowhere else, whatever lies there already."""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.site import Site

from physai.deploy_jetson import RecordingUpload, upload_recordings
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.deploy_jetson.upload import recording_upload
from physai.deploy_jetson.upload.receivers import (
    Arrived,
    FolderReceiver,
    OutgoingRecording,
    RecordingReceiver,
    ServiceReceiver,
    UnsentRecordingError,
    UploadError,
)
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.service import Service, ServiceRequestError
from physai.sdk.cli.main import main

UNIT = "ur10e/cell-3"
DATA = bytes(range(256)) * 4
RECORDING = OutgoingRecording("a.mcap", hashlib.sha256(DATA).hexdigest(), len(DATA))
FINAL = f"a-{RECORDING.sha256[:12]}.mcap"
NAMES = ("00000001-20261121T120000.000Z-v1-fault.mcap", "00000002-20261121T110000.000Z-v1-stop.mcap")


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_upload, "RETRY_S", 0.0)


@pytest.fixture
def stick(tmp_path: Path) -> Path:
    folder = tmp_path / "stick"
    folder.mkdir()
    return folder


def inside(stick: Path) -> list[str]:
    return sorted(os.listdir(stick / UNIT))


def test_parts_become_a_file_at_once(stick: Path) -> None:
    receiver = FolderReceiver(stick, UNIT)
    assert receiver.arrived(RECORDING) == Arrived(0, complete=False)
    assert receiver.append(RECORDING, 0, DATA[:600]) == Arrived(600, complete=False)
    assert inside(stick) == [f".{RECORDING.sha256}.part"]
    # Another program goes on with it.
    later = FolderReceiver(stick, UNIT)
    assert later.arrived(RECORDING) == Arrived(600, complete=False)
    assert later.append(RECORDING, 600, DATA[600:]) == Arrived(1024, complete=True)
    assert inside(stick) == [FINAL]
    assert (stick / UNIT / FINAL).read_bytes() == DATA
    # The first one finds that nothing is left to do, and leaves nothing behind.
    assert receiver.append(RECORDING, 600, DATA[600:]) == Arrived(1024, complete=True)
    assert inside(stick) == [FINAL]


def test_a_part_elsewhere_is_not_written(stick: Path) -> None:
    receiver = FolderReceiver(stick, UNIT)
    receiver.append(RECORDING, 0, DATA[:600])
    for offset in (0, 100, 700):
        assert receiver.append(RECORDING, offset, b"x" * 50) == Arrived(600, complete=False)
    assert receiver.append(RECORDING, 600, DATA[600:]).complete


def test_a_damaged_part_is_seen_at_the_end(stick: Path) -> None:
    receiver = FolderReceiver(stick, UNIT)
    receiver.append(RECORDING, 0, bytes(600))
    with pytest.raises(UploadError, match=r"a\.mcap is damaged there; it is sent again from its start"):
        receiver.append(RECORDING, 600, DATA[600:])
    assert receiver.arrived(RECORDING) == Arrived(0, complete=False)


def test_a_kill_before_the_rename_costs_no_byte(stick: Path) -> None:
    receiver = FolderReceiver(stick, UNIT)
    (stick / UNIT / f".{RECORDING.sha256}.part").write_bytes(DATA)
    assert receiver.arrived(RECORDING) == Arrived(1024, complete=False)
    assert receiver.append(RECORDING, 1024, b"") == Arrived(1024, complete=True)


@pytest.mark.parametrize(
    "robot", ["../x", "ur10e/..", "ur10e/.hidden", "ur10e//cell", "ur10e/a/b", "", "/ur10e", "a\n"]
)
def test_a_robots_name_leads_nowhere_else(stick: Path, robot: str) -> None:
    with pytest.raises(UploadError, match="uploads are filed by MODEL/UNIT"):
        FolderReceiver(stick, robot)
    assert os.listdir(stick) == []
    with pytest.raises(UploadError, match="uploads are filed by MODEL/UNIT"):
        ServiceReceiver(Service("http://127.0.0.1:1"), robot)


def test_links_on_a_stick_are_not_followed(stick: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (stick / "ur10e").symlink_to(victim)
    with pytest.raises(UploadError, match="mount it, or name a folder to write to"):
        FolderReceiver(stick, UNIT)
    (stick / "ur10e").unlink()
    receiver = FolderReceiver(stick, UNIT)
    (victim / "file").write_bytes(b"")
    (stick / UNIT / f".{RECORDING.sha256}.part").symlink_to(victim / "file")
    with pytest.raises(UploadError, match="symbolic link"):
        receiver.append(RECORDING, 0, DATA)
    assert (victim / "file").read_bytes() == b""


def test_what_is_no_file_is_named(stick: Path) -> None:
    receiver = FolderReceiver(stick, UNIT)
    os.mkfifo(stick / UNIT / f".{RECORDING.sha256}.part")
    with pytest.raises(UploadError, match="is no regular file: remove it"):
        receiver.append(RECORDING, 0, DATA)


def test_a_folder_that_is_not_there_is_not_made(stick: Path) -> None:
    with pytest.raises(UploadError, match="No such file or directory; mount it"):
        FolderReceiver(stick / "absent", UNIT)


def test_a_full_disk_is_said_and_keeps_what_arrived(stick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = FolderReceiver(stick, UNIT)
    receiver.append(RECORDING, 0, DATA[:100])
    device = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr("os.pwrite", lambda file, data, at: os.write(device, data))  # pyright: ignore
    with pytest.raises(UploadError, match=r"No space left on device; what arrived of a\.mcap is kept: make room"):
        receiver.append(RECORDING, 100, DATA[100:])
    os.close(device)
    assert receiver.arrived(RECORDING) == Arrived(100, complete=False)


@pytest.fixture
def robot(site: Site) -> Site:
    """A robot of that name with two recordings, the first of which was made later."""
    site.agent.setup(RobotIdentity(robot=UNIT))
    folder = site.agent.root / "recordings"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        (folder / name).write_bytes(DATA + bytes([number]))
    return site


Upload = Callable[..., RecordingUpload]


def test_recordings_are_sent_once_the_oldest_first_and_stay_on_the_robot(robot: Site, stick: Path) -> None:
    result = upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    assert (result.sent, result.there, result.bytes_sent) == (NAMES, 0, 2 * (len(DATA) + 1))
    again = upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    assert (again.sent, again.there, again.bytes_sent) == ((), 2, 0)
    assert sorted(os.listdir(robot.agent.root / "recordings")) == sorted(NAMES)
    found = [(stick / UNIT / name).read_bytes() for name in inside(stick)]
    assert found == [DATA + b"\0", DATA + b"\1"]


def test_a_recording_that_its_recorder_may_write_again_waits(robot: Site, stick: Path) -> None:
    folder = robot.agent.root / "recordings"
    os.utime(folder / NAMES[0], (0, time.time() - 3600.0))
    (folder / "notes.txt").write_text("mine")
    (folder / f".{NAMES[0]}.abcdef").write_bytes(DATA)
    result = upload_recordings(to=str(stick), tree=robot.agent.root)
    assert (result.sent, result.unfinished) == (NAMES[:1], 1)


def test_a_recording_that_was_written_again_is_sent_again(robot: Site, stick: Path) -> None:
    upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    (robot.agent.root / "recordings" / NAMES[0]).write_bytes(DATA + b"more")
    result = upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    assert result.sent == NAMES[:1]
    assert len(inside(stick)) == 3


def test_the_rate_is_limited(robot: Site, stick: Path) -> None:
    began = time.monotonic()
    upload_recordings(to=str(stick), settle_s=0.0, max_rate=8192.0, tree=robot.agent.root)
    assert time.monotonic() - began >= 2.0 * (len(DATA) + 1) / 8192.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rate": 10.0}, "`max_rate` must be at least 1024 B/s, got 10"),
        ({"max_rate": float("nan")}, "`max_rate` must be at least 1024 B/s, got nan"),
        ({"settle_s": float("inf")}, "`settle_s` must be at least 0 s, got inf"),
        ({"to": "http://"}, "is no address of a service"),
        ({"to": "http://127.0.0.1:1", "token_file": "/dev/zero"}, "not a regular file"),
    ],
)
def test_bad_options_are_refused(robot: Site, stick: Path, options: dict[str, object], message: str) -> None:
    given = {"to": str(stick), "tree": robot.agent.root, **options}
    with pytest.raises(PhysaiError, match=message):
        upload_recordings(**given)  # type: ignore[arg-type]


class Forgetful(RecordingReceiver):
    """A receiver that stores nothing."""

    def arrived(self, recording: OutgoingRecording) -> Arrived:
        return Arrived(0, complete=False)

    def append(self, recording: OutgoingRecording, offset: int, data: bytes) -> Arrived:
        return Arrived(0, complete=False)


def test_a_receiver_that_asks_for_the_same_again_and_again_is_left(
    robot: Site, stick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderReceiver, "append", Forgetful.append)
    result = upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    assert result.sent == ()
    said = "its receiver asks for the same bytes again and again; 0 are there"
    assert result.problems == tuple(f"{name}: {said}" for name in NAMES)


def obstruct(robot: Site, stick: Path) -> Path:
    """Put a folder where the first recording belongs."""
    data = (robot.agent.root / "recordings" / NAMES[0]).read_bytes()
    obstacle = stick / UNIT / NAMES[0].replace(".mcap", f"-{hashlib.sha256(data).hexdigest()[:12]}.mcap")
    obstacle.mkdir(parents=True)
    return obstacle


def test_one_recording_that_cannot_be_stored_does_not_block_the_next(
    robot: Site, stick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    obstacle = obstruct(robot, stick)
    result = upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    assert (result.sent, result.problems) == (NAMES[1:], (f"{obstacle}: Is a directory",))
    command = ["robot", "upload", "--to", str(stick), "--settle-s", "0", "--root", str(robot.agent.root)]
    assert main(command) == 1
    assert f"note: {obstacle}: Is a directory" in capsys.readouterr().err
    obstacle.rmdir()
    assert main(command) == 0


def test_a_recording_that_cannot_be_read_does_not_block_the_next(
    robot: Site, stick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pread

    def torn(file: int, size: int, offset: int) -> bytes:
        data = whole(file, size, offset)
        if data.endswith(b"\0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return data

    monkeypatch.setattr(os, "pread", torn)
    result = upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    path = robot.agent.root / "recordings" / NAMES[0]
    assert (result.sent, len(result.problems)) == (NAMES[1:], 1)
    assert result.problems[0].startswith(f"{path}: cannot be read: Input/output error")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.ENODEV])
def test_a_receiver_that_is_full_or_gone_ends_the_upload(
    robot: Site, stick: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    tried: list[int] = []

    def broken(file: int, data: bytes, offset: int) -> int:
        tried.append(offset)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(UploadError, match=os.strerror(number)) as refused:
        upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    assert not isinstance(refused.value, UnsentRecordingError)
    assert len(tried) == recording_upload.ATTEMPTS


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_stick_that_cannot_sync_a_folder_or_lock_a_file_is_used(
    robot: Site, stick: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    sync = os.fsync

    def of_files_only(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, os.strerror(number))
        sync(file)

    def unlockable(file: object, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", of_files_only)
    monkeypatch.setattr("fcntl.flock", unlockable)
    result = upload_recordings(to=str(stick), settle_s=0.0, tree=robot.agent.root)
    assert (result.sent, result.problems) == (NAMES, ())


def test_a_folder_that_fails_to_sync_is_an_error(stick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(UploadError, match="Input/output error"):
        FolderReceiver(stick, UNIT)


def test_a_rate_without_a_practical_limit_is_one(robot: Site, stick: Path) -> None:
    result = upload_recordings(to=str(stick), settle_s=0.0, max_rate=1e308, tree=robot.agent.root)
    assert result.sent == NAMES


@pytest.mark.parametrize(("code", "alone"), [(422, True), (401, False), (409, False), (503, False), (507, False)])
def test_a_service_refuses_one_recording_or_all(code: int, alone: bool) -> None:
    class Refusing(Service):
        def post(self, path: str, body: bytes | dict[str, Any], *, timeout_s: float = 30.0) -> Any:
            raise ServiceRequestError(f"http://127.0.0.1:1: no (HTTP {code})")

    with pytest.raises(PhysaiError, match=rf"no \(HTTP {code}\)") as refused:
        ServiceReceiver(Refusing("http://127.0.0.1:1"), UNIT).append(RECORDING, 0, DATA)
    assert isinstance(refused.value, UnsentRecordingError) == alone


def test_a_service_that_has_more_than_there_is_gets_it_from_the_start() -> None:
    class Full(Service):
        def get(self, path: str) -> Any:
            return {"received": 5000, "complete": False}

    assert ServiceReceiver(Full("http://127.0.0.1:1"), UNIT).arrived(RECORDING) == Arrived(0, complete=False)


@pytest.mark.parametrize(
    "answer",
    [None, [], {}, {"received": -1, "complete": False}, {"received": 2**60, "complete": True}, {"received": 1}],
)
def test_an_answer_that_makes_no_sense_is_an_error(answer: object) -> None:
    receiver = ServiceReceiver(Service("http://127.0.0.1:1"), UNIT)
    with pytest.raises(UploadError, match=r"http://127\.0\.0\.1:1 answers .* about a\.mcap, which has 1024 bytes"):
        receiver._checked(answer, RECORDING)  # pyright: ignore[reportPrivateUsage]
