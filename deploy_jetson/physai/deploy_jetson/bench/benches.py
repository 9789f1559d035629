"""Benchmarks that this package contributes to `physai bench`."""

import importlib
from collections.abc import Sequence

from physai.sdk.base.benchmark import Bench, BenchmarkOptions, BenchmarkResult, ProgressCallback

_PACKAGE = "physai.deploy_jetson.bench"


def lazy_bench(summary: str, *modules: str) -> Bench:
    """A benchmark that calls `run` of modules of this package and imports them only then."""

    def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
        return [
            result
            for module in modules
            for result in importlib.import_module(f"{_PACKAGE}.{module}").run(options, report)
        ]

    return Bench(summary=summary, run=run)


flash = lazy_bench("time and bytes to install a bundle, and to flash it over ssh compared with scp", "flash")
crash = lazy_bench("power cuts and kills during install, activate, commit, rollback and gc", "power_cuts.report")
forgery = lazy_bench("forged bundles, verdicts and trust files; malformed command lines", "forgery.forgery")
