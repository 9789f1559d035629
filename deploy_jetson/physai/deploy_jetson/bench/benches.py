"""What this package contributes to `physai bench`; each is imported when it runs."""

from collections.abc import Sequence

from physai.sdk.base.benchmark import Bench, BenchmarkOptions, BenchmarkResult, ProgressCallback


def _flash(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    from physai.deploy_jetson.bench.flash import run

    return run(options, say)


def _crash(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    from physai.deploy_jetson.bench.power_cuts.report import run

    return run(options, say)


def _forgery(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    from physai.deploy_jetson.bench.forgery.forgery import run

    return run(options, say)


flash = Bench(summary="time and bytes to install a bundle, and to flash it over ssh compared with scp", run=_flash)
"""The benchmark `flash`."""

crash = Bench(summary="power cuts and kills during install, activate, commit, rollback and gc", run=_crash)
"""The benchmark `crash`."""

forgery = Bench(summary="forged bundles, verdicts and trust files; command lines that make no sense", run=_forgery)
"""The benchmark `forgery`."""
