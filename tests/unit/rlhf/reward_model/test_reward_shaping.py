"""The reward of preference learning: constraint, leash, and what is recorded."""

import dataclasses

import pytest
import torch

from physai.rlhf.collection.collect import without_stops
from physai.rlhf.collection.draw import cut, draw_segments, layout_of, play
from physai.rlhf.finetune.kl_penalty import Leash, LeashedCollector
from physai.rlhf.finetune.scoring import Reference
from physai.rlhf.finetune.scratch import schedule
from physai.rlhf.reward_model.ensemble import MAX_RATE, RewardEnsemble
from physai.rlhf.reward_model.reward import PreferenceCollector
from physai.sim.tasks.registry import load_task
from physai.train.collectors.collector import Collector
from physai.train.models.numpy_policy import seed_torch, seeded
from physai.train.runners.runner import build_learner, empty_rollout
from physai.train.settings.config import TrainConfig

TASK = load_task("cartpole-swingup")
CONFIG = TrainConfig(num_envs=16, horizon=64, hidden=(8,), minibatches=2, activation="tanh")


def model() -> RewardEnsemble:
    made = RewardEnsemble(TASK.critic_size + 1, hidden=(8,), generator=seeded(0))
    made.freeze_scale(torch.randn(200, TASK.critic_size + 1, generator=seeded(1)))
    return made


def collector(config: TrainConfig = CONFIG, model: RewardEnsemble | None = None) -> PreferenceCollector:
    seed_torch(0)
    worlds = Collector(TASK, config, build_learner(TASK, config), num_threads=1)
    return PreferenceCollector(TASK, config, worlds, model=model)


def leashed(target_kl: float = 0.5) -> LeashedCollector:
    seed_torch(0)
    learner, leash = build_learner(TASK, CONFIG), Leash(target_kl=target_kl, initial_beta=0.1)
    return LeashedCollector(TASK, CONFIG, Collector(TASK, CONFIG, learner, num_threads=1), model=model(), leash=leash)


def test_without_model_the_reward_is_the_cost_of_failures() -> None:
    # Enough noise to leave the rail.
    wild = dataclasses.replace(CONFIG, initial_std=4.0, horizon=200)
    one = collector(wild)
    # None in the first half of a run, then more and more.
    for iteration, share in ((0, 0.0), (wild.iterations // 2, 0.0), (3 * wild.iterations // 4, 0.5)):
        one.iteration = iteration - 1
        rollout = one.collect(empty_rollout(one.learner.graph, TASK, wild))
        failed = rollout.done.bool() & (rollout.bootstrap == 0.0)
        assert bool(failed.any())
        torch.testing.assert_close(rollout.reward, -share * one.failure_cost * failed)


def test_a_failure_costs_more_than_the_learned_reward_ever_pays() -> None:
    gamma = CONFIG.gamma(TASK.contract.timing.control_dt)
    paid = sum(MAX_RATE * TASK.contract.timing.control_dt * gamma**step for step in range(5000))
    assert collector().failure_cost == pytest.approx(paid)


def test_the_learned_reward_is_paid_per_second() -> None:
    reward_model = model()
    one = collector(model=reward_model)
    rollout = one.collect(empty_rollout(one.learner.graph, TASK, CONFIG))
    learned = reward_model.reward(rollout.raw_critic, rollout.action)
    alive = ~rollout.done.bool()
    # 3 per second for the best steps, an eighth of that for half as good ones, at most 6.
    torch.testing.assert_close(one.paid(torch.tensor([0.0, 1.5, 3.0, 6.0])), torch.tensor([0.0, 0.375, 3.0, 6.0]))
    torch.testing.assert_close(rollout.reward[alive], 0.02 * one.paid(learned[alive]))
    assert rollout.reward_terms["preferences"] == pytest.approx(float(learned.mean()))


def test_divergence_from_the_reference_is_that_of_gaussians() -> None:
    one = leashed()
    rollout = one.collect(empty_rollout(one.learner.graph, TASK, CONFIG))
    assert one.kl == pytest.approx(0.0, abs=1e-6)
    # Means that are 0.3 standard deviations away.
    std = float(one.learner.ppo.log_std.detach().exp())
    kl = Reference(one.learner).divergence(rollout.mean + 0.3 * std, rollout.mean)
    assert kl == pytest.approx(0.5 * 0.09, rel=1e-4)


def test_the_weight_of_the_leash_follows_the_divergence() -> None:
    one = leashed(target_kl=0.02)
    rollout = one.collect(empty_rollout(one.learner.graph, TASK, CONFIG))
    assert one.beta == pytest.approx(0.05)
    with torch.no_grad():
        for parameter in one.learner.graph.actor.parameters():
            parameter += 0.5
    one.collect(rollout)
    assert one.kl > 0.03
    assert one.beta == pytest.approx(0.1)
    one.kl = 0.079
    assert one.stop_reason is None
    one.kl = 0.081
    assert one.stop_reason is not None


def test_the_tasks_reward_is_left_as_it_is_and_the_learned_one_has_an_advantage_of_its_own() -> None:
    one = leashed()
    one.share = 0.25
    rollout = one.collect(empty_rollout(one.learner.graph, TASK, CONFIG))
    plain = Collector(TASK, CONFIG, one.learner, num_threads=1)
    torch.testing.assert_close(
        rollout.reward, plain.collect(empty_rollout(one.learner.graph, TASK, CONFIG)).reward, rtol=1e-4, atol=1e-5
    )
    second = rollout.second_advantage
    assert second is not None
    assert float(second.mean()) == pytest.approx(0.0, abs=1e-5)
    assert float(second.std()) == pytest.approx(1.0, rel=1e-4)
    assert rollout.second_share == 0.25


def test_the_leash_pulls_the_actor_to_the_reference() -> None:
    """Where all rewards are 0, the actor stays without a weight of the leash, and with it goes to the reference."""
    moved: list[float] = []
    for weight in (0.0, 10.0):
        one = leashed()
        rollout = one.collect(empty_rollout(one.learner.graph, TASK, CONFIG))
        assert rollout.reference_mean is not None
        rollout.reward.zero_()
        rollout.value.zero_()
        rollout.bootstrap.zero_()
        rollout.last_value.zero_()
        rollout.reference_mean = rollout.mean + 0.5
        rollout.reference_weight, before = weight, rollout.mean.clone()
        ppo = one.learner.ppo
        ppo.set_learning_rate(1e-2)
        ppo.update(rollout, 0.99, seeded(0))
        with torch.no_grad():
            after = ppo.actor(rollout.observation.flatten(0, 1), rollout.hidden)[0]
        moved.append(float((after - before.flatten(0, 1)).mean()))
    assert moved[0] == pytest.approx(0.0, abs=1e-4)
    assert 0.1 < moved[1] < 0.6


def test_segments_are_drawn_from_whole_episodes() -> None:
    graph = build_learner(TASK, CONFIG).graph
    begun = [s.start_step for s in draw_segments(graph, TASK, layout_of(TASK, seconds=0.4), count=60, seed=1)]
    steps = round(TASK.episode_length_s / TASK.contract.timing.control_dt)
    assert all(any(low <= start < low + steps // 4 for start in begun) for low in range(0, steps, steps // 4))


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


def test_what_generators_delivered_in_segments_is_learned_from_in_one_process() -> None:
    config = dataclasses.replace(CONFIG, staleness=2, segments=2, reward="success", advantage="gae")
    alone = dataclasses.replace(config, **without_stops(config))
    assert (alone.staleness, alone.segments, alone.reward) == (0, 1, "task")
    assert alone.segmented() == alone
