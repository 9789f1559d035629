"""Start-up time of the command line: `physai --help` in a new process."""

from collections.abc import Sequence

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.training.process import physai


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Five runs, three when quick."""
    seconds: list[float] = []
    for _ in range(3 if options.quick else 5):
        finished = physai("--help")
        if "usage: physai" not in finished.output:
            raise WorkloadError(f"physai --help printed {finished.output[:80]!r} instead of its usage")
        seconds.append(finished.seconds)
    return [BenchmarkResult(name="help_seconds", unit="s", runs=tuple(seconds))]
