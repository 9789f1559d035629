"""A policy that was activated and waits to take over loses its verdict before it commands its first tick."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.site import Site
from tests.support.patience import PATIENCE_S, until
from tests.support.status_runs import Patient, Run, driving

from physai.deploy_jetson.runtime.commands.queue import Command, CommandError
from physai.deploy_jetson.runtime.hot_swap.candidate import Candidate
from physai.deploy_jetson.runtime.hot_swap.health_report import RuntimeHealth
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.loop.tick import Tick
from physai.deploy_jetson.runtime.system.timer import DeadlineTimer
from physai.sdk.contract.policy_contract import PolicyContract


@pytest.fixture
def stick(folder: Path) -> Path:
    return folder / "stick"


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[RuntimeHealth]:
    """The counters of the policy that drove, of each tick in RUN."""
    found: list[RuntimeHealth] = []
    count = RuntimeHealth.tick

    def tick(self: RuntimeHealth, now_ns: int, *, missed: bool, intervened: bool) -> None:
        found.append(self)
        count(self, now_ns, missed=missed, intervened=intervened)

    monkeypatch.setattr(RuntimeHealth, "tick", tick)
    return found


@contextmanager
def loading(monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[threading.Event, threading.Event]]:
    """Events: the engine of the next policy has begun to load, and it may end."""
    begun, ready, load = threading.Event(), threading.Event(), Candidate.load

    def slow(self: Candidate, contract: PolicyContract) -> BoundPolicy:
        if self.version > 1:
            begun.set()
            assert ready.wait(PATIENCE_S)
        return load(self, contract)

    with monkeypatch.context() as patch:
        patch.setattr(Candidate, "load", slow)
        try:
            yield begun, ready
        finally:
            ready.set()


def took_over(run: Run, version: int) -> bool:
    loaded = run.runtime.loaded
    return loaded is not None and loaded.candidate.version == version


def revoke(run: Run, serial: int, *versions: int) -> None:
    """Has the runtime, but not the scout that examines what is activated, know the word."""
    run.word(serial, *versions)
    until(lambda: any(f"serial {serial}" in text for text in run.said), said=lambda: run.said)


def test_a_revoked_policy_that_was_still_loading_takes_over_in_hold(
    site: Site, stick: Path, driven: list[RuntimeHealth], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.run(1)
    with driving(site, stick, hot_swap=True) as run, loading(monkeypatch) as (begun, ready):
        site.run(2, commit=False)
        until(begun.is_set, said=lambda: run.said)
        revoke(run, 1, 2)
        assert run.guard == "RUN"
        ready.set()
        until(lambda: took_over(run, 2), said=lambda: run.said)
        run.wait_for("HOLD")
        health = run.runtime.loaded and run.runtime.loaded.health
        assert driven
        assert health not in driven
        assert "the verdict on version 2 is revoked" in run.runtime.status()["verdict"]["barred"]
        run.reset()
        with pytest.raises(CommandError, match="the verdict on version 2 is revoked"):
            run.ask(Command.START)


class Coming(Patient):
    """A robot that is off until another policy is loaded."""

    off = True

    def missing(self) -> tuple[tuple[str, float], ...]:
        return (("joint_pos", 1.0),) if self.off else ()


def test_nor_does_one_that_takes_over_while_an_activation_waits_for_the_robot(
    site: Site, stick: Path, driven: list[RuntimeHealth], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.run(1)
    robot = Coming()
    change = Tick.change

    def change_and_come(self: Tick, policy: BoundPolicy) -> None:
        change(self, policy)
        # The robot answers in the very look in which the policy takes over.
        robot.off = False

    monkeypatch.setattr(Tick, "change", change_and_come)
    with driving(site, stick, hot_swap=True, robot=robot, wait="") as run, loading(monkeypatch) as (begun, ready):
        until(lambda: "joint_pos" in run.runtime.waiting_for)
        site.run(2, commit=False)
        until(begun.is_set, said=lambda: run.said)
        revoke(run, 1, 2)
        ready.set()
        until(lambda: took_over(run, 2), said=lambda: run.said)
        until(lambda: run.runtime.status()["verdict"]["barred"] and "revoked" in run.runtime.waiting_for)
        assert driven == []
        assert robot.sent == 0


def test_no_tick_begins_with_a_policy_after_its_word_was_read(
    site: Site, stick: Path, driven: list[RuntimeHealth], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word was looked at after each tick, so one that came while the loop waited for the next had one more tick."""
    site.run(1)
    armed, counts = threading.Event(), list[int]()
    wait = DeadlineTimer.wait
    with driving(site, stick, poll_s=86400.0) as run:

        def wait_and_read(self: DeadlineTimer, due_ns: int) -> int:
            late = wait(self, due_ns)
            if armed.is_set():
                armed.clear()
                words: Any = run.runtime._words  # pyright: ignore[reportPrivateUsage]
                words._live.ask(str(stick))
                counts.append(len(driven))
            return late

        monkeypatch.setattr(DeadlineTimer, "wait", wait_and_read)
        run.word(1, 1)
        armed.set()
        run.wait_for("HOLD")
        assert counts == [len(driven)]


def test_a_revoked_policy_that_waits_for_its_start_envelope_ends_the_run_at_once(
    folder: Path, stick: Path, workshop: SampleSigners, driven: list[RuntimeHealth]
) -> None:
    """It waited on, and the robot stopped by surprise once it came where that policy begins."""
    safety = {"start": {"joints": [{"joint": "pivot", "lower": -0.2, "upper": 0.2}]}}
    bundles = {version: workshop.bundle(version, slower=15.0, safety=safety) for version in (1, 2)}
    site = Site.make(folder / "robot", workshop, bundles, now=workshop.created)
    site.run(1)
    site.agent.install(bundles[2])
    robot = Patient()
    with driving(site, stick, hot_swap=True, robot=robot, on_revoked="back") as run:
        robot.pinned = 1.0
        until(lambda: abs(float(robot.sample().fields["joint_pos"][0])) > 0.5)
        site.agent.activate()
        until(lambda: any("version 2 waits to take over" in text for text in run.said), said=lambda: run.said)
        revoke(run, 1, 2)
        run.wait_for("HOLD")
        # Back to the version before, whose verdict stands.
        until(lambda: took_over(run, 1) and site.active_version == 1, said=lambda: run.said)
        until(lambda: run.runtime.status()["verdict"]["barred"] == "", said=lambda: run.said)
        assert run.guard == "HOLD"
        robot.pinned = 0.0
        run.start()
        assert len(set(map(id, driven))) == 2
