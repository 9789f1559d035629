"""Advantages relative to a group of worlds with the same episode, and rewards of success alone."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from physai.cluster.generators.launch import check_generators
from physai.sim.engines.protocol import Array
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import WorldView
from physai.train.collectors.groups import GroupCollector, OutcomeCollector, relative
from physai.train.runners.runner import Trainer
from physai.train.settings.config import ConfigError, TrainConfig

TASK = dataclasses.replace(load_task("cartpole-swingup"), episode_length_s=0.6)
CONFIG = TrainConfig(num_envs=12, group=4, horizon=30, hidden=(8,), minibatches=2, advantage="grpo")


def collector(config: TrainConfig = CONFIG) -> GroupCollector:
    made = Trainer(TASK, config).collector
    assert isinstance(made, GroupCollector)
    return made


def test_expected_numbers() -> None:
    """Of 1, 2, 3, 6 the mean is 3 and the squared standard deviation 14 / 3; the mean of the others of 6 is 2."""
    returns = torch.tensor([[1.0, 2.0, 3.0, 6.0], [5.0, 5.0, 5.0, 5.0]])
    rloo = torch.tensor([[-8.0 / 3.0, -4.0 / 3.0, 0.0, 4.0], [0.0] * 4])
    torch.testing.assert_close(relative(returns, "rloo"), rloo)
    grpo = torch.tensor([[-2.0, -1.0, 0.0, 3.0], [0.0] * 4]) / (14.0 / 3.0) ** 0.5
    torch.testing.assert_close(relative(returns, "grpo"), grpo)


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=16), st.floats(-1e3, 1e3), st.floats(0.1, 100.0))
def test_a_group_is_compared_with_itself_alone(values: list[float], offset: float, scale: float) -> None:
    returns = torch.tensor([values], dtype=torch.float64)
    for kind in ("grpo", "rloo"):
        found = relative(returns, kind)
        assert float(found.sum()) == pytest.approx(0.0, abs=1e-6 * max(1.0, float(found.abs().max())))
        torch.testing.assert_close(relative(returns + offset, "rloo"), relative(returns, "rloo"), atol=1e-8, rtol=1e-8)
    if float(returns.std()) > 1e-2 * float(returns.abs().max()) > 0.1:
        torch.testing.assert_close(relative(scale * returns, "grpo"), relative(returns, "grpo"))


def test_worlds_of_a_group_begin_the_same_episode_and_explore_apart() -> None:
    one = collector()
    rollout = one.collect(Trainer(TASK, CONFIG).new_rollout())
    first = rollout.raw_critic[0].view(3, 4, -1).clone()
    assert bool((first == first[:, :1]).all())
    assert not bool((first[0] == first[1]).all())
    assert float(rollout.action[0].view(3, 4).std(dim=1).min()) > 0.0
    # Sensors have the same noise.
    seen = rollout.raw_observation[0].view(3, 4, -1)
    assert bool((seen == seen[:, :1]).all())
    again = one.collect(rollout)
    assert not bool((again.raw_critic[0].view(3, 4, -1) == first).all())


def test_steps_after_an_end_count_nothing() -> None:
    wild = dataclasses.replace(CONFIG, initial_std=30.0, horizon=500, num_envs=8)
    trainer = Trainer(load_task("cartpole-swingup"), wild)
    collector = trainer.collector
    assert isinstance(collector, GroupCollector)
    rollout = collector.collect(trainer.new_rollout())
    assert rollout.importance is not None
    assert rollout.second_advantage is not None
    done = rollout.done.numpy()
    assert (done.sum(axis=0) > 1).any(), "no world failed before its time"
    for world, end in enumerate(done.argmax(axis=0)):
        assert bool((rollout.importance[: end + 1, world] == 1.0).all())
        assert bool((rollout.importance[end + 1 :, world] == 0.0).all())
        assert np.ptp(rollout.second_advantage[: end + 1, world].numpy()) == 0.0
    # Only first episodes are judged, each once: else early failures would count more often than successes.
    assert len(collector.judged) == 8
    returns = (rollout.reward * rollout.importance).sum(dim=0).view(-1, 4)
    torch.testing.assert_close(rollout.second_advantage[0].view(-1, 4), relative(returns, "grpo"))


def on_the_left(view: WorldView) -> Array:
    """Half of the worlds begin there."""
    return view.joint_pos[:, 0] < 0.0


@pytest.mark.parametrize("advantage", ["gae", "rloo"])
def test_success_alone_is_paid(advantage: str) -> None:
    success = dataclasses.replace(TASK.success, condition=on_the_left, hold_s=0.02)
    task = dataclasses.replace(TASK, success=success)
    config = dataclasses.replace(CONFIG, reward="success", advantage=advantage, num_envs=64)
    trainer = Trainer(task, config)
    assert isinstance(trainer.collector, OutcomeCollector)
    rollout = trainer.collector.collect(trainer.new_rollout())
    assert set(np.unique(rollout.reward.numpy())) == {0.0, 1.0}
    assert float(rollout.reward.sum(dim=0).max()) == 1.0


def test_training_and_resuming_gives_the_same_numbers() -> None:
    straight, stopped, resumed = (Trainer(TASK, CONFIG) for _ in range(3))
    for _ in range(3):
        straight.train_iteration()
    stopped.train_iteration()
    resumed.learner.load_state_dict(stopped.learner.state_dict())
    resumed.collector.load_state_dict(stopped.collector.state_dict())
    rollouts = [one.collector.collect(one.new_rollout()) for one in (stopped, resumed)]
    torch.testing.assert_close(rollouts[0].raw_critic[0], rollouts[1].raw_critic[0], atol=0.0, rtol=0.0)


def test_statistics_of_observations_are_those_of_the_first_episodes() -> None:
    """Else they change what the policy does, which no advantage says anything about."""
    trainer = Trainer(TASK, CONFIG)
    trainer.train_iteration()
    before = trainer.graph.normaliser.mean.clone()
    assert float(trainer.graph.normaliser.count) == 12 * 30
    trainer.train_iteration()
    torch.testing.assert_close(trainer.graph.normaliser.mean, before, atol=0.0, rtol=0.0)
    staggered = Trainer(TASK, dataclasses.replace(CONFIG, advantage="gae"))
    for _ in range(2):
        staggered.train_iteration()
    assert float(staggered.graph.normaliser.count) == 2 * 12 * 30


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"horizon": 24}, "set horizon=30"),
        ({"num_envs": 14}, "`num_envs` 14 are no groups of 4; set `num_envs` 16"),
        ({"group": 1}, "group must lie in"),
        ({"overlap": True}, "leave out overlap"),
        ({"engine": "warp"}, "take engine mujoco"),
        ({"advantage": "gae", "reward": "success", "engine": "warp"}, "take engine mujoco"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Trainer(TASK, dataclasses.replace(CONFIG, **changes))


def test_generators_are_refused() -> None:
    with pytest.raises(Exception, match="`settings` advantage=gae"):
        check_generators(dataclasses.replace(CONFIG, num_envs=32), 2, None)
