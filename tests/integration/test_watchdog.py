"""The watchdog over real UDP and DDS: a runtime that hangs, is stopped or killed, and what its robot gets then."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.support import hanging_policy
from tests.support.hanging_policy import DAMPING, PERIOD_S, PUSH, SPEED
from tests.support.patience import PATIENCE_S
from tests.support.robot_end import RobotEnd
from tests.support.watched_runtime import (
    ROUNDING,
    WatchedRuntime,
    assert_braked,
    at_full_speed,
    installed,
    is_alive,
    wait_for_end,
)

from physai.deploy_jetson.runtime.watchdog.plan import HUNG_S, LONGEST_S, silence_s
from physai.transport.dds.domain import LOOPBACK
from physai.twin.virtual_robot.transport import free_port

FOREVER_US = 600_000_000

pytestmark = pytest.mark.slow


@pytest.fixture
def setup(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedRuntime]:
    kind, transport = request.param
    contract = hanging_policy.contract(kind)
    if transport == "udp":
        port = f"127.0.0.1:{free_port()}"
        options = ({"bind": port}, {"robot": port})
    else:
        pytest.importorskip("cyclonedds")
        monkeypatch.setenv("CYCLONEDDS_URI", LOOPBACK)
        options = ({"domain": str(1 + os.getpid() % 100)},) * 2
    robot = RobotEnd(contract, transport, options[0])
    made = WatchedRuntime(installed(tmp_path, contract), robot, transport, options[1])
    yield made
    made.close()
    robot.close()


BOTH = pytest.mark.parametrize("setup", [("joint_pos", "udp"), ("joint_pos", "dds")], indirect=True, ids=["udp", "dds"])
ONE = pytest.mark.parametrize("setup", [("joint_pos", "udp")], indirect=True, ids=["udp"])


@BOTH
def test_killed_at_full_speed_the_joint_is_braked(setup: WatchedRuntime) -> None:
    watchdog = at_full_speed(setup)
    since_ns = time.monotonic_ns()
    setup.process.kill()
    setup.process.wait()
    setup.wait_for(lambda: not is_alive(watchdog))
    assert_braked(setup, since_ns)
    assert "the runtime has died; braked the robot for" in setup.text()
    assert "every joint was measured at rest" in setup.text()
    count = len(setup.robot.log)
    time.sleep(0.4)
    assert len(setup.robot.log) == count


@ONE
def test_a_call_that_never_returns(setup: WatchedRuntime) -> None:
    watchdog = at_full_speed(setup)
    since_ns = time.monotonic_ns()
    setup.hang()
    wait_for_end(setup, watchdog)
    assert_braked(setup, since_ns)
    assert len(setup.robot.since(since_ns)) > 0.5 * HUNG_S / PERIOD_S


@BOTH
def test_a_call_that_keeps_pythons_lock(setup: WatchedRuntime) -> None:
    watchdog = at_full_speed(setup)
    since_ns = time.monotonic_ns()
    setup.freeze(FOREVER_US)
    wait_for_end(setup, watchdog)
    assert_braked(setup, since_ns)


@ONE
def test_stopped_for_good(setup: WatchedRuntime) -> None:
    watchdog = at_full_speed(setup)
    since_ns = time.monotonic_ns()
    setup.process.send_signal(signal.SIGSTOP)
    wait_for_end(setup, watchdog)
    assert_braked(setup, since_ns)


def assert_goes_on_in_hold(setup: WatchedRuntime, since_ns: int, watchdog: int) -> None:
    """The loop is back after the watchdog has spoken: it holds, says why, and can be started again."""
    setup.wait_for(lambda: setup.status()["guard"] == "HOLD")
    assert "watchdog" in setup.status()["why"]
    setup.wait_for_commands(30)
    assert_braked(setup, since_ns)
    assert is_alive(watchdog)
    setup.wait_for_run()
    assert setup.watchdog() == watchdog


@BOTH
def test_stopped_and_continued(setup: WatchedRuntime) -> None:
    watchdog = at_full_speed(setup)
    since_ns = time.monotonic_ns()
    setup.process.send_signal(signal.SIGSTOP)
    time.sleep(0.4)
    setup.process.send_signal(signal.SIGCONT)
    assert_goes_on_in_hold(setup, since_ns, watchdog)


@ONE
def test_a_call_that_returns_late(setup: WatchedRuntime) -> None:
    for _ in range(2):
        watchdog = at_full_speed(setup)
        since_ns = time.monotonic_ns()
        setup.freeze(400_000)
        assert_goes_on_in_hold(setup, since_ns, watchdog)


@ONE
def test_calls_that_return_about_when_the_watchdog_takes_over(setup: WatchedRuntime) -> None:
    silence_us, random = round(1e6 * silence_s(hanging_policy.contract("joint_pos"))), np.random.default_rng(0)
    at_full_speed(setup)
    since_ns = time.monotonic_ns()
    for share in random.uniform(0.5, 1.5, size=8):
        setup.freeze(round(share * silence_us))
        setup.wait_for_run()
    # Whoever of the two spoke: the policy wants the joint to go on, and nothing ever takes it back or makes it jump.
    values = np.array([one.value for one in setup.robot.since(since_ns)])
    missed = 3
    assert np.diff(values).min() > -ROUNDING
    assert np.diff(values).max() < missed * SPEED * PERIOD_S


@pytest.mark.parametrize("setup", [("joint_effort", "udp"), ("joint_effort", "dds")], indirect=True, ids=["udp", "dds"])
def test_efforts_are_damped_or_nothing(setup: WatchedRuntime) -> None:
    setup.wait_for_run()
    watchdog, since_ns = setup.watchdog(), time.monotonic_ns()
    setup.robot.speed = 1.0
    setup.process.kill()
    setup.process.wait()
    setup.wait_for(lambda: setup.robot.log[-1].value == pytest.approx(-DAMPING))
    setup.robot.speed = float("nan")
    setup.wait_for(lambda: setup.robot.log[-1].value == 0.0)
    setup.wait_for(lambda: not is_alive(watchdog))
    assert "the joints were NOT measured at rest" in setup.text()
    values = np.array([one.value for one in setup.robot.since(since_ns)])
    of_policy, damped, none = np.isclose(values, PUSH), np.isclose(values, -DAMPING), np.isclose(values, 0.0)
    assert (of_policy | damped | none).all()
    assert not of_policy[int(np.argmin(of_policy)) :].any()
    assert setup.robot.log[-1].received_ns - since_ns > 0.9e9 * LONGEST_S


@ONE
def test_it_is_silent_unless_the_loop_drives_and_ends_with_it(setup: WatchedRuntime) -> None:
    setup.wait_for_run()
    watchdog = setup.watchdog()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGABRT):
        os.kill(watchdog, number)
    setup.tell("deactivate")
    setup.wait_for(lambda: setup.status()["lifecycle"] == "inactive")
    count = len(setup.robot.log)
    time.sleep(0.4)
    assert len(setup.robot.log) == count
    assert is_alive(watchdog)
    setup.process.kill()
    setup.process.wait()
    setup.wait_for(lambda: not is_alive(watchdog))
    assert len(setup.robot.log) == count


@ONE
def test_one_that_dies_is_told_of_and_started_again(setup: WatchedRuntime) -> None:
    setup.wait_for_run()
    first = setup.watchdog()
    os.kill(first, signal.SIGKILL)
    setup.wait_for(lambda: "warning: the watchdog has ended" in setup.text())
    setup.wait_for_commands(10)
    setup.tell("deactivate")
    setup.wait_for(lambda: setup.status()["lifecycle"] == "inactive")
    setup.tell("activate")
    setup.wait_for(lambda: setup.status()["lifecycle"] == "active")
    watchdog = setup.watchdog()
    assert watchdog != first
    setup.process.send_signal(signal.SIGTERM)
    assert setup.process.wait(PATIENCE_S) == 0, setup.text()
    assert not is_alive(watchdog)
    assert "braked the robot" not in setup.text()
    setup.wait_for(lambda: setup.signs[-1] == b"STOPPING=1")


@ONE
def test_systemd_hears_of_the_loops_progress_and_of_nothing_else(setup: WatchedRuntime) -> None:
    setup.wait_for_run()
    assert setup.signs[0] == b"READY=1"
    for word, lifecycle in (("deactivate", "inactive"), ("activate", "active")):
        count = len(setup.signs)
        setup.wait_for(lambda: len(setup.signs) > count + 10)  # noqa: B023 - called here
        setup.tell(word)
        setup.wait_for(lambda: setup.status()["lifecycle"] == lifecycle)  # noqa: B023 - called here
    setup.wait_for_run()
    assert set(setup.signs[1:]) == {b"WATCHDOG=1"}
    # Python goes on in other threads while this graph computes.
    setup.hang()
    setup.wait_for(lambda: setup.robot.log[-1].value == setup.robot.log[-3].value)
    count = len(setup.signs)
    assert setup.process.wait(PATIENCE_S) == -signal.SIGKILL
    assert len(setup.signs) == count
