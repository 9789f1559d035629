"""Table of the benchmarks: what each measures, and the modules whose `run` measures it."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback
from physai.sdk.base.errors import MissingExtraError, unknown_name


@dataclass(frozen=True)
class _Entry:
    summary: str
    modules: tuple[str, ...]
    """Imported only when they run, because each needs libraries of its own."""


def _entry(summary: str, *modules: str) -> _Entry:
    return _Entry(summary, modules)


ENTRIES = {
    "engine": _entry(
        "steps per second of whole environments compared with the physics alone", "benchmarks.training.engine"
    ),
    "train": _entry(
        "training compared with Stable-Baselines3 and rsl_rl: steps per second, time to success",
        "benchmarks.training.train",
    ),
    "solve": _entry("time from the start of training to a policy that solves the task", "benchmarks.training.solve"),
    "realaigym": _entry(
        "score of the double pendulum in the trial of the RealAIGym leaderboard", "benchmarks.training.realaigym"
    ),
    "robots": _entry(
        "robots of others, below the folder PHYSAI_ROBOTS: how many import and are stable, whether arms reach",
        "benchmarks.training.robots",
    ),
    "prefer": _entry(
        "preferences: return over the true reward, share of fits, active questions, fine-tuning for a taste",
        "benchmarks.training.prefer",
    ),
    "cluster": _entry(
        "generators on Ray: cost, scaling, kills, asynchronous training, fine-tuning; a cached workflow",
        "benchmarks.cluster.cluster",
    ),
    "cli": _entry("start-up time of `physai --help`", "benchmarks.training.cli"),
    "memory": _entry("peak memory of a training run", "benchmarks.training.memory"),
    "gpu": _entry(
        "the device environment: what a step costs, its speed compared with its physics and mjlab, learning on a GPU",
        "benchmarks.gpu.gpu",
    ),
    "service": _entry(
        "steps over the wire compared with steps in process, and round-trip time", "benchmarks.service.service"
    ),
    "twins": _entry("right twins that are accepted, and wrong ones that are blocked", "benchmarks.twins"),
    "foreign": _entry(
        "public policies that import, and wrong conventions that the audit of a log names", "benchmarks.foreign"
    ),
    "leapp": _entry(
        "LEAPP bundles of several widths that import or are refused, and ours in leapp's own program",
        "benchmarks.leapp",
    ),
    "coverage": _entry(
        "how often 95 % intervals contain the hidden values of arms, with and without effects that models lack",
        "benchmarks.coverage",
    ),
    "drift": _entry(
        "changes of robots that a monitor finds and names, and alarms over unchanged ones", "benchmarks.drift.drift"
    ),
    "calibrate": _entry("time to calibrate the double pendulum of PHYSAI_DATA", "benchmarks.calibrate"),
    "flash": _entry(
        "time and bytes to install a bundle, and to flash it over ssh compared with scp", "benchmarks.robot.flash"
    ),
    "crash": _entry(
        "power cuts and kills during install, activate, commit, rollback and gc", "tests.harness.power_cuts.report"
    ),
    "forgery": _entry(
        "forged bundles, verdicts and trust files; malformed command lines", "tests.harness.forgery.forgery"
    ),
    "runtime": _entry(
        "duration of a tick compared with the bare graph, and missed deadlines", "benchmarks.robot.runtime"
    ),
    "shadow": _entry(
        "what a second policy that computes on the same samples costs a tick, and its bytes on the wire",
        "benchmarks.robot.shadow",
    ),
    "faults": _entry(
        "all sequences of events, random faults and hung policies: violated safety properties",
        "tests.harness.fault_injection.trial",
        "benchmarks.robot.watchdog_trial",
    ),
    "swaps": _entry(
        "a hundred policies activated in a running loop, and missed deadlines", "benchmarks.robot.hot_swap"
    ),
    "revocation": _entry(
        "time from a revoked verdict to HOLD, its cost per tick, and power cuts that the word survives",
        "benchmarks.robot.revocation",
    ),
    "plan": _entry(
        "faulty plans in random orders through the follower and the guard: commands that were not due, and times",
        "benchmarks.robot.plan_faults",
    ),
    "ros": _entry("round trip of joint states to a ROS node, against a plain rclpy node", "benchmarks.ros"),
}


def list_benchmarks() -> dict[str, str]:
    """All benchmarks by name, with what they measure."""
    return {name: entry.summary for name, entry in ENTRIES.items()}


def run_benchmark(name: str, options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Runs one benchmark.

    Raises:
        UnknownNameError: there is no such benchmark.
        WorkloadError: the workload did not run correctly.
        MissingExtraError: a library it needs is not installed.
    """
    if name not in ENTRIES:
        raise unknown_name("benchmark", name, ENTRIES)
    try:
        return [
            result
            for module in ENTRIES[name].modules
            for result in importlib.import_module(module).run(options, report)
        ]
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] in ("physai", "benchmarks", "tests"):
            raise
        raise MissingExtraError(f"the benchmark {name} needs {error.name}, which is not installed") from error
