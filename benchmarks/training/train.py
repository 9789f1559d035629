"""Learning compared with Stable-Baselines3 and rsl_rl: environment steps per second, and time to success.

Same task, network, worlds, steps, epochs and minibatches; each learner with the number of torch threads that suits it.
`steps_over_X` is our rate over theirs (more is better), `time_over_X` our time to success over theirs (less is better).
"""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from benchmarks.measure import (
    BenchmarkOptions,
    BenchmarkResult,
    ProgressCallback,
    WorkloadError,
    alternate,
    rate_of,
    ratios,
)
from benchmarks.training.learners import CONTENDERS, Contender
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.train.runners.eval_scheduler import EPISODES, EvalScheduler
from physai.train.runners.runner import evaluate_graph
from physai.train.settings.config import TrainConfig
from physai.train.settings.presets import preset_for

TASK = "pendubot-swingup"
CONFIG = replace(
    preset_for(TASK), num_envs=512, horizon=48, epochs=4, minibatches=8, hidden=(128, 128), activation="tanh"
)
THREADS = (1, 2)
SUCCESS = 0.95
"""Share of episodes without exploration that counts as learnt."""
TIME_BUDGET_S = 600.0
"""Time after which a learner has lost [s]."""


@dataclass(frozen=True)
class TrainBenchSize:
    """Size of the measurement."""

    config: TrainConfig
    iterations: int
    """Per turn."""
    rounds: int
    races: int
    """Seeds with which all learn until they succeed."""


FULL = TrainBenchSize(config=CONFIG, iterations=6, rounds=7, races=3)
QUICK = TrainBenchSize(config=replace(CONFIG, num_envs=16, horizon=8, minibatches=2), iterations=1, rounds=3, races=0)


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Measures throughput and, unless quick, races to success."""
    size = QUICK if options.quick else replace(FULL, races=options.seeds)
    task = load_task(options.chosen((TASK,))[0])
    threads_before = torch.get_num_threads()
    try:
        threads, results = throughput(task, size, report)
        return [*results, *races(task, size, threads, report)]
    finally:
        torch.set_num_threads(threads_before)


def throughput(
    task: Task, size: TrainBenchSize, report: ProgressCallback
) -> tuple[dict[str, int], Sequence[BenchmarkResult]]:
    """Best number of torch threads of each learner, and its rates with it.

    Raises:
        WorkloadError: a learner did not do its work.
        MissingExtraError: a learner is not installed.
    """
    steps = size.iterations * size.config.num_envs * size.config.horizon
    learners = {name: make(task, size.config) for name, make in CONTENDERS.items()}
    for learner in learners.values():
        learner.learn(1)
    turns = {
        f"{name}/{count}": _turn(learner, count, size.iterations, steps)
        for name, learner in learners.items()
        for count in THREADS
    }
    report(f"{task.name}: {', '.join(learners)}, each with {' and '.join(map(str, THREADS))} torch threads")
    rates = alternate(turns, size.rounds)
    for learner in learners.values():
        learner.check(1 + size.iterations * size.rounds * len(THREADS))
    best = {
        name: max(
            THREADS, key=lambda count, name=name: BenchmarkResult(name="", unit="", runs=rates[f"{name}/{count}"]).value
        )
        for name in learners
    }
    chosen = {name: rates[f"{name}/{count}"] for name, count in best.items()}
    results = [BenchmarkResult(name=f"steps_per_s.{name}", unit="1/s", runs=values) for name, values in chosen.items()]
    results += [
        BenchmarkResult(name=f"steps_over_{name}", unit="1", runs=ratios(chosen["physai"], values), peer=name)
        for name, values in chosen.items()
        if name != "physai"
    ]
    return best, results


def _turn(learner: Contender, threads: int, iterations: int, steps: int) -> Callable[[], float]:
    def play() -> float:
        torch.set_num_threads(threads)
        gc.collect()
        return rate_of(lambda: learner.learn(iterations), steps)

    return play


def races(
    task: Task, size: TrainBenchSize, threads: dict[str, int], report: ProgressCallback
) -> Sequence[BenchmarkResult]:
    """Time each learner takes to succeed, seed by seed.

    Raises:
        WorkloadError: ours did not succeed in time.
    """
    seconds: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for seed in range(size.races):
        for name, make in CONTENDERS.items():
            torch.set_num_threads(threads[name])
            taken = time_to_success(make, task, replace(size.config, seed=seed))
            report(f"{name}, seed {seed}: " + (f"{taken:.1f} s" if taken else f"no success in {TIME_BUDGET_S:g} s"))
            if taken is None and name == "physai":
                raise WorkloadError(f"{task.name}, seed {seed}: physai had no success in {TIME_BUDGET_S:g} s")
            # A peer that fails has needed at least this long, so that ours over theirs is at most what is reported.
            seconds[name].append(taken or TIME_BUDGET_S)
    if not size.races:
        return []
    results = [BenchmarkResult(name=f"time_s.{name}", unit="s", runs=tuple(values)) for name, values in seconds.items()]
    results += [
        BenchmarkResult(name=f"time_over_{name}", unit="1", runs=ratios(seconds["physai"], values), peer=name)
        for name, values in seconds.items()
        if name != "physai"
    ]
    return results


def time_to_success(make: Callable[[Task, TrainConfig], Contender], task: Task, config: TrainConfig) -> float | None:
    """Seconds from building a learner to an evaluation without exploration at or above SUCCESS; None beyond the budget.

    The evaluation is tried when `physai train` would.
    """
    start = time.perf_counter()
    judge = EvalScheduler(SUCCESS, config.eval_min_success)
    learner = make(task, config)
    while time.perf_counter() - start < TIME_BUDGET_S:
        learner.learn(1)
        if not judge.due(learner.success, time.perf_counter()):
            continue
        before = time.perf_counter()
        success = evaluate_graph(learner.graph(), task, episodes=EPISODES)["success"]
        end = time.perf_counter()
        if judge.judged(success, before, end):
            return end - start
    return None
