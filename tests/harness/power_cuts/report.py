"""Benchmark of power cuts and kills: their number, and after how many the robot has no valid policy."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from tests.harness.power_cuts.crash import crash_states
from tests.harness.programs import program

MIN_STATES, QUICK_MIN_STATES = 1000, 100
KILLS, QUICK_KILLS = 2000, 20
_TENTH = 0.1


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Replays all power cuts, then runs the kills.

    Raises:
        WorkloadError: too few states for a meaningful result.
    """
    shown = 0.0

    def progress(share: float) -> None:
        nonlocal shown
        if share >= shown + _TENTH:
            shown = share
            report(f"power cuts: {share:.0%}")

    result = crash_states(nested=not options.quick, progress=progress)
    minimum = QUICK_MIN_STATES if options.quick else MIN_STATES
    if not result.states >= minimum:
        raise WorkloadError(f"{result.states} states, expected at least {minimum}")
    for bad in result.bad[:5]:
        report(f"bad state: {bad.step}, operation {bad.operation}, depth {bad.depth}: {bad.reason}")
    kills = _kill(QUICK_KILLS if options.quick else KILLS, report)
    counts = {
        "states": result.states,
        "bad_states": len(result.bad),
        "operations": result.operations,
        "nested_states": result.nested_states,
        "sampled_moments": result.sampled,
        "kills": kills["kills"],
        "bad_kills": len(kills["bad"]),
        "kills_cut_short": kills["cut_short"],
    }
    return [BenchmarkResult(name=name, unit="1", runs=(float(count),)) for name, count in counts.items()]


def _kill(kills: int, report: ProgressCallback) -> dict[str, Any]:
    """Fields of `tests.harness.power_cuts.kills.Kills`; in a separate process, because it forks."""
    report(f"{kills} kills")
    command = program("tests.harness.power_cuts.kills", "--kills", str(kills))
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        lines = finished.stderr.strip().splitlines() or ["no message"]
        raise WorkloadError(f"the kills exited with status {finished.returncode}: {lines[-1]}")
    record: dict[str, Any] = json.loads(finished.stdout)
    for bad in record["bad"][:5]:
        report(f"bad kill: {bad}")
    return record
