"""Cost of a shadow to the loop that drives: alternating blocks with and without one, in one run of the runtime.

Everything that the robot is sent is compared with what the policy that drives computes, in ONNX Runtime alone.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.harness.fixtures.sample import SampleSigners, sample_policy
from tests.harness.fixtures.site import Site
from tests.harness.fixtures.swinging_robot import SwingingRobot
from tests.harness.programs import program

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.robot.runtime import ram_disk
from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.runtime.system.timer import DeadlineTimer
from physai.deploy_jetson.telemetry.flight.recorder import FlightOptions
from physai.deploy_jetson.telemetry.telemetry import Telemetry, TelemetryOptions
from physai.deploy_jetson.update.slots.health import health_path
from physai.sdk.onnx.session import open_session
from physai.sdk.policy.header import POLICY_FILE

PRIORITY = 80
SLOWER = 0.2
"""Factor on the times of the sample's contract: 500 Hz, deadline 1.8 ms."""
PERIOD_S = 0.01 * SLOWER
WIDTH = 64
BLOCKS, SECONDS = 20, 5.0
QUICK_BLOCKS, QUICK_SECONDS = 2, 1.0
SETTLE_S = 0.5
"""Left out at the begin of each block."""
DIFFERENT, SAME = 1e-2, 1e-5
"""Commands of both policies that can be told apart, and those that are equal [N·m]."""
FLOAT64_BYTES = 8
_POLL_S = 0.05
_TIMEOUT_S = 60.0

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Run:
    due_ns: npt.NDArray[np.int64]
    whole_us: Numbers
    log: list[tuple[float, float]]
    blocks: list[tuple[str, int, int]]
    """Whether a shadow ran, and CLOCK_MONOTONIC at the begin and the end [ns]."""


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Twenty blocks of 5 s with and twenty without a shadow, at 500 Hz, with SCHED_FIFO if permitted.

    Raises:
        WorkloadError: the shadow did not follow, or the policy did not drive.
    """
    blocks, seconds = (QUICK_BLOCKS, QUICK_SECONDS) if options.quick else (BLOCKS, SECONDS)
    idle = _idle_timer_us(seconds)
    report(f"a bare timer wakes {np.quantile(idle, 0.99):.0f} us late (p99)")
    measured = _measure(blocks, seconds, report)
    shares = {"p50": 0.5, "p99": 0.99}
    found: dict[str, dict[str, list[float]]] = {"on": {}, "off": {}}
    for kind, begun, ended in measured.blocks:
        chosen = (measured.due_ns >= begun + SETTLE_S * 1e9) & (measured.due_ns < ended)
        if not chosen.any():
            raise WorkloadError(f"no tick in a block of {seconds:g} s")
        for name, share in shares.items():
            found[kind].setdefault(name, []).append(float(np.quantile(measured.whole_us[chosen], share)))
    delta = {name: np.array(found["on"][name]) - np.array(found["off"][name]) for name in shares}
    return [
        BenchmarkResult(name="tick_delta_us.p50", unit="us", runs=(float(np.median(delta["p50"])),)),
        BenchmarkResult(
            name="tick_delta_share.p99", unit="1", runs=(float(np.median(delta["p99"])) / (PERIOD_S * 1e6),)
        ),
        BenchmarkResult(name="tick_us.p50", unit="us", runs=tuple(found["off"]["p50"])),
        BenchmarkResult(name="tick_us_shadow.p50", unit="us", runs=tuple(found["on"]["p50"])),
        BenchmarkResult(name="tick_us.p99", unit="us", runs=tuple(found["off"]["p99"])),
        BenchmarkResult(name="tick_us_shadow.p99", unit="us", runs=tuple(found["on"]["p99"])),
        BenchmarkResult(name="timer_late_us.p99", unit="us", runs=(float(np.quantile(idle, 0.99)),)),
        BenchmarkResult(name="bytes_on_wire", unit="1", runs=(float(_bytes_of_shadow(measured.log)),)),
    ]


def _measure(blocks: int, seconds: float, report: ProgressCallback) -> _Run:
    with tempfile.TemporaryDirectory(dir=ram_disk()) as name:
        folder = Path(name)
        now = datetime.now(UTC)
        workshop = SampleSigners(created=(now - timedelta(hours=1)).replace(microsecond=0))
        bundles = {
            version: workshop.validated(
                workshop.published(sample_policy(seed=version, width=WIDTH, slower=SLOWER), version=version)
            )
            for version in (1, 2)
        }
        site = Site.make(folder / "robot", workshop, bundles, now=now)
        site.run(1)
        second = folder / "2.physai"
        second.write_bytes(bundles[2])
        length = 2.0 * blocks * (seconds + SETTLE_S) + _TIMEOUT_S
        flight = FlightOptions(folder=folder / "recordings", seconds=min(length, 600.0))
        robot = SwingingRobot()
        runtime = Runtime(
            RunOptions(root=site.agent.root, realtime=Realtime(priority=PRIORITY), hot_swap=False),
            robot,
            telemetry=Telemetry(TelemetryOptions(flight=flight)),
            say=report,
        )
        robot.driven = lambda: runtime.guard_state == "RUN" and len(robot.log) > 100
        log = folder / "blocks.txt"
        command = program("benchmarks.robot.shadow", str(site.agent.root), str(second), str(log), str(blocks))
        switcher = subprocess.Popen([*command, str(seconds)], start_new_session=True)
        try:
            runtime.run()
        finally:
            switcher.kill()
            switcher.wait()
        recorder = runtime.telemetry.recorder
        if recorder is None or switcher.returncode not in (0, -9) or not log.exists():
            raise WorkloadError("the blocks were not run to their end")
        ticks = recorder.ring.last()
        lines = [line.split() for line in log.read_text().splitlines()]
    if len(lines) != 2 * blocks:
        raise WorkloadError(f"{len(lines)} of {2 * blocks} blocks were run")
    return _Run(
        ticks["deadline_ns"].astype(np.int64),
        ticks["whole_ns"].astype(np.float64) * 1e-3,
        robot.log,
        [(kind, int(begun), int(ended)) for kind, begun, ended in lines],
    )


def _bytes_of_shadow(log: list[tuple[float, float]]) -> int:
    """Bytes on the wire that only the second policy explains."""
    angles = np.array([angle for angle, _ in log], np.float32)[:, None]
    sent = np.array([value for _, value in log])
    own, other = (
        open_session(sample_policy(seed=seed, width=WIDTH, slower=SLOWER)[POLICY_FILE], source="sample")[0].run(
            None, {"joint_pos": angles}
        )[0][:, 0]
        for seed in (1, 2)
    )
    tell_apart = np.abs(own - other) > DIFFERENT
    driven = int((tell_apart & (np.abs(sent - own) < SAME)).sum())
    if not driven > 0.2 * len(log):
        raise WorkloadError(f"{driven} of {len(log)} commands are those of the policy that drives")
    return FLOAT64_BYTES * int((tell_apart & (np.abs(sent - other) < SAME)).sum())


def _idle_timer_us(seconds: float) -> Numbers:
    """Delays of the loop's timer without anything to do [us]."""
    timer, period_ns = DeadlineTimer(), round(PERIOD_S * 1e9)
    due, late = time.monotonic_ns() + period_ns, list[int]()
    while len(late) * PERIOD_S < seconds:
        late.append(timer.wait(due) - due)
        due += period_ns
    return np.array(late) * 1e-3


def switch(root: Path, bundle: Path, log: Path, blocks: int, seconds: float) -> None:
    """Turn the shadow on and off in turn, write down when, then end the runtime."""
    control = health_path(root).with_name(CONTROL_FILE)
    _wait(control, _drives)
    lines: list[str] = []
    for number in range(2 * blocks):
        # on, off, off, on: what drifts does not count for one of them.
        kind = "on" if number % 4 in (0, 3) else "off"
        tell(control, f"shadow {bundle}" if kind == "on" else "shadow off")
        if kind == "on":
            _wait(control, _computes)
        begun = time.monotonic_ns()
        time.sleep(SETTLE_S + seconds)
        if kind == "on":
            _wait(control, _computes)
        lines.append(f"{kind} {begun} {time.monotonic_ns()}")
    tell(control, "shadow off")
    log.write_text("\n".join(lines))
    tell(control, "shutdown")


def _drives(status: dict[str, Any]) -> bool:
    return status.get("guard") == "RUN"


def _computes(status: dict[str, Any]) -> bool:
    shadow: dict[str, Any] = status.get("shadow", {})
    return _drives(status) and shadow.get("ticks", 0) > 0 and shadow["state"] == "runs"


def _wait(control: Path, holds: Callable[[dict[str, Any]], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        with suppress(ControlError):
            status = tell(control, "status")
            if holds(status):
                return
            if status.get("guard") in ("HOLD", "DAMP", "STANDSTILL"):
                # On a busy machine the guard has taken over.
                tell(control, "reset")
                tell(control, "start")
        time.sleep(_POLL_S)
    raise WorkloadError(f"the runtime did not follow within {_TIMEOUT_S:g} s")


if __name__ == "__main__":
    switch(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
