"""The reward of learning from preferences: what people like, and what it cannot buy.

Per step of Δt with discount γ: r = r̂ Δt - C [failed]. r̂ ∈ [0, r̂_max] is the learned reward per second, whose scale is
frozen with each fit. C = r̂_max Δt / (1 - γ) is the most that it can ever pay, so no preference is worth a failure.

A policy that learns from preferences alone is paid b (r̂ / b)³ instead, at most r̂_max, with the rate b of the best
steps. Which of two motions is better says little of how much: a level pole was worth 84 to 91 % of an upright one to
models of 200 answers, and 17 % to the task that answered. And at first, failing costs only the reward that the policy
would have had; the cost rises to C in the second half of a run. With all of it from the start, a policy with the true
reward in place of the learned one did not try what a swing-up needs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout
from physai.train.config import TrainConfig
from physai.train.preferences.ensemble import BEST_RATE, MAX_RATE, RewardEnsemble
from physai.train.runners.collector import Collector, Learner, Played

SHARPNESS = 3
"""Power of the learned reward, relative to the best one, that a policy which learns from it alone is paid."""


class ScoringCollector(Collector):
    """A collector that also keeps how much people would like each step."""

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        learner: Learner,
        *,
        num_threads: int,
        model: RewardEnsemble | None = None,
    ) -> None:
        """Steps worlds as `Collector` does.

        Args:
            task: what is played.
            config: settings of the run.
            learner: the one that learns.
            num_threads: threads of the engine.
            model: the reward model; may be given later.
        """
        super().__init__(task, config, learner, num_threads=num_threads)
        self.model = model
        self.failure_cost = MAX_RATE * self.env.step_dt / (1.0 - config.gamma(task.contract.timing.control_dt))
        """C, the most that a failure ever costs."""
        self.kl = 0.0
        """Latest mean divergence from the reference per step [nat]; 0 without one."""

    @torch.no_grad()
    def liked(self, rollout: Rollout, played: Played) -> Tensor:
        """The learned reward of each step, (T, N); without a model only the cost of failures."""
        reward = -self.cost * (rollout.done.bool() & ~played.cut)
        if self.model is not None:
            learned = self.model.reward(rollout.raw_critic, rollout.action)
            rollout.reward_terms["preferences"] = float(learned.mean())
            reward = reward + self.env.step_dt * self.paid(learned)
        return reward

    @property
    def cost(self) -> float:
        """What a failure costs now."""
        return self.failure_cost

    def paid(self, learned: Tensor) -> Tensor:
        """What a learned reward is worth, both per second."""
        return learned


class PreferenceCollector(ScoringCollector):
    """A collector whose rollouts carry the learned reward in place of the task's."""

    before: Callable[["PreferenceCollector"], None] | None = None
    """Called before each rollout, for instance to ask and fit."""
    iteration = 0

    @property
    def cost(self) -> float:
        return self.failure_cost * min(1.0, max(0.0, 2.0 * self.iteration / self.config.iterations - 1.0))

    def paid(self, learned: Tensor) -> Tensor:
        return (BEST_RATE * (learned / BEST_RATE) ** SHARPNESS).clamp(max=MAX_RATE)

    def play(self, rollout: Rollout) -> Played:
        if self.before is not None:
            self.before(self)
        played = super().play(rollout)
        self.iteration += 1
        rollout.reward.copy_(self.liked(rollout, played))
        return played
