"""The reward of preference learning: constraint, leash, and what is recorded."""

import dataclasses
import math

import pytest
import torch

from physai.sim.tasks.registry import load_task
from physai.train.config import TrainConfig
from physai.train.models.numpy_policy import seed_torch, seeded
from physai.train.preferences.draw import cut, draw_segments, layout_of, play
from physai.train.preferences.ensemble import MAX_RATE, RewardEnsemble
from physai.train.preferences.reward import Leash, PreferenceCollector, Reference
from physai.train.preferences.scratch import schedule
from physai.train.runners.runner import build_learner, empty_rollout

TASK = load_task("cartpole-swingup")
CONFIG = TrainConfig(num_envs=16, horizon=64, hidden=(8,), minibatches=2, activation="tanh")


def model() -> RewardEnsemble:
    made = RewardEnsemble(TASK.critic_size + 1, hidden=(8,), generator=seeded(0))
    made.freeze_scale(torch.randn(200, TASK.critic_size + 1, generator=seeded(1)))
    return made


def collector(config: TrainConfig = CONFIG, **options: object) -> PreferenceCollector:
    seed_torch(0)
    learner = build_learner(TASK, config)
    return PreferenceCollector(TASK, config, learner, num_threads=1, **options)  # pyright: ignore[reportArgumentType]


def test_without_model_and_leash_the_reward_is_the_tasks_less_the_cost_of_failures() -> None:
    # Enough noise to leave the rail.
    wild = dataclasses.replace(CONFIG, initial_std=4.0, horizon=200)
    plain, shaped = collector(wild, weight=0.0), collector(wild)
    rollouts = [empty_rollout(c.learner.graph, TASK, wild) for c in (plain, shaped)]
    for one, rollout in zip((plain, shaped), rollouts, strict=True):
        one.collect(rollout)
    failed = rollouts[0].done.bool() & (rollouts[0].bootstrap == 0.0)
    assert bool(failed.any())
    torch.testing.assert_close(rollouts[1].reward, rollouts[0].reward - shaped.failure_cost * failed)


def test_a_failure_costs_more_than_the_learned_reward_ever_pays() -> None:
    gamma = CONFIG.gamma(TASK.contract.timing.control_dt)
    paid = sum(MAX_RATE * TASK.contract.timing.control_dt * gamma**step for step in range(5000))
    assert collector().failure_cost == pytest.approx(paid)


def test_the_learned_reward_is_added_per_second() -> None:
    reward_model = model()
    one = collector(model=reward_model, weight=2.0, task_weight=0.0)
    rollout = one.collect(empty_rollout(one.learner.graph, TASK, CONFIG))
    learned = reward_model.reward(rollout.raw_critic, rollout.action)
    alive = ~rollout.done.bool()
    torch.testing.assert_close(rollout.reward[alive], 2.0 * 0.02 * learned[alive])
    assert rollout.reward_terms["preferences"] == pytest.approx(float(learned.mean()))


def test_divergence_from_the_reference_is_that_of_gaussians() -> None:
    one = collector(leash=Leash(target_kl=0.5))
    rollout = one.collect(empty_rollout(one.learner.graph, TASK, CONFIG))
    assert one.kl == pytest.approx(0.0, abs=1e-6)
    reference = Reference(one.learner, CONFIG.num_envs)
    # Half the spread, and means that are 0.3 of the reference's spread away.
    std = float(one.learner.ppo.log_std.detach().exp())
    rollout.mean += 0.3 * std
    ratio, kl = reference.compare(rollout, one.learner.ppo.log_std - math.log(2.0))
    assert kl == pytest.approx(math.log(2.0) + (0.25 + 0.09) / 2.0 - 0.5, rel=1e-4)
    assert ratio.shape == rollout.reward.shape


def test_the_weight_of_the_leash_follows_the_divergence() -> None:
    one = collector(leash=Leash(target_kl=0.5, initial_beta=0.1))
    leash = one.leash
    assert leash is not None
    one.floor = (0.0, 0.0)
    one.kl = 5.0
    one._adapt(leash)  # pyright: ignore[reportPrivateUsage]
    assert one.beta == pytest.approx(0.1 * 1.1)
    one.kl = 0.0
    one._adapt(leash)  # pyright: ignore[reportPrivateUsage]
    assert one.beta == pytest.approx(0.1 * 1.1 * 0.9)
    assert one.stop_reason is None
    one.kl = 2.1
    assert one.stop_reason is not None


def test_the_task_weighs_more_while_it_is_done_worse_than_by_the_reference() -> None:
    one = collector(leash=Leash(target_kl=0.5, multiplier_rate=2.0))
    leash = one.leash
    assert leash is not None
    one.floor = (1.0, -1.0)
    one.task_rate = 0.5
    one._adapt(leash)  # pyright: ignore[reportPrivateUsage]
    assert one.multiplier == pytest.approx(1.0)
    one.task_rate = 1.2
    one._adapt(leash)  # pyright: ignore[reportPrivateUsage]
    assert one.multiplier == pytest.approx(0.6)


def test_segments_hold_what_was_played_and_end_with_the_episode() -> None:
    graph = build_learner(TASK, CONFIG).graph
    layout = layout_of(TASK, seconds=0.4)
    # Enough noise to leave the rail.
    played = play(graph, TASK, worlds=8, steps=200, seed=3, std=torch.tensor([3.0]), num_threads=1)
    assert played.failed.any()
    total = played.terms[..., 1 : 1 + len(TASK.rewards)].sum(axis=2)
    assert abs(total - played.terms[..., 0]).max() < 1e-4
    found = cut(played, layout)
    assert {segment.qpos.shape for segment in found} == {(20, 2)}
    ends = {(s.episode_seed, s.start_step + layout.steps) for s in found}
    failed = [
        (int(played.seeds[t, w]), int(played.steps[t, w]) + 1) for t, w in zip(*played.failed.nonzero(), strict=True)
    ]
    assert all((seed, end) in ends for seed, end in failed if end >= layout.steps)
    # No step is in two segments.
    steps = [(s.episode_seed, s.start_step + k) for s in found for k in range(layout.steps)]
    assert len(steps) == len(set(steps))


def test_drawing_is_repeatable() -> None:
    graph = build_learner(TASK, CONFIG).graph
    layout = layout_of(TASK, seconds=0.2)
    one, two = (draw_segments(graph, TASK, layout, count=5, seed=1, std=torch.tensor([0.5])) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        assert dataclasses.astuple(a)[:2] == dataclasses.astuple(b)[:2]
        assert a.critic.tolist() == b.critic.tolist()


@pytest.mark.parametrize(("labels", "iterations"), [(200, 120), (12, 3), (500, 1), (37, 80)])
def test_a_schedule_asks_for_all_labels(labels: int, iterations: int) -> None:
    plan = schedule(labels, iterations)
    assert sum(plan.values()) == labels
    assert all(0 <= when < iterations for when in plan)
