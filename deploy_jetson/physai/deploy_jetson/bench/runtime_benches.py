"""Benchmarks of the runtime, for `physai bench`; each is imported when it runs."""

from collections.abc import Sequence

from physai.sdk.base.benchmark import Bench, BenchmarkOptions, BenchmarkResult, ProgressCallback


def _runtime(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    from physai.deploy_jetson.bench.timing.runtime import run

    return run(options, say)


def _faults(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    from physai.deploy_jetson.bench.fault_injection import trial as fault_trial
    from physai.deploy_jetson.bench.timing import watchdog_trial

    return [*fault_trial.run(options, say), *watchdog_trial.run(options, say)]


def _swaps(options: BenchmarkOptions, say: ProgressCallback) -> Sequence[BenchmarkResult]:
    from physai.deploy_jetson.bench.timing.hot_swap import run

    return run(options, say)


runtime = Bench(summary="duration of a tick compared with the bare graph, and missed deadlines", run=_runtime)
"""The benchmark `runtime`."""

faults = Bench(summary="every order of events, everything at random, hung policies: broken promises", run=_faults)
"""The benchmark `faults`."""

swaps = Bench(summary="a hundred policies activated under the running loop, and deadlines missed", run=_swaps)
"""The benchmark `swaps`."""
