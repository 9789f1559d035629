"""Rollouts of fine-tuning: two rewards that are never added up, and a leash to the frozen reference.

The task's reward keeps the critic that it was learned with; the learned one has a critic of its own. The advantages of
both are standardised, each by itself, before they are mixed: A = (1 - s) A_task + s A_learned. So the scale of a reward
model, which answers leave open, does not decide how much it counts. The share is s = w / (1 + w) for the weight w, and
less where the task got worse (`physai.rlhf.finetune.constraint`).

The leash is a term β KL(π ‖ π_ref) of the loss. The exploration noise stays the reference's, so that for Gaussians
KL = Σ (μ - μ_ref)² / (2 σ²), and no smaller noise hides that the mean got worse. β doubles where the divergence exceeds
1.5 times its target, and halves where it is below the target over 1.5 (Schulman et al. 2017, section 4).
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from physai.rlhf.finetune.scoring import PreferenceScorer, Reference
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.rlhf.reward_model.reward import ScoringCollector
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout, advantages, standardised
from physai.train.collectors.collector import Learner, StepRecords
from physai.train.models.numpy_policy import seeded
from physai.train.models.policy_graph import mlp
from physai.train.runners.runner import PlayedSource, empty_rollout
from physai.train.settings.config import TrainConfig

MAX_BETA, MIN_BETA = 1e3, 1e-3
CRITIC_LEARNING_RATE = 3e-3
FORESEEN = 0.5
"""Share of the variance of the returns below which a critic does not know the reward."""


@dataclass(frozen=True, kw_only=True)
class Leash:
    """Limit of the distance between the fine-tuned policy and the reference."""

    target_kl: float
    """Divergence per step that β aims at [nat]."""
    initial_beta: float = 0.1
    stop_factor: float = 4.0
    """Multiple of the target at which a run ends."""


class LeashedCollector(ScoringCollector):
    """Gives rollouts of a source the advantage of the learned reward and what the reference would have done."""

    def __init__(
        self, task: Task, config: TrainConfig, source: PlayedSource, *, model: RewardEnsemble, leash: Leash
    ) -> None:
        """Plays nothing yet; the learner at the first rollout is the reference.

        Args:
            task: what is played.
            config: settings of the run.
            source: see `ScoringCollector`.
            model: the reward model.
            leash: how far to go.
        """
        super().__init__(task, config, source, model=model)
        self.leash = leash
        self.share = 0.0
        """s, what the learned reward counts."""
        self.beta = leash.initial_beta
        self._reference: Reference | None = None
        self.critic = mlp([task.critic_size, *config.hidden, 1], config.activation, 1.0)
        """Values of the learned reward."""
        self._optimiser: Any = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_LEARNING_RATE)
        # Not that of the worlds' noise, which may be drawn in another process.
        self._generator = seeded(config.seed + 2)
        self._usual: Tensor | None = None
        """Mean learned reward of a step of the reference."""
        self.explained = 0.0
        """Share of the latest variance of its returns that the critic of the learned reward foresaw."""

    def warm_up(self, learner: Learner, rollouts: int) -> bool:
        """Fits the critic of the learned reward, which knows nothing, to rollouts of the reference.

        The learner's own critic is fitted, too, if it foresees little of the task's reward: one that a run was begun
        without, because it was of another size, or one that learned another reward.

        Returns:
            Whether the learner's critic was fitted.
        """
        self.learner.follow(learner)
        rollout = empty_rollout(self.learner.graph, self.task, self.config.segmented())
        if not learner.critic_normaliser.count:
            self._gather(rollout)
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

    def collect(self, rollout: Rollout) -> Rollout:
        """Fills the rollout with the next steps of every world, their scores, and its summary of them."""
        played, reference = self._gather(rollout)
        rollout.second_advantage = self._second(rollout, played)
        rollout.second_share = self.share
        rollout.reference_mean = played.scores["reference_mean"]
        rollout.reference_weight = self.beta
        self.kl = reference.divergence(rollout.mean, rollout.reference_mean)
        if self.kl > 1.5 * self.leash.target_kl:
            self.beta = min(2.0 * self.beta, MAX_BETA)
        elif self.kl < self.leash.target_kl / 1.5:
            self.beta = max(0.5 * self.beta, MIN_BETA)
        rollout.reward_terms |= {"kl": self.kl, "kl_weight": self.beta, "share": self.share}
        return rollout

    def _gather(self, rollout: Rollout) -> tuple[StepRecords, Reference]:
        """Fills the rollout; returns what was played, with its scores, and the reference."""
        if self._reference is None:
            assert self.model is not None
            self._reference = Reference(self.learner)
            self.source.score_with(PreferenceScorer(self.model, self._reference))
        return self.source.gather(rollout), self._reference

    def _second(self, rollout: Rollout, played: StepRecords) -> Tensor:
        """Standardised advantages of the learned reward, (T, N); its critic learns from them."""
        normaliser = self.learner.critic_normaliser
        second = copy.copy(rollout)
        with torch.no_grad():
            second.reward = self.liked(rollout, played, played.scores["learned"])
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
        return self.config.gamma(self.task.contract.timing.control_dt)

    def _fit(self, critic: nn.Module, optimiser: Any, inputs: Tensor, target: Tensor) -> None:
        for _ in range(self.config.epochs):
            for rows in torch.randperm(len(target), generator=self._generator).chunk(self.config.minibatches):
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
