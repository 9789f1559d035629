"""Registry of benchmarks: those of this package, and contributions to the entry point group `physai.benches`."""

import importlib
from collections.abc import Sequence
from importlib.metadata import EntryPoint

from physai.sdk.base.benchmark import Bench, BenchmarkOptions, BenchmarkResult, ProgressCallback
from physai.sdk.base.errors import MissingExtraError, PhysaiError, unknown_name
from physai.sdk.base.plugins import contributions

ENTRY_POINT_GROUP = "physai.benches"

BENCHMARKS: dict[str, str] = {
    "engine": "steps per second of whole environments compared with the physics alone",
    "train": "training compared with Stable-Baselines3 and rsl_rl: steps per second, time to success",
    "solve": "time from the start of training to a policy that solves the task",
    "realaigym": "score of the double pendulum in the trial of the RealAIGym leaderboard",
    "robots": "robots of others, below the folder PHYSAI_ROBOTS: how many import and are stable, whether arms reach",
    "prefer": "preferences: return over the true reward, share of fits, active questions, fine-tuning for a taste",
    "cluster": "generators on Ray: cost, scaling, kills, asynchronous training, fine-tuning; a cached workflow",
    "cli": "start-up time of `physai --help`",
    "memory": "peak memory of a training run",
    "gpu": "the device environment: what a step costs, its speed beside its physics and mjlab, learning on a GPU",
}
"""Name of each built-in benchmark, which is also its module in this package, and what it measures."""


def list_benchmarks() -> dict[str, str]:
    """All benchmarks by name, with what they measure.

    Raises:
        PhysaiError: a contributed benchmark cannot be loaded.
    """
    return {**BENCHMARKS, **{name: _load(entry).summary for name, entry in _contributed().items()}}


def run_benchmark(name: str, options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Runs one benchmark.

    Raises:
        UnknownNameError: there is no such benchmark.
        WorkloadError: the workload did not run correctly.
        MissingExtraError: a library it needs is not installed.
        PhysaiError: a contributed benchmark cannot be loaded.
    """
    if name in BENCHMARKS:
        return importlib.import_module(f"physai.train.bench.{name}").run(options, report)
    contributed = _contributed()
    if name not in contributed:
        raise unknown_name("benchmark", name, [*BENCHMARKS, *contributed])
    bench = _load(contributed[name])
    try:
        return bench.run(options, report)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "physai":
            raise
        raise MissingExtraError(f"the benchmark {name} needs {error.name}, which is not installed") from error


def _contributed() -> dict[str, EntryPoint]:
    return contributions(ENTRY_POINT_GROUP)


def _load(entry: EntryPoint) -> Bench:
    bench = entry.load()
    if not isinstance(bench, Bench):
        raise PhysaiError(f"{entry.name} cannot be loaded: {entry.value} is a {type(bench).__name__}, not a Bench")
    return bench
