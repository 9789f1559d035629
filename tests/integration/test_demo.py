"""`physai demo` from end to end, every verb in a process of its own; then its bundle over ssh onto a robot."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.runtime_stand_in import FAULT
from tests.harness.fixtures.ssh_robot import SshRobot
from tests.harness.fixtures.sshd import SshServer, ssh_server

from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.flash.target import Target
from physai.deploy_jetson.update.slots.slot_records import HealthLimits, RobotIdentity
from physai.sdk.base.errors import DeviceError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.cli.main import main
from physai.sdk.contract.io import load_contract
from physai.sdk.evidence.requirements import Requirements
from physai.sdk.signing.trust_file import SignedTrust
from physai.train.api import demo_drive
from physai.train.api.demo_drive import drive, driven_text
from physai.train.api.run_demo import INSTALL_TRIES, install_eventually
from physai.train.cli.demo import print_summary

TASK = "cartpole-swingup"
MOST_TRIES = 8
"""Of a flash on a machine so busy that the robot's latency self-test fails, as it should."""

Demo = tuple[Path, subprocess.CompletedProcess[str]]
"""The folder the demo has filled, and what it said."""

PROGRAM = "import sys; from physai.sdk.cli.main import main; sys.exit(main())"


def physai(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo")
    budget = ("--time-budget-s", "5", "--episodes", "8")
    return folder, physai("demo", "--task", TASK, *budget, "--json", "--out", str(folder))


@pytest.mark.slow
def test_the_demo_leaves_a_policy_a_curve_and_a_film(demo: Demo) -> None:
    tmp_path, ended = demo
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    policy = Path(summary["policy"])
    assert policy == tmp_path / TASK / "export" / "policy.onnx"
    assert summary["fingerprint"] == load_contract(policy).fingerprint
    assert summary["task"] == TASK
    assert summary["judged"] == 8
    assert summary["success"] == summary["succeeded"] / 8
    lower, upper = summary["success_interval_95"]
    assert 0.0 <= lower <= summary["success"] <= upper <= 1.0
    assert Path(summary["learning_curve"]).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert summary["verdict"] in ("PASS", "FAIL", "INCONCLUSIVE")
    assert summary["gates"]["twin"] == "PASS", "the twin of the stand-in is credible"
    assert summary["evidence"].startswith(
        "the twin is from a stand-in for cartpole, the latency from a computer that is"
    )
    assert Path(summary["report"]).is_file()
    assert read_bundle(Path(summary["bundle"])).manifest.task == TASK
    # A policy of five seconds is no good, and the robot gets none that has not passed.
    assert summary["robot"].startswith("installed" if summary["verdict"] == "PASS" else "rejects it")
    skipped = f"for 20 s]\nskipped, since no policy is installed ({summary['robot']})\n"
    assert (skipped in ended.stderr) is ("driven" not in summary)
    if summary["film"] is None:
        assert "no video: " in ended.stderr, "a machine without OpenGL says why there is no video"
    else:
        assert Path(summary["film"]).read_bytes()[4:8] == b"ftyp", "an MP4 file"


def test_without_torch_the_demo_says_so_before_it_does_anything(tmp_path: Path) -> None:
    """As in the extra `sim`: the first two steps need none, and take minutes."""
    hidden = "import sys; sys.modules['torch'] = None; sys.argv[0] = 'physai'; " + PROGRAM
    command = [sys.executable, "-c", hidden, "demo", "--out", str(tmp_path / "demo")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "physai: error: physai demo trains, which needs torch: pip install 'physai-sdk[train]'\n"
    assert not (tmp_path / "demo").exists()


def test_the_demo_says_at_its_end_that_no_robot_was_involved(capsys: pytest.CaptureFixture[str]) -> None:
    summary: dict[str, Any] = {"task": TASK, "training_s": 1.0, "success_interval_95": (0.0, 1.0), "succeeded": 1}
    summary |= {
        "judged": 1,
        "success": 1.0,
        "criterion": "",
        "verdict": "PASS",
        "gates": {},
        "gates_passed": "9 of 9 gates pass",
        "verdict_reasons": [],
    }
    shown = ("policy", "bundle", "robot", "fingerprint", "report", "learning_curve", "film")
    print_summary({**summary, **dict.fromkeys(shown), "evidence": "the twin is from a stand-in"})
    assert "NO ROBOT WAS INVOLVED: the twin is from a stand-in" in capsys.readouterr().out


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SshServer]:
    try:
        with ssh_server(tmp_path) as found:
            yield found
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_its_bundle_goes_over_ssh_onto_a_robot_that_commits_to_it_or_goes_back(
    demo: Demo, server: SshServer, tmp_path: Path
) -> None:
    folder, _ = demo
    keys, first, second = folder / "keys", folder / f"{TASK}.physai", tmp_path / "second.physai"
    sign = ("--sign", "--key", str(keys / "publisher.key"))
    version = read_bundle(first).manifest.version
    packed = physai("bundle", "pack", str(folder / TASK), "-o", str(second), "--version", str(version + 1), *sign)
    assert packed.returncode == 0, packed.stderr
    root = tmp_path / "robot"
    limits = HealthLimits(window_s=0.4, start_timeout_s=120.0, alive_timeout_s=60.0)
    trust, asked = SignedTrust.load(keys / "trust.json"), Requirements(unsafe_no_verdict=True)
    UpdateAgent(root=root).setup(RobotIdentity(robot="cartpole"), trust, limits, asked)

    def flash(bundle: Path) -> tuple[int, dict[str, Any]]:
        # Whatever five seconds of training were judged to be.
        words = ("flash", server.address, str(bundle), "--root", str(root), "--wait", "--unsafe-no-verdict", "--json")
        for _ in range(MOST_TRIES):
            ended = physai(*words, HOME=str(server.home), SSH_AUTH_SOCK="")
            if "ticks take up to" not in ended.stderr:
                assert ended.stdout, ended.stderr
                return ended.returncode, json.loads(ended.stdout)
        pytest.skip("this machine is too busy for the deadline of a cartpole")

    robot = SshRobot(root, Target.parse(server.address))
    with robot.running(faulty=read_bundle(second).sha256):
        code, told = flash(first)
        assert (code, told["outcome"]) == (0, "committed")
        assert robot.active_version == version
        code, told = flash(second)
        assert (code, told["outcome"]) == (1, "rolled-back")
    assert robot.active_version == version
    status = physai("robot", "status", "--root", str(root)).stdout
    assert f"went back from version {version + 1} at " in status
    assert FAULT in status


@pytest.mark.slow
def test_an_installation_is_tried_again_and_given_up(
    demo: Demo, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A robot refuses a policy while it misses deadlines; then the demo goes on without it."""
    folder, _ = demo
    root = tmp_path / "robot"
    UpdateAgent(root=root).setup(RobotIdentity(robot="cartpole"), SignedTrust.load(folder / "keys" / "trust.json"))
    install = ["robot", "install", str(folder / f"{TASK}.physai"), "--root", str(root), "--activate"]
    assert not install_eventually(install), "without a verdict"
    assert capfd.readouterr().err.count("installing again") == INSTALL_TRIES - 1
    assert any(install_eventually([*install, "--unsafe-no-verdict"]) for _ in range(MOST_TRIES))


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["dds", "udp"])
def test_its_policy_drives_the_rehearsal_robot(
    demo: Demo, tmp_path: Path, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if transport == "udp":  # as where Cyclone DDS has no wheel
        monkeypatch.setattr(demo_drive, "find_spec", dict[str, None]().get)
    folder, _ = demo
    root = tmp_path / "robot"
    UpdateAgent(root=root).setup(RobotIdentity(robot="cartpole"), SignedTrust.load(folder / "keys" / "trust.json"))
    bundle = str(folder / f"{TASK}.physai")
    install = ("robot", "install", bundle, "--root", str(root), "--activate", "--unsafe-no-verdict")
    ended = physai(*install)
    for _ in range(MOST_TRIES):
        if "ticks take up to" in ended.stderr:
            ended = physai(*install)
    assert ended.returncode == 0, ended.stderr
    twin = folder / f"{TASK}-robot" / "twin.json"
    found = drive(TASK, twin, root, 3.0, unsafe_no_verdict=True)
    for _ in range(MOST_TRIES):
        # A pole that swings at the limit of what counts as rest may move again before the policy drives it.
        if "inference" not in found["runtime"]["stages_us"]:
            found = drive(TASK, twin, root, 3.0, unsafe_no_verdict=True)
    runtime, robot = found["runtime"], found["robot"]
    assert found["transport"] == transport
    assert runtime["ticks"] > 100
    assert set(runtime["stages_us"]) >= {"sensor age", "inference", "guard", "send", "whole"}
    assert robot["commands"] > 100
    assert robot["unsafe"] == 0
    assert f"the robot received {robot['commands']} commands" in driven_text(found)


def test_episodes_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--episodes", "0", "--out", str(tmp_path)]) == 2
    assert "--episodes must lie in 1 … 100000, got 0" in capsys.readouterr().err


@pytest.mark.parametrize("budget", ["0", "-5"])
def test_a_budget_that_is_no_time(budget: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--time-budget-s", budget, "--out", str(tmp_path)]) == 2
    assert "--time-budget-s must be a positive number of seconds" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
