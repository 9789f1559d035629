"""Peak memory of a short training run."""

import tempfile
from collections.abc import Sequence

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.training.process import physai

TASK = "ur10e-reach"


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Three runs of a few iterations with the task's preset; smaller ones when quick."""
    iterations = 2 if options.quick else 5
    small = ("--num-envs", "16", "--set", "horizon=8", "--set", "minibatches=2") if options.quick else ()
    peaks: list[float] = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            trained = physai("train", TASK, "--out", f"{folder}/run", "--iterations", str(iterations), *small, "--json")
        if trained.record["iterations"] != iterations:
            raise WorkloadError(f"{TASK}: ran {trained.record['iterations']} iterations, expected {iterations}")
        peaks.append(trained.peak_bytes / 2**20)
        report(f"{TASK}: {peaks[-1]:.0f} MiB")
    return [BenchmarkResult(name=f"peak_rss_mb.{TASK}", unit="MiB", runs=tuple(peaks))]
