"""Two runtimes in two processes, and one robot: over UDP, where the robot decides, and over DDS, where they do.

The policy moves its joint forwards for ever, and a runtime begins where the joint was measured. So if both drove the
robot, its commands would go backwards now and then.
"""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tests.support import hanging_policy
from tests.support.hanging_policy import PERIOD_S
from tests.support.patience import until
from tests.support.robot_end import RobotEnd, robot_over
from tests.support.watched_runtime import ROUNDING, WatchedRuntime, installed

from physai.sdk.transport.lease import TERM_S
from physai.transport.dds.node import DdsNode

pytestmark = pytest.mark.slow


@dataclass
class Setup:
    """A robot, and the runtimes that were started."""

    folder: Path
    transport: str
    options: dict[str, str]
    robot: RobotEnd
    runtimes: list[WatchedRuntime] = field(default_factory=list[WatchedRuntime])

    def start(self, *, watchdog: bool = True) -> WatchedRuntime:
        """One more runtime, with slots of its own, that is to drive."""
        folder = self.folder / str(len(self.runtimes))
        folder.mkdir()
        root = installed(folder, hanging_policy.contract("joint_pos"))
        made = WatchedRuntime(root, self.robot, self.transport, self.options, watchdog=watchdog)
        self.runtimes.append(made)
        return made


@pytest.fixture(params=["udp", "dds"])
def setup(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setup]:
    transport = request.param
    robot, options = robot_over(transport, hanging_policy.contract("joint_pos"), 101 + os.getpid() % 100, monkeypatch)
    made = Setup(tmp_path, transport, options, robot)
    yield made
    for runtime in made.runtimes:
        runtime.close()
    robot.close()


ON_DDS = pytest.mark.parametrize("setup", ["dds"], indirect=True)


def drives(runtime: WatchedRuntime) -> bool:
    return runtime.status().get("lifecycle") == "active"


def waits_for(runtime: WatchedRuntime) -> str:
    return str(runtime.status().get("waiting_for", ""))


def assert_never_backwards(setup: Setup) -> None:
    values = setup.robot.values()
    assert len(values) > 20
    assert (np.diff(values) >= -ROUNDING).all(), values


def test_a_second_runtime_does_not_activate_and_takes_over_in_order(setup: Setup) -> None:
    first = setup.start()
    first.wait_for_run()
    second = setup.start()
    second.wait_for(lambda: "the robot" in waits_for(second))
    end_s = time.monotonic() + 2.0
    while time.monotonic() < end_s:
        assert drives(first)
        assert not drives(second)
        time.sleep(PERIOD_S)
    first.process.send_signal(signal.SIGTERM)
    second.wait_for_run()
    second.wait_for_commands(20)
    assert first.process.wait() == 0
    assert second.status()["lease"] > 1
    assert_never_backwards(setup)


def test_the_second_runtime_follows_one_that_was_killed(setup: Setup) -> None:
    """Not before the first one's watchdog has brought the robot to rest."""
    first = setup.start()
    first.wait_for_run()
    second = setup.start()
    second.wait_for(lambda: "the robot" in waits_for(second))
    first.process.kill()
    second.wait_for_run()
    second.wait_for_commands(20)
    first.wait_for(lambda: "braked the robot" in first.text())
    assert_never_backwards(setup)


def test_the_second_runtime_follows_one_whose_loop_has_failed(setup: Setup) -> None:
    """Not before the first one's watchdog has fallen silent, which takes its time as the robot says that it moves."""
    first = setup.start()
    first.wait_for_run()
    second = setup.start()
    second.wait_for(lambda: "the robot" in waits_for(second))
    setup.robot.speed = 0.5 * hanging_policy.SPEED
    first.crash()
    while "braked the robot" not in first.text():
        assert not drives(second) or "braked the robot" in first.text(), second.text()
        time.sleep(PERIOD_S)
    setup.robot.speed = None
    second.wait_for_run()
    second.wait_for_commands(20)
    assert first.process.wait() != 0
    assert_never_backwards(setup)


def test_who_stood_still_for_long_finds_the_robot_taken(setup: Setup) -> None:
    """Without a watchdog, which would have ended it."""
    first = setup.start(watchdog=False)
    first.wait_for_run()
    second = setup.start(watchdog=False)
    second.wait_for(lambda: "the robot" in waits_for(second))
    first.process.send_signal(signal.SIGSTOP)
    second.wait_for_run()
    first.process.send_signal(signal.SIGCONT)
    first.wait_for(lambda: first.status().get("lifecycle") == "inactive")
    first.wait_for(lambda: "nothing is sent any more" in first.text())
    second.wait_for_commands(20)
    assert drives(second)
    assert_never_backwards(setup)


def test_who_stood_still_for_a_moment_goes_on(setup: Setup) -> None:
    first = setup.start()
    first.wait_for_run()
    second = setup.start()
    second.wait_for(lambda: "the robot" in waits_for(second))
    first.process.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    first.process.send_signal(signal.SIGCONT)
    first.wait_for_run()
    assert not drives(second)
    assert first.status()["lease"] == 1
    assert_never_backwards(setup)


def test_who_stood_still_while_it_waited_does_not_begin_by_itself(setup: Setup) -> None:
    first = setup.start()
    first.wait_for_run()
    second = setup.start()
    second.wait_for(lambda: "the robot" in waits_for(second))
    second.process.send_signal(signal.SIGSTOP)
    time.sleep(6.0)
    second.process.send_signal(signal.SIGCONT)
    second.wait_for(lambda: "this process or computer was suspended meanwhile" in second.text())
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait() == 0
    time.sleep(3.0)
    assert not drives(second)
    second.tell("activate")
    second.wait_for_run()
    assert_never_backwards(setup)


@ON_DDS
def test_a_runtime_that_is_deactivated_hands_the_robot_over(setup: Setup) -> None:
    first = setup.start()
    first.wait_for_run()
    second = setup.start()
    second.wait_for(lambda: f"/{first.process.pid}/" in waits_for(second))
    first.tell("deactivate")
    second.wait_for_run()
    first.tell("activate")
    first.wait_for(lambda: f"/{second.process.pid}/" in waits_for(first))
    assert not drives(first)
    second.tell("deactivate")
    first.wait_for_run()
    assert not drives(second)
    assert [first.status()["lease"], second.status()["lease"]] == [3, 2]
    assert_never_backwards(setup)


@ON_DDS
def test_a_stranger_who_publishes_the_commands_keeps_a_runtime_away(setup: Setup) -> None:
    stranger = DdsNode(int(setup.options["domain"]), "teleop")
    stranger.writer("/joint_command", "sensor_msgs/msg/JointState")
    runtime = setup.start()
    runtime.wait_for(lambda: "another publisher of /joint_command" in waits_for(runtime))
    time.sleep(1.0)
    assert not drives(runtime)
    stranger.close()
    runtime.wait_for_run()


@ON_DDS
def test_a_stranger_who_comes_later_ends_the_drive(setup: Setup) -> None:
    runtime = setup.start()
    runtime.wait_for_run()
    stranger = DdsNode(int(setup.options["domain"]), "teleop")
    stranger.writer("/joint_command", "sensor_msgs/msg/JointState")
    until(lambda: not drives(runtime), said=runtime.text)
    count = len(setup.robot.log)
    time.sleep(2.0 * TERM_S)
    assert len(setup.robot.log) == count
    runtime.wait_for(lambda: "the robot has another commander" in runtime.text())
    stranger.close()
    assert runtime.process.poll() is None
    runtime.tell("activate")
    runtime.wait_for_run()
    assert_never_backwards(setup)
