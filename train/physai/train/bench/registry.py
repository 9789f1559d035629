"""Which benchmarks there are: those of this package, and what others contribute to `physai.benches`."""

import importlib
from collections.abc import Sequence
from importlib.metadata import EntryPoint

from physai.sdk.base.benchmark import Bench, BenchmarkOptions, BenchmarkResult, ProgressCallback
from physai.sdk.base.errors import MissingExtraError, PhysaiError, unknown_name
from physai.sdk.base.plugins import contributions

ENTRY_POINT_GROUP = "physai.benches"

BENCHMARKS: dict[str, str] = {
    "engine": "steps per second of whole environments compared with the physics alone",
    "train": "learning compared with Stable-Baselines3 and rsl_rl: steps per second, time to success",
    "solve": "time from starting a training to a policy that does the task",
    "realaigym": "score of the double pendulum in the RealAIGym board's trial",
    "cli": "time until `physai --help` has answered",
    "memory": "memory a training takes",
}
"""Benchmark of this package to what it measures; each is a module of its name here."""


def list_benchmarks() -> dict[str, str]:
    """Every benchmark to what it measures.

    Raises:
        PhysaiError: a contributed one cannot be loaded.
    """
    return {**BENCHMARKS, **{name: _load(entry).summary for name, entry in _contributed().items()}}


def run_benchmark(name: str, options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Runs one benchmark.

    Raises:
        UnknownNameError: there is no such benchmark.
        WorkloadError: it did not do what it claims to measure.
        MissingExtraError: it needs a library that is not installed.
        PhysaiError: a contributed one cannot be loaded.
    """
    if name in BENCHMARKS:
        return importlib.import_module(f"physai.train.bench.{name}").run(options, say)
    contributed = _contributed()
    if name not in contributed:
        raise unknown_name("benchmark", name, [*BENCHMARKS, *contributed])
    bench = _load(contributed[name])
    try:
        return bench.run(options, say)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "physai":
            raise
        raise MissingExtraError(f"the benchmark {name} needs {error.name}, which is not installed") from error


def _contributed() -> dict[str, EntryPoint]:
    return contributions(ENTRY_POINT_GROUP)


def _load(entry: EntryPoint) -> Bench:
    bench = entry.load()
    if not isinstance(bench, Bench):
        raise PhysaiError(f"{entry.name} cannot be loaded: {entry.value} is {type(bench).__name__}, not Bench")
    return bench
