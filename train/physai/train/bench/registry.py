"""Which benchmarks there are."""

import importlib
from collections.abc import Sequence

from physai.sdk.errors import unknown_name
from physai.train.bench.report import Options, Result, Say

BENCHMARKS: dict[str, str] = {
    "engine": "steps per second of whole environments beside those of the physics alone",
    "train": "learning beside Stable-Baselines3 and rsl_rl: steps per second, time to success",
    "solve": "time from starting a training to a policy that does the task",
    "realaigym": "score of the double pendulum in the RealAIGym board's trial",
    "cli": "time until `physai --help` has answered",
    "memory": "memory a training takes",
}
"""Benchmark to what it measures; each is a module of its name in this package."""


def run_benchmark(name: str, options: Options, say: Say) -> Sequence[Result]:
    """Runs one benchmark.

    Raises:
        UnknownNameError: there is no such benchmark.
        WorkloadError: it did not do what it claims to measure.
        MissingExtraError: it needs a library that is not installed.
    """
    if name not in BENCHMARKS:
        raise unknown_name("benchmark", name, BENCHMARKS)
    return importlib.import_module(f"physai.train.bench.{name}").run(options, say)
