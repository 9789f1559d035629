"""Fine-tuning begins with critics that know their rewards, whatever the run that it begins with has learned."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from physai.rlhf.finetune.kl_penalty import FORESEEN, Leash, LeashedCollector, foreseen
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.sim.tasks.registry import load_task
from physai.train.algorithms.ppo import advantages
from physai.train.collectors.collector import Collector, Learner
from physai.train.models.numpy_policy import seed_torch, seeded
from physai.train.runners.runner import Trainer, build_learner, empty_rollout
from physai.train.settings.config import TrainConfig

TASK = load_task("cartpole-swingup")
CONFIG = TrainConfig(num_envs=32, horizon=64, hidden=(32,), minibatches=2, activation="tanh", num_threads=1)


def leashed(learner: Learner, config: TrainConfig = CONFIG) -> LeashedCollector:
    model = RewardEnsemble(TASK.critic_size + 1, hidden=(8,), generator=seeded(0))
    model.freeze_scale(torch.randn(200, TASK.critic_size + 1, generator=seeded(1)))
    worlds = Collector(TASK, config, learner, num_threads=1)
    return LeashedCollector(TASK, config, worlds, model=model, leash=Leash(target_kl=0.5))


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in module.parameters()])


def share_foreseen(learner: Learner, collector: LeashedCollector) -> float:
    collector.learner.follow(learner)
    rollout = collector.collect(empty_rollout(learner.graph, TASK, CONFIG))
    target = advantages(rollout, CONFIG.gamma(TASK.contract.timing.control_dt), CONFIG.gae_lambda)[1]
    return foreseen(rollout.value, target)


def test_the_reference_remembers_what_the_policy_does() -> None:
    """Else a policy with a memory would differ from itself."""
    config = replace(CONFIG, actor="gru", gru_size=8)
    seed_torch(0)
    learner = build_learner(TASK, config)
    collector = leashed(learner, config)
    collector.warm_up(learner, 1)
    assert collector.kl < 1e-12


def new() -> Learner:
    """As after the weights of a run whose critic has another size."""
    seed_torch(0)
    return build_learner(TASK, CONFIG)


def of_successes() -> Learner:
    """As of a run whose critic learned another reward."""
    trainer = Trainer(TASK, replace(CONFIG, reward="success"))
    for _ in range(3):
        trainer.train_iteration()
    return trainer.learner


@pytest.mark.slow
@pytest.mark.parametrize("begun", [new, of_successes])
def test_a_critic_that_does_not_know_the_task_learns_it_first(begun: Callable[[], Learner]) -> None:
    learner = begun()
    actor = weights(learner.graph.actor).clone()
    collector = leashed(learner)
    assert collector.warm_up(learner, 20)
    assert float(learner.critic_normaliser.count) > 0.0
    assert torch.equal(weights(learner.graph.actor), actor)
    assert share_foreseen(learner, collector) > FORESEEN
    known = weights(learner.ppo.critic).clone()
    # One that knows it is left as it is.
    assert not collector.warm_up(learner, 3)
    assert torch.equal(weights(learner.ppo.critic), known)
