"""What a runtime does with the lease of its robot, whatever else happens."""

import threading
import time

import numpy as np
import pytest
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.site import Site
from tests.support.patience import until

from physai.deploy_jetson.runtime.commands.lease import LeaseKeeper
from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.loop.loop import Loop, LoopEnd
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.ticks.lifecycle import Lifecycle


class Leased(LocalRobot):
    """A robot that is had at once, and that may become unreachable."""

    def __init__(self) -> None:
        super().__init__()
        self.lease_number = 0
        self.had = False
        self.gone: tuple[tuple[str, float], ...] = ()
        self.events: list[str] = []
        self.broken = False
        self.renewed = 0

    def missing(self) -> tuple[tuple[str, float], ...]:
        return self.gone

    def claim(self) -> str:
        """Asked for once, had from then on; that is told late, so that something may come between."""
        before, self.had = self.had, True
        return "" if before else "the robot's lease"

    def renew(self) -> None:
        if self.broken:
            raise ZeroDivisionError
        self.renewed += 1

    def lost(self) -> str:
        return ""

    def release(self) -> None:
        self.had = False
        self.events.append("released")


def begun(site: Site, robot: Leased) -> tuple[Runtime, threading.Thread]:
    """A runtime that waits for `activate`, in a thread."""
    site.run(1)
    options = RunOptions(root=site.agent.root, stand_by=True, hot_swap=False, realtime=Realtime(lock_memory=False))
    made = Runtime(options, robot, say=lambda _: None)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    until(lambda: made.state is Lifecycle.INACTIVE)
    return made, thread


@pytest.mark.parametrize("what", ["stop", "deactivate"])
def test_a_request_that_is_withdrawn_gives_the_robot_up_whatever_is_in_the_way(what: str, site: Site) -> None:
    robot = Leased()
    made, thread = begun(site, robot)
    robot.gone = (("joint_pos", 1.0),)
    until(lambda: "joint_pos" in made.waiting_for)
    robot.had = True
    made.commands.put(Command.ACTIVATE)
    made.commands.put(Command(what))
    until(lambda: not robot.had)
    assert "joint_pos" in made.waiting_for
    made.commands.put(Command.SHUTDOWN)
    thread.join()


def test_a_robot_that_cannot_be_driven_is_not_kept_from_others(site: Site) -> None:
    robot = Leased()
    made, thread = begun(site, robot)
    robot.gone = (("joint_pos", 1.0),)
    until(lambda: "joint_pos" in made.waiting_for)
    made.commands.put(Command.ACTIVATE)
    robot.had = True
    until(lambda: not robot.had)
    robot.gone = ()
    until(lambda: made.state is Lifecycle.ACTIVE)
    made.commands.put(Command.SHUTDOWN)
    thread.join()


def test_a_robot_that_another_runtime_moves_is_waited_for_by_that_name(site: Site) -> None:
    """Its motion comes second: it ends when the other runtime does."""

    class Taken(Leased):
        """A robot that moves, and another runtime has it at first."""

        other = "the robot's lease, which the runtime a/1/b has"
        speed, at_s = 0.5, time.monotonic()

        def claim(self) -> str:
            self.had = not self.other
            return self.other

        def poll(self) -> bool:
            # Swings so far that even a process that got no time for a second still measures its speed.
            now = time.monotonic()
            self.position[:] += self.speed * (now - self.at_s)
            self.at_s = now
            if abs(self.position[0] - self._default[0]) > 1.0:
                self.speed = -self.speed
                self.position[:] = np.clip(self.position, self._default - 1.0, self._default + 1.0)
            if not self.speed:
                self.position[:] = self._default
            return super().poll()

    robot = Taken()
    made, thread = begun(site, robot)
    made.commands.put(Command.ACTIVATE)
    until(lambda: made.waiting_for == robot.other)
    Taken.other = ""
    until(lambda: "the robot to be at rest" in made.waiting_for)
    robot.speed = 0.0
    until(lambda: made.state is Lifecycle.ACTIVE)
    made.commands.put(Command.SHUTDOWN)
    thread.join()


def test_after_an_exception_the_robot_is_given_up_once_the_watchdog_is_silent(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = Leased()

    class Silent:
        """A watchdog that only ends."""

        def obstacle(self) -> str:
            return ""

        def problem(self) -> str:
            return ""

        def close(self) -> None:
            robot.events.append("the watchdog is silent")

    def silent(*given: object) -> Silent:
        del given
        return Silent()

    def fail(self: Loop, *_: object, **__: object) -> LoopEnd:
        assert robot.had
        robot.events.clear()
        raise KeyboardInterrupt

    monkeypatch.setattr(Loop, "run", fail)
    monkeypatch.setattr("physai.deploy_jetson.runtime.runtime.open_watchdog", silent)
    site.run(1)
    options = RunOptions(root=site.agent.root, hot_swap=False, realtime=Realtime(lock_memory=False))
    with pytest.raises(KeyboardInterrupt):
        Runtime(options, robot, say=lambda _: None).run()
    assert robot.events == ["the watchdog is silent", "released"]


def test_a_claim_that_cannot_be_renewed_is_told_and_tried_again() -> None:
    robot = Leased()
    robot.broken = True
    keeper = LeaseKeeper(robot)
    keeper.start()
    until(lambda: keeper.problem == "the lease of the robot cannot be renewed: ZeroDivisionError")
    robot.broken = False
    until(lambda: robot.renewed and not keeper.problem)
    keeper.close()
    assert robot.events == ["released"]
