"""Benchmarks: what they are asked, how they measure, and what they hand back.

A package contributes its own through the entry-point group `physai.benches`: each names a `Bench`.
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
"""Reports progress to the user."""

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
    """A benchmark's workload did not do what it claims to measure."""


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """What a caller of a benchmark chooses."""

    quick: bool = False
    """As little as shows that everything works; the numbers mean nothing."""
    tasks: tuple[str, ...] = ()
    """Tasks to measure with; empty for all of the benchmark's own."""
    seeds: int = 3
    """Runs of what depends on chance, with the seeds 0, 1, …"""
    seconds: float | None = None
    """How long to measure what is measured for a time [s]; None for the benchmark's own choice."""
    busy: int = 0
    """Processes that keep the machine busy meanwhile."""

    def chosen(self, tasks: Sequence[str]) -> tuple[str, ...]:
        """The tasks to measure with, from a benchmark's own.

        Raises:
            PhysaiError: one was asked for that the benchmark does not have.
        """
        foreign = [task for task in self.tasks if task not in tasks]
        if foreign:
            raise PhysaiError(f"this benchmark has no task {', '.join(foreign)}; it has {', '.join(tasks)}")
        return self.tasks or tuple(tasks)


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """One measured quantity."""

    name: str
    unit: str
    runs: tuple[float, ...]
    """The single measurements."""
    peer: str | None = None
    """What ours is divided by, where the quantity is a ratio."""

    @property
    def value(self) -> float:
        """Median of the runs."""
        return statistics.median(self.runs)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One benchmark, found through the entry-point group `physai.benches`.

    The module that holds it is imported to list the benchmarks, so it imports nothing heavy at its top; `run` does.
    """

    summary: str
    """What it measures, in a line."""

    run: Callable[[BenchmarkOptions, ProgressCallback], Sequence[BenchmarkResult]]
    """Measures; raises WorkloadError where it did not do what it claims to measure."""


def alternate(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, tuple[float, ...]]:
    """Measures contenders in turn, so that a machine that slows down slows them all.

    Args:
        contenders: name to a function that does its work once and returns its rate.
        rounds: how often each has its turn; every second round goes backwards.
    """
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(rounds):
        for name in list(contenders)[:: -1 if index % 2 else 1]:
            rates[name].append(contenders[name]())
    return {name: tuple(values) for name, values in rates.items()}


def rate_of(work: Callable[[], object], steps: int) -> float:
    """Steps per second of one call that takes that many."""
    start = time.perf_counter()
    work()
    return steps / (time.perf_counter() - start)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, ...]:
    """Ours over theirs, round by round."""
    return tuple(a / b for a, b in zip(ours, theirs, strict=True))


def machine() -> dict[str, Any]:
    """What the measurements were taken on."""
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
    found = next((line for line in lines if line.startswith("model name")), "")
    return found.partition(":")[2].strip() or platform.processor()


def document(bench: str, results: Sequence[BenchmarkResult]) -> dict[str, Any]:
    """What `--json` prints."""
    rows = [{"name": r.name, "value": r.value, "unit": r.unit, "peer": r.peer, "runs": list(r.runs)} for r in results]
    return {"bench": bench, "machine": machine(), "results": rows}


def as_text(results: Sequence[BenchmarkResult]) -> str:
    """A table for people."""
    rows = [
        (r.name, f"{r.value:.4g}", r.unit, r.peer or "-", f"{min(r.runs):.4g} … {max(r.runs):.4g}", str(len(r.runs)))
        for r in results
    ]
    return table(("name", "median", "unit", "beside", "range", "runs"), rows, indent="")
