"""What a rollout says of the policy that acted in it."""

import torch

from physai.sim.tasks.registry import load_task
from physai.train.runners.runner import Trainer
from physai.train.settings.config import TrainConfig

CONFIG = TrainConfig(num_envs=4, horizon=3, epochs=1, minibatches=1, hidden=(8,), overlap=True, num_threads=1)


def test_an_overlapping_rollout_holds_mean_and_spread_of_the_same_copy() -> None:
    """The log-probability of an action follows from the rollout's own mean and spread, however far the learner is."""
    trainer = Trainer(load_task("cartpole-swingup"), CONFIG)
    for _ in range(2):
        trainer.train_iteration()
    rollout = trainer.pending
    assert rollout is not None
    assert not torch.equal(rollout.log_std, trainer.learner.ppo.log_std.detach()), "the learner has moved on"
    normal = torch.distributions.Normal(rollout.mean, rollout.log_std.exp())
    torch.testing.assert_close(rollout.log_prob, normal.log_prob(rollout.action).sum(-1))
