"""Hot swaps of policies in a running loop: missed deadlines and the slowest tick.

A separate process installs and activates the policies, as on a robot.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.harness.fixtures.local_robot import LocalRobot
from tests.harness.fixtures.sample import SampleSigners, quick_clock, sample_policy
from tests.harness.fixtures.site import Site
from tests.harness.programs import program

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.robot.runtime import ram_disk
from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.runtime.run_options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.update.agent.agent import UpdateAgent
from physai.deploy_jetson.update.slots.health import health_path

PRIORITY = 80
SLOWER = 0.2
"""Factor on the times of the sample's contract: 500 Hz, deadline 1.8 ms."""

_POLL_S = 0.01
_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class SwapStatistics:
    """Statistics of a run."""

    swaps: int
    ticks: int
    missed: int
    skipped: int
    worst_tick_us: float
    """Longest time from when a tick was due until its command was sent."""
    steal_s: float
    """Steal time of all cores [s]; 0 if not known."""
    warnings: tuple[str, ...]
    """Messages of the runtime except those about swaps."""


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """A hundred swaps, with SCHED_FIFO if permitted.

    Raises:
        WorkloadError: not every policy took over.
    """
    stats = measure(3 if options.quick else 100, realtime=Realtime(priority=PRIORITY))
    for text in stats.warnings:
        report(text)
    return [
        BenchmarkResult(name="swaps", unit="1", runs=(float(stats.swaps),)),
        BenchmarkResult(name="swaps_missed", unit="1", runs=(float(stats.missed),)),
        BenchmarkResult(name="swaps_skipped", unit="1", runs=(float(stats.skipped),)),
        BenchmarkResult(name="swaps_ticks", unit="1", runs=(float(stats.ticks),)),
        BenchmarkResult(name="swaps_worst_tick_us", unit="us", runs=(stats.worst_tick_us,)),
        BenchmarkResult(name="swaps_steal", unit="s", runs=(stats.steal_s,)),
    ]


def measure(swaps: int, *, realtime: Realtime, width: int = 64) -> SwapStatistics:
    """Drives a robot in this process while another process activates policies.

    Args:
        swaps: number of swaps.
        realtime: requested scheduling.
        width: neurons per layer of the policies.

    Raises:
        WorkloadError: not every policy took over.
    """
    with tempfile.TemporaryDirectory(dir=ram_disk()) as name:
        folder = Path(name)
        now = datetime.now(UTC)
        workshop = SampleSigners(created=(now - timedelta(hours=1)).replace(microsecond=0))
        for version in range(1, swaps + 2):
            members = sample_policy(seed=version, width=width, slower=SLOWER)
            bundle = workshop.validated(workshop.published(members, version=version))
            (folder / f"{version}.physai").write_bytes(bundle)
        site = Site.make(folder / "robot", workshop, {1: (folder / "1.physai").read_bytes()}, now=now)
        site.run(1)
        messages: list[str] = []
        runtime = Runtime(RunOptions(root=site.agent.root, realtime=realtime), LocalRobot(), say=messages.append)
        command = program("benchmarks.robot.hot_swap", str(folder), str(swaps))
        activator = subprocess.Popen(command, start_new_session=True)
        try:
            runtime.run()
        finally:
            activator.kill()
            activator.wait()
        summary = runtime.summary()
    counts = summary.counts
    if counts.swaps != swaps:
        raise WorkloadError(f"{counts.swaps} of {swaps} policies took over: {messages[-3:]}")
    return SwapStatistics(
        swaps=counts.swaps,
        ticks=counts.ticks,
        missed=counts.missed,
        skipped=counts.skipped,
        worst_tick_us=summary.stages_us["whole"]["max"],
        steal_s=summary.steal_s or 0.0,
        warnings=tuple(text for text in messages if "has taken over" not in text),
    )


def activate(folder: Path, swaps: int) -> None:
    """Installs and activates one version after another, waits for each to take over, then ends the runtime."""
    root = folder / "robot"
    agent = UpdateAgent(root=root, backend="onnxruntime", ticks=5, tick_clock_ns=quick_clock, apart=False)
    control = health_path(root).with_name(CONTROL_FILE)
    _wait_for_version(control, 1)
    for version in range(2, swaps + 2):
        agent.install((folder / f"{version}.physai").read_bytes())
        agent.activate()
        agent.commit("benchmark")
        _wait_for_version(control, version)
    tell(control, "shutdown")


def _wait_for_version(control: Path, version: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if tell(control, "status").get("version") == version:
                return
        except ControlError:
            pass  # the runtime has not started yet
        time.sleep(_POLL_S)
    raise WorkloadError(f"version {version} did not take over within {_TIMEOUT_S:g} s")


if __name__ == "__main__":
    activate(Path(sys.argv[1]), int(sys.argv[2]))
