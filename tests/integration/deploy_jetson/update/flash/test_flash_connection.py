"""What can go wrong before a robot answers: each in one line that says the way out."""

import asyncio
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tests.harness.fixtures.ssh_robot import SshRobot
from tests.harness.fixtures.sshd import SshServer

from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.flash.deliver import flash
from physai.deploy_jetson.update.flash.flash_errors import (
    FlashError,
    HostKeyError,
    LoginError,
    NoReceiverError,
    UnreachableError,
)
from physai.deploy_jetson.update.flash.protocol import ProtocolError
from physai.deploy_jetson.update.flash.target import Target
from physai.sdk.base.errors import PhysaiError


@pytest.fixture
def home(server: SshServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's .ssh, to be changed."""
    shutil.copytree(server.home, tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home" / ".ssh"


def failure(target: Target, upload: BundleUpload, kind: type[PhysaiError]) -> str:
    with pytest.raises(kind) as caught:
        asyncio.run(flash(target, upload))
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def key(path: Path) -> str:
    shown = subprocess.run(["ssh-keygen", "-lf", str(path)], capture_output=True, text=True, check=True)
    return shown.stdout.split()[1]


def make_key(path: Path) -> None:
    path.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def test_an_unknown_host_key_is_refused(server: SshServer, home: Path, pendulum: SshRobot, small: BundleUpload) -> None:
    (home / "known_hosts").write_text("")
    text = failure(pendulum.target, small, HostKeyError)
    assert "is unknown" in text
    assert key(server.folder / "host.pub") in text
    assert f"ssh -p {server.port} 127.0.0.1" in text


@pytest.mark.parametrize("setting", ["UserKnownHostsFile none", "StrictHostKeyChecking no"])
def test_it_is_refused_whatever_the_configuration_says(
    server: SshServer, home: Path, pendulum: SshRobot, small: BundleUpload, setting: str
) -> None:
    (home / "known_hosts").write_text("")
    (home / "config").write_text(f"Host *\n  {setting}\n")
    assert "is unknown" in failure(pendulum.target, small, HostKeyError)


def test_without_known_hosts_nobody_is_known(home: Path, pendulum: SshRobot, small: BundleUpload) -> None:
    (home / "known_hosts").unlink()
    assert "is unknown" in failure(pendulum.target, small, HostKeyError)


def test_a_changed_host_key_is_refused(server: SshServer, home: Path, pendulum: SshRobot, small: BundleUpload) -> None:
    make_key(home / "other")
    kind, other = (home / "other.pub").read_text().split()[:2]
    (home / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {kind} {other}\n")
    text = failure(pendulum.target, small, HostKeyError)
    assert "another than the known one" in text
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'" in text


def test_the_way_out_names_the_host_as_the_known_hosts_do(
    server: SshServer, home: Path, pendulum: SshRobot, small: BundleUpload
) -> None:
    make_key(home / "other")
    kind, other = (home / "other.pub").read_text().split()[:2]
    (home / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {kind} {other}\n")
    (home / "config").write_text(f"Host cell-1\n  HostName 127.0.0.1\n  Port {server.port}\n")
    text = failure(Target("cell-1", root=pendulum.target.root), small, HostKeyError)
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'" in text


def test_a_known_hosts_file_that_cannot_be_read_as_one(home: Path, pendulum: SshRobot, small: BundleUpload) -> None:
    (home / "known_hosts").write_text("nonsense\n")
    assert "known hosts" in failure(pendulum.target, small, FlashError)


def test_another_known_hosts_file_of_the_configuration(home: Path, pendulum: SshRobot, small: BundleUpload) -> None:
    (home / "known_hosts").rename(home / "known_robots")
    (home / "config").write_text("Host *\n  UserKnownHostsFile ~/.ssh/missing ~/.ssh/known_robots\n")
    assert asyncio.run(flash(pendulum.target, small)).outcome == "on-trial"


def test_an_alias_of_the_configuration(server: SshServer, home: Path, pendulum: SshRobot, small: BundleUpload) -> None:
    (home / "id_ed25519").rename(home / "robots")
    (home / "config").write_text(
        f"Host cell-1\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile ~/.ssh/robots\n"
    )
    target = Target("cell-1", root=pendulum.target.root)
    assert asyncio.run(flash(target, small)).outcome == "on-trial"


def test_a_key_that_is_not_let_in(home: Path, pendulum: SshRobot, small: BundleUpload) -> None:
    make_key(home / "id_ed25519")
    text = failure(pendulum.target, small, LoginError)
    assert "ssh-copy-id" in text


def test_a_port_where_nobody_listens(server: SshServer, pendulum: SshRobot, small: BundleUpload) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        target = replace(pendulum.target, port=closed.getsockname()[1])
        assert "Connection refused" in failure(target, small, UnreachableError)


def test_a_host_that_does_not_exist(server: SshServer, small: BundleUpload) -> None:
    assert "no-such-robot.invalid" in failure(Target("no-such-robot.invalid"), small, UnreachableError)


def test_something_else_listens_there(server: SshServer, pendulum: SshRobot, small: BundleUpload) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        async def conversation() -> None:
            async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                writer.close()

            async with await asyncio.start_server(answer, sock=listener):
                await flash(replace(pendulum.target, port=listener.getsockname()[1]), small)

        with pytest.raises(FlashError):
            asyncio.run(conversation())


def test_no_physai_on_the_robot(pendulum: SshRobot, small: BundleUpload) -> None:
    text = failure(replace(pendulum.target, physai="/nowhere/physai"), small, NoReceiverError)
    assert "has no command '/nowhere/physai'" in text
    assert "--physai" in text


def test_a_physai_that_cannot_receive(
    server: SshServer, pendulum: SshRobot, small: BundleUpload, tmp_path: Path
) -> None:
    old = tmp_path / "physai"
    old.write_text("#!/bin/sh\necho 'physai: error: no action named receive' >&2\nexit 2\n")
    old.chmod(0o755)
    text = failure(replace(pendulum.target, physai=str(old)), small, NoReceiverError)
    assert "no action named receive" in text


def test_something_else_by_the_name_of_physai(pendulum: SshRobot, small: BundleUpload, tmp_path: Path) -> None:
    parrot = tmp_path / "physai"
    parrot.write_text("#!/bin/sh\nexec cat\n")
    parrot.chmod(0o755)
    assert "'offer'" in failure(replace(pendulum.target, physai=str(parrot)), small, ProtocolError)
    parrot.write_text("#!/bin/sh\nexec yes\n")
    assert "b'y" in failure(replace(pendulum.target, physai=str(parrot)), small, NoReceiverError)
    parrot.write_text("#!/bin/sh\nexec tr '\\0' x </dev/zero\n")
    assert "a line of more than 65536 bytes" in failure(
        replace(pendulum.target, physai=str(parrot)), small, ProtocolError
    )


def test_another_protocol(pendulum: SshRobot, small: BundleUpload, tmp_path: Path) -> None:
    newer = tmp_path / "physai"
    newer.write_text(
        """#!/bin/sh\necho '{"say": "hello", "protocol": 3, "robot": "pendulum"}'\nexec cat >/dev/null\n"""
    )
    newer.chmod(0o755)
    assert "peer has protocol 3, this side 2" in failure(
        replace(pendulum.target, physai=str(newer)), small, ProtocolError
    )


def test_what_a_login_script_prints_is_passed_over(pendulum: SshRobot, small: BundleUpload, tmp_path: Path) -> None:
    chatty = tmp_path / "physai"
    chatty.write_text('#!/bin/sh\necho "Welcome to cell 1"\necho "{}"\nexec physai "$@"\n')
    chatty.chmod(0o755)
    assert asyncio.run(flash(replace(pendulum.target, physai=str(chatty)), small)).outcome == "on-trial"


def test_a_command_of_several_words(pendulum: SshRobot, small: BundleUpload) -> None:
    target = replace(pendulum.target, physai="env -u NOTHING physai")
    assert asyncio.run(flash(target, small)).outcome == "on-trial"


def test_a_robot_whose_receiver_is_killed(pendulum: SshRobot, small: BundleUpload, tmp_path: Path) -> None:
    dying = tmp_path / "physai"
    dying.write_text("#!/bin/sh\necho 'out of memory' >&2\nkill -9 $$\n")
    dying.chmod(0o755)
    assert "out of memory" in failure(replace(pendulum.target, physai=str(dying)), small, NoReceiverError)
