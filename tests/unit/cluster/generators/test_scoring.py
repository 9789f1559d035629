"""Reward model and reference score the same wherever they are: in this process, or in generators that may die."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from physai.cluster.generators.collector import ClusterCollector
from physai.cluster.generators.executor import GeneratorLostError, LocalGenerators
from physai.cluster.generators.generator import Chunk
from physai.rlhf.finetune.kl_penalty import Leash, LeashedCollector
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.sim.tasks.registry import load_task
from physai.train.collectors.collector import Collector, Learner
from physai.train.models.numpy_policy import seeded
from physai.train.runners.runner import PlayedSource, Trainer
from physai.train.settings.config import TrainConfig

TASK = replace(load_task("cartpole-swingup"), episode_length_s=0.4)
# Neither worlds nor steps are whole blocks of rows.
CONFIG = TrainConfig(num_envs=50, horizon=7, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1, gru_size=8)


class Mortal(LocalGenerators):
    """Loses the generator of every fourth delivery, with its chunk."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(TASK, config, num_threads=1)
        self.lost = self._deliveries = 0

    def next_chunk(self) -> tuple[int, Chunk]:
        which, chunk = super().next_chunk()
        self._deliveries += 1
        if self._deliveries % 4 == 0:
            self.lost += 1
            del self._generators[which]
            raise GeneratorLostError(which, "died with the chunk")
        return which, chunk


def as_numbers(tensor: Any) -> Any:
    return tensor.tolist()


def tuned(config: TrainConfig, source: Callable[[Learner], PlayedSource]) -> list[Any]:
    """Everything that a few iterations of fine-tuning leave, to the last bit."""
    model = RewardEnsemble(TASK.critic_size + 1, hidden=(8,), generator=seeded(0))
    model.freeze_scale(torch.randn(200, TASK.critic_size + 1, generator=seeded(1)))
    made: list[LeashedCollector] = []

    def leashed(learner: Learner) -> LeashedCollector:
        made.append(LeashedCollector(TASK, config, source(learner), model=model, leash=Leash(target_kl=0.01)))
        return made[0]

    trainer = Trainer(TASK, config, source=leashed)
    trainer.learner.ppo.log_std.requires_grad_(False)
    collector = made[0]
    collector.share = 0.5
    collector.warm_up(trainer.learner, 2)
    kls: list[float] = []
    for _ in range(3):
        trainer.train_iteration()
        kls.append(collector.kl)
    assert kls[-1] > 0.0
    tensors = [*trainer.learner.parameters(), *trainer.learner.buffers(), *collector.critic.parameters()]
    numbers = [as_numbers(tensor) for tensor in tensors]
    return [numbers, kls, collector.beta, collector.success]


@cache
def alone(actor: Any) -> list[Any]:
    config = replace(CONFIG, actor=actor)
    return tuned(config, lambda learner: Collector(TASK, config, learner, num_threads=1))


@pytest.mark.parametrize("actor", ["mlp", "gru"])
@pytest.mark.parametrize("generators", [1, 3])
@pytest.mark.parametrize("place", ["trainer", "generators"])
def test_scores_are_the_same_in_generators_that_die(actor: Any, generators: int, place: Any) -> None:
    config = replace(CONFIG, actor=actor)
    executor = Mortal(config)

    def cluster(learner: Learner) -> ClusterCollector:
        return ClusterCollector(TASK, config, learner, executor, generators=generators, scorers=place)

    assert tuned(config, cluster) == alone(actor)
    assert executor.lost
