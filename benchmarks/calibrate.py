"""`python -m benchmarks calibrate`: time to calibrate the double pendulum from its five recordings."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.twin.calibration.from_recordings import calibrate

FOLDER = "dfki_double_pendulum/data/experiment_records/design_C.1/sys_id/20230629"
RUNS: dict[str, Literal["coulomb", "auto"]] = {"seconds.double_pendulum": "coulomb", "seconds.auto": "auto"}


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Calibrates with Coulomb friction, and with the friction model that the recordings choose."""
    logs = sorted((Path(os.environ.get("PHYSAI_DATA", "")) / FOLDER).glob("*/trajectory.csv.gz"))
    if len(logs) != 5:
        raise WorkloadError(f"{len(logs)} recordings in {FOLDER} of PHYSAI_DATA, 5 are needed")
    results: list[BenchmarkResult] = []
    for name, friction in RUNS.items():
        steps = 1_000_000 if options.quick else 30_000_000
        begun = time.monotonic()
        found = calibrate("double_pendulum", logs, out=None, friction=friction, budget_steps=steps)
        taken = time.monotonic() - begun
        if found.held_out is None or not all(error.value < 0.1 for error in found.held_out.rmse):
            raise WorkloadError("the twin does not replay the recordings held out of its fit")
        results.append(BenchmarkResult(name=name, unit="s", runs=(taken,)))
        errors = ", ".join(f"{error.value:.4f}" for error in found.held_out.rmse)
        report(f"{friction}: {taken:.0f} s; held-out errors {errors} rad; {'; '.join(found.fit.notes) or 'no remarks'}")
    return results
