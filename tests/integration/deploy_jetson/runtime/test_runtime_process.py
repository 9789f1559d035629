"""A runtime as a process of its own: stopped and continued, told to end, and given a new policy while it drives."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import SampleSigners, sample_contract, sample_policy
from tests.harness.fixtures.site import Site
from tests.support.patience import PATIENCE_S, nap, until

from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.runtime.commands.queue import Command
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.ticks.lifecycle import Lifecycle
from physai.deploy_jetson.update.slots.health import health_path, read_counters

SCRIPT = Path(__file__).parents[3] / "support" / "runtime_process.py"
PERIOD_S = sample_contract().timing.control_dt

Process = subprocess.Popen[str]


class Running:
    """The process, and what its robot wrote down."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root, self.log = root, log
        self.output = log.with_suffix(".txt")
        with self.output.open("w") as output:
            command = [sys.executable, str(SCRIPT), str(root), str(log)]
            self.process: Process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True
            )

    def commands(self) -> npt.NDArray[np.int64]:
        """When each was sent, and when its sample was taken in [ns], shape (n, 2)."""
        data = self.log.read_bytes() if self.log.exists() else b""
        return np.frombuffer(data[: len(data) // 16 * 16], "<i8").reshape(-1, 2)

    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, condition: Callable[[], Any]) -> None:
        until(condition, self._nap, said=self.text)

    def _nap(self) -> None:
        assert self.process.poll() is None, self.text()
        nap()

    def wait_for_commands(self, count: int) -> None:
        self.wait_for(lambda: len(self.commands()) >= count)

    @property
    def control(self) -> Path:
        return health_path(self.root).with_name(CONTROL_FILE)

    def tell(self, word: str) -> dict[str, Any]:
        return tell(self.control, word, timeout_s=PATIENCE_S)

    def status(self) -> dict[str, Any]:
        return self.tell("status")

    def wait_for_run(self) -> None:
        """Until the policy drives: of a process that came three periods late the guard has taken over, for good."""
        until(lambda: self.status()["guard"] == "RUN", self._restart, said=self.text)

    def _restart(self) -> None:
        for word in ("reset", "start"):
            with suppress(ControlError):
                self.tell(word)
        self._nap()

    def end(self) -> str:
        """Ends it politely; what it said."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(PATIENCE_S) == 0, self.text()
        return self.text()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture
def running(site: Site, folder: Path) -> Iterator[Running]:
    site.run(1)
    made = Running(site.agent.root, folder / "log")
    yield made
    made.kill()


def sleeps(process: Process) -> bool:
    """Whether its loop waits for the next tick."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def stop_between_ticks(running: Running) -> None:
    """Stopped between its last look at the clock and the system call that sends, a process cannot know of it."""

    def stopped() -> bool:
        running.wait_for(lambda: sleeps(running.process))
        running.process.send_signal(signal.SIGSTOP)
        # This process may have waited, too, between the two.
        if time.monotonic_ns() - running.commands()[-1, 0] < 0.5 * PERIOD_S * 1e9:
            return True
        running.process.send_signal(signal.SIGCONT)
        return False

    running.wait_for(stopped)


def test_after_a_standstill_no_stale_command_is_sent(running: Running) -> None:
    running.wait_for_commands(20)
    continued: list[int] = []
    for _ in range(3):
        stop_between_ticks(running)
        time.sleep(0.3)
        before = len(running.commands())
        time.sleep(0.2)
        assert len(running.commands()) == before
        continued.append(time.monotonic_ns())
        running.process.send_signal(signal.SIGCONT)
        running.wait_for_commands(before + 10)
    sent, taken = running.commands().T
    gaps, first = np.diff(sent, prepend=sent[0]), np.searchsorted(sent, continued)
    assert gaps[first].min() > 0.4e9
    # What a busy machine stops right before that system call is none of the three.
    by_chance = gaps > 0.3e9
    by_chance[first] = False
    assert (sent - taken)[~by_chance].max() < 0.3e9
    assert running.status()["guard"] in ("HOLD", "DAMP")
    assert running.status()["skipped"] > 3 * 0.4 / PERIOD_S
    running.end()


def test_told_to_end_it_ramps_first(running: Running) -> None:
    running.wait_for_commands(20)
    running.wait_for_run()
    text = running.end()
    assert "active at 100 Hz" in text
    assert "HOLD" in text
    assert "end: shutdown, finalized" in text
    counters = read_counters(health_path(running.root))
    assert counters is not None
    # Only what the policy drove counts for the trial; the ramp does not.
    assert 0 < counters.ticks < len(running.commands())
    with pytest.raises(ControlError, match="no runtime to talk to"):
        running.status()


def test_a_second_runtime_is_refused_and_harms_nothing(running: Running) -> None:
    running.wait_for_commands(20)
    before = read_counters(health_path(running.root))
    robot = LocalRobot()
    with pytest.raises(ControlError, match="another runtime listens there"):
        Runtime(RunOptions(root=running.root, unsafe_no_verdict=True), robot).run()
    assert robot.sent == 0
    running.wait_for_commands(len(running.commands()) + 10)
    after = read_counters(health_path(running.root))
    assert before is not None
    assert after is not None
    assert after.run_id == before.run_id
    assert after.ticks > before.ticks
    running.end()


def test_killed_and_started_again(running: Running, folder: Path) -> None:
    running.wait_for_commands(20)
    before = read_counters(health_path(running.root))
    running.process.kill()
    running.process.wait()
    again = Running(running.root, folder / "again")
    try:
        again.wait_for_commands(20)
        after = read_counters(health_path(running.root))
        assert before is not None
        assert after is not None
        assert after.run_id != before.run_id
        again.wait_for_run()
        again.end()
    finally:
        again.kill()


def test_its_helpers_end_with_it(running: Running) -> None:
    running.wait_for_commands(20)
    children = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children")
    helpers = [int(word) for word in children.read_text().split()]
    assert helpers
    running.process.kill()
    running.process.wait()
    until(lambda: not any(is_alive(pid) for pid in helpers))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_it_can_be_spoken_to(running: Running) -> None:
    running.wait_for_commands(20)
    assert (running.control.stat().st_mode & 0o777) == 0o600
    assert running.status()["lifecycle"] == "active"
    running.tell("stop")
    running.wait_for(lambda: running.status()["stopped"])
    assert running.status()["guard"] == "PROTECTIVE_STOP"
    assert running.tell("reset")["answer"] == "done"
    assert running.status()["guard"] == "STANDSTILL"
    assert running.tell("start")["answer"] == "done"
    running.wait_for(lambda: "RUN: started by the operator" in running.text())
    running.tell("deactivate")
    running.wait_for(lambda: running.status()["lifecycle"] == "inactive")
    count = len(running.commands())
    time.sleep(0.2)
    assert len(running.commands()) == count
    running.tell("activate")
    running.wait_for_commands(count + 10)
    with pytest.raises(ControlError, match="no request named 'hodl'; did you mean hold"):
        running.tell("hodl")
    running.end()


@pytest.mark.slow
def test_a_policy_that_is_activated_meanwhile_takes_over(
    running: Running, site: Site, folder: Path, workshop: SampleSigners
) -> None:
    running.wait_for_commands(20)
    site.agent.install(site.bundles[2])
    site.agent.activate()
    running.wait_for(lambda: running.status()["version"] == 2)
    assert running.status()["swaps"] == 1
    counters = read_counters(health_path(running.root))
    assert counters is not None
    active = site.active
    assert active is not None
    assert counters.bundle_sha256 == active.bundle_sha256
    site.agent.rollback("for the test")
    running.wait_for(lambda: running.status()["version"] == 1)
    assert "version 2 has taken over" in running.end()


def test_a_policy_without_a_verdict_takes_over_only_where_that_was_allowed(
    site: Site, folder: Path, workshop: SampleSigners
) -> None:
    site.run(1)
    robot, said = LocalRobot(), list[str]()
    options = RunOptions(root=site.agent.root, realtime=Realtime(lock_memory=False), seconds=PATIENCE_S)
    runtime = Runtime(options, robot, say=said.append)
    loop = threading.Thread(target=runtime.run)
    loop.start()
    try:
        # A process that is being forked holds this one's locks for a moment.
        until(lambda: runtime.state is Lifecycle.ACTIVE, said=lambda: said)
        site.agent.install(workshop.published(sample_policy(seed=2), version=2), unsafe_no_verdict=True)
        site.agent.activate()
        without = "version 2 was installed without a valid verdict"
        until(lambda: any(without in text for text in said), said=lambda: said)
        assert runtime.status()["version"] == 1
    finally:
        runtime.commands.put(Command.SHUTDOWN)
        loop.join()


def test_a_damaged_slot_changes_nothing(running: Running, site: Site) -> None:
    running.wait_for_commands(20)
    site.agent.install(site.bundles[2])
    (site.agent.root / "slots" / "b" / "bundle.physai").write_bytes(b"something else")
    (site.agent.root / "current").unlink()
    (site.agent.root / "current").symlink_to("slots/b")
    running.wait_for(lambda: "may not run, the policy before goes on" in running.text())
    assert running.status()["version"] == 1
    running.end()
