"""Power cuts and kills as a benchmark: how many there were, and after how many the robot had no good policy."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from physai.deploy_jetson.bench.power_cuts.crash import crash_states
from physai.sdk.base.benchmark import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError

MIN_STATES, QUICK_MIN_STATES = 1000, 100
KILLS, QUICK_KILLS = 2000, 20
_TENTH = 0.1


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Replays every power cut, then kills.

    Raises:
        WorkloadError: there were too few to say anything.
    """
    shown = 0.0

    def progress(share: float) -> None:
        nonlocal shown
        if share >= shown + _TENTH:
            shown = share
            report(f"power cuts: {share:.0%}")

    found = crash_states(nested=not options.quick, progress=progress)
    least = QUICK_MIN_STATES if options.quick else MIN_STATES
    if not found.states >= least:
        raise WorkloadError(f"{found.states} states, at least {least} are expected")
    for bad in found.bad[:5]:
        report(f"bad state: {bad.step}, operation {bad.operation}, depth {bad.depth}: {bad.reason}")
    kills = _kill(QUICK_KILLS if options.quick else KILLS, report)
    counts = {
        "states": found.states,
        "bad_states": len(found.bad),
        "operations": found.operations,
        "nested_states": found.nested_states,
        "sampled_moments": found.sampled,
        "kills": kills["kills"],
        "bad_kills": len(kills["bad"]),
        "kills_cut_short": kills["cut_short"],
    }
    return [BenchmarkResult(name=name, unit="1", runs=(float(count),)) for name, count in counts.items()]


def _kill(kills: int, report: ProgressCallback) -> dict[str, Any]:
    """`physai.deploy_jetson.bench.power_cuts.kills.Kills` as a record; in a process of its own, because it forks."""
    report(f"{kills} kills")
    command = [sys.executable, "-m", "physai.deploy_jetson.bench.power_cuts.kills", "--kills", str(kills)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        lines = finished.stderr.strip().splitlines() or ["no message"]
        raise WorkloadError(f"the kills ended with exit code {finished.returncode}: {lines[-1]}")
    record: dict[str, Any] = json.loads(finished.stdout)
    for bad in record["bad"][:5]:
        report(f"bad kill: {bad}")
    return record
