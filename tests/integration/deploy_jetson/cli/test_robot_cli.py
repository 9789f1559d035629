"""`physai robot`: every action once, and what it says."""

import io
import json
import signal
import sys
import threading
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import ROBOT, quick_clock, sample_policy
from tests.harness.fixtures.site import Site
from tests.support.patience import until

from physai.deploy_jetson import (
    RobotTree,
    activate,
    collect_garbage,
    commit,
    examine_robot,
    install,
    measure_ticks,
    missing_members,
    recover,
    robot_status,
    robot_time,
    rollback,
    set_up_robot,
    watch_trials,
)
from physai.deploy_jetson.cli.robot import command
from physai.deploy_jetson.update import operate
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.robot_tree import ROOT_VARIABLE, agent_of
from physai.deploy_jetson.update.slots.health import HealthWriter, health_path
from physai.deploy_jetson.update.slots.slot_records import HealthLimits, RobotIdentity
from physai.sdk.base.errors import PhysaiError
from physai.sdk.bundle.manifest import read_bundle
from physai.sdk.cli.parsing.parser import Parser
from physai.sdk.evidence.latency import load_evidence

ON_A_ROOT = (
    *(("status",), ("run",), ("top",), ("command", "hold"), ("commit",), ("rollback",), ("gc",), ("time",)),
    *(("recover",), ("watch", "--once"), ("missing", "a" * 64), ("install", "x"), ("activate",), ("measure", "x")),
)
"""Actions that need the robot's tree."""


def robot(*words: str) -> int:
    parser = Parser(prog="physai robot")
    command.add_arguments(parser)
    return command.run(parser.parse(list(words)))


@pytest.fixture
def rooted(site: Site, monkeypatch: pytest.MonkeyPatch, now: datetime) -> Site:
    """A robot that the command line finds; its clocks stand still, and it is patient with a busy machine."""
    monkeypatch.setenv(ROOT_VARIABLE, str(site.agent.root))
    limits = HealthLimits(window_s=1.0, alive_timeout_s=60.0)
    site.agent.setup(RobotIdentity(robot=ROBOT), limits=limits)

    def with_still_clocks(tree: RobotTree, **options: Any) -> UpdateAgent:
        return replace(agent_of(tree, **options), clock=lambda: now, tick_clock_ns=quick_clock)

    monkeypatch.setattr(operate, "agent_of", with_still_clocks)
    return site


@pytest.fixture
def bundle_file(rooted: Site, folder: Path) -> Path:
    path = folder / "first.physai"
    path.write_bytes(rooted.bundles[1])
    return path


def record(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def make_healthy(site: Site) -> None:
    """Leaves the counters of a runtime that did well."""
    active = site.active
    assert active is not None
    now_ns = time.monotonic_ns()
    with HealthWriter(health_path(site.agent.root), bundle_sha256=active.bundle_sha256, now_ns=now_ns) as writer:
        for _ in range(100):
            writer.tick(now_ns)


def test_the_life_of_a_bundle(rooted: Site, bundle_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert robot("install", str(bundle_file)) == 0
    said = capsys.readouterr().out
    assert "version 1 installed in slot a, not active: policy.onnx on onnxruntime, 4 golden states" in said
    assert robot("activate") == 0
    assert capsys.readouterr().out == "version 1 is active in slot a, on trial\n"
    with pytest.raises(PhysaiError, match=r"not committed, watching: waiting for the runtime.*--now"):
        robot("commit")
    assert robot("commit", "--now") == 0
    assert "version 1 is committed (by hand, although watching: " in capsys.readouterr().out
    assert robot("install", str(bundle_file)) == 0
    assert "version 1 was installed already in slot a, active" in capsys.readouterr().out
    assert robot("status") == 0
    said = capsys.readouterr().out
    assert "robot  pendulum" in said
    assert "floor  1: older versions are refused" in said
    assert "\x1b" not in said


def test_json(rooted: Site, bundle_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert robot("install", str(bundle_file), "--activate", "--json") == 0
    found = record(capsys)
    assert (found["slot"], found["was_there"], found["active"], found["activated"]) == ("a", False, True, True)
    assert found["marker"]["version"] == 1
    assert robot("status", "--json") == 0
    found = record(capsys)
    assert found["active"]["version"] == 1
    assert found["trial"]["version"] == 1
    assert found["health"]["health"] == "watching"
    assert robot("rollback", "--reason", "it limps", "--json") == 0
    assert record(capsys) == {"version": 1, "slot": None, "reason": "it limps"}
    assert robot("status", "--json") == 0
    found = record(capsys)
    assert found["active"] is None
    assert found["last_rollback"]["reason"] == "it limps"
    assert found["warnings"] == ["no policy is active"]
    assert robot("gc", "--idle", "--json") == 0
    assert record(capsys)["freed_bytes"] > len(rooted.bundles[1])
    assert robot("recover", "--json") == 0
    assert record(capsys) == {"actions": []}


def test_status_says_why_it_went_back(rooted: Site, capsys: pytest.CaptureFixture[str]) -> None:
    rooted.run(1)
    rooted.run(2, commit=False)
    rooted.agent.rollback("the guard intervened in 7 ticks")
    assert robot("status") == 0
    assert (
        "went back from version 2 at 2026-11-21T12:00:00Z: the guard intervened in 7 ticks" in capsys.readouterr().out
    )


def test_no_verdict_is_red(rooted: Site, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    path = folder / "unsafe.physai"
    path.write_bytes(rooted.workshop.published(sample_policy(seed=3), version=3))
    with pytest.raises(PhysaiError, match="no-verdict"):
        robot("install", str(path))
    assert robot("install", str(path), "--unsafe-no-verdict", "--activate") == 0
    assert "version 3 has NO VALID VERDICT" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert robot("status") == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "\x1b[31mversion 3 runs WITHOUT A VALID VERDICT (--unsafe-no-verdict)\x1b[0m"


def test_from_standard_input(rooted: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rooted.bundles[1])))
    assert robot("install", "-", "--json") == 0
    assert record(capsys)["slot"] == "a"


def test_from_uploads(rooted: Site, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = read_bundle(rooted.bundles[1]).members
    digests = {name: members.sha256(name) for name in members}
    assert robot("missing", "--json", *digests.values()) == 0
    assert record(capsys) == {"missing": list(digests.values())}
    for name, digest in digests.items():
        (rooted.agent.root / "incoming" / digest).write_bytes(members[name])
    assert robot("missing", *digests.values()) == 0
    assert capsys.readouterr().out.strip() == ""
    recipe = folder / "recipe.json"
    recipe.write_text(json.dumps(digests))
    assert robot("install", "--recipe", str(recipe), "--json") == 0
    assert record(capsys)["marker"]["version"] == 1


def test_setup_and_doctor(
    folder: Path, rooted: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = folder / "new"
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    assert robot("doctor", "--json") == 1
    assert record(capsys)["checks"][0]["name"] == "tree"
    trust = folder / "trust.json"
    rooted.workshop.signed().save(trust)
    assert robot("setup", "--robot", ROBOT, "--joints", "pivot", "--trust", str(trust), "--health-window-s", "5") == 0
    assert capsys.readouterr().out == (
        f"{root} is ready for pendulum\nits key is {root}/robot.pub; its owner enrols it with `physai keys trust`\n"
    )
    path = folder / "first.physai"
    path.write_bytes(rooted.bundles[1])
    assert robot("install", str(path), "--activate") == 0
    capsys.readouterr()
    assert robot("doctor") == 0
    said = capsys.readouterr().out
    assert "slot a       version 1, all bytes verified" in said
    (root / "slots/a/bundle.physai").write_bytes(b"x")
    assert robot("doctor") == 1
    assert "BAD  slot a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("setup", "--robot", "a b"), "robot: String should match"),
        (("setup", "--robot", ROBOT, "--health-window-s", "-1"), "--health-window-s: Input should be greater than 0"),
        (("install", "/nowhere/at/all"), "cannot be read"),
        (("install", "--recipe", "/nowhere/at/all"), "cannot be read"),
        (("install",), "name one source: a bundle file, or --recipe FILE"),
        (("install", "x", "--recipe", "y"), "not allowed with"),
        (("install", "x", "--backend", "tensorrtt"), "did you mean tensorrt"),
        *(((*words, "--root", "/nowhere/at/all"), "/nowhere/at/all: no such folder; create it") for words in ON_A_ROOT),
        (("status", "--wait-s", "nan"), "argument --wait-s: expected a finite number, got .nan."),
        (("receive", "--wait", "inf"), "argument --wait-s: expected a finite number, got .inf."),
        (("watch", "--wait-s", "-1"), r"--wait-s must lie in 0 … 86400 s, got -1"),
        (("fly",), "fly"),
    ],
)
def test_bad_input(rooted: Site, words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(PhysaiError, match=reason):
        robot(*words)


def test_watch_once(rooted: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert robot("watch", "--once", "--json") == 0
    assert record(capsys)["end"] == "none"


def test_watch_commits_what_is_healthy(rooted: Site, capsys: pytest.CaptureFixture[str]) -> None:
    rooted.run(1)
    rooted.agent.install(rooted.bundles[2])
    assert robot("activate") == 0
    make_healthy(rooted)
    capsys.readouterr()
    assert robot("watch", "--once") == 0
    assert capsys.readouterr().out == "version 2 committed: 100 ticks, 0 missed, no fault\n"
    assert rooted.agent.store.state().floor == 2


def test_watch_tells_the_end_of_every_trial_until_it_is_interrupted(
    rooted: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    rooted.run(1)
    rooted.agent.install(rooted.bundles[2])
    assert robot("activate") == 0
    make_healthy(rooted)
    capsys.readouterr()

    # A test run in the background of a shell inherits that interrupts are ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        until(lambda: rooted.agent.store.state().floor == 2)
        time.sleep(1.0)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert robot("watch") == 0
    assert capsys.readouterr().out == "version 2 committed: 100 ticks, 0 missed, no fault\n"


def test_commit_of_what_is_healthy(rooted: Site, capsys: pytest.CaptureFixture[str]) -> None:
    rooted.run(1)
    rooted.agent.install(rooted.bundles[2])
    assert robot("activate") == 0
    make_healthy(rooted)
    capsys.readouterr()
    assert robot("commit", "--json") == 0
    assert record(capsys) == {"version": 2, "slot": "b", "reason": "100 ticks, 0 missed, no fault"}


def test_each_procedure_is_one_call(
    rooted: Site, bundle_file: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = rooted.agent.root
    stages: list[str] = []
    result = install(bundle_file, tree=root, progress=lambda stage, share: stages.append(stage))
    assert (result.slot, result.active, stages[0], stages[-1]) == ("a", False, "verify", "seal")
    assert activate(tree=RobotTree(root=root)).version == 1
    with pytest.raises(PhysaiError, match="not committed, watching"):
        commit(tree=root)
    assert commit(now=True, tree=root).slot == "a"
    again = install(rooted.bundles[2], activate=True, tree=root)
    assert (again.slot, again.active, again.activated) == ("b", True, True)
    assert vars(rollback(reason="it limps", tree=root)) == {"version": 2, "slot": "a", "reason": "it limps"}
    status = robot_status(tree=root)
    assert status.active is not None
    assert (status.floor, status.active.version) == (1, 1)
    assert (watch_trials(once=True, tree=root).end, recover(tree=root)) == ("none", ())
    assert robot_time(tree=root).corrections == 0
    assert collect_garbage(idle=True, tree=root) > len(rooted.bundles[2])
    assert missing_members(["a" * 64], tree=root) == ["a" * 64]
    new = set_up_robot(robot=ROBOT, joints=["pivot"], trust=rooted.workshop.signed(), tree=folder / "other")
    assert {check.name for check in examine_robot(tree=new)} >= {"tree", "state"}
    with pytest.raises(PhysaiError, match="create it with `physai robot setup`"):
        robot_status(tree=folder / "none")
    assert capsys.readouterr() == ("", "")


def test_ticks_are_measured_in_one_call(rooted: Site, folder: Path) -> None:
    members = read_bundle(rooted.bundles[1]).members
    for name in ("policy.onnx", "golden.npz"):
        (folder / name).write_bytes(members[name])
    done: list[int] = []
    out = folder / "ticks.json"
    measured = measure_ticks(folder / "policy.onnx", out=out, ticks=300, tree=rooted.agent.root, progress=done.append)
    assert len(measured.evidence.tick_s) == 300
    assert load_evidence(out) == measured.evidence
    assert (measured.evidence.origin.robot, done[0]) == (ROBOT, 0)
    assert robot("measure", str(folder / "policy.onnx"), "--output", str(out), "--ticks", "10") == 0
    assert len(load_evidence(out).tick_s) == 10
