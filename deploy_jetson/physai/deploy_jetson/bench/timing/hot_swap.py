"""New policies activated under a running loop, one after the other: deadlines missed, and how long each change took.

Installing and activating happens in a process of its own, as on a robot.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from physai.deploy_jetson.agent.agent import UpdateAgent
from physai.deploy_jetson.bench.fixtures.local_robot import LocalRobot
from physai.deploy_jetson.bench.fixtures.sample import SampleSigners, quick_clock, sample_policy
from physai.deploy_jetson.bench.fixtures.site import Site
from physai.deploy_jetson.bench.timing.runtime import ram_disk
from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE, ControlError, tell
from physai.deploy_jetson.runtime.options import RunOptions
from physai.deploy_jetson.runtime.runtime import Runtime
from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.slots.health import health_path
from physai.sdk.base.benchmark import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError

PRIORITY = 80
SLOWER = 0.2
"""Factor on the times of the sample's contract: 500 Hz, deadline 1.8 ms."""

_LOOK_S = 0.01
_PATIENCE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class SwapStatistics:
    """Result."""

    swaps: int
    ticks: int
    missed: int
    skipped: int
    worst_tick_us: float
    """From when a tick was due until its command was out, the slowest."""
    steal_s: float
    """Time the machine beneath took meanwhile, from all cores [s]; 0 where that is not known."""
    warnings: tuple[str, ...]
    """What the operator was told, changes of policy aside."""


def run(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    """A hundred changes, with SCHED_FIFO where that is granted.

    Raises:
        WorkloadError: not every policy took over.
    """
    found = measure(3 if options.quick else 100, realtime=Realtime(priority=PRIORITY))
    for text in found.warnings:
        say(text)
    return [
        BenchmarkResult(name="swaps", unit="1", runs=(float(found.swaps),)),
        BenchmarkResult(name="swaps_missed", unit="1", runs=(float(found.missed),)),
        BenchmarkResult(name="swaps_skipped", unit="1", runs=(float(found.skipped),)),
        BenchmarkResult(name="swaps_ticks", unit="1", runs=(float(found.ticks),)),
        BenchmarkResult(name="swaps_worst_tick_us", unit="us", runs=(found.worst_tick_us,)),
        BenchmarkResult(name="swaps_steal", unit="s", runs=(found.steal_s,)),
    ]


def measure(swaps: int, *, realtime: Realtime, width: int = 64) -> SwapStatistics:
    """Drives a robot in this process while another activates policies.

    Args:
        swaps: how many.
        realtime: what to ask the kernel for.
        width: neurons of each layer of the policies.

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
        said: list[str] = []
        runtime = Runtime(RunOptions(root=site.agent.root, realtime=realtime), LocalRobot(), say=said.append)
        command = [sys.executable, "-m", "physai.deploy_jetson.bench.timing.hot_swap", str(folder), str(swaps)]
        activator = subprocess.Popen(command, start_new_session=True)
        try:
            runtime.run()
        finally:
            activator.kill()
            activator.wait()
        summary = runtime.summary()
    counts = summary.counts
    if counts.swaps != swaps:
        raise WorkloadError(f"{counts.swaps} of {swaps} policies took over: {said[-3:]}")
    return SwapStatistics(
        swaps=counts.swaps,
        ticks=counts.ticks,
        missed=counts.missed,
        skipped=counts.skipped,
        worst_tick_us=summary.stages_us["whole"]["max"],
        steal_s=summary.steal_s or 0.0,
        warnings=tuple(text for text in said if "has taken over" not in text),
    )


def activate(folder: Path, swaps: int) -> None:
    """Installs and activates one version after the other, each once the one before has taken over; ends the runtime."""
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
    give_up = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up:
        try:
            if tell(control, "status").get("version") == version:
                return
        except ControlError:
            pass  # it has not started yet
        time.sleep(_LOOK_S)
    raise WorkloadError(f"version {version} did not take over within {_PATIENCE_S:g} s")


if __name__ == "__main__":
    activate(Path(sys.argv[1]), int(sys.argv[2]))
