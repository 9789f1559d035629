"""The robot's side alone, told what an honest or a hostile other side could say."""

import io
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import ROBOT, SampleSigners
from tests.harness.fixtures.ssh_robot import patient_bundle

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.flash.protocol import MAX_LINE_BYTES, PROTOCOL, encode
from physai.deploy_jetson.update.flash.receiving.receiver import Receiver
from physai.deploy_jetson.update.flash.receiving.remote_inventory import SPARE_BYTES, RemoteInventory
from physai.deploy_jetson.update.flash.receiving.stream import PeerStream
from physai.deploy_jetson.update.slots.slot_errors import InstallError
from physai.deploy_jetson.update.slots.slot_records import RobotIdentity
from physai.sdk.policy.header import POLICY_FILE

Messages = list[dict[str, Any]]


@pytest.fixture
def root(folder: Path, workshop: SampleSigners) -> Path:
    UpdateAgent(root=folder / "robot").setup(RobotIdentity(robot=ROBOT), workshop.signed())
    return folder / "robot"


def converse(root: Path, said: bytes, *, idle_s: float = 20.0, close: bool = True) -> Messages:
    """What a robot answers to somebody who says all of this at once, and then leaves or is silent."""
    reader, writer = os.pipe()
    sink = io.BytesIO()
    if close:
        speaker = speaking(writer, said)
        Receiver(root, PeerStream(reader, idle_s=idle_s), sink).serve()
        os.close(reader)
        speaker.join()
    else:
        # Before anybody waits for it: a thread may take longer to begin than the robot is patient.
        assert os.write(writer, said) == len(said)
        Receiver(root, PeerStream(reader, idle_s=idle_s), sink).serve()
        os.close(reader)
        os.close(writer)
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def speaking(writer: int, said: bytes) -> threading.Thread:
    """Says it all, and leaves; or leaves when nobody listens any more."""

    def speak() -> None:
        with suppress(BrokenPipeError), os.fdopen(writer, "wb") as pipe:
            pipe.write(said)

    thread = threading.Thread(target=speak)
    thread.start()
    return thread


def converse_with(root: Path, said: bytes, sink: io.BytesIO) -> None:
    """As `converse`, with a sink that does something."""
    reader, writer = os.pipe()
    speaker = speaking(writer, said)
    Receiver(root, PeerStream(reader), sink).serve()
    os.close(reader)
    speaker.join()


def put(upload: BundleUpload, name: str, start: int = 0) -> bytes:
    digest = upload.members.sha256(name)
    return encode("put", sha256=digest, start=start) + bytes(upload.members.view(name)[start:])


def puts(upload: BundleUpload) -> bytes:
    return b"".join(put(upload, name) for name in upload.members)


INSTALL = encode("install", unsafe_no_verdict=False, retry=False)


def said(messages: Messages) -> list[str]:
    return [message["say"] for message in messages if message["say"] not in ("got", "stage", "alive")]


def test_a_whole_conversation(root: Path, small: BundleUpload) -> None:
    messages = converse(root, small.offer().encode() + puts(small) + INSTALL)
    # The note says which protections the contract lacks.
    assert said(messages) == ["hello", "holds", *["stored"] * len(small.members), "note", "installed", "trial"]
    assert messages[0] == {"say": "hello", "protocol": PROTOCOL, "robot": ROBOT}
    holds = messages[1]
    assert (holds["active"], holds["trial"]) == (False, False)
    assert holds["needs"] == [[member.sha256, 0] for member in small.offer().members.values()]
    assert sum(message["bytes"] for message in messages if message["say"] == "got") == small.offer().size
    assert UpdateAgent(root=root).store.active() == "a"


def test_a_robot_installs_although_nobody_listens_any_more(root: Path, small: BundleUpload) -> None:
    class Deaf(io.BytesIO):
        def flush(self) -> None:
            if b'"stored"' in self.getvalue():
                raise BrokenPipeError

    converse_with(root, small.offer().encode() + puts(small) + INSTALL, Deaf())
    assert UpdateAgent(root=root).store.active() == "a"


def test_an_upload_that_is_cut_short_stays_and_goes_on(root: Path, small: BundleUpload) -> None:
    digest, size = small.members.sha256(POLICY_FILE), small.members.size(POLICY_FILE)
    whole = put(small, POLICY_FILE)
    half = len(whole) - size // 2
    messages = converse(root, small.offer().encode() + whole[:half])
    assert "stored" not in said(messages)
    there = size - size // 2
    assert RemoteInventory(root).needs(small.offer())[digest] == there
    messages = converse(root, small.offer().encode() + put(small, POLICY_FILE, there))
    assert said(messages) == ["hello", "holds", "stored"]
    assert digest not in RemoteInventory(root).needs(small.offer())


def test_an_upload_begun_anew_forgets_what_was_there(root: Path, small: BundleUpload) -> None:
    digest = small.members.sha256(POLICY_FILE)
    (root / "incoming" / f"{digest}.part").write_bytes(b"nonsense")
    messages = converse(root, small.offer().encode() + put(small, POLICY_FILE))
    assert [digest, 8] in messages[1]["needs"]
    assert said(messages)[-1] == "stored"


def test_a_damaged_upload_is_thrown_away(root: Path, small: BundleUpload) -> None:
    line, data = put(small, POLICY_FILE).split(b"\n", 1)
    flipped = data[:-1] + bytes([data[-1] ^ 1])
    messages = converse(root, small.offer().encode() + line + b"\n" + flipped)
    assert messages[-1] == {"say": "damaged", "sha256": small.members.sha256(POLICY_FILE)}
    assert list((root / "incoming").iterdir()) == []


def test_an_upload_that_is_removed_meanwhile(root: Path, small: BundleUpload) -> None:
    class Sweeper(io.BytesIO):
        def flush(self) -> None:
            if b'"got"' in self.getvalue():
                for path in (root / "incoming").iterdir():
                    path.unlink()

    sink = Sweeper()
    converse_with(root, small.offer().encode() + put(small, POLICY_FILE), sink)
    last = json.loads(sink.getvalue().splitlines()[-1])
    assert (last["kind"], "flash again" in last["text"]) == ("InstallError", True)


def test_damaged_or_foreign_files_among_the_uploads_do_not_count(
    root: Path, small: BundleUpload, tmp_path: Path
) -> None:
    offer = small.offer()
    golden, policy = small.members.sha256("golden.npz"), small.members.sha256(POLICY_FILE)
    (root / "incoming" / golden).write_bytes(bytes(small.members.size("golden.npz")))
    (tmp_path / "secret").write_bytes(b"x")
    (root / "incoming" / f"{policy}.part").symlink_to(tmp_path / "secret")
    needs = RemoteInventory(root).needs(offer)
    assert (needs[golden], needs[policy]) == (0, 0)
    assert list((root / "incoming").iterdir()) == []
    assert (tmp_path / "secret").read_bytes() == b"x"


def test_uploads_go_through_no_link(root: Path, small: BundleUpload, tmp_path: Path) -> None:
    digest = small.members.sha256(POLICY_FILE)
    (tmp_path / digest).write_bytes(b"kept")
    (root / "incoming").rmdir()
    (root / "incoming").symlink_to(tmp_path, target_is_directory=True)
    last = converse(root, small.offer().encode() + puts(small))[-1]
    assert (last["kind"], "incoming: cannot be opened: Not a directory" in last["text"]) == ("SlotError", True)
    assert (tmp_path / digest).read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (b"GET / HTTP/1.1\n", "expected a message"),
        (encode("reboot"), "unknown message"),
        (encode("put", sha256="0" * 64, start=0), "was not requested"),
        (INSTALL, "nothing is to be installed"),
        (encode("watch"), "nothing was offered"),
        (b"x" * (MAX_LINE_BYTES + 2), "a line of more than"),
        (encode("offer", protocol=1), "the peer has protocol 1, this side 2"),
    ],
)
def test_what_makes_no_sense_ends_the_conversation(root: Path, what: bytes, reason: str) -> None:
    messages = converse(root, what)
    assert messages[-1]["say"] == "error"
    assert messages[-1]["kind"] == "ProtocolError"
    assert reason in messages[-1]["text"]


def test_only_what_was_asked_for_is_taken(root: Path, small: BundleUpload) -> None:
    offer = small.offer().encode()
    assert "not requested" in converse(root, offer + encode("put", sha256="0" * 64, start=0))[-1]["text"]
    assert "one offer" in converse(root, offer + offer)[-1]["text"]
    size = small.members.size(POLICY_FILE)
    ahead = encode("put", sha256=small.members.sha256(POLICY_FILE), start=size - 1)
    assert "does not have" in converse(root, offer + ahead + b"x")[-1]["text"]


def test_what_was_not_sent_is_not_installed(root: Path, small: BundleUpload) -> None:
    messages = converse(root, small.offer().encode() + put(small, POLICY_FILE) + INSTALL)
    assert messages[-1]["kind"] == "InstallError"
    assert "was not uploaded" in messages[-1]["text"]
    assert UpdateAgent(root=root).store.active() is None


def test_members_that_make_another_bundle_than_the_offered_one(root: Path, small: BundleUpload) -> None:
    offer = json.loads(small.offer().encode())
    line = json.dumps({**offer, "bundle": "0" * 64}).encode() + b"\n"
    messages = converse(root, line + puts(small) + INSTALL)
    assert "not make the bundle that was offered" in messages[-1]["text"]
    assert UpdateAgent(root=root).store.active() is None


def test_a_silent_connection_does_not_keep_others_out(root: Path, small: BundleUpload) -> None:
    messages = converse(root, small.offer().encode(), idle_s=0.05, close=False)
    assert said(messages) == ["hello", "holds"]
    assert said(converse(root, small.offer().encode())) == ["hello", "holds"]


def test_a_folder_that_is_no_robot_s(tmp_path: Path) -> None:
    messages = converse(tmp_path, b"")
    assert [message["say"] for message in messages] == ["error"]
    assert "physai robot setup" in messages[0]["text"]


def test_damaged_records_are_no_reason_to_send_less(root: Path, small: BundleUpload) -> None:
    converse(root, small.offer().encode() + puts(small) + INSTALL)
    assert RemoteInventory(root).active_bundle() == small.sha256
    assert RemoteInventory(root).needs(small.offer()) == {}
    bundle = root / "slots" / "a" / "bundle.physai"
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    bundle.write_bytes(data)
    assert RemoteInventory(root).active_bundle() is None
    assert len(RemoteInventory(root).needs(small.offer())) == len(small.members)


def test_a_record_without_its_seal_counts_for_nothing(root: Path, small: BundleUpload) -> None:
    converse(root, small.offer().encode() + puts(small) + INSTALL)
    assert RemoteInventory(root).trial() is not None
    for name in ("state", "state.copy"):
        (root / name).write_bytes((root / name).read_bytes().replace(b'"trial":{', b'"trial":{ '))
    assert RemoteInventory(root).trial() is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of ten megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_without_room_takes_nothing(small_disk: Path, workshop: SampleSigners) -> None:
    root = small_disk / "robot"
    UpdateAgent(root=root).setup(RobotIdentity(robot=ROBOT), workshop.signed())
    large = BundleUpload.open(patient_bundle(workshop, 1, width=900), source="large")
    assert 2 * large.size < 10 << 20 < 2 * large.size + SPARE_BYTES
    with pytest.raises(InstallError, match=r"9 MiB free on the robot, 11 MiB needed; make room there: `physai robot"):
        RemoteInventory(root).require_space(large.offer(), RemoteInventory(root).needs(large.offer()))
    messages = converse(root, large.offer().encode())
    assert messages[-1]["kind"] == "InstallError"
    assert list((root / "incoming").iterdir()) == []


def test_a_disk_that_fills_up_meanwhile(small_disk: Path, workshop: SampleSigners) -> None:
    root = small_disk / "robot"
    agent = UpdateAgent(root=root)
    agent.setup(RobotIdentity(robot=ROBOT), workshop.signed())
    old = BundleUpload.open(patient_bundle(workshop, 1), source="old")
    converse(root, old.offer().encode() + puts(old) + INSTALL)
    agent.commit("by hand")
    new = BundleUpload.open(patient_bundle(workshop, 2, width=600), source="new")

    class Hog(io.BytesIO):
        """Fills the disk as soon as the robot has said what it lacks."""

        def flush(self) -> None:
            if b'"holds"' in self.getvalue() and not (small_disk / "hog").exists():
                (small_disk / "hog").write_bytes(bytes(shutil.disk_usage(small_disk).free - (64 << 10)))

    sink = Hog()
    converse_with(root, new.offer().encode() + put(new, POLICY_FILE), sink)
    last = json.loads(sink.getvalue().splitlines()[-1])
    assert last["kind"] == "InstallError"
    assert "No space left on device; make room on the robot" in last["text"]
    assert not any(path.suffix for path in (root / "incoming").iterdir())
    assert RemoteInventory(root).active_bundle() == old.sha256


def test_a_disk_that_is_mounted_read_only(small_disk: Path, workshop: SampleSigners) -> None:
    root = small_disk / "robot"
    UpdateAgent(root=root).setup(RobotIdentity(robot=ROBOT), workshop.signed())
    small = BundleUpload.open(patient_bundle(workshop, 1), source="small")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    last = converse(root, small.offer().encode() + put(small, POLICY_FILE))[-1]
    assert last["kind"] == "InstallError"
    assert "the upload cannot be written: Read-only file system; the robot's file system is mounted" in last["text"]


def test_the_robot_answers_before_it_imports_anything_heavy(root: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom physai.deploy_jetson.cli.robot import command\n"
        "import argparse\nparser = argparse.ArgumentParser()\ncommand.add_arguments(parser)\n"
        f"code = command.run(parser.parse_args(['receive', '--root', {str(root)!r}]))\n"
        "heavy = {'numpy', 'pydantic', 'onnxruntime', 'cryptography', 'asyncssh', 'asyncio'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert ended.stderr.strip() == "0 []"
    assert json.loads(ended.stdout)["say"] == "hello"
