"""Benchmarks: options, measurement helpers and results.

Packages register benchmarks through the entry-point group `physai.benches`; each entry point names a `Bench`.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import table

ProgressCallback = Callable[[str], None]
"""Receives progress messages."""

PACKAGES = (
    "physai-sdk",
    "mujoco",
    "numpy",
    "torch",
    "gymnasium",
    "stable-baselines3",
    "rsl-rl-lib",
    "onnxruntime",
    "asyncssh",
)


class WorkloadError(PhysaiError):
    """The workload of a benchmark did not do what the benchmark claims to measure."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Options of a benchmark run."""

    quick: bool = False
    """Smoke test: run the minimum; the numbers are meaningless."""
    tasks: tuple[str, ...] = ()
    """Tasks to measure with; empty for all tasks of the benchmark."""
    seeds: int = 3
    """Number of runs of a stochastic workload, with seeds 0, 1, …"""
    seconds: float | None = None
    """Duration of a timed measurement [s]; None for the benchmark's default."""
    busy: int = 0
    """Number of load-generating processes that run during the measurement."""

    def chosen(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """Select the tasks to measure with from those the benchmark has.

        Raises:
            PhysaiError: a requested task is not among them.
        """
        unknown = [task for task in self.tasks if task not in tasks]
        if unknown:
            raise PhysaiError(f"this benchmark has no task {', '.join(unknown)}; it has {', '.join(tasks)}")
        return self.tasks or tuple(tasks)


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """One measured quantity."""

    name: str
    unit: str
    runs: tuple[float, ...]
    """Individual measurements."""
    peer: str | None = None
    """Baseline in the denominator, if the quantity is a ratio."""

    @property
    def value(self) -> float:
        """Median of the runs."""
        return statistics.median(self.runs)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A registered benchmark.

    Its module is imported to list the benchmarks, so import heavy dependencies inside `run`.
    """

    summary: str
    """One-line description."""

    run: Callable[[BenchmarkOptions, ProgressCallback], Sequence[BenchmarkResult]]
    """Runs the benchmark; raises WorkloadError if the workload is not what it claims to measure."""


def alternate(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, tuple[float, ...]]:
    """Measure contenders in turn.

    Args:
        contenders: function by name that runs the workload once and returns its rate.
        rounds: number of measurements of each contender.
    """
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(rounds):
        # Interleaving and reversing every other round spreads thermal and load drift evenly.
        for name in list(contenders)[:: -1 if index % 2 else 1]:
            rates[name].append(contenders[name]())
    return {name: tuple(values) for name, values in rates.items()}


def rate_of(work: Callable[[], object], steps: int) -> float:
    """Return the steps per second of one call that runs `steps` steps."""
    start = time.perf_counter()
    work()
    return steps / (time.perf_counter() - start)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, ...]:
    """Divide ours by theirs, round by round."""
    return tuple(a / b for a, b in zip(ours, theirs, strict=True))


def machine() -> dict[str, Any]:
    """Describe this machine and the installed packages."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    line = next((line for line in lines if line.startswith("model name")), "")
    return line.partition(":")[2].strip() or platform.processor()


def document(bench: str, results: Sequence[BenchmarkResult]) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    rows = [{"name": r.name, "value": r.value, "unit": r.unit, "peer": r.peer, "runs": list(r.runs)} for r in results]
    return {"bench": bench, "machine": machine(), "results": rows}


def as_text(results: Sequence[BenchmarkResult]) -> str:
    """Format the results as a table."""
    rows = [
        (r.name, f"{r.value:.4g}", r.unit, r.peer or "-", f"{min(r.runs):.4g} … {max(r.runs):.4g}", str(len(r.runs)))
        for r in results
    ]
    return table(("name", "median", "unit", "baseline", "range", "runs"), rows, indent="")
