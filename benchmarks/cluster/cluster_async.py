"""Asynchronous training compared with synchronous training, on a real Ray cluster of this computer.

Worlds wait in each step, as for a slow computer or a real-time simulator. `async_over_sync_straggler` is the ratio of
environment steps per second if one of two generators waits ten times as long, `async_over_sync` that of two equal ones
that do not wait. Both learn the same number of steps with the same settings, except that with a straggler asynchronous
chunks are half as long, so that it keeps up. What they reached in the end is measured, too: a rate is worth nothing if
less is learned. Runs are so long that synchronous training learns no more at their end, because weights that are two
updates old learn later, and a comparison in the middle would measure by how much.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.measure import BenchmarkResult, ProgressCallback, WorkloadError
from physai.cluster.generators.actors import GeneratorActor, InitialWorlds
from physai.cluster.generators.async_collector import AsyncCollector
from physai.cluster.generators.collector import ClusterCollector
from physai.cluster.generators.generator import RolloutGenerator
from physai.cluster.generators.launch import chunk_config
from physai.cluster.generators.ray_executor import RayGenerators
from physai.compute.ray.cluster import connected
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Array, Task, WorldView
from physai.train.collectors.collector import Learner
from physai.train.runners.runner import IterationStats, Trainer, learner_threads
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig
from physai.train.settings.presets import preset_for

TASK = "cartpole-swingup"
GENERATORS = 2
STALENESS = 2
SEGMENTS = 2
CONFIG = dataclasses.replace(preset_for(TASK), num_envs=128, horizon=24)
WAITS_S = (0.008, 0.08)
"""How long a step takes at least on each generator, one of which is a straggler [s]."""


@dataclass(frozen=True, kw_only=True)
class WaitingSource(RunTaskSource):
    """A task whose worlds wait in each step."""

    waits_s: tuple[float, ...]
    """How long, on each generator [s]."""
    wait_s: float = 0.0

    def load(self) -> Task:
        """The task, with a condition of success that takes that long; it is looked at once in each step."""
        task = super().load()
        condition = functools.partial(_late, task.success.condition, self.wait_s)
        return dataclasses.replace(task, success=dataclasses.replace(task.success, condition=condition))


def _late(condition: Any, wait_s: float, view: WorldView) -> Array:
    time.sleep(wait_s)
    return condition(view)


class WaitingActor(GeneratorActor):
    """Waits as long as the generator of its share is to."""

    def build(self, source: RunTaskSource, worlds: InitialWorlds) -> RolloutGenerator:
        """See `GeneratorActor`."""
        if isinstance(source, WaitingSource):
            wait = source.waits_s[worlds.share.first * len(source.waits_s) // worlds.share.all]
            source = dataclasses.replace(source, wait_s=wait)
        return super().build(source, worlds)


class WaitingExecutor(RayGenerators):
    """Generators whose worlds wait."""

    def __init__(self, ray: Any, source: WaitingSource, config: TrainConfig) -> None:
        """See `RayGenerators`."""
        super().__init__(ray, source, config)
        self._actor = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(WaitingActor)


@dataclass(frozen=True)
class Training:
    """Result of a training run."""

    steps_per_s: float
    """Environment steps per second, the first iteration left out: it includes the start of the generators."""
    reward_per_s: float
    """Mean reward rate over the last tenth of the iterations [1/s]."""
    staleness_mean: float
    """Mean age of weights that batches were played with, in updates."""
    staleness_max: float
    """Greatest age of weights that a batch was played with, in updates."""
    share_least: float
    """Share of the generator that contributed least, of all chunks."""


def train(ray: Any, config: TrainConfig, waits_s: Sequence[float]) -> Training:
    """Trains once with generators that wait so long in each step [s]; `config.staleness` says how.

    Raises:
        WorkloadError: a generator was replaced, or a chunk dropped.
    """
    torch.set_num_threads(learner_threads(config))
    task, played = load_task(TASK), chunk_config(config)
    executor = WaitingExecutor(ray, WaitingSource(task=TASK, waits_s=tuple(waits_s)), played)
    made: list[ClusterCollector | AsyncCollector] = []

    def source(learner: Learner) -> ClusterCollector | AsyncCollector:
        if config.staleness:
            made.append(AsyncCollector(task, config, learner, executor, generators=len(waits_s), background=True))
        else:
            made.append(ClusterCollector(task, config, learner, executor, generators=len(waits_s)))
        return made[0]

    trainer = Trainer(task, config, source=source)
    try:
        stats = [trainer.train_iteration() for _ in range(config.iterations)]
    finally:
        (made[0].close if isinstance(made[0], AsyncCollector) else executor.close)()
    last = stats[-1].asynchronous
    if made[0].replaced or last.get("dropped", 0.0):
        raise WorkloadError(f"{made[0].replaced} generators were replaced, {last.get('dropped', 0.0):g} chunks dropped")
    return summary(stats, trainer.env_steps)


def summary(stats: Sequence[IterationStats], steps: int) -> Training:
    """Result of a run of so many environment steps, given its iterations."""
    tail = stats[-max(1, len(stats) // 10) :]
    return Training(
        steps_per_s=steps * (len(stats) - 1) / len(stats) / (stats[-1].seconds - stats[0].seconds),
        reward_per_s=statistics.fmean(one.reward_per_s for one in tail),
        staleness_mean=statistics.fmean(one.asynchronous.get("staleness_mean", 0.0) for one in stats),
        staleness_max=max(one.asynchronous.get("staleness_max", 0.0) for one in stats),
        share_least=stats[-1].asynchronous.get("share_least", 1.0 / GENERATORS),
    )


def straggler(report: ProgressCallback, *, iterations: int = 240, seeds: int = 3) -> list[BenchmarkResult]:
    """`async_over_sync_straggler`, with what both reached.

    Args:
        report: receives progress messages.
        iterations: updates of each run, at least 2.
        seeds: pairs of runs.
    """
    return _compared(
        "async_over_sync_straggler", WAITS_S, report, segments=SEGMENTS, iterations=iterations, seeds=seeds
    )


def without_straggler(report: ProgressCallback, *, iterations: int = 400, seeds: int = 3) -> list[BenchmarkResult]:
    """`async_over_sync`, with what both reached; see `straggler`."""
    return _compared("async_over_sync", (0.0,) * GENERATORS, report, segments=1, iterations=iterations, seeds=seeds)


def _compared(
    name: str, waits_s: Sequence[float], report: ProgressCallback, *, segments: int, iterations: int, seeds: int
) -> list[BenchmarkResult]:
    pairs: list[tuple[Training, Training]] = []
    with connected("local", processors=GENERATORS) as ray:
        for seed in range(seeds):
            sync = dataclasses.replace(CONFIG, iterations=iterations, seed=seed)
            beside = dataclasses.replace(sync, staleness=STALENESS, segments=segments)
            # In turn first, so that neither always has the warmer computer.
            configs = (sync, beside)[:: -1 if seed % 2 else 1]
            done = [train(ray, config, waits_s) for config in configs]
            pairs.append((done[0], done[1]) if seed % 2 == 0 else (done[1], done[0]))
            before, after = pairs[-1]
            report(
                f"{name}, seed {seed}: {after.steps_per_s:.0f} steps/s and reward {after.reward_per_s:.3f}/s, "
                f"synchronous {before.steps_per_s:.0f} and {before.reward_per_s:.3f}/s; staleness "
                f"{after.staleness_max:g}, least share {after.share_least:.3f}"
            )
    return [
        BenchmarkResult(
            name=name, unit="1", runs=tuple(b.steps_per_s / a.steps_per_s for a, b in pairs), peer="synchronous"
        ),
        BenchmarkResult(name=f"{name}.reward_sync", unit="1/s", runs=tuple(a.reward_per_s for a, _ in pairs)),
        BenchmarkResult(name=f"{name}.reward_async", unit="1/s", runs=tuple(b.reward_per_s for _, b in pairs)),
        BenchmarkResult(name=f"{name}.staleness_max", unit="1", runs=tuple(b.staleness_max for _, b in pairs)),
        BenchmarkResult(name=f"{name}.share_least", unit="1", runs=tuple(b.share_least for _, b in pairs)),
    ]
