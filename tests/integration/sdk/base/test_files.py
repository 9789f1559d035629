"""Files that a user named may be anything; files of ours are whole or as they were."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import create_durable, read_plain, write_atomic
from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract, save_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.verdict import VerdictError, load_verdict
from physai.sdk.signing.ed25519 import KeyFileError, SigningKey, load_public_key, save_private_key
from physai.sdk.signing.trust_file import SignedTrust
from physai.sdk.signing.trust_store import TrustError


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """Has no writer: opening it in the usual way waits for ever."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_a_file_is_read_up_to_one_byte_beyond_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    (tmp_path / "link").symlink_to("file")
    assert read_plain(tmp_path / "file", limit=6) == b"abcdef"
    assert read_plain(tmp_path / "link", limit=3) == b"abcd"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_devices_are_not_read(device: str) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_plain(Path(device), limit=10)


def test_a_folder_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_plain(tmp_path, limit=10)


def test_no_parser_waits_for_a_pipe_or_reads_a_device_for_ever(pipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(PhysaiError, match="cannot be read: not a regular file"):
            load_contract(path)
        with pytest.raises(VerdictError, match="cannot be read: not a regular file"):
            load_verdict(path)
        with pytest.raises(TrustError, match="cannot be read: not a regular file"):
            SignedTrust.load(path)
        with pytest.raises(KeyFileError, match="cannot be read: not a regular file"):
            load_public_key(path)
        assert main(["bundle", "inspect", str(path)]) == 2
        assert "cannot be read: not a regular file" in capsys.readouterr().err


def test_a_file_is_replaced_and_nothing_else_is(pipe: Path, tmp_path: Path) -> None:
    target = tmp_path / "file"
    for data in (b"old", b"new"):
        write_atomic(target, data)
        assert target.read_bytes() == data
    link = tmp_path / "link"
    link.symlink_to("file")
    with pytest.raises(OSError, match="symbolic link; name the file it points to"):
        write_atomic(link, b"other")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"new")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(OSError, match="symbolic link"):
        write_atomic(tmp_path / "dangling", b"other")
    with pytest.raises(OSError, match="not a regular file"):
        write_atomic(pipe, b"other")
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    with pytest.raises(IsADirectoryError):
        write_atomic(tmp_path, b"other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file", "link", "pipe"]


def test_a_device_stays_one(tmp_path: Path, small_contract: PolicyContract) -> None:
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root can make a device")
    with pytest.raises(PhysaiError, match="not a regular file"):
        save_contract(small_contract, null)
    assert stat.S_ISCHR(null.lstat().st_mode)


def test_a_new_file_has_its_mode_and_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new"
    create_durable(path, b"x", mode=0o600)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), path.stat().st_nlink) == (b"x", 0o600, 1)
    with pytest.raises(FileExistsError):
        create_durable(path, b"y", mode=0o600)
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        create_durable(tmp_path / "dangling", b"y", mode=0o600)
    assert path.read_bytes() == b"x"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["dangling", "new"]


LIMITED = """
import resource, signal, sys
from physai.sdk.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("size", [0, 50, 118, 150, 300])
def test_a_full_disk_leaves_no_part_of_a_key(tmp_path: Path, size: int) -> None:
    """A private key has 119 bytes, a public one some 220, the trust file the most: each of them is cut off once."""
    folder = tmp_path / "keys"
    words = ["keys", "init", str(folder)]
    command = [sys.executable, "-c", LIMITED, str(size), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 2
    assert "cannot be written: File too large" in ended.stderr
    assert list(folder.iterdir()) == []
    assert main(words) == 0


def test_a_disk_without_room_leaves_no_part_of_a_key(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a disk")
    try:
        (disk / "hog").write_bytes(bytes(4096))
        with pytest.raises(KeyFileError, match="cannot be written: No space left on device"):
            save_private_key(SigningKey.generate(), disk / "publisher.key", passphrase=None)
        assert [path.name for path in disk.iterdir()] == ["hog"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
