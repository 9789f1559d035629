"""Fine-tuning with worlds and scores in other processes, on this computer.

- `finetune_PLACE.TASK`: environment steps per second, learning included, with two generators on Ray, and the reward
  model and reference in the trainer, in the generators or apart, over those of one process.
- `finetune_scoring_share.TASK`: the part of an iteration of one process in which reward model and reference score.

The four learn in turn, an iteration each, so that other programs disturb all alike; their weights must be equal.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import get_args

import torch

from benchmarks.measure import BenchmarkResult, ProgressCallback, WorkloadError
from physai.cluster.generators.launch import ScoringPlace, scored_generators
from physai.compute.ray.cluster import connected
from physai.rlhf.collection.collect import without_stops
from physai.rlhf.finetune.finetune import TARGET_KL
from physai.rlhf.finetune.kl_penalty import Leash, LeashedCollector
from physai.rlhf.finetune.scoring import PreferenceScorer, Reference
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.train.collectors.collector import Collector, Learner
from physai.train.models.numpy_policy import seeded
from physai.train.runners.runner import PlayedSource, Trainer, engine_threads
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig
from physai.train.settings.presets import preset_for

TASKS = ("cartpole-swingup", "ur10e-reach")
PLACES: tuple[ScoringPlace, ...] = get_args(ScoringPlace)
ALONE = "one process"
GENERATORS = 2


def finetuning(report: ProgressCallback, *, iterations: int, rounds: int) -> list[BenchmarkResult]:
    """All of this module.

    Args:
        report: receives progress messages.
        iterations: how many are measured of each in a round, after two to warm up.
        rounds: how often all begin anew, with another seed.

    Raises:
        WorkloadError: weights differ between the places.
    """
    results: list[BenchmarkResult] = []
    for name in TASKS:
        rates: dict[str, list[float]] = {}
        shares: list[float] = []
        for seed in range(rounds):
            seconds, share = _round(name, seed, iterations)
            shares.append(share)
            for place in PLACES:
                rates.setdefault(place, []).append(seconds[ALONE] / seconds[place])
            spent = ", ".join(f"{place} {1e3 * value:.0f} ms" for place, value in seconds.items())
            report(f"{name}, round {seed}: an iteration takes {spent}; scoring is {share:.1%} of that in one process")
        results += [
            BenchmarkResult(name=f"finetune_{place}.{name}", unit="1", runs=tuple(runs), peer=ALONE)
            for place, runs in rates.items()
        ]
        results.append(BenchmarkResult(name=f"finetune_scoring_share.{name}", unit="1", runs=tuple(shares)))
    return results


def _round(name: str, seed: int, iterations: int) -> tuple[dict[str, float], float]:
    """Median time of an iteration in each way [s], and the share of scoring in that of one process."""
    source = RunTaskSource(task=name)
    task, config = source.load(), preset_for(name)
    config = dataclasses.replace(config, **without_stops(config) | {"seed": seed})
    with ExitStack() as stack:
        stack.enter_context(connected("local", processors=len(PLACES) * GENERATORS + 1))
        threads = engine_threads(config)
        made = {ALONE: Trained(name, config, lambda own: Collector(task, config, own, num_threads=threads))}
        for place in PLACES:
            cluster = scored_generators(
                task, source, config, generators=GENERATORS, address="auto", scoring=place, way_out="start again"
            )
            made[place] = Trained(name, config, stack.enter_context(cluster))
        for one in made.values():
            one.iterate()
            one.iterate()
        seconds: dict[str, list[float]] = {way: [] for way in made}
        for _ in range(iterations):
            for way, one in made.items():
                seconds[way].append(one.iterate())
        for way, one in made.items():
            if one.weights != made[ALONE].weights:
                raise WorkloadError(f"{name}: weights with scoring in {way} differ from those of {ALONE}")
    median = {way: statistics.median(values) for way, values in seconds.items()}
    return median, made[ALONE].scoring_s() / median[ALONE]


class Trained:
    """Fine-tuning of an untrained policy by a reward model that has not been fitted, which take as long as others."""

    def __init__(self, name: str, config: TrainConfig, source: Callable[[Learner], PlayedSource]) -> None:
        """With what steps the worlds."""
        task = RunTaskSource(task=name).load()
        inputs, actions = task.critic_size + task.contract.action.size, task.contract.action.size
        self._model = RewardEnsemble(inputs, generator=seeded(0))
        self._model.freeze_scale(torch.randn(1000, inputs, generator=seeded(1)))
        made: list[LeashedCollector] = []

        def leashed(learner: Learner) -> LeashedCollector:
            leash = Leash(target_kl=TARGET_KL * actions)
            made.append(LeashedCollector(task, config, source(learner), model=self._model, leash=leash))
            return made[0]

        self._trainer = Trainer(task, config, source=leashed)
        made[0].share = 0.5

    def iterate(self) -> float:
        """Time of an iteration [s]."""
        start = time.perf_counter()
        self._trainer.train_iteration()
        return time.perf_counter() - start

    @property
    def weights(self) -> bytes:
        """Of all that learns for the policy."""
        return b"".join(value.detach().numpy().tobytes() for value in self._trainer.learner.state_dict().values())

    def scoring_s(self) -> float:
        """Median time of scoring a rollout in this process [s]."""
        scorer = PreferenceScorer(self._model, Reference(self._trainer.learner))
        rollout = self._trainer.collector.collect(self._trainer.new_rollout())
        columns = {column: getattr(rollout, column) for column in scorer.columns}
        seconds: list[float] = []
        for _ in range(5):
            start = time.perf_counter()
            scorer.score(columns, scorer.memory(rollout.done.shape[1]))
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)
