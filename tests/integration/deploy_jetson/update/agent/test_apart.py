"""A policy that hangs or crashes its self-test: the installation fails, says so, and leaves the slots unlocked."""

import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import SampleSigners, quick_clock, sample_policy
from tests.harness.fixtures.site import Site
from tests.support import hanging_policy

from physai.deploy_jetson.inference.engine import InferenceError
from physai.deploy_jetson.runtime.hot_swap.candidate import examine
from physai.deploy_jetson.runtime.hot_swap.golden_check import examine_apart
from physai.deploy_jetson.update.agent import selftest, selftest_apart
from physai.deploy_jetson.update.agent.active import open_active
from physai.deploy_jetson.update.agent.selftest import run_self_test
from physai.deploy_jetson.update.agent.tested import Tested
from physai.deploy_jetson.update.slots.slot_errors import InstallError
from physai.sdk.base.process import isolation as apart
from physai.sdk.base.process.isolation import ApartError, call_apart
from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE


def children() -> list[str]:
    """Processes of this one."""
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()


@pytest.fixture
def hanging(workshop: SampleSigners) -> bytes:
    """A bundle whose policy takes minutes for one state."""
    members = hanging_policy.policy(hanging_policy.contract("joint_effort"), chain=500)
    return workshop.validated(workshop.published(members, version=2))


@pytest.mark.slow
def test_a_policy_that_hangs_is_not_installed(site: Site, hanging: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest_apart, "CALL_S", 2.0)
    monkeypatch.setattr(selftest_apart, "CALL_DEADLINES", 0.0)
    agent, before = site.on(apart=True), children()
    begun = time.monotonic()
    with pytest.raises(InstallError, match=r"version 2 not installed: the self-test of policy.onnx hung: no message"):
        agent.install(hanging)
    assert time.monotonic() - begun > 2.0
    assert children() == before
    assert agent.store.marker("a") is None
    # Not locked, and as good as ever.
    agent.install(site.bundles[1])
    agent.activate()
    assert site.active_version == 1


def test_one_that_hangs_before_the_first_state_is_not_installed(
    site: Site, workshop: SampleSigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime computes constants when it loads a graph."""
    members = hanging_policy.policy(hanging_policy.contract("joint_effort"), chain=500, folded=True)
    monkeypatch.setattr(selftest_apart, "CALL_S", 2.0)
    monkeypatch.setattr(selftest_apart, "CALL_DEADLINES", 0.0)
    with pytest.raises(InstallError, match=r"the self-test of policy.onnx hung: no message for 2 s \(reference\)"):
        site.on(apart=True).install(workshop.published(members, version=2), unsafe_no_verdict=True)


def test_one_that_is_slow_is_refused_at_its_first_state(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 137 GFLOP: no processor takes less than the 36 ms of one deadline, and a fast one less than the usual second.
    monkeypatch.setattr(selftest, "FIRST_CALL_S", 0.0)
    monkeypatch.setattr(selftest, "FIRST_CALL_DEADLINES", 1.0)
    members = hanging_policy.policy(hanging_policy.contract("joint_effort"), chain=8)
    with pytest.raises(InferenceError, match=r"the first inference takes [0-9.]+ s here, .* deadline is 36 ms"):
        run_self_test(members, POLICY_FILE, backend="onnxruntime", ticks=5)


def test_one_that_takes_all_memory_is_not_installed(
    site: Site, workshop: SampleSigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two matrices of 400 MB each, where 512 MiB are allowed."""
    members = hanging_policy.policy(hanging_policy.contract("joint_effort"), chain=3, width=10_000)
    monkeypatch.setattr(apart, "free_bytes", lambda: 1 << 30)
    before = children()
    with pytest.raises(
        InstallError, match=r"policy.onnx used [0-9]+ MiB of memory \(reference\), the limit is 512 MiB"
    ):
        site.on(apart=True).install(workshop.published(members, version=2), unsafe_no_verdict=True)
    assert children() == before


def test_what_is_shown_apart_is_what_is_shown_here(site: Site) -> None:
    told: list[tuple[str, float]] = []
    here = site.agent.install(site.bundles[1]).marker

    def progress(stage: str, share: float) -> None:
        told.append((stage, share))

    there = site.on(apart=True).install(site.bundles[1], again=True, progress=progress).marker
    assert there.runtime == here.runtime
    assert there.self_test == here.self_test
    stages = list(dict.fromkeys(stage for stage, _ in told))
    assert stages == ["verify", "write", "reference", "engine", "latency", "seal"]
    assert ("reference", 0.25) in told


def test_why_it_fails_is_told_as_it_is_here(site: Site, workshop: SampleSigners) -> None:
    members = {**sample_policy(seed=1), GOLDEN_FILE: sample_policy(seed=2)[GOLDEN_FILE]}
    bundle = workshop.published(members, version=2)
    reasons: list[str] = []
    for is_apart in (False, True):
        with pytest.raises(InstallError) as caught:
            site.on(apart=is_apart).install(bundle, unsafe_no_verdict=True)
        reasons.append(str(caught.value))
    assert reasons[0] == reasons[1]


class Crash:
    """Unpickled, it ends the process."""

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return os.abort, ()


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (pickle.dumps(Crash()), r"the test crashed: its process ended with SIGABRT"),
        (b"no pickle", r"UnpicklingError"),
    ],
)
def test_a_process_that_dies_or_fails(request_bytes: bytes, reason: str) -> None:
    before = children()
    with pytest.raises(ApartError, match=reason):
        call_apart(selftest_apart.__name__, request_bytes, what="the test", limit_s=lambda told: 60.0)
    assert children() == before


class ReportProgress:
    """Unpickled, it says by an exception what the kernel thinks of the process."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise ValueError(open('/proc/self/oom_score_adj').read())",)


def test_a_policy_that_takes_all_memory_costs_nobody_else_theirs() -> None:
    """The runtime that drives the robot meanwhile is another process of the same computer."""
    with pytest.raises(ApartError, match=r"^ValueError: 1000"):
        call_apart(selftest_apart.__name__, pickle.dumps(ReportProgress()), what="the test", limit_s=lambda told: 60.0)


def test_one_that_does_not_even_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "START_S", 0.0)
    with pytest.raises(ApartError, match=r"the test hung: no message for 0 s \(start\); killed"):
        call_apart(selftest_apart.__name__, b"", what="the test", limit_s=lambda told: 60.0)


def test_a_policy_that_hangs_once_it_is_active(site: Site, hanging: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run_self_test(sample_policy(seed=1), POLICY_FILE, backend="onnxruntime", ticks=5, clock_ns=quick_clock)

    def passed(*given: Any, **named: Any) -> Tested:
        """As a test whose inputs do not bring the policy to hang."""
        return shown

    with monkeypatch.context() as patched:
        patched.setattr(selftest, "run_self_test", passed)
        site.agent.install(hanging)
    site.agent.activate()
    monkeypatch.setattr(selftest_apart, "CALL_S", 2.0)
    monkeypatch.setattr(selftest_apart, "CALL_DEADLINES", 0.0)
    before = children()
    with pytest.raises(ApartError, match="the examination of what was activated hung: no message for 2 s"):
        examine_apart(site.agent.root, None, 0.0)
    assert children() == before


def test_a_good_one_is_examined_apart_as_here(site: Site) -> None:
    site.run(1)
    assert examine_apart(site.agent.root, None, 0.0) == examine(open_active(site.agent.root))


@pytest.mark.parametrize(
    ("says", "problem"),
    [
        ("connection._send(b'\\x00\\x00\\x00\\x09half'); time.sleep(600)", "crashed: its process ended with SIGKILL"),
        ("connection.send_bytes(b'no JSON'); time.sleep(600)", "sent a message that is not JSON"),
    ],
)
def test_half_a_message_and_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, problem: str) -> None:
    """As from a process that is stopped while it writes, or whose memory a policy has spoilt."""
    program = "import sys, time\nfrom multiprocessing.connection import Connection\n"
    program += f"connection = Connection(int(sys.argv[2]))\n{says}\n"
    (tmp_path / "strange_work.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(apart, "START_S", 5.0)
    before = children()
    with pytest.raises(ApartError, match=f"the work.*{problem}"):
        call_apart("strange_work", b"", what="the work", limit_s=lambda facts: 1.0)
    assert children() == before
