"""PPO against numbers worked out by hand and closed forms."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from physai.train.algorithms.ppo import PPO, LearningDivergedError, Rollout, advantages
from physai.train.models.numpy_policy import seed_torch, seeded
from physai.train.models.policy_graph import ActorGRU, ActorMLP
from physai.train.settings.config import TrainConfig

OBSERVATIONS, CRITIC, ACTIONS, GRU = 3, 2, 2, 5
CONFIG = TrainConfig(num_envs=4, horizon=6, epochs=1, minibatches=1, hidden=(8,), learning_rate=1e-3, gru_size=GRU)


def make(config: TrainConfig) -> PPO:
    """A learner whose network is the same in every call."""
    seed_torch(0)
    actor: Any
    if config.actor == "gru":
        actor = ActorGRU(OBSERVATIONS, ACTIONS, config.hidden, config.activation, config.gru_size)
    else:
        actor = ActorMLP(OBSERVATIONS, ACTIONS, config.hidden, config.activation)
    return PPO(actor, CRITIC, ACTIONS, config)


@torch.no_grad()
def play(ppo: PPO) -> Rollout:
    """Random observations and rewards; episodes end after step 1 in world 0 and after step 3 in world 2."""
    config = ppo.config
    rollout = Rollout(config, OBSERVATIONS, CRITIC, ACTIONS, GRU if config.actor == "gru" else 0)
    generator = seeded(1)
    for tensor in (rollout.observation, rollout.critic, rollout.reward, rollout.hidden):
        tensor.copy_(torch.randn(tensor.shape, generator=generator))
    rollout.hidden.tanh_()
    rollout.done[1, 0] = rollout.done[3, 2] = 1.0
    rollout.log_std.copy_(ppo.log_std)
    hidden = rollout.hidden
    for t in range(config.horizon):
        noise = torch.randn(config.num_envs, ACTIONS, generator=generator)
        rollout.action[t], rollout.mean[t], rollout.log_prob[t], hidden = ppo.act(rollout.observation[t], hidden, noise)
        hidden = torch.where(rollout.done[t].bool()[:, None], torch.zeros_like(hidden), hidden)
    rollout.value.copy_(ppo.value(rollout.critic))
    return rollout


def one_world(reward: list[float], value: list[float], last_value: float) -> Rollout:
    rollout = Rollout(TrainConfig(num_envs=1, horizon=len(reward), minibatches=1), 1, 1, 1, 0)
    rollout.reward[:, 0], rollout.value[:, 0] = torch.tensor(reward), torch.tensor(value)
    rollout.last_value[0] = last_value
    return rollout


def floats(column: Tensor) -> list[float]:
    return [float(x) for x in column.flatten()]


class TestAdvantages:
    """gamma = 0.5 and lambda = 0.5 throughout, so that the trace decays by a quarter."""

    def test_a_run_without_an_end_bootstraps_from_the_last_value(self) -> None:
        rollout = one_world(reward=[1.0, 2.0], value=[4.0, 8.0], last_value=16.0)
        advantage, target = advantages(rollout, 0.5, 0.5)
        # δ1 = 2 + 0.5·16 - 8 = 2,  A1 = 2
        # δ0 = 1 + 0.5·8 - 4 = 1,   A0 = 1 + 0.25·2 = 1.5
        assert floats(advantage) == [1.5, 2.0]
        assert floats(target) == [5.5, 10.0]

    def test_nothing_follows_a_failure(self) -> None:
        rollout = one_world(reward=[1.0, 2.0, 3.0], value=[4.0, 8.0, 2.0], last_value=16.0)
        rollout.done[1] = 1.0
        advantage, _ = advantages(rollout, 0.5, 0.5)
        # δ2 = 3 + 0.5·16 - 2 = 9,  A2 = 9, another episode's
        # δ1 = 2 + 0 - 8 = -6,      A1 = -6: neither V(s2) nor A2 crosses the boundary
        # δ0 = 1 + 0.5·8 - 4 = 1,   A0 = 1 - 0.25·6 = -0.5
        assert floats(advantage) == [-0.5, -6.0, 9.0]

    def test_a_time_out_is_worth_the_state_it_cut_off(self) -> None:
        rollout = one_world(reward=[1.0, 2.0, 3.0], value=[4.0, 8.0, 2.0], last_value=16.0)
        rollout.done[1] = 1.0
        rollout.bootstrap[1] = 20.0
        advantage, _ = advantages(rollout, 0.5, 0.5)
        # δ1 = 2 + 0.5·20 - 8 = 4,  A1 = 4;  A0 = 1 + 0.25·4 = 2
        assert floats(advantage) == [2.0, 4.0, 9.0]

    def test_an_end_at_the_last_step_hides_the_last_value(self) -> None:
        rollout = one_world(reward=[1.0, 1.0], value=[4.0, 4.0], last_value=16.0)
        rollout.done[1] = 1.0
        # δ1 = 1 - 4 = -3;  A0 = 1 + 0.5·4 - 4 - 0.25·3 = -1.75
        assert floats(advantages(rollout, 0.5, 0.5)[0]) == [-1.75, -3.0]


class TestGaussian:
    def test_log_probability_of_sampled_actions(self) -> None:
        ppo = make(CONFIG)
        with torch.no_grad():
            ppo.log_std.copy_(torch.tensor([-0.7, 0.4]))
            observation = torch.randn(5, OBSERVATIONS)
            noise = torch.randn(5, ACTIONS)
            action, mean, log_prob, _ = ppo.act(observation, observation[:, :0], noise)
        normal: Any = Normal(mean, ppo.log_std.detach().exp())
        torch.testing.assert_close(action, mean + noise * torch.tensor([-0.7, 0.4]).exp())
        torch.testing.assert_close(log_prob, normal.log_prob(action).sum(-1))

    def test_divergence_of_a_shifted_mean(self) -> None:
        """KL of two normals of equal spread σ, means d apart, is d²/(2σ²), summed over 2 actions."""
        ppo = make(replace(CONFIG, initial_std=0.5))
        rollout = play(ppo)
        rollout.mean.add_(0.1)
        stats = ppo.update(rollout, 0.9, seeded(0))
        assert stats.kl == pytest.approx(2 * 0.1**2 / (2 * 0.5**2), rel=1e-4)

    def test_divergence_of_a_learner_that_has_moved_on_from_the_policy_that_acted(self) -> None:
        """KL of equal means, old σ 0.5, new σ 1: ln 2 + 0.5²/(2·1²) - 1/2 = 0.318147 for each of 2 actions."""
        ppo = make(replace(CONFIG, initial_std=0.5))
        rollout = play(ppo)
        with torch.no_grad():
            ppo.log_std.zero_()
        assert ppo.update(rollout, 0.9, seeded(0)).kl == pytest.approx(2 * 0.318147, rel=1e-5)

    def test_divergence_after_a_step_that_changed_mean_and_spread(self) -> None:
        config = replace(CONFIG, schedule="fixed", learning_rate=0.05)
        once, twice = make(config), make(replace(config, epochs=2))
        rollout = play(once)
        before: Any = Normal(rollout.mean, once.log_std.detach().exp())
        first = once.update(rollout, 0.9, seeded(0)).kl
        with torch.no_grad():
            mean = once.act(rollout.observation, rollout.observation[..., :0], torch.zeros(ACTIONS))[1]
        after: Any = Normal(mean, once.log_std.detach().exp())
        second = float(kl_divergence(before, after).sum(-1).mean())
        assert second > 1e-3
        assert twice.update(rollout, 0.9, seeded(0)).kl == pytest.approx((first + second) / 2, rel=1e-3)


class TestLearningRate:
    """An update from its own rollout measures KL 0; a mean moved by 1 measures far more than desired."""

    def rate_after(self, config: TrainConfig, shift: float) -> float:
        ppo = make(config)
        rollout = play(ppo)
        rollout.mean.add_(shift)
        ppo.update(rollout, 0.9, seeded(0))
        assert {float(group["lr"]) for group in ppo.optimizer.param_groups} == {ppo.learning_rate}
        return ppo.learning_rate

    def test_it_rises_while_the_policy_hardly_moves(self) -> None:
        assert self.rate_after(CONFIG, 0.0) == pytest.approx(1.5e-3)

    def test_it_falls_when_the_policy_moves_too_far(self) -> None:
        assert self.rate_after(CONFIG, 1.0) == pytest.approx(1e-3 / 1.5)

    def test_it_stays_near_the_desired_divergence(self) -> None:
        shift = math.sqrt(CONFIG.desired_kl)  # KL = 2 · d²/2 at σ = 1
        assert self.rate_after(CONFIG, shift) == pytest.approx(1e-3)

    def test_it_stays_within_its_bounds(self) -> None:
        assert self.rate_after(replace(CONFIG, max_learning_rate=1.2e-3), 0.0) == pytest.approx(1.2e-3)
        assert self.rate_after(replace(CONFIG, min_learning_rate=0.9e-3), 1.0) == pytest.approx(0.9e-3)

    def test_a_fixed_one_is_left_alone(self) -> None:
        assert self.rate_after(replace(CONFIG, schedule="fixed"), 1.0) == pytest.approx(1e-3)


class TestUpdate:
    @pytest.mark.parametrize("actor", ["mlp", "gru"])
    def test_a_non_finite_gradient_ends_learning_before_it_spoils_the_weights(self, actor: Any) -> None:
        ppo = make(replace(CONFIG, actor=actor))
        rollout = play(ppo)
        rollout.reward[2, 1] = math.nan
        before = [parameter.detach().clone() for parameter in ppo.parameters()]
        with pytest.raises(LearningDivergedError, match=r"gradient norm is nan at learning rate 0\.001"):
            ppo.update(rollout, 0.9, seeded(0))
        for parameter, old in zip(ppo.parameters(), before, strict=True):
            assert torch.equal(parameter, old)

    def test_a_reward_term_that_is_nan_is_named(self) -> None:
        ppo = make(CONFIG)
        rollout = play(ppo)
        rollout.reward[2, 1] = math.nan
        rollout.reward_terms = {"alive": 1.0, "speed": math.nan}
        with pytest.raises(LearningDivergedError, match=r"^reward term speed is nan: correct it; gradient norm is nan"):
            ppo.update(rollout, 0.9, seeded(0))

    @pytest.mark.parametrize("max_grad_norm", [1e-3, 1e3])
    def test_a_huge_value_loss_leaves_the_actors_gradient_alone(self, max_grad_norm: float) -> None:
        def actor_gradients(value_weight: float) -> list[Tensor]:
            ppo = make(replace(CONFIG, max_grad_norm=max_grad_norm, value_weight=value_weight))
            ppo.update(play(ppo), 0.9, seeded(0))
            gradients = (parameter.grad for parameter in (*ppo.actor.parameters(), ppo.log_std))
            return [gradient for gradient in gradients if gradient is not None]

        usual, spiked = actor_gradients(1.0), actor_gradients(1e9)
        assert len(usual) == len(spiked) == 5, "weights and biases of two layers, and the spread"
        for left, right in zip(usual, spiked, strict=True):
            assert torch.equal(left, right)

    def test_actor_and_critic_have_a_bound_each(self) -> None:
        ppo = make(replace(CONFIG, max_grad_norm=1e-3, value_weight=1e9))
        ppo.update(play(ppo), 0.9, seeded(0))
        for part in ([*ppo.actor.parameters(), ppo.log_std], [*ppo.critic.parameters()]):
            squares = sum(float((parameter.grad**2).sum()) for parameter in part if parameter.grad is not None)
            assert math.sqrt(squares) == pytest.approx(1e-3, rel=1e-3)

    def test_clipped_share_counts_samples_far_from_the_old_policy(self) -> None:
        ppo = make(CONFIG)
        rollout = play(ppo)
        # A ratio of e^0.5 = 1.65 and e^-0.5 = 0.61 lies outside 1 ± 0.2, e^0.1 = 1.11 inside: 3 of 24 are clipped.
        rollout.log_prob[0, :2] -= 0.5
        rollout.log_prob[1, 0] += 0.5
        rollout.log_prob[2, 0] -= 0.1
        assert ppo.update(rollout, 0.9, seeded(0)).clipped == pytest.approx(3 / 24)

    def test_it_improves_a_trivial_objective(self) -> None:
        """One-step episodes of one state that reward actions near 1: the mean goes there, the spread shrinks."""
        config = TrainConfig(
            num_envs=64, horizon=2, epochs=4, minibatches=2, hidden=(8,), learning_rate=3e-3, entropy_weight=0.0
        )
        ppo, generator = make(config), seeded(2)
        rollout = Rollout(config, OBSERVATIONS, CRITIC, ACTIONS, 0)
        rollout.observation.fill_(1.0)
        rollout.done.fill_(1.0)

        def collect() -> float:
            noise = torch.randn(rollout.action.shape, generator=generator)
            with torch.no_grad():
                rollout.action[:], rollout.mean[:], rollout.log_prob[:], _ = ppo.act(
                    rollout.observation, rollout.hidden[:0], noise
                )
                rollout.log_std.copy_(ppo.log_std)
                rollout.value.copy_(ppo.value(rollout.critic))
            rollout.reward.copy_(-((rollout.action - 1.0) ** 2).sum(-1))
            return float(rollout.reward.mean())

        first = last = collect()
        for _ in range(60):
            ppo.update(rollout, 0.9, generator)
            last = collect()
        assert first < -2.0, "two actions of variance 1 around 0 cost about 2 · (1 + 1)"
        assert last > -0.6
        torch.testing.assert_close(rollout.mean[0, 0], torch.ones(ACTIONS), atol=0.3, rtol=0.0)


class TestRecurrentUpdate:
    """An actor that is run as it was collected reproduces the means it acted by, hence KL 0."""

    def divergence(self, rollout: Rollout, minibatches: int = 1) -> float:
        # A vanishing step, so that later minibatches still see the network that collected.
        config = replace(CONFIG, actor="gru", minibatches=minibatches, learning_rate=1e-12, schedule="fixed")
        return make(config).update(rollout, 0.9, seeded(0)).kl

    @pytest.fixture
    def rollout(self) -> Rollout:
        return play(make(replace(CONFIG, actor="gru")))

    @pytest.mark.parametrize("minibatches", [1, 2, 4])
    def test_sequences_run_from_their_stored_state_and_forget_at_ends(self, rollout: Rollout, minibatches: int) -> None:
        assert self.divergence(rollout, minibatches) == pytest.approx(0.0, abs=1e-9)

    def test_another_first_state_would_show(self, rollout: Rollout) -> None:
        rollout.hidden.zero_()
        assert self.divergence(rollout) > 1e-8

    def test_a_missed_end_would_show(self, rollout: Rollout) -> None:
        rollout.done.zero_()
        assert self.divergence(rollout) > 1e-8


def test_a_rollout_survives_its_state_dict() -> None:
    rollout = play(make(CONFIG))
    copy = Rollout(CONFIG, OBSERVATIONS, CRITIC, ACTIONS, 0)
    copy.load_state_dict(rollout.state_dict())
    names = set(rollout.state_dict())
    assert {"observation", "critic", "action", "bootstrap", "done", "hidden", "last_value"} <= names
    for name in names:
        theirs: Tensor = getattr(rollout, name)
        assert torch.equal(getattr(copy, name), theirs), name
