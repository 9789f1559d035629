"""The install script and the units of a robot."""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import ROBOT, SampleSigners

from physai.deploy_jetson.runtime.loop.loop import DAMP_S, RAMP_S
from physai.deploy_jetson.runtime.watchdog.client import END_S
from physai.deploy_jetson.runtime.watchdog.plan import LONGEST_S
from physai.deploy_jetson.update.agent.config import RobotConfig
from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
from physai.deploy_jetson.update.slots.layout import DEFAULT_ROOT, IDENTITY_FILE, config_folder

FOLDER = Path(__file__).parents[4] / "deploy_jetson" / "systemd"
UNITS = sorted([*FOLDER.glob("*.service"), *FOLDER.glob("*.path")])

PHYSAI = """#!{python}
import sys
from physai.deploy_jetson.cli.robot import command
from physai.sdk.cli.parsing.parser import Parser

parser = Parser(prog="physai robot")
command.add_arguments(parser)
assert sys.argv[1] == "robot"
sys.exit(command.run(parser.parse(sys.argv[2:])))
"""


def install(*words: str, destination: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DESTDIR": str(destination)}
    command = ["bash", str(FOLDER / "install.sh"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    """Another root, in which an environment lies already, so that nothing is downloaded."""
    programs = tmp_path / "opt/physai/bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text("#!/bin/sh\nexit 0\n")
    (programs / "physai").write_text(PHYSAI.format(python=sys.executable))
    for program in programs.iterdir():
        program.chmod(0o755)
    return tmp_path


def test_install_twice(destination: Path, workshop: SampleSigners) -> None:
    trust = destination / "trust.json"
    workshop.signed().save(trust)
    for unit in ("cell-1", "cell-2"):
        words = ("--robot", f"{ROBOT}/{unit}", "--trust", str(trust), "--", "--joints", "pivot")
        result = install(*words, destination=destination)
        assert result.returncode == 0, result.stderr
        assert "ready: physai flash physai@" in result.stdout
        config = RobotConfig(PosixFileSystem(destination / "etc/physai"))
        assert (config.identity().robot, config.identity().joints) == (f"{ROBOT}/{unit}", ("pivot",))
        assert config.trust() == workshop.trust
    installed = {path.name for path in (destination / "etc/systemd/system").iterdir()}
    assert installed == {unit.name for unit in UNITS}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "give the robot a name: --robot NAME"),
        (("--robot", "ur10e"), "give a trust file: --trust FILE"),
        (("--robot", "ur10e", "--trust", "/nowhere"), "/nowhere cannot be read"),
        (("--rebot", "ur10e"), "unknown option --rebot"),
    ],
)
def test_install_refuses(destination: Path, words: tuple[str, ...], reason: str) -> None:
    result = install(*words, destination=destination)
    assert result.returncode == 2
    assert reason in result.stderr
    assert not (destination / "var").exists()


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl someone@somewhere\n"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_a_key_is_let_in_once_to_flash_and_for_nothing_else(destination: Path, workshop: SampleSigners) -> None:
    workshop.signed().save(destination / "trust.json")
    (destination / "id.pub").write_text(KEY)
    keys = destination / "home/physai/.ssh/authorized_keys"
    keys.parent.mkdir(parents=True)
    other = KEY.replace("9GKJl", "9GKJm")
    keys.write_text(f"# ours\n{KEY}{other}")
    words = ("--robot", ROBOT, "--trust", str(destination / "trust.json"), "--login")
    for _ in range(2):
        result = install(*words, str(destination / "id.pub"), destination=destination)
        assert result.returncode == 0, result.stderr
        assert "1 keys in " in result.stderr
    command = "/opt/physai/bin/physai robot receive --root /var/lib/physai --config-root /etc/physai"
    entered = f'# ours\n{other}command="{command}",restrict {KEY}'
    assert keys.read_text() == entered
    assert (keys.stat().st_mode & 0o777, keys.parent.stat().st_mode & 0o777) == (0o644, 0o755)
    (destination / "id.pub").write_text("nonsense\n")
    refused = install(*words, str(destination / "id.pub"), destination=destination)
    assert (refused.returncode, "id.pub is not a public key" in refused.stderr) == (2, True)
    private = destination / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(private)], check=True)
    refused = install(*words, str(private), destination=destination)
    assert (refused.returncode, "is a private key" in refused.stderr) == (2, True)
    assert keys.read_text() == entered


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


def test_nothing_runs_a_policy_before_recovery() -> None:
    for name in ("physai-agent.service", "physai-runtime.service"):
        assert "physai-recover.service" in unit(FOLDER / name)["Unit"]["Requires"]
        assert "physai-recover.service" in unit(FOLDER / name)["Unit"]["After"].split()
    assert unit(FOLDER / "physai-recover.service")["Service"]["Type"] == "oneshot"


def test_a_service_starts_where_the_owner_has_said_which_robot_this_is() -> None:
    for name in ("physai-agent.service", "physai-recover.service"):
        said = unit(FOLDER / name)["Unit"]["ConditionPathExists"]
        assert Path(said) == config_folder(DEFAULT_ROOT) / IDENTITY_FILE


def test_what_hangs_is_killed_and_what_brakes_the_robot_is_not() -> None:
    runtime = unit(FOLDER / "physai-runtime.service")["Service"]
    for name in ("physai-agent.service", "physai-runtime.service"):
        service = unit(FOLDER / name)["Service"]
        assert (service["Type"], service["NotifyAccess"], service["Restart"]) == ("notify", "main", "always")
        assert int(service["WatchdogSec"]) > 0
    # systemd comes after the runtime's own watchdog, and lets it finish.
    assert int(runtime["WatchdogSec"]) > LONGEST_S
    assert int(runtime["TimeoutStopSec"]) > RAMP_S + DAMP_S + LONGEST_S + END_S
    assert runtime["KillMode"] == "control-group"


def test_no_service_runs_as_root() -> None:
    services = [unit(path)["Service"] for path in UNITS if path.suffix == ".service"]
    assert len(services) == 3
    assert {(service["User"], service["NoNewPrivileges"]) for service in services} == {("physai", "yes")}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("path", UNITS, ids=[path.name for path in UNITS])
def test_systemd_understands_the_units(path: Path, tmp_path: Path) -> None:
    for source in UNITS:
        text = source.read_text(encoding="utf-8").replace("/opt/physai/bin/physai", "/bin/true")
        (tmp_path / source.name).write_text(text, encoding="utf-8")
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in result.stderr.splitlines() if "physai" in line]
    assert complaints == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
@pytest.mark.parametrize("path", [path for path in UNITS if path.suffix == ".service"], ids=lambda path: path.name)
def test_a_service_is_exposed_to_little(path: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=45", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unrecognized option" in result.stderr:
        pytest.skip("this systemd does not judge files")
    assert result.returncode == 0, result.stdout
