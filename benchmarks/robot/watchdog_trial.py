"""Repeatedly hangs a policy's call and measures, at the robot's end of UDP, the time until the first safe command.

The runtime, its watchdog and the robot's end are three processes. The hanging call holds the GIL, so that nothing
else in the runtime's process runs. After the call returns, the robot is reset and started again.
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
from tests.harness.fixtures.sample import SampleSigners, sample_contract, sample_policy
from tests.harness.fixtures.site import Site
from tests.harness.programs import program

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.robot.runtime import ram_disk
from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.runtime.io.policy_io import BoundPolicy
from physai.deploy_jetson.runtime.runtime import RunOptions, Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime, become_helper
from physai.deploy_jetson.runtime.watchdog.plan import bound_s
from physai.deploy_jetson.runtime.watchdog.shared import SharedMemory, Word, allocate
from physai.deploy_jetson.update.slots.health import health_path
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.registry import open_transport
from physai.transport.udp.udp_ends import UdpRobotEndpoint

HANGS = 100
HANG_S = 0.2
"""Duration of a hang [s]; several times the bound."""

PRIORITY = 80
ANGLE = 1.0
"""Constant joint position that the robot's end reports, for which the policy's command is not 0 [rad]."""

SAFE_EFFORT = 1e-6
"""Tolerance of the watchdog's command, which is 0 because the joint is at rest [N·m]."""

RUNNING_S = 0.1
"""Minimum time in RUN before a hang [s]; increased a little each time, to vary the phase within a period."""

_ROUNDS, _ROUND = 7, 2000
_LOOK_S = 0.01
_ANSWER_S = 1.0
_TIMEOUT_S = 60.0


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """A hundred hangs, with SCHED_FIFO if permitted.

    Raises:
        WorkloadError: the runtime does not drive, or does not hang.
    """
    trial = measure(3 if options.quick else HANGS)
    if trial.unsafe:
        report(f"{trial.unsafe} of {len(trial.delays_ms)} first commands after a hang were not safe")
    return [*trial.results(), BenchmarkResult(name="watchdog_tick_us", unit="us", runs=tick_cost_us())]


def tick_cost_us(joints: int = 12) -> tuple[float, ...]:
    """Cost of the watchdog per tick [µs]: claim, check, and record of the sent command; median of each round."""
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
    """Measurements of the trial."""

    bound_ms: float
    """Upper bound of the delay [ms]."""
    delays_ms: list[float] = field(default_factory=list[float])
    """From each hang to the first command at the robot's end [ms]."""
    unsafe: int = 0
    """Number of first commands that were not safe."""

    def results(self) -> list[BenchmarkResult]:
        """Results for `python -m benchmarks`."""
        delays, unsafe = tuple(self.delays_ms), float(self.unsafe)
        return [
            BenchmarkResult(name="watchdog_ms", unit="ms", runs=delays),
            BenchmarkResult(name="watchdog_ms.p50", unit="ms", runs=(float(np.median(delays)),)),
            BenchmarkResult(name="watchdog_ms.max", unit="ms", runs=(max(delays),)),
            BenchmarkResult(name="watchdog_ms.bound", unit="ms", runs=(self.bound_ms,)),
            BenchmarkResult(name="watchdog_unsafe", unit="1", runs=(unsafe,)),
        ]


def measure(hangs: int) -> WatchdogTrial:
    """Hangs a runtime `hangs` times.

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
    """Sets up a robot with an active policy; returns the folder of its slots."""
    now = datetime.now(UTC)
    workshop = SampleSigners(created=(now - timedelta(hours=1)).replace(microsecond=0))
    bundle = workshop.validated(workshop.published(sample_policy(), version=1))
    site = Site.make(folder / "robot", workshop, {1: bundle}, now=now)
    site.run(1)
    return site.agent.root


class TrialRobot:
    """The robot's end: reports a constant position and logs commands with their time of arrival."""

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
        # Real-time priority, or the delays of this thread would be measured.
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
        """Time, CLOCK_MONOTONIC [ns], and value of the first command after `moment_ns`.

        Raises:
            WorkloadError: there is none.
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
    command = program("benchmarks.robot.watchdog_trial", str(root), str(port))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
        process.wait(_TIMEOUT_S)
    finally:
        process.kill()
        process.communicate()


def _wait_for_run(control: Path) -> None:
    """Resets and starts the policy until the guard is in RUN.

    Raises:
        WorkloadError: it is not in RUN in time.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    guard = ""
    while time.monotonic() < deadline:
        with suppress(ControlError):
            guard = str(tell(control, "status").get("guard", ""))
            if guard == "RUN":
                return
            if guard:
                tell(control, "start" if guard == "STANDSTILL" else "reset")
        time.sleep(_LOOK_S)
    raise WorkloadError(
        f"the policy did not run within {_TIMEOUT_S:g} s; the guard is in {guard or 'an unknown state'}"
    )


def _hang(runtime: "subprocess.Popen[str]", control: Path) -> int:
    """Makes the next call hang; returns when it began, CLOCK_MONOTONIC [ns].

    Raises:
        WorkloadError: the runtime has ended, or is not in RUN.
    """
    if runtime.stdin is None or runtime.stdout is None:
        raise WorkloadError("the runtime has no pipes")
    runtime.stdin.write("hang\n")
    runtime.stdin.flush()
    while not select.select([runtime.stdout], [], [], _ANSWER_S)[0]:
        # The guard may just have taken over, so that the policy is not called.
        _wait_for_run(control)
    line = runtime.stdout.readline()
    if not line:
        raise WorkloadError("the runtime has ended")
    return int(line)


def _drive(root: Path, port: int) -> None:
    """Main function of the runtime's process: each line on stdin hangs one call; its start time is printed."""
    hang, begun = threading.Event(), deque[int]()
    compute, sleep = BoundPolicy.step, ctypes.PyDLL(None).usleep

    def step(self: BoundPolicy) -> bool:
        if hang.is_set():
            hang.clear()
            begun.append(time.monotonic_ns())
            # PyDLL keeps the GIL during the call.
            sleep(round(HANG_S * 1e6))
        return compute(self)

    def listen() -> None:
        for _ in sys.stdin:
            hang.set()
            while not begun:
                time.sleep(1e-3)
            print(begun.popleft(), flush=True)

    BoundPolicy.step = step
    threading.Thread(target=listen, daemon=True).start()
    options = RunOptions(root=root, realtime=Realtime(priority=PRIORITY), hot_swap=False)
    Runtime(options, open_transport("udp", {"robot": f"127.0.0.1:{port}"}), say=lambda text: None).run()


if __name__ == "__main__":
    _drive(Path(sys.argv[1]), int(sys.argv[2]))
