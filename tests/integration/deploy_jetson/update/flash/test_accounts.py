"""Who may do what on a robot that install.sh has set up: real accounts, a real ssh server, the real script."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import ROBOT, SampleSigners
from tests.support.installed_machine import INSTALL, Machine, machine

from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.flash.deliver import flash
from physai.deploy_jetson.update.flash.target import Target
from physai.sdk.base.errors import DeviceError

OTHERS_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl someone@somewhere\n"
FORCED = 'command="/opt/physai/bin/physai robot receive --root /var/lib/physai --config-root /etc/physai",restrict '
ONLY_FLASHES = "this key may flash this robot (`physai flash`), and nothing else"


@pytest.fixture(scope="module")
def robot(workshop: SampleSigners) -> Iterator[Machine]:
    """A robot that was set up by an older install.sh, and again by this one."""
    with tempfile.TemporaryDirectory(prefix="physai-test-") as name:
        folder = Path(name)
        try:
            with machine(folder) as made:
                _install(made, workshop)
                yield made
        except DeviceError as error:
            pytest.skip(str(error))


def _install(made: Machine, workshop: SampleSigners) -> None:
    account = ("--system", "--password", "*", "--create-home", "--home-dir", "/home/physai")
    made.run("useradd", *account, "physai", check=True)
    key = (made.folder / "home/.ssh/id_ed25519.pub").read_text()
    made.write("/home/physai/.ssh/authorized_keys", key + OTHERS_KEY, 0o600)
    made.write("/home/physai/.bashrc", "echo a trap\n")
    made.write("/var/lib/physai/trust.json", "{}")
    made.run("chown", "-R", "physai:physai", "/home/physai", "/var/lib/physai", check=True)
    trust = made.folder / "trust.json"
    workshop.signed().save(trust)
    trust.chmod(0o600)
    said = ("--robot", ROBOT, "--trust", str(trust), "--login", str(made.folder / "home/.ssh/id_ed25519.pub"))
    words = ("bash", "-c", 'umask 077; exec bash "$0" "$@"', str(INSTALL), *said)
    made.run(*words, check=True)
    result = made.run(*words, check=True)
    assert "1 keys in /home/physai/.ssh/authorized_keys allow a shell" in result.stderr


def test_what_belongs_to_whom(robot: Machine) -> None:
    listed = robot.run(
        *("stat", "-c", "%n %U %a", "/etc/physai", "/etc/physai/robot", "/etc/physai/trust.json"),
        *("/home/physai", "/home/physai/.ssh", "/home/physai/.ssh/authorized_keys", "/home/physai/.bashrc"),
        *("/var/lib/physai", "/var/lib/physai/slots/a", "/var/lib/physai/state", "/var/lib/physai/incoming"),
        check=True,
    ).stdout.splitlines()
    assert listed == [
        "/etc/physai root 755",
        "/etc/physai/robot root 644",
        "/etc/physai/trust.json root 644",
        "/home/physai root 755",
        "/home/physai/.ssh root 755",
        "/home/physai/.ssh/authorized_keys root 644",
        "/home/physai/.bashrc root 644",
        "/var/lib/physai physai 755",
        "/var/lib/physai/slots/a physai 755",
        "/var/lib/physai/state physai 644",
        "/var/lib/physai/incoming physai 755",
    ]
    assert robot.run("test", "-e", "/var/lib/physai/trust.json").returncode == 1
    assert robot.run("getent", "passwd", "physai").stdout.endswith(":/home/physai:/bin/sh\n")
    key = (robot.folder / "home/.ssh/id_ed25519.pub").read_text()
    assert robot.run("cat", "/home/physai/.ssh/authorized_keys").stdout == OTHERS_KEY + FORCED + key


def test_the_account_that_runs_the_robot_cannot_say_whom_it_believes(robot: Machine) -> None:
    for attempt in (
        "echo {} > /etc/physai/trust.json",
        "echo {} > /etc/physai/settings",
        "mv /etc/physai/robot /etc/physai/limits",
        "rm -f /etc/physai/trust.json",
        "mv /etc/physai /etc/physai.old",
        "echo >> /home/physai/.ssh/authorized_keys",
        "echo > /home/physai/.ssh/authorized_keys2",
        "mv /home/physai/.ssh /home/physai/ssh",
        "mv /home/physai /home/other",
        "echo > /opt/physai/bin/physai",
    ):
        result = robot.run("sh", "-c", attempt, account="physai")
        assert result.returncode != 0, attempt
        assert "Permission denied" in result.stderr, attempt


def test_setup_is_the_owner_s(robot: Machine, workshop: SampleSigners) -> None:
    evil = robot.folder / "evil.json"
    robot.folder.chmod(0o755)
    SampleSigners().signed().save(evil)
    before = robot.run("sha256sum", "/etc/physai/trust.json", "/etc/physai/robot").stdout
    words = ("/opt/physai/bin/physai", "robot", "setup", "--robot", "other", "--trust", str(evil))
    result = robot.run(*words, account="physai")
    assert result.returncode == 2
    assert "/etc/physai belongs to user 0, but this is user" in result.stderr
    assert "`physai robot setup` as that user (sudo)" in result.stderr
    assert robot.run("sha256sum", "/etc/physai/trust.json", "/etc/physai/robot").stdout == before
    again = ("/opt/physai/bin/physai", "robot", "setup", "--robot", f"{ROBOT}/cell-2")
    assert robot.run(*again).returncode == 0
    assert f'"robot":"{ROBOT}/cell-2"' in robot.run("cat", "/etc/physai/robot").stdout
    robot.run(*again[:-1], ROBOT, check=True)
    assert robot.run("find", "/var/lib/physai", "!", "-user", "physai").stdout == ""


def test_the_key_flashes(robot: Machine, small: BundleUpload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(robot.folder / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    target = Target.parse(f"physai@127.0.0.1:{robot.port}")
    flashed = asyncio.run(flash(target, small))
    assert (flashed.outcome, flashed.slot) == ("on-trial", "a")
    assert robot.run("stat", "-c", "%U", "/var/lib/physai/slots/a/installed").stdout == "physai\n"
    robot.run("/opt/physai/bin/physai", "robot", "rollback", account="physai", check=True)


def test_the_key_does_nothing_else(robot: Machine) -> None:
    host = "physai@127.0.0.1"
    for words in (("id",), ("sh", "-c", "id"), ("physai", "robot", "setup", "--robot", "x"), ("physai robot status",)):
        result = robot.ssh(host, *words)
        assert result.returncode == 2, words
        assert ONLY_FLASHES in result.stderr
        assert result.stdout == ""
    # What follows is not run either: the server runs the one command it was told to.
    result = robot.ssh(host, "physai robot receive; id")
    assert '"say":"hello"' in result.stdout
    assert "uid=" not in result.stdout
    shell = robot.ssh(host)
    assert '"say":"hello"' in shell.stdout
    assert "a trap" not in shell.stdout
    assert "PTY allocation request failed" in robot.ssh("-tt", host, "id").stderr
    copied = robot.folder / "copied"
    for program, words in (
        ("sftp", (f"{host}:/etc/passwd", str(copied))),
        ("scp", (f"{host}:/etc/passwd", str(copied))),
        ("scp", ("-O", f"{host}:/etc/passwd", str(copied))),
        ("scp", (str(robot.folder / "host.pub"), f"{host}:/var/lib/physai/host.pub")),
    ):
        assert robot.ssh(*words, program=program).returncode != 0
    assert not copied.exists()
    assert robot.run("test", "-e", "/var/lib/physai/host.pub").returncode == 1


def test_the_key_forwards_nothing(robot: Machine) -> None:
    host = "physai@127.0.0.1"
    assert "administratively prohibited" in robot.ssh("-W", f"127.0.0.1:{robot.port}", host).stderr
    refused = robot.ssh("-N", "-R", "0:127.0.0.1:9", host, options=("-o", "ExitOnForwardFailure=yes"))
    assert refused.returncode != 0
    assert "remote port forwarding failed" in refused.stderr


def test_the_account_of_a_person_is_left_alone(robot: Machine) -> None:
    uid = robot.run("id", "-u", "physai").stdout.strip()
    robot.run("usermod", "-u", "1500", "physai", check=True)
    words = ("--robot", ROBOT, "--trust", str(robot.folder / "trust.json"))
    result = robot.run("bash", str(INSTALL), *words)
    robot.run("usermod", "-u", uid, "physai", check=True)
    robot.run("chown", "-R", "physai:physai", "/var/lib/physai", check=True)
    assert (result.returncode, "physai is a personal account here" in result.stderr) == (2, True)


def test_environment_variables_that_a_server_lets_through_change_nothing(robot: Machine) -> None:
    options = tuple(
        word for name in ("ROOT", "CONFIG") for word in ("-o", f"SetEnv=PHYSAI_ROBOT_{name}=/tmp/elsewhere")
    )
    assert f'"robot":"{ROBOT}"' in robot.ssh("physai@127.0.0.1", "physai robot receive", options=options).stdout


def test_the_doctor_says_whose_the_robot_is(robot: Machine) -> None:
    doctor = ("/opt/physai/bin/physai", "robot", "doctor")
    said = robot.run(*doctor, account="physai").stdout
    assert (
        "warn owner        /etc/physai belongs to root; physai runs the robot and cannot change it; 1 of 2 keys in"
        in said
    )
    robot.run("sed", "-i", "1d", "/home/physai/.ssh/authorized_keys", check=True)
    said = robot.run(*doctor, account="physai").stdout
    assert (
        "ok   owner        /etc/physai belongs to root; physai runs the robot and cannot change it; 1 keys are" in said
    )
    robot.run("chmod", "g+w", "/etc/physai/trust.json", check=True)
    said = robot.run(*doctor).stdout
    assert "warn owner        /etc/physai/trust.json can be written by others than root, so an account" in said
    robot.run("chmod", "g-w", "/etc/physai/trust.json", check=True)
