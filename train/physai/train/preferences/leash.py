"""Rollouts of fine-tuning: two rewards that are never added up, and a leash to the frozen reference.

The task's reward keeps the critic that it was learned with; the learned one has a critic of its own. The advantages of
both are standardised, each by itself, before they are mixed: A = (1 - s) A_task + s A_learned. So the scale of a reward
model, which answers leave open, does not decide how much it counts. The share is s = w / (1 + w) for the weight w, and
less where the task got worse (`physai.train.preferences.constraint`).

The leash is a term β KL(π ‖ π_ref) of the loss. The exploration noise stays the reference's, so that for Gaussians
KL = Σ (μ - μ_ref)² / (2 σ²), and no smaller noise hides that the mean got worse. β doubles where the divergence exceeds
1.5 times its target, and halves where it is below the target over 1.5 (Schulman et al. 2017, section 4).
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout, advantages, standardised
from physai.train.config import TrainConfig
from physai.train.models.policy_graph import mlp
from physai.train.preferences.ensemble import RewardEnsemble
from physai.train.preferences.reward import ScoringCollector
from physai.train.runners.collector import Learner, Played
from physai.train.runners.runner import empty_rollout

MAX_BETA, MIN_BETA = 1e3, 1e-3
CRITIC_LEARNING_RATE = 3e-3
FORESEEN = 0.5
"""Share of the variance of the returns below which a critic does not know the reward."""


@dataclass(frozen=True, kw_only=True)
class Leash:
    """How far fine-tuning may go from the reference."""

    target_kl: float
    """Divergence per step that β aims at [nat]."""
    initial_beta: float = 0.1
    stop_factor: float = 4.0
    """Multiple of the target at which a run ends."""


class Reference:
    """The frozen policy that π may not leave."""

    def __init__(self, learner: Learner, worlds: int) -> None:
        """Copies graph and exploration noise."""
        self._graph = copy.deepcopy(learner.graph)
        self._log_std = learner.ppo.log_std.detach().clone()
        self._hidden = torch.zeros(worlds, int(getattr(self._graph.actor, "state_size", 0)))

    @torch.no_grad()
    def means(self, rollout: Rollout) -> Tensor:
        """What it would have done, with its own statistics of observations, (T, N, A)."""
        observation = self._graph.normaliser(rollout.raw_observation.flatten(0, 1)).view_as(rollout.raw_observation)
        if not self._hidden.shape[1]:
            return self._graph.actor(observation.flatten(0, 1), self._hidden[:0])[0].view_as(rollout.mean)
        means: list[Tensor] = []
        for t in range(len(observation)):
            mean, hidden = self._graph.actor(observation[t], self._hidden)
            means.append(mean)
            self._hidden = hidden * (1.0 - rollout.done[t, :, None])
        return torch.stack(means)

    def divergence(self, mean: Tensor, reference: Tensor) -> float:
        """Mean of KL(π ‖ π_ref) per step [nat], for policies that explore alike."""
        away = (mean - reference) * torch.exp(-self._log_std)
        return float(0.5 * (away * away).sum(-1).mean())


class LeashedCollector(ScoringCollector):
    """A collector whose rollouts carry the task's reward, the advantage of the learned one, and the reference."""

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        learner: Learner,
        *,
        num_threads: int,
        model: RewardEnsemble,
        leash: Leash,
    ) -> None:
        """Steps worlds as `Collector` does; the learner at the first rollout is the reference.

        Args:
            task: what is played.
            config: settings of the run.
            learner: the one that learns.
            num_threads: threads of the engine.
            model: the reward model.
            leash: how far to go.
        """
        super().__init__(task, config, learner, num_threads=num_threads, model=model)
        self.leash = leash
        self.share = 0.0
        """s, what the learned reward counts."""
        self.beta = leash.initial_beta
        self._reference: Reference | None = None
        self.critic = mlp([task.critic_size, *config.hidden, 1], config.activation, 1.0)
        """Values of the learned reward."""
        self._optimiser: Any = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_LEARNING_RATE)
        self._usual: Tensor | None = None
        """Mean learned reward of a step of the reference."""
        self.explained = 0.0
        """Share of the latest variance of its returns that the critic of the learned reward foresaw."""
        self._played: Played | None = None

    def warm_up(self, learner: Learner, rollouts: int) -> bool:
        """Fits the critic of the learned reward, which knows nothing, to rollouts of the reference.

        The learner's own critic is fitted, too, if it foresees little of the task's reward: one that a run was begun
        without, because it was of another size, or one that learned another reward.

        Returns:
            Whether the learner's critic was fitted.
        """
        self.learner.follow(learner)
        rollout = empty_rollout(self.learner.graph, self.env.task, self.config.segmented())
        if not learner.critic_normaliser.count:
            self.play(rollout)
            assert self._reference is not None
            self._reference.means(rollout)  # its memory goes on with the worlds
            learner.critic_normaliser.update(rollout.raw_critic.flatten(0, 1))
            self.learner.follow(learner)
        optimiser: Any = None
        for number in range(rollouts):
            self.collect(rollout)
            target = advantages(rollout, self._gamma, self.config.gae_lambda)[1]
            if number == 0 and foreseen(rollout.value, target) < FORESEEN:
                optimiser = torch.optim.Adam(learner.ppo.critic.parameters(), lr=CRITIC_LEARNING_RATE)
            if optimiser is not None:
                self._fit(learner.ppo.critic, optimiser, rollout.critic.flatten(0, 1), target.flatten())
                self.learner.follow(learner)
        return optimiser is not None

    def play(self, rollout: Rollout) -> Played:
        if self._reference is None:
            self._reference = Reference(self.learner, self.config.num_envs)
        self._played = super().play(rollout)
        return self._played

    def collect(self, rollout: Rollout) -> Rollout:
        super().collect(rollout)
        played, reference = self._played, self._reference
        assert played is not None
        assert reference is not None
        rollout.second_advantage = self._second(rollout, played)
        rollout.second_share = self.share
        rollout.reference_mean = reference.means(rollout)
        rollout.reference_weight = self.beta
        self.kl = reference.divergence(rollout.mean, rollout.reference_mean)
        if self.kl > 1.5 * self.leash.target_kl:
            self.beta = min(2.0 * self.beta, MAX_BETA)
        elif self.kl < self.leash.target_kl / 1.5:
            self.beta = max(0.5 * self.beta, MIN_BETA)
        rollout.reward_terms |= {"kl": self.kl, "kl_weight": self.beta, "share": self.share}
        return rollout

    def _second(self, rollout: Rollout, played: Played) -> Tensor:
        """Standardised advantages of the learned reward, (T, N); its critic learns from them."""
        normaliser = self.learner.critic_normaliser
        second = copy.copy(rollout)
        with torch.no_grad():
            second.reward = self.liked(rollout, played)
            if self._usual is None:
                self._usual = second.reward.mean()
            # Answers leave the zero of a reward open; about this one values are small, and learned soon.
            second.reward = second.reward - self._usual
            second.value = self.critic(rollout.critic).squeeze(-1)
            second.last_value = self.critic(normaliser(played.last_critic)).squeeze(-1)
            second.bootstrap = torch.zeros_like(rollout.bootstrap)
            if len(played.final_critic):
                second.bootstrap[played.cut] = self.critic(normaliser(played.final_critic)).squeeze(-1)
            advantage, target = advantages(second, self._gamma, self.config.gae_lambda)
        self.explained = 1.0 - float((target - second.value).var() / target.var().clamp(min=1e-9))
        self._fit(self.critic, self._optimiser, rollout.critic.flatten(0, 1), target.flatten())
        return standardised(advantage, None)

    @property
    def _gamma(self) -> float:
        return self.config.gamma(self.env.task.contract.timing.control_dt)

    def _fit(self, critic: nn.Module, optimiser: Any, inputs: Tensor, target: Tensor) -> None:
        for _ in range(self.config.epochs):
            for rows in torch.randperm(len(target), generator=self.generator).chunk(self.config.minibatches):
                loss = (critic(inputs[rows]).squeeze(-1) - target[rows]).square().mean()
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                torch.nn.utils.clip_grad_norm_(critic.parameters(), self.config.max_grad_norm)
                optimiser.step()

    @property
    def stop_reason(self) -> str | None:
        """Why the run must end: the policy left the reference; None if it has not."""
        leash = self.leash
        if self.kl <= leash.stop_factor * leash.target_kl:
            return None
        return f"KL {self.kl:.3g} nat exceeds {leash.stop_factor:g} times its target {leash.target_kl:g}"


def foreseen(value: Tensor, target: Tensor) -> float:
    """Share of the variance of returns that a critic foresaw; negative where their mean would have been better."""
    return 1.0 - float((target - value).square().mean() / target.var().clamp(min=1e-9))
