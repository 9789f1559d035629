"""A policy's call hangs, again and again, and the robot's end of UDP measures how long the first safe command takes.

The runtime, its watchdog and the robot's end are three processes. The call hangs without letting go of Python's lock,
so nothing else in the runtime's process runs either. It returns after a while; the robot is then reset and started.
"""

import ctypes
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from physai.deploy_jetson.bench.fixtures.sample import SampleSigners, sample_contract, sample_policy
from physai.deploy_jetson.bench.fixtures.site import Site
from physai.deploy_jetson.bench.timing.runtime import ram_disk
from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.runtime import RunOptions, Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime, become_helper
from physai.deploy_jetson.runtime.watchdog.plan import bound_s
from physai.deploy_jetson.runtime.watchdog.shared import SharedMemory, Word, allocate
from physai.deploy_jetson.slots.health import health_path
from physai.deploy_jetson.transport.udp.ends import UdpRobotEndpoint
from physai.sdk.base.benchmark import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.registry import open_transport

HANGS = 100
HANG_S = 0.2
"""How long the call hangs [s]; several times the bound."""

PRIORITY = 80
ANGLE = 1.0
"""What the robot's end measures, so that the policy commands something [rad]."""

SAFE_EFFORT = 1e-6
"""What the watchdog's command may be: the joint is at rest and has nothing to damp [N·m]."""

RUNNING_S = 0.1
"""Time in RUN before a hang, and a little more of it each time, so that it begins anywhere in a period [s]."""

_ROUNDS, _ROUND = 7, 2000
_LOOK_S = 0.01
_ANSWER_S = 1.0
_PATIENCE_S = 60.0


def run(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    """A hundred hangs, with SCHED_FIFO where that is granted.

    Raises:
        WorkloadError: the runtime does not drive, or a hang did not come about.
    """
    trial = measure(3 if options.quick else HANGS)
    if trial.unsafe:
        say(f"{trial.unsafe} of {len(trial.delays_ms)} first commands after a hang were not safe")
    return [*trial.results(), BenchmarkResult(name="watchdog_tick_us", unit="us", runs=tick_cost_us())]


def tick_cost_us(joints: int = 12) -> tuple[float, ...]:
    """What a tick pays for its watchdog [us]: claim, look, and the command that was sent; the medians of rounds."""
    descriptor = allocate(joints)
    shared = SharedMemory(descriptor, joints)
    os.close(descriptor)
    words, records = shared.words, shared.loop
    claim, fired = int(Word.CLAIM), int(Word.FIRED)
    last, step = np.zeros((2, 1, joints))
    medians: list[float] = []
    for _ in range(_ROUNDS):
        durations: list[int] = []
        for number in range(_ROUND):
            start = time.perf_counter_ns()
            words[claim] = number
            if words[fired] == 0:
                records.write(time.monotonic_ns(), 1, last, step)
            durations.append(time.perf_counter_ns() - start)
        medians.append(1e-3 * float(np.median(durations)))
    return tuple(medians)


@dataclass
class WatchdogTrial:
    """What was measured."""

    bound_ms: float
    """Longest that it may take [ms]."""
    delays_ms: list[float] = field(default_factory=list[float])
    """From each hang to the first command at the robot's end [ms]."""
    unsafe: int = 0
    """First commands that were not the safe one."""

    def results(self) -> list[BenchmarkResult]:
        """For `physai bench`."""
        delays, unsafe = tuple(self.delays_ms), float(self.unsafe)
        return [
            BenchmarkResult(name="watchdog_ms", unit="ms", runs=delays),
            BenchmarkResult(name="watchdog_ms.p50", unit="ms", runs=(float(np.median(delays)),)),
            BenchmarkResult(name="watchdog_ms.max", unit="ms", runs=(max(delays),)),
            BenchmarkResult(name="watchdog_ms.bound", unit="ms", runs=(self.bound_ms,)),
            BenchmarkResult(name="watchdog_unsafe", unit="1", runs=(unsafe,)),
        ]


def measure(hangs: int) -> WatchdogTrial:
    """Hangs a runtime so many times.

    Raises:
        WorkloadError: see `run`.
    """
    contract = sample_contract()
    trial = WatchdogTrial(bound_ms=1e3 * bound_s(contract))
    with tempfile.TemporaryDirectory(dir=ram_disk()) as name:
        root = _installed(Path(name))
        with _robot(contract) as robot, _runtime(root, robot.port) as runtime:
            control = health_path(root).with_name(CONTROL_FILE)
            for number in range(hangs):
                _wait_for_run(control)
                time.sleep(RUNNING_S * (1.0 + number / hangs))
                begun_ns = _hang(runtime, control)
                time.sleep(HANG_S)
                first = robot.first_after(begun_ns)
                trial.delays_ms.append((first[0] - begun_ns) * 1e-6)
                trial.unsafe += not abs(first[1]) <= SAFE_EFFORT
            with suppress(ControlError):
                tell(control, "shutdown")
    return trial


def _installed(folder: Path) -> Path:
    """The tree of a robot with an active policy."""
    now = datetime.now(UTC)
    workshop = SampleSigners(created=(now - timedelta(hours=1)).replace(microsecond=0))
    bundle = workshop.validated(workshop.published(sample_policy(), version=1))
    site = Site.make(folder / "robot", workshop, {1: bundle}, now=now)
    site.run(1)
    return site.agent.root


class TrialRobot:
    """The robot's end: measures an angle that never changes, and notes when which command came."""

    def __init__(self, contract: PolicyContract, port: int) -> None:
        self.port = port
        self._dt = contract.timing.control_dt
        self._link = UdpRobotEndpoint({"bind": f"127.0.0.1:{port}"})
        self._link.open(contract)
        self._log: deque[tuple[int, float]] = deque(maxlen=1000)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        # A robot's end that comes late measures itself.
        become_helper(Realtime(priority=PRIORITY))
        due, fields = time.monotonic(), {"joint_pos": np.array([ANGLE])}
        while not self._over.is_set():
            due = max(due + self._dt, time.monotonic())
            while (left := due - time.monotonic()) > 0.0:
                if self._link.wait(left):
                    command = self._link.command()
                    self._log.append((command.received_ns, float(command.targets["joint_effort_target"][0])))
            self._link.publish(fields, time.time_ns())

    def first_after(self, moment_ns: int) -> tuple[int, float]:
        """When the first command after a moment came, CLOCK_MONOTONIC [ns], and what it was.

        Raises:
            WorkloadError: none came.
        """
        for one in list(self._log):
            if one[0] > moment_ns:
                return one
        raise WorkloadError(f"no command reached the robot within {HANG_S:g} s after a hang")

    def close(self) -> None:
        """Ends the thread."""
        self._over.set()
        self._thread.join()
        self._link.close()


@contextmanager
def _robot(contract: PolicyContract) -> Generator[TrialRobot]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    robot = TrialRobot(contract, port)
    try:
        yield robot
    finally:
        robot.close()


@contextmanager
def _runtime(root: Path, port: int) -> Generator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "physai.deploy_jetson.bench.timing.watchdog_trial", str(root), str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
        process.wait(_PATIENCE_S)
    finally:
        process.kill()
        process.communicate()


def _wait_for_run(control: Path) -> None:
    """Resets and starts the policy where the guard has taken over.

    Raises:
        WorkloadError: it does not run.
    """
    give_up = time.monotonic() + _PATIENCE_S
    guard = ""
    while time.monotonic() < give_up:
        with suppress(ControlError):
            guard = str(tell(control, "status").get("guard", ""))
            if guard == "RUN":
                return
            if guard:
                tell(control, "start" if guard == "STANDSTILL" else "reset")
        time.sleep(_LOOK_S)
    raise WorkloadError(f"the policy did not run within {_PATIENCE_S:g} s; the guard says {guard or 'nothing'}")


def _hang(runtime: "subprocess.Popen[str]", control: Path) -> int:
    """Lets the next call hang; when it began, CLOCK_MONOTONIC [ns].

    Raises:
        WorkloadError: the runtime has ended, or does not run.
    """
    if runtime.stdin is None or runtime.stdout is None:
        raise WorkloadError("the runtime cannot be spoken to")
    runtime.stdin.write("hang\n")
    runtime.stdin.flush()
    while not select.select([runtime.stdout], [], [], _ANSWER_S)[0]:
        # The guard may have taken over a moment before, and the policy is not called.
        _wait_for_run(control)
    line = runtime.stdout.readline()
    if not line:
        raise WorkloadError("the runtime has ended")
    return int(line)


def _drive(root: Path, port: int) -> None:
    """The runtime's process: each line of its input hangs one call, and is answered with when that began."""
    wanted, begun = threading.Event(), deque[int]()
    compute, sleep = BoundPolicy.step, ctypes.PyDLL(None).usleep

    def step(self: BoundPolicy) -> bool:
        if wanted.is_set():
            wanted.clear()
            begun.append(time.monotonic_ns())
            sleep(round(HANG_S * 1e6))
        return compute(self)

    def listen() -> None:
        for _ in sys.stdin:
            wanted.set()
            while not begun:
                time.sleep(1e-3)
            print(begun.popleft(), flush=True)

    BoundPolicy.step = step
    threading.Thread(target=listen, daemon=True).start()
    options = RunOptions(root=root, realtime=Realtime(priority=PRIORITY), hot_swap=False)
    Runtime(options, open_transport("udp", {"robot": f"127.0.0.1:{port}"}), say=lambda text: None).run()


if __name__ == "__main__":
    _drive(Path(sys.argv[1]), int(sys.argv[2]))
