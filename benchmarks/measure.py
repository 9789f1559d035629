"""Benchmarks: options, measurement helpers and results."""

import math
import os
import platform
import shutil
import statistics
import subprocess
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
    "mujoco-warp",
    "warp-lang",
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
    peer_python: Path | None = None
    """Python of the environment that a peer with requirements of its own is installed in."""

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
    """Individual measurements; none if it was not measured."""
    peer: str | None = None
    """Baseline in the denominator, if the quantity is a ratio."""
    missing: str | None = None
    """Why it was not measured."""

    def __post_init__(self) -> None:
        if bool(self.runs) == (self.missing is not None):
            raise WorkloadError(f"{self.name}: {len(self.runs)} runs, and the reason for having none: {self.missing}")

    @property
    def value(self) -> float:
        """Median of the runs; NaN if it was not measured."""
        return statistics.median(self.runs) if self.runs else math.nan


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
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": _cpu_model(),
        "gpus": _gpus(),
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


def _gpus() -> list[str]:
    """Name, memory and driver of each NVIDIA card."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        printed = subprocess.run(query, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [", driver ".join(line.strip().rsplit(", ", 1)) for line in printed.splitlines() if line.strip()]


def document(bench: str, results: Sequence[BenchmarkResult]) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    rows = [_row(result) for result in results]
    return {"bench": bench, "machine": machine(), "results": rows}


def _row(result: BenchmarkResult) -> dict[str, Any]:
    row: dict[str, Any] = {"name": result.name, "value": result.value, "unit": result.unit, "peer": result.peer}
    row["runs"] = list(result.runs)
    # JSON has no NaN.
    return row if result.runs else row | {"value": None, "missing": result.missing}


def as_text(results: Sequence[BenchmarkResult]) -> str:
    """Format the results as a table."""
    rows = [(r.name, *_cells(r)) for r in results]
    return table(("name", "median", "unit", "baseline", "range", "runs"), rows, indent="")


def _cells(result: BenchmarkResult) -> tuple[str, ...]:
    if not result.runs:
        return ("-", result.unit, result.peer or "-", f"not measured: {result.missing}", "0")
    spread = f"{min(result.runs):.4g} … {max(result.runs):.4g}"
    return (f"{result.value:.4g}", result.unit, result.peer or "-", spread, str(len(result.runs)))
