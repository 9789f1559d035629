"""Overlaps of synchronous training that are not options: what each would gain; see docs/decisions/0020.

- `overcommit_over_sync`: environment steps per second if one more generator plays than an update needs, and an update
  takes the chunks that come first (OPPO), over waiting for all; `overcommit_over_staleness_1` the same over
  `--staleness 1` with as many generators. One generator is a straggler, worlds wait in each step.
- `scoring_share`: the part of an iteration, with four generators at work, in which values, advantages and statistics of
  chunks are computed, all of which could begin when the first chunk comes (RLHFuse).
- `longest_first`: time of 8 shares on 3 actors, those that took longest last time first, over that in their own order.

The last two are in processor time, so that other programs do not count.
"""

import dataclasses
import heapq
import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.cluster.cluster_async import TASK, Training, WaitingExecutor, WaitingSource, summary, train
from benchmarks.measure import BenchmarkResult, ProgressCallback
from physai.cluster.generators.async_collector import AsyncCollector
from physai.cluster.generators.batching import Admission
from physai.cluster.generators.buffering import fill
from physai.cluster.generators.generator import Arrays, Chunk, ChunkRequest, RolloutGenerator, pack
from physai.cluster.placement.world_split import shares
from physai.compute.ray.cluster import connected
from physai.sim.tasks.registry import load_task
from physai.train.algorithms.ppo import advantages
from physai.train.runners.runner import Trainer, learner_threads
from physai.train.settings.config import TrainConfig
from physai.train.settings.presets import preset_for

NEEDED, EXTRA = 4, 1
"""Shares that an update needs, and those that are asked for beyond that."""
WIDTH = 32
"""Worlds of a share."""
CONFIG = dataclasses.replace(preset_for(TASK), num_envs=NEEDED * WIDTH, horizon=24)
WAITS_S = (*(NEEDED + EXTRA - 1) * (0.008,), 0.08)
"""How long a step takes at least on each generator [s]."""
SCORED = ("cartpole-swingup", "go2-velocity")
"""Tasks whose iterations, with their own settings, are taken apart."""
GENERATORS, SHARES, ACTORS = 4, 8, 3


class Overcommitted(Admission):
    """Asks for a few chunks more than a batch; what comes late goes into the next batch."""

    def __init__(self, generators: int, *, batch: int, extra: int, version: int = 0) -> None:
        """See `Admission`; `extra` chunks more than `batch` are asked for."""
        super().__init__(generators, batch=batch, staleness=1, version=version)
        self._extra = extra

    @property
    def allowed(self) -> int:
        """As `Admission.allowed` without staleness, and `extra` more."""
        room = (self.version + 1) * self.batch + self._extra - (self.accepted + self.running)
        return max(0, min(self._generators - self.running, room))


class OvercommitCollector(AsyncCollector):
    """A generator more than an update needs."""

    def _begin(self, states: list[Arrays | None], *, version: int) -> None:
        super()._begin(states, version=version)
        self.admission = Overcommitted(len(states), batch=NEEDED, extra=EXTRA, version=version)


def overcommit(report: ProgressCallback, *, iterations: int, seeds: int) -> list[BenchmarkResult]:
    """`overcommit_over_sync` and `overcommit_over_staleness_1`, with the mean staleness of both.

    Args:
        report: receives progress messages.
        iterations: updates of each run, at least 2.
        seeds: runs of each.
    """
    runs: dict[str, list[Training]] = {"sync": [], "overcommit": [], "staleness_1": []}
    whole = dataclasses.replace(CONFIG, num_envs=len(WAITS_S) * WIDTH)
    with connected("local", processors=len(WAITS_S)) as ray:
        for seed in range(seeds):
            own = {"iterations": iterations, "seed": seed}
            runs["sync"].append(train(ray, dataclasses.replace(whole, **own), WAITS_S))
            runs["overcommit"].append(_overcommitted(ray, dataclasses.replace(CONFIG, staleness=1, **own)))
            runs["staleness_1"].append(train(ray, dataclasses.replace(whole, staleness=1, **own), WAITS_S))
            report(
                f"seed {seed}: "
                + ", ".join(
                    f"{name} {done[-1].steps_per_s:.0f} steps/s with staleness {done[-1].staleness_mean:.2f}"
                    for name, done in runs.items()
                )
            )
    results: list[BenchmarkResult] = []
    for peer in ("sync", "staleness_1"):
        pairs = zip(runs["overcommit"], runs[peer], strict=True)
        ratios = tuple(one.steps_per_s / other.steps_per_s for one, other in pairs)
        results.append(BenchmarkResult(name=f"overcommit_over_{peer}", unit="1", runs=ratios, peer=peer))
    for name in ("overcommit", "staleness_1"):
        ages = tuple(one.staleness_mean for one in runs[name])
        results.append(BenchmarkResult(name=f"{name}.staleness_mean", unit="1", runs=ages))
    return results


def _overcommitted(ray: Any, config: TrainConfig) -> Training:
    torch.set_num_threads(learner_threads(config))
    task = load_task(TASK)
    executor = WaitingExecutor(ray, WaitingSource(task=TASK, waits_s=WAITS_S), config)
    worlds = dataclasses.replace(config, num_envs=len(WAITS_S) * WIDTH)
    made: list[OvercommitCollector] = []

    def source(learner: Any) -> OvercommitCollector:
        made.append(OvercommitCollector(task, worlds, learner, executor, generators=len(WAITS_S), background=True))
        return made[0]

    trainer = Trainer(task, config, source=source)
    try:
        stats = [trainer.train_iteration() for _ in range(config.iterations)]
    finally:
        made[0].close()
    return summary(stats, trainer.env_steps)


def overlaps(report: ProgressCallback, *, iterations: int) -> list[BenchmarkResult]:
    """`scoring_share` and `longest_first` of each task.

    Args:
        report: receives progress messages.
        iterations: how many are measured, after one to warm up.
    """
    results: list[BenchmarkResult] = []
    for name in SCORED:
        config = dataclasses.replace(preset_for(name), num_threads=1, overlap=False)
        scored, learned, played = measured(name, config, iterations=iterations)
        # As if generators played side by side: an iteration waits for the slowest.
        slowest = played.reshape(len(played), GENERATORS, -1).sum(axis=2).max(axis=1)
        part = scored / (slowest + scored + learned)
        order = [
            makespan(now[np.argsort(-before)].tolist(), ACTORS) / makespan(now.tolist(), ACTORS)
            for before, now in itertools.pairwise(played)
        ]
        report(
            f"{name}: playing {1e3 * statistics.median(slowest):.1f} ms, scoring {1e3 * statistics.median(scored):.1f} "
            f"ms, learning {1e3 * statistics.median(learned):.1f} ms; shares differ by "
            f"{np.median(played.std(axis=1) / played.mean(axis=1)):.1%}"
        )
        results.append(BenchmarkResult(name=f"scoring_share.{name}", unit="1", runs=tuple(map(float, part))))
        results.append(BenchmarkResult(name=f"longest_first.{name}", unit="1", runs=tuple(order), peer="in order"))
    return results


def measured(name: str, config: TrainConfig, *, iterations: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Processor time of the parts of iterations [s]: scoring, the rest of learning, and playing each share."""
    torch.set_num_threads(1)
    task = load_task(name)
    trainer = Trainer(task, config)
    learner = trainer.learner
    parts = [
        RolloutGenerator(task, config, share, count, num_threads=1, state=None)
        for share, count in shares(config.num_envs, SHARES)
    ]
    rollout = trainer.new_rollout()
    rows: list[tuple[float, float, list[float]]] = []
    for number in range(iterations + 1):
        weights = pack(learner)
        chunks: list[Chunk] = []
        times = [time.process_time()]
        for part in parts:
            chunks.append(part.collect(ChunkRequest(number, 1.0), weights))
            times.append(time.process_time())
        fill(rollout, chunks, learner, metrics=task.metrics)
        advantages(rollout, trainer.gamma, config.gae_lambda)
        times.append(time.process_time())
        learner.ppo.update(rollout, trainer.gamma, trainer.generator)
        times.append(time.process_time())
        learner.graph.normaliser.update(rollout.raw_observation.flatten(0, 1), None)
        learner.critic_normaliser.update(rollout.raw_critic.flatten(0, 1), None)
        times.append(time.process_time())
        *played, scored, learned, counted = np.diff(times).tolist()
        rows.append((scored + counted, learned, played))
    scored, learned, played = zip(*rows[1:], strict=True)
    return np.array(scored), np.array(learned), np.array(played)


def makespan(durations: Sequence[float], actors: int) -> float:
    """When the last of jobs ends which actors take in this order, each when it is free."""
    free = [0.0] * actors
    for duration in durations:
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)
