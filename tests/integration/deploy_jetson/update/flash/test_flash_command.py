"""`physai flash`: what it prints, and its exit codes."""

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import ROBOT, SampleSigners
from tests.harness.fixtures.ssh_robot import SshRobot, patient_bundle
from tests.harness.fixtures.sshd import SshServer

from physai.deploy_jetson.cli.flash import command
from physai.deploy_jetson.cli.flash_text import Display
from physai.deploy_jetson.update.flash.bundle_upload import BundleUpload
from physai.deploy_jetson.update.flash.deliver import FlashStep
from physai.deploy_jetson.update.flash.target import Target
from physai.deploy_jetson.update.slots.slot_records import HealthLimits
from physai.sdk.base.errors import PhysaiError
from physai.sdk.cli.parsing.parser import Parser

LIMITS = HealthLimits(window_s=0.8, start_timeout_s=120.0, alive_timeout_s=60.0)
"""Two ticks of a slow pendulum."""


def run(*arguments: object) -> int:
    parser = Parser(prog="physai flash")
    command.add_arguments(parser)
    return command.run(parser.parse([str(argument) for argument in arguments]))


@pytest.fixture
def file(small: BundleUpload, tmp_path: Path) -> Path:
    path = tmp_path / "small.physai"
    path.write_bytes(small.members.data)
    return path


def test_one_robot(pendulum: SshRobot, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = str(pendulum.target)
    assert run(address, file, "--root", pendulum.root) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"{address}: version 1 of swingup is active, on trial, policy.onnx on onnxruntime (")
    assert printed.err.startswith("note: the contract (format 1) lacks ")
    assert printed.err.count("\n") == 1
    assert run(address, file, "--root", pendulum.root) == 0
    assert capsys.readouterr().out == (
        f"{address}: nothing to do for version 1 of swingup: already on trial on the robot\n"
    )


def test_one_robot_for_programs(pendulum: SshRobot, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pendulum.running():
        assert run(pendulum.target, file, "--root", pendulum.root, "--wait", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["outcome"] == "committed"
    assert record["sent_bytes"] == BundleUpload.load(file).offer().size
    assert record["bundle_sha256"] == BundleUpload.load(file).sha256
    assert set(record["seconds"]) == {"connect", "transfer", "install", "activate", "watch"}


def test_a_robot_that_goes_back(
    pendulum: SshRobot, file: Path, small: BundleUpload, capsys: pytest.CaptureFixture[str]
) -> None:
    with pendulum.running(faulty=small.sha256):
        assert run(pendulum.target, file, "--root", pendulum.root, "--wait") == 1
    assert "WENT BACK from version 1 of swingup: the runtime reports a fault: the arm" in capsys.readouterr().out


def test_arguments_that_make_no_sense(file: Path, tmp_path: Path) -> None:
    with pytest.raises(PhysaiError, match="name one robot, or a fleet"):
        run(file)
    with pytest.raises(PhysaiError, match="name one robot, or a fleet"):
        run("host", file, "--group", "fleet.yaml")
    with pytest.raises(PhysaiError, match="argument --patience-s: expected a finite number"):
        run("host", file, "--patience-s", "nan")
    with pytest.raises(PhysaiError, match="cannot be read"):
        run("host", tmp_path / "missing.physai")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(PhysaiError, match=r"small\.physai: the file does not end like a bundle"):
        run("host", file)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_goes_on_is_said_once_to_a_file_and_changes_in_place_on_a_terminal() -> None:
    steps = [
        *[FlashStep("wait", text="another flash")] * 3,
        FlashStep("send", 0.5, "1 of 2"),
        FlashStep("note", text="a\x1b[2Jb"),
    ]
    file, terminal = io.StringIO(), Terminal()
    for stream in (file, terminal):
        with Display(stream, quiet=False) as display:
            for step in steps:
                display.show(step)
    assert file.getvalue().splitlines()[0] == "another flash"
    assert len(file.getvalue().splitlines()) == 2
    assert "\r\x1b[Ksending  50%" in terminal.getvalue()
    assert "\x1b[2J" not in file.getvalue() + terminal.getvalue(), "what a robot says cannot move the cursor"
    fleet = io.StringIO()
    with Display(fleet, quiet=False) as display:
        for step in steps[:-1]:
            display.show_one(Target.parse("cell-1"), step)
    assert fleet.getvalue() == "cell-1: another flash\n"


@pytest.fixture
def cells(
    server: SshServer, workshop: SampleSigners, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, SshRobot]:
    """Three robots behind one server, each with its name in the ssh configuration."""
    shutil.copytree(server.home, tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    config = f"Host cell-*\n  HostName 127.0.0.1\n  Port {server.port}\n"
    (tmp_path / "home" / ".ssh" / "config").write_text(config)
    names = ("cell-1", "cell-2", "cell-3")
    return {name: SshRobot.make(server, folder / name, workshop, ROBOT, limits=LIMITS) for name in names}


def fleet_file(cells: dict[str, SshRobot], path: Path, *, canaries: int = 1) -> Path:
    hosts: list[dict[str, Any]] = [{"host": name, "root": str(robot.root)} for name, robot in cells.items()]
    path.write_text(json.dumps({"hosts": hosts, "canaries": canaries}))
    return path


def test_a_fleet(cells: dict[str, SshRobot], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    group = fleet_file(cells, tmp_path / "fleet.yaml")
    with cells["cell-1"].running():
        assert run(file, "--group", group) == 0
    printed = capsys.readouterr()
    rows = [line.split()[:2] for line in printed.out.splitlines()[1:4]]
    assert rows == [["cell-1", "committed"], ["cell-2", "on-trial"], ["cell-3", "on-trial"]]
    assert "3 of 3 robots have it" in printed.out
    assert printed.err.startswith("cell-1: begun\ncell-1: the contract (format 1) lacks ")
    assert "\ncell-1: version 1 of swingup is committed" in printed.err
    assert [robot.active_version for robot in cells.values()] == [1, 1, 1]


def test_a_fleet_whose_canary_refuses(
    cells: dict[str, SshRobot], workshop: SampleSigners, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stranger = tmp_path / "stranger.physai"
    stranger.write_bytes(patient_bundle(SampleSigners(), 1))
    assert run(stranger, "--group", fleet_file(cells, tmp_path / "fleet.yaml"), "--json") == 1
    record = json.loads(capsys.readouterr().out)
    assert record["counts"] == {"failed": 1, "skipped": 2}
    assert [robot["outcome"] for robot in record["robots"]] == ["failed", "skipped", "skipped"]
    assert record["robots"][0]["error"] == "VerificationError"
    assert [robot.active_version for robot in cells.values()] == [None, None, None]
