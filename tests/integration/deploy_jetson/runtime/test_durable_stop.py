"""A stop that was not reset binds whatever commands the robot later: real processes, robots, kills and disks."""

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from tests.support import hanging_policy
from tests.support.patience import PATIENCE_S
from tests.support.robot_end import RobotEnd, robot_over
from tests.support.watched_runtime import ROUNDING, WatchedRuntime, installed, wait_for_end

from physai.deploy_jetson.runtime.commands.control_socket import ControlError
from physai.deploy_jetson.runtime.stop.stop_records import RECORD_FILE

pytestmark = pytest.mark.slow

# Time for which a robot that must not be driven is watched [s]: a runtime drives 1 s after its start.
WATCHED_S = 2.5


@dataclass
class Bench:
    """A robot, its trees and their runtimes."""

    folder: Path
    transport: str
    options: dict[str, str]
    robot: RobotEnd
    roots: dict[str, Path] = field(default_factory=dict[str, Path])
    runtimes: list[WatchedRuntime] = field(default_factory=list[WatchedRuntime])

    def start(self, tree: str = "a", *, computer: str = "here") -> WatchedRuntime:
        """A runtime of a tree, which drives as soon as it may; computers share no records."""
        if tree not in self.roots:
            (self.folder / tree).mkdir()
            self.roots[tree] = installed(self.folder / tree, hanging_policy.contract("joint_pos"))
        stops = {"PHYSAI_STOPS": str(self.folder / f"stops-{computer}")}
        made = WatchedRuntime(self.roots[tree], self.robot, self.transport, self.options, environment=stops)
        self.runtimes.append(made)
        return made

    def moves(self) -> bool:
        """Whether the robot is commanded to move in the time in which it is watched."""
        count = len(self.robot.log)
        time.sleep(WATCHED_S)
        return bool((np.abs(np.diff(self.robot.values()[max(0, count - 1) :])) > ROUNDING).any())


@pytest.fixture(params=["udp", "dds"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    transport = request.param
    robot, options = robot_over(transport, hanging_policy.contract("joint_pos"), 1 + os.getpid() % 100, monkeypatch)
    made = Bench(tmp_path, transport, options, robot)
    yield made
    for runtime in made.runtimes:
        runtime.close()
    robot.close()


ON_UDP = pytest.mark.parametrize("bench", ["udp"], indirect=True)
ON_DDS = pytest.mark.parametrize("bench", ["dds"], indirect=True)


def stop(runtime: WatchedRuntime) -> None:
    """A confirmed, durable stop."""
    assert runtime.tell("stop") == {"accepted": "stop", "durable": True}
    runtime.wait_for(lambda: runtime.status().get("stopped"))


def release(runtime: WatchedRuntime) -> None:
    """Resets the stop of an inactive runtime and activates it."""

    def reset() -> bool:
        with suppress(ControlError):
            return bool(runtime.tell("reset"))
        return False

    runtime.wait_for(reset)
    assert runtime.status()["lifecycle"] == "inactive"
    runtime.tell("activate")
    runtime.wait_for_run()


def refusal(runtime: WatchedRuntime, word: str) -> str:
    with pytest.raises(ControlError) as caught:
        runtime.tell(word)
    return str(caught.value)


def assert_waits_for_a_reset(bench: Bench, runtime: WatchedRuntime) -> None:
    runtime.wait_for(lambda: "waiting for a reset of" in runtime.text())
    assert not bench.moves(), runtime.text()
    status = runtime.status()
    assert (status["lifecycle"], status["guard"]) == ("inactive", "")
    # Refused as well, with another word, if the robot's word of the stop comes with the request.
    runtime.wait_for(lambda: "activate: refused: reset" in refusal(runtime, "activate"))
    assert not bench.moves(), runtime.text()


def end(runtime: WatchedRuntime, how: str) -> None:
    if how == "hang":
        # Only a loop that calls the policy can hang in it, so this process stands still instead.
        watchdog = runtime.watchdog()
        runtime.process.send_signal(signal.SIGSTOP)
        wait_for_end(runtime, watchdog)
        return
    runtime.process.send_signal({"kill": signal.SIGKILL, "term": signal.SIGTERM}[how])
    runtime.process.wait(PATIENCE_S)


@pytest.mark.parametrize("how", ["kill", "term", "hang"])
@ON_UDP
def test_a_stop_outlives_its_process(bench: Bench, how: str) -> None:
    """The robot was in RUN a second after the restart, with no reset and no start."""
    first = bench.start()
    first.wait_for_run()
    stop(first)
    end(first, how)
    again = bench.start()
    assert_waits_for_a_reset(bench, again)
    release(again)
    # A reset lifts it for good.
    again.process.kill()
    again.process.wait()
    bench.start().wait_for_run()


def test_a_waiting_runtime_of_another_tree_is_bound(bench: Bench) -> None:
    """It went to RUN by itself after the stopped one was killed."""
    first, second = bench.start("a"), bench.start("b")
    both = (first, second)
    first.wait_for(lambda: any(one.status().get("lifecycle") == "active" for one in both))
    active = next(one for one in both if one.status().get("lifecycle") == "active")
    waiting = next(one for one in both if one is not active)
    active.wait_for_run()
    waiting.wait_for(lambda: "the robot" in str(waiting.status().get("waiting_for", "")))
    stop(active)
    active.process.kill()
    active.process.wait()
    assert_waits_for_a_reset(bench, waiting)
    release(waiting)


def test_a_stop_at_a_waiting_runtime_stops_the_one_that_drives(bench: Bench) -> None:
    """The operator means the robot, and need not know which of its runtimes drives."""
    first, second = bench.start("a"), bench.start("b")
    both = (first, second)
    first.wait_for(lambda: any(one.status().get("lifecycle") == "active" for one in both))
    active = next(one for one in both if one.status().get("lifecycle") == "active")
    waiting = next(one for one in both if one is not active)
    active.wait_for_run()
    waiting.wait_for(lambda: "the robot" in str(waiting.status().get("waiting_for", "")))
    assert waiting.tell("stop") == {"accepted": "stop", "durable": True}
    active.wait_for(lambda: active.status().get("stopped"))
    assert active.status()["guard"] == "PROTECTIVE_STOP"
    assert not bench.moves(), active.text()
    assert active.tell("reset")["answer"] == "done"
    assert active.tell("start")["answer"] == "done"
    active.wait_for_run()


@ON_UDP
def test_a_later_runtime_of_another_tree_is_bound(bench: Bench) -> None:
    """A second node with slots of its own drove the robot whose first one was stopped."""
    first = bench.start("a")
    first.wait_for_run()
    stop(first)
    end(first, "term")
    second = bench.start("b")
    assert_waits_for_a_reset(bench, second)
    release(second)
    end(second, "term")
    # The first tree has a record of its own, which another tree's reset does not lift.
    assert_waits_for_a_reset(bench, bench.start("a"))


@ON_DDS
def test_a_runtime_on_another_computer_is_bound(bench: Bench) -> None:
    first, second = bench.start("a", computer="one"), bench.start("b", computer="two")
    both = (first, second)
    first.wait_for(lambda: any(one.status().get("lifecycle") == "active" for one in both))
    active = next(one for one in both if one.status().get("lifecycle") == "active")
    waiting = next(one for one in both if one is not active)
    active.wait_for_run()
    waiting.wait_for(lambda: "the robot" in str(waiting.status().get("waiting_for", "")))
    stop(active)
    waiting.wait_for(lambda: "the stop at the runtime" in waiting.text())
    with pytest.raises(ControlError, match="is reset there"):
        waiting.tell("reset")
    active.process.kill()
    active.process.wait()
    waiting.wait_for(lambda: waiting.status().get("stop_asked"))
    assert_waits_for_a_reset(bench, waiting)
    end(waiting, "kill")
    again = bench.start("a" if waiting is first else "b", computer="one" if waiting is first else "two")
    assert_waits_for_a_reset(bench, again)
    release(again)


@ON_UDP
def test_a_reset_before_the_standstill_is_refused_and_names_what_it_waits_for(bench: Bench) -> None:
    first = bench.start()
    first.wait_for_run()
    stop(first)
    end(first, "kill")
    bench.robot.speed = 0.5
    again = bench.start()
    again.wait_for(lambda: "waiting for a reset of" in again.text())
    again.wait_for(lambda: "every joint at rest" in refusal(again, "reset"))
    bench.robot.speed = None
    release(again)


@ON_UDP
def test_an_activation_waits_for_a_robot_that_moves(bench: Bench) -> None:
    """A pole that still swung a little made the guard hold in the first periods, and nothing was driven."""
    bench.robot.speed = 0.5
    runtime = bench.start()
    runtime.wait_for(lambda: "waiting for the robot to be at rest (pivot at 0.5 rad/s" in runtime.text())
    assert not bench.moves(), runtime.text()
    assert runtime.status()["lifecycle"] == "inactive"
    bench.robot.speed = None
    runtime.wait_for_run()
    assert "HOLD" not in runtime.text()


@ON_UDP
def test_a_disk_that_refuses_the_record(bench: Bench) -> None:
    """The stop acts, its answer says that it is not durable, and nothing restarts driving."""
    first = bench.start()
    first.wait_for_run()
    record = bench.roots["a"] / RECORD_FILE
    record.unlink()
    record.mkdir()
    answer = first.tell("stop")
    assert answer["durable"] is False
    assert "NOT DURABLE" in answer["warning"]
    first.wait_for(lambda: first.status().get("stopped"))
    end(first, "kill")
    for path in (bench.folder / "stops-here").iterdir():
        path.unlink()
    again = bench.start()
    again.wait_for(lambda: "a place for the record of a stop" in again.text())
    assert not bench.moves()
    with pytest.raises(ControlError, match="its record cannot be read: Is a directory"):
        again.tell("activate")


@pytest.mark.parametrize("death", [False, True], ids=["the runtime lives", "the runtime dies meanwhile"])
def test_a_stopped_robot_that_returns_elsewhere_is_not_driven(bench: Bench, death: bool) -> None:
    """It ran at full speed over 6.3 rad to where it had been stopped; neither runtime nor watchdog may do that."""
    runtime = bench.start()
    runtime.wait_for_run()
    stop(runtime)
    bench.robot.silent = True
    runtime.wait_for(lambda: runtime.status().get("withheld"))
    count = len(bench.robot.log)
    time.sleep(1.0)
    if death:
        runtime.process.kill()
        runtime.process.wait()
    bench.robot.moved_by = -2.0
    bench.robot.speed = 0.0
    bench.robot.silent = False
    time.sleep(WATCHED_S)
    assert len(bench.robot.log) == count
    if death:
        return
    assert runtime.status()["guard"] == "PROTECTIVE_STOP"
    elsewhere = bench.robot.log[-1].value - 2.0
    assert runtime.tell("reset")["answer"] == "done"
    assert len(bench.robot.log) == count
    assert runtime.tell("start")["answer"] == "done"
    runtime.wait_for(lambda: len(bench.robot.log) > count)
    assert abs(bench.robot.log[count].value - elsewhere) < 0.1


@pytest.mark.parametrize("stopped", [True, False], ids=["after a stop", "from RUN"])
def test_a_robot_that_returns_elsewhere_while_its_runtime_stands_still_is_not_driven(
    bench: Bench, *, stopped: bool
) -> None:
    """The loop forgot what its watchdog had noticed, and sent the robot 2 rad back to where it was commanded last."""
    runtime = bench.start()
    runtime.wait_for_run()
    if stopped:
        stop(runtime)
    runtime.process.send_signal(signal.SIGSTOP)
    # The watchdog commands the robot by now, and kills the runtime after 2 s.
    time.sleep(0.3)
    bench.robot.silent = True
    time.sleep(0.7)
    count = len(bench.robot.log)
    bench.robot.moved_by = -2.0
    bench.robot.speed = 0.0
    bench.robot.silent = False
    time.sleep(0.3)
    runtime.process.send_signal(signal.SIGCONT)
    runtime.wait_for(lambda: runtime.status().get("withheld"))
    assert not bench.robot.log[count:]


@ON_UDP
def test_a_robot_that_has_fallen_silent_is_not_reset(bench: Bench) -> None:
    """A standstill that was confirmed once was good for a reset hours after the last sample."""
    first = bench.start()
    first.wait_for_run()
    stop(first)
    end(first, "kill")
    again = bench.start()
    again.wait_for(lambda: again.status().get("stopped"))
    bench.robot.silent = True
    again.wait_for(lambda: not again.status().get("stopped"))
    assert "it waits for a newer sample" in refusal(again, "reset")
    bench.robot.silent = False
    release(again)


def events(seed: int, count: int) -> list[str]:
    words = ["stop", "reset", "activate", "start", "kill", "term", "restart", "other tree"]
    return random.Random(seed).choices(words, weights=[3, 3, 3, 2, 3, 2, 4, 2], k=count)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(1, 9))])
@ON_UDP
def test_in_random_orders_of_events(bench: Bench, seed: int) -> None:
    """From the answer of a stop until the answer of a reset, no command moves the robot, whoever sends it."""
    runtimes = {"a": bench.start("a")}
    runtimes["a"].wait_for_run()
    since: int | None = None
    for number, event in enumerate(events(seed, 25)):
        tree = random.Random(seed * 1000 + number).choice(sorted(runtimes))
        runtime = runtimes[tree]
        if event in ("kill", "term"):
            if runtime.process.poll() is None:
                end(runtime, event)
        elif event in ("restart", "other tree"):
            tree = tree if event == "restart" else "b"
            if tree not in runtimes or runtimes[tree].process.poll() is not None:
                runtimes[tree] = bench.start(tree)
                runtimes[tree].wait_for(lambda one=runtimes[tree]: one.status().get("lifecycle"))
        else:
            with suppress(ControlError):
                runtime.tell(event)
                if event == "stop" and since is None:
                    runtime.wait_for(lambda one=runtime: one.status().get("stopped"))
                    since = len(bench.robot.log)
                elif event == "reset":
                    since = None
        time.sleep(0.3)
        if since is not None:
            values = bench.robot.values()[max(0, since - 1) :]
            assert (np.abs(np.diff(values)) <= ROUNDING).all(), (number, event, runtime.text())
