"""Duration of a complete tick compared with the bare graph, and missed deadlines compared with an idle timer.

python -m benchmarks runtime                                 two minutes
python -m benchmarks runtime --seconds 600                   ten minutes of the loop, about twenty in total
python -m benchmarks runtime --seconds 600 --busy 2          the same with two busy processes as load
python -m benchmarks.robot.runtime --help  with another policy, rate, core or priority
"""

import argparse
import gc
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.harness.fixtures.sample import sample_policy

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError, document
from benchmarks.robot.load_generator import cpu_load
from benchmarks.robot.loop_comparison import Block, LoopComparison
from physai.deploy_jetson.runtime.system.realtime import Realtime, acquire
from physai.deploy_jetson.telemetry.steal_time import steal_s
from physai.sdk.policy.header import POLICY_FILE

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
RATE_HZ = 500.0
PRIORITY = 80
ROUNDS, SECONDS = 3, 12.0
QUICK_SECONDS = 0.8
WIDTH = 64
"""Neurons per layer of the default policy."""

OVERHEAD_S, PLAIN_S = 8.0, 4.0
"""Time per round for ticks and bare runs, and for the plain loop; at most 2/3 and 1/3 of the loop's time."""

DDS_BLOCKS, QUICK_DDS_BLOCKS = 20, 2


@dataclass(frozen=True, kw_only=True)
class RuntimeBenchPlan:
    """Settings of a measurement."""

    data: bytes
    """ONNX file of the policy."""
    rate_hz: float = RATE_HZ
    """Rate of all loops."""
    rounds: int = ROUNDS
    seconds: float = SECONDS
    """Time per round of the runtime's loop, and of the idle timer [s]."""
    realtime: Realtime = field(default_factory=lambda: Realtime(priority=PRIORITY))
    """Requested scheduling."""
    busy: int = 0
    """Number of busy processes as load; on the other cores, if the loop is pinned to one."""


@dataclass
class _Series:
    """Runs so far, by name and unit."""

    runs: dict[tuple[str, str], list[float]] = field(default_factory=dict[tuple[str, str], list[float]])
    missed: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Missed periods and all periods, by contender."""

    def add(self, name: str, unit: str, value: float) -> None:
        self.runs.setdefault((name, unit), []).append(value)

    def shares(self, name: str, values_ns: Sequence[int]) -> dict[str, float]:
        """Adds percentiles in microseconds, and returns them."""
        found = {share: float(np.quantile(values_ns, quantile)) * 1e-3 for share, quantile in SHARES.items()}
        for share, value in found.items():
            self.add(f"{name}.{share}", "us", value)
        return found

    def overhead(self, kind: str, ticks_ns: Sequence[int], runs_ns: Sequence[int]) -> None:
        tick, bare = self.shares(f"tick_us{kind}", ticks_ns), self.shares(f"session_run_us{kind}", runs_ns)
        for share in SHARES:
            self.add(f"tick_overhead_us{kind}.{share}", "us", tick[share] - bare[share])

    def block(self, kind: str, *blocks: Block) -> None:
        """Adds missed deadlines and intervals of a contender."""
        total = self.missed.setdefault(kind, [0, 0])
        total[0] += sum(block.missed for block in blocks)
        total[1] += sum(block.periods for block in blocks)
        self.shares(f"period_us{kind}", [gap for block in blocks for gap in block.gaps])

    def results(self) -> list[BenchmarkResult]:
        found = [
            BenchmarkResult(name=name, unit=unit, runs=tuple(values)) for (name, unit), values in self.runs.items()
        ]
        for kind, (missed, periods) in self.missed.items():
            # Over all rounds: a median of few rounds would hide the one with misses.
            found.append(BenchmarkResult(name=f"missed_per_million{kind}", unit="1", runs=(1e6 * missed / periods,)))
            found.append(BenchmarkResult(name=f"periods{kind}", unit="1", runs=(float(periods),)))
        return found


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """DDS round trips, then three rounds of about half a minute at 500 Hz, with SCHED_FIFO if permitted.

    Raises:
        WorkloadError: no command reached the robot.
    """
    data = sample_policy(width=WIDTH)[POLICY_FILE]
    rounds, seconds = (1, QUICK_SECONDS) if options.quick else (ROUNDS, SECONDS)
    if options.seconds is not None:
        rounds, seconds = 1, options.seconds
    # DDS first, while this process is not yet real-time; its own processes have ended by then.
    dds = _round_trips(QUICK_DDS_BLOCKS if options.quick else DDS_BLOCKS, report)
    return [*measure(RuntimeBenchPlan(data=data, rounds=rounds, seconds=seconds, busy=options.busy), report), *dds]


def _round_trips(blocks: int, report: ProgressCallback) -> list[BenchmarkResult]:
    try:
        from benchmarks.robot.dds import measure_round_trips
    except ModuleNotFoundError as error:
        report(f"DDS is not measured: {error.name} is not installed")
        return []
    report(f"round trips over DDS, {blocks} s")
    found = measure_round_trips(blocks=blocks)
    results = [
        BenchmarkResult(name=f"dds_rtt_us.{way}.{share}", unit="us", runs=(1e6 * found.quantile(way, SHARES[share]),))
        for way in ("fixed", "typed")
        for share in ("p50", "p99")
    ]
    ratio = BenchmarkResult(
        name="dds_rtt_over_typed.p50", unit="1", runs=(found.over_typed_p50,), peer="dds_rtt_us.typed"
    )
    return [*results, ratio]


def measure(plan: RuntimeBenchPlan, report: Callable[[str], None]) -> list[BenchmarkResult]:
    """Measures all contenders in turn.

    Args:
        plan: settings.
        report: reports progress.

    Raises:
        PhysaiError: the policy does not load.
        WorkloadError: no command reached the robot.
    """
    series = _Series()
    others = None if plan.realtime.cpu is None else os.sched_getaffinity(0) - {plan.realtime.cpu}
    with tempfile.TemporaryDirectory(dir=ram_disk()) as folder, cpu_load(plan.busy, cores=others):
        most = round(2.0 * plan.rate_hz * (plan.seconds + 10.0))
        contest = LoopComparison(plan.data, plan.rate_hz, Path(folder) / "health", most_ticks=most)
        for warning in acquire(plan.realtime):
            report(f"warning: {warning}")
        for index in range(plan.rounds):
            report(
                f"round {index + 1} of {plan.rounds}, {_round_s(plan):.0f} s; load average {os.getloadavg()[0]:.2f}, "
                f"{plan.busy} busy processes"
            )
            _round(contest, series, plan)
        contest.health.close()
    if not contest.robot.sent:
        raise WorkloadError("no command reached the robot")
    return [*series.results(), BenchmarkResult(name="hogs", unit="1", runs=(float(plan.busy),))]


def _parts(plan: RuntimeBenchPlan) -> tuple[float, float]:
    """Time per round for ticks and bare runs, and for the plain loop [s]."""
    return min(OVERHEAD_S, plan.seconds * 2.0 / 3.0), min(PLAIN_S, plan.seconds / 3.0)


def _round_s(plan: RuntimeBenchPlan) -> float:
    return 2.0 * plan.seconds + sum(_parts(plan))


def _round(contest: LoopComparison, series: _Series, plan: RuntimeBenchPlan) -> None:
    overhead_s, plain_s = _parts(plan)
    before = steal_s()
    series.add("load_average", "1", os.getloadavg()[0])
    series.add("sched_fifo", "1", float(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO))
    gc.collect()
    gc.disable()
    try:
        overhead = contest.overhead(max(2000, round(overhead_s * plan.rate_hz)))
        # Half of the idle timer before the loop and half after it, because the machine's noise varies over time.
        timers = [contest.timer(plan.seconds / 2.0)]
        ours = contest.ours(plan.seconds)
        timers.append(contest.timer(plan.seconds / 2.0))
        plain = contest.plain(plain_s)
    finally:
        gc.enable()
    after = steal_s()
    series.overhead("", overhead.ticks, overhead.runs)
    series.overhead(".cold", overhead.cold_ticks, overhead.cold_runs)
    series.shares("late_us", overhead.lates)
    series.block("", ours)
    series.block(".timer", *timers)
    series.block(".plain", plain)
    series.add("memory_growth", "KiB", ours.memory_growth_kib)
    series.add("busy_share", "1", ours.busy_share)
    series.add("busy_share.plain", "1", plain.busy_share)
    if before is not None and after is not None:
        series.add("steal", "s", after - before)


def ram_disk() -> Path | None:
    """A folder in memory, if there is one, as for a robot's counters: writing to a file on a disk may block."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else None


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description="Cost of a tick, and missed deadlines.")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="ONNX file (default: a small sample policy)")
    parser.add_argument("--rate", type=float, default=RATE_HZ, metavar="HZ")
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help="time of the loop, and of the idle timer"
    )
    parser.add_argument("--priority", type=int, metavar="P", help="SCHED_FIFO priority (default: none)")
    parser.add_argument("--cpu", type=int, metavar="N")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="number of busy processes as load")
    arguments = parser.parse_args()
    data = sample_policy(width=WIDTH)[POLICY_FILE] if arguments.policy is None else arguments.policy.read_bytes()
    plan = RuntimeBenchPlan(
        data=data,
        rate_hz=arguments.rate,
        rounds=arguments.rounds,
        seconds=arguments.seconds,
        realtime=Realtime(priority=arguments.priority, cpu=arguments.cpu),
        busy=arguments.busy,
    )
    print(json.dumps(document("runtime", measure(plan, print)), indent=2))


if __name__ == "__main__":
    main()
