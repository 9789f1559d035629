"""The runtime behind a managed node: each transition with the real loop, in its thread, on a robot in this process."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.site import Site
from tests.support.patience import until

from physai.deploy_jetson.runtime.commands.queue import Command, CommandError, RequestTicket
from physai.deploy_jetson.runtime.loop.loop import LoopEnd
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.stop.stop_records import RECORD_FILE
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.deploy_jetson.update.slots.slot_errors import SlotError
from physai.ros.drive import Drive, DriveError
from physai.sdk.safety import GuardState
from physai.sdk.transport.protocol import TransportError
from physai.transport.notices import Notices

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
WAIT_S = 30.0


class Deaf(LocalRobot):
    """A robot whose joints are never heard."""

    def poll(self) -> bool:
        return False

    def missing(self) -> tuple[tuple[str, float], ...]:
        return (("joint_pos", 7.0),)

    def problems(self) -> tuple[str, ...]:
        return ("/joint_states: nobody publishes it",)


class Grumbling(Deaf):
    """A robot that is never heard, and remembers each of its complaints until it is told to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.complaint = "first cause"
        self._notices = Notices()

    def missing(self) -> tuple[tuple[str, float], ...]:
        self._notices.add(self.complaint)
        return super().missing()

    def problems(self) -> tuple[str, ...]:
        return tuple(text.partition(" (")[0] for text in self._notices.told())

    def forget(self) -> None:
        self._notices.forget()


class Vanishing(LocalRobot):
    """A robot that falls silent."""

    gone = False

    def poll(self) -> bool:
        return not self.gone and super().poll()


class Shy(LocalRobot):
    """A robot that lets itself be heard later."""

    shy = True

    def poll(self) -> bool:
        return not self.shy and super().poll()

    def missing(self) -> tuple[tuple[str, float], ...]:
        return (("joint_pos", 7.0),) if self.shy else super().missing()


class Broken(LocalRobot):
    """A transport that fails in a way nobody foresaw."""

    def open(self, contract: object) -> None:
        raise ZeroDivisionError(type(contract).__name__)


class Slow(LocalRobot):
    """A transport that fails to open, after a while."""

    def __init__(self) -> None:
        super().__init__()
        self.opening, self.fails = threading.Event(), threading.Event()

    def open(self, contract: object) -> None:
        self.opening.set()
        assert self.fails.wait(WAIT_S)
        raise TransportError(f"{type(contract).__name__}: no network")


class Unreachable(LocalRobot):
    """A transport that cannot be opened."""

    def open(self, contract: object) -> None:
        raise TransportError(f"{type(contract).__name__}: no network")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    workshop = SampleSigners(created=NOW - timedelta(hours=1))
    made = Site.make(tmp_path_factory.mktemp("ros") / "robot", workshop, {1: workshop.bundle(1)}, now=NOW)
    made.run(1)
    return made


@pytest.fixture
def drives(site: Site) -> Iterator["Drives"]:
    made = Drives(site.agent.root)
    yield made
    for drive in made.started:
        drive.stop(WAIT_S)


class Drives:
    """Makes drives, and remembers them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Of a test before, which shares the tree.
        (root / RECORD_FILE).unlink(missing_ok=True)
        self.started: list[Drive] = []
        self.told: list[str] = []

    def make(self, robot: LocalRobot) -> Drive:
        options = RunOptions(root=self.root, realtime=Realtime(lock_memory=False), hot_swap=False)
        drive = Drive(options, robot, say=self.told.append)
        self.started.append(drive)
        return drive


def test_up_and_down_and_up_again(drives: Drives) -> None:
    robot = LocalRobot()
    drive = drives.make(robot)
    drive.start(WAIT_S)
    assert drive.runtime.state is Lifecycle.INACTIVE
    assert robot.sent == 0
    for _ in range(2):
        before = robot.sent
        drive.activate(WAIT_S)
        assert drive.runtime.state is Lifecycle.ACTIVE
        drive.deactivate(WAIT_S)
        assert drive.runtime.state is Lifecycle.INACTIVE
        assert robot.sent > before
    sent = robot.sent
    drive.stop(WAIT_S)
    assert drive.runtime.state is Lifecycle.FINALIZED
    assert drive.end is LoopEnd.SHUTDOWN
    assert robot.sent == sent
    drive.stop(WAIT_S)


def test_a_robot_that_is_not_heard_is_not_driven(drives: Drives) -> None:
    robot = Deaf()
    drive = drives.make(robot)
    drive.start(WAIT_S)
    until(lambda: drive.runtime.waiting_for)
    with pytest.raises(DriveError, match=r"joint_pos \(for 7 s\).*nobody publishes it"):
        drive.activate(0.3)
    assert drive.runtime.state is Lifecycle.INACTIVE
    assert robot.sent == 0
    assert drive.running


@pytest.mark.parametrize("order", [Command.STOP, Command.HOLD, Command.DAMP])
def test_whoever_brakes_takes_an_activation_back(
    drives: Drives, order: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for later: a robot that is heard after the emergency stop stays where it is until it is activated again."""
    robot = Shy()
    drive = drives.make(robot)
    drive.start(WAIT_S)
    queue, asked = drive.runtime.commands, threading.Event()
    put = queue.put

    def note(one: Command) -> RequestTicket | None:
        ticket = put(one)
        if one is Command.ACTIVATE:
            asked.set()
        return ticket

    def brake() -> None:
        assert asked.wait(WAIT_S)
        until(lambda: not len(queue))
        with pytest.raises(DriveError, match="nothing is sent; the pending activation is cancelled"):
            drive.brake(order)

    # Before the order to activate there is nothing to take back.
    monkeypatch.setattr(queue, "put", note)
    threading.Thread(target=brake).start()
    with pytest.raises(DriveError, match=f"cancelled by {order.value}"):
        drive.activate(WAIT_S)
    robot.shy = False
    time.sleep(0.3)
    assert drive.runtime.state is Lifecycle.INACTIVE
    assert robot.sent == 0
    if order is Command.STOP:
        with pytest.raises(DriveError, match="not activated: refused: reset the stop first"):
            drive.activate(WAIT_S)
        with pytest.raises(CommandError, match="nothing is driven; `activate` begins to drive"):
            drive.request(Command.START)
        until(lambda: obeyed(drive, Command.RESET))
    drive.activate(WAIT_S)
    assert drive.runtime.state is Lifecycle.ACTIVE
    drive.deactivate(WAIT_S)
    assert drive.runtime.guard_state != "PROTECTIVE_STOP"


def test_without_a_robot_nothing_is_reset_or_started(drives: Drives) -> None:
    """Finding 7: services of an inactive node answered success to `reset` with no robot there."""
    drive = drives.make(Deaf())
    drive.start(WAIT_S)
    for command in (Command.RESET, Command.START):
        with pytest.raises(CommandError, match="nothing is driven"):
            drive.request(command)


def test_a_stop_after_the_order_to_activate_stays(drives: Drives) -> None:
    robot = Shy()
    drive = drives.make(robot)
    drive.start(WAIT_S)
    for order in (Command.ACTIVATE, Command.STOP):
        drive.runtime.commands.put(order)
    # Heard between the two orders it would be driven until the second.
    robot.shy = False
    time.sleep(0.3)
    assert drive.runtime.state is Lifecycle.INACTIVE
    assert robot.sent == 0


@pytest.mark.parametrize("state", [GuardState.HOLD, GuardState.DAMP])
def test_where_nothing_is_driven_no_request_succeeds(drives: Drives, state: GuardState) -> None:
    command = Command.HOLD if state is GuardState.HOLD else Command.DAMP
    drive = drives.make(LocalRobot())
    drive.start(WAIT_S)
    with pytest.raises(DriveError, match=r"is not driving the robot, nothing is sent$"):
        drive.braked(command, state)
    with pytest.raises(CommandError, match="start: refused: nothing is driven"):
        drive.request(Command.START)
    with pytest.raises(CommandError, match="reset: there is no stop to reset"):
        drive.request(Command.RESET)
    with pytest.raises(DriveError, match="nothing is sent; activation is blocked until reset"):
        drive.brake(Command.STOP)
    drive.stop(WAIT_S)
    with pytest.raises(DriveError, match=r"is not driving the robot, nothing is sent$"):
        drive.braked(command, state)
    with pytest.raises(DriveError, match="the policy has ended"):
        drive.request(Command.RESET)


def test_a_stop_that_the_disk_refuses_is_not_durable_wherever_it_is_requested(drives: Drives) -> None:
    """A stop of a node that does not drive was acknowledged before it was recorded, and never after its loop had ended.

    Both answers said that activation is blocked until reset.
    """
    drive = drives.make(LocalRobot())
    drive.start(WAIT_S)
    record = drive.runtime.options.root / RECORD_FILE
    with pytest.raises(DriveError, match=r"nothing is sent; activation is blocked until reset$"):
        drive.confirmed_stop(WAIT_S)
    assert b'"stopped": true' in record.read_bytes()
    record.unlink()
    record.mkdir()
    with pytest.raises(DriveError, match=r"blocked until reset; the stop is NOT DURABLE: .*Is a directory"):
        drive.confirmed_stop(WAIT_S)
    drive.stop(WAIT_S)
    with pytest.raises(DriveError, match="the policy has ended, nothing is driven; the stop is NOT DURABLE"):
        drive.confirmed_stop(WAIT_S)
    record.rmdir()
    with pytest.raises(DriveError, match=r"the stop is recorded and blocks until reset$"):
        drive.confirmed_stop(WAIT_S)
    again = drives.make(LocalRobot())
    again.start(WAIT_S)
    assert again.runtime.commands.stopped
    until(lambda: obeyed(again, Command.RESET))


@pytest.mark.parametrize("fails_s", [0.0, WAIT_S], ids=["fails while the stop waits", "still loads"])
def test_a_stop_while_the_policy_loads_is_recorded(drives: Drives, fails_s: float) -> None:
    """It was forgotten if the policy then failed to load, and by a kill; "blocked until reset" was the answer."""
    robot = Slow()
    drive = drives.make(robot)
    loading = threading.Thread(target=fails_to_start, args=(drive,))
    loading.start()
    assert robot.opening.wait(WAIT_S)
    failing = threading.Timer(fails_s, robot.fails.set)
    failing.start()
    with pytest.raises(DriveError, match=r"the stop is recorded and blocks until reset$"):
        drive.confirmed_stop(0.5)
    assert b'"stopped": true' in (drives.root / RECORD_FILE).read_bytes()
    failing.cancel()
    robot.fails.set()
    loading.join(WAIT_S)
    again = drives.make(LocalRobot())
    again.start(WAIT_S)
    assert again.runtime.commands.stopped
    until(lambda: obeyed(again, Command.RESET))


def fails_to_start(drive: Drive) -> None:
    with pytest.raises(TransportError):
        drive.start(WAIT_S)


def obeyed(drive: Drive, command: Command) -> bool:
    try:
        drive.request(command)
    except CommandError:
        return False
    return True


def test_what_is_asked_for_is_answered_by_what_came_of_it(drives: Drives) -> None:
    robot = Vanishing()
    drive = drives.make(robot)
    drive.start(WAIT_S)
    drive.activate(WAIT_S)
    assert drive.braked(Command.HOLD, GuardState.HOLD) == "HOLD, until reset"
    assert drive.braked(Command.DAMP, GuardState.DAMP) == "DAMP, until reset"
    until(lambda: obeyed(drive, Command.RESET))
    until(lambda: obeyed(drive, Command.START))
    robot.gone = True
    until(lambda: GuardState[drive.runtime.guard_state] >= GuardState.HOLD)
    for command in (Command.RESET, Command.START):
        with pytest.raises(CommandError, match=f"{command}: refused: "):
            drive.request(command)


@pytest.mark.slow
def test_an_activation_that_fails_names_no_cause_of_an_earlier_one(drives: Drives) -> None:
    robot = Grumbling()
    drive = drives.make(robot)
    drive.start(WAIT_S)
    with pytest.raises(DriveError, match="first cause"):
        drive.activate(0.3)
    robot.complaint = "second cause"
    with pytest.raises(DriveError, match="second cause") as failed:
        drive.activate(0.3)
    assert "first cause" not in str(failed.value)
    until(lambda: "second cause" in drives.told)
    # What still is wrong is told again.
    robot.complaint = "first cause"
    drives.told.clear()
    with pytest.raises(DriveError, match="first cause"):
        drive.activate(4.0)
    assert "first cause" in drives.told


def test_no_policy_no_configuration(drives: Drives, tmp_path: Path) -> None:
    drives.root = tmp_path
    drive = drives.make(LocalRobot())
    with pytest.raises(SlotError):
        drive.start(WAIT_S)
    assert not drive.running


def test_a_transport_that_refuses_is_told_in_its_own_words(drives: Drives) -> None:
    drive = drives.make(Unreachable())
    with pytest.raises(TransportError, match="PolicyContract: no network"):
        drive.start(WAIT_S)


def test_what_nobody_foresaw_is_no_traceback(drives: Drives) -> None:
    drive = drives.make(Broken())
    with pytest.raises(DriveError, match="the runtime failed: ZeroDivisionError: PolicyContract"):
        drive.start(WAIT_S)
    assert not drive.running
    with pytest.raises(DriveError, match="the runtime failed"):
        drive.activate(WAIT_S)


def test_ended_from_outside_it_says_so(drives: Drives) -> None:
    drive = drives.make(LocalRobot())
    drive.start(WAIT_S)
    drive.runtime.commands.put(Command.SHUTDOWN)
    drive.stop(WAIT_S)
    with pytest.raises(DriveError, match="the policy has ended: shutdown"):
        drive.activate(WAIT_S)
