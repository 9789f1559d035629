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
from typing import Any

from torch import Tensor

from physai.rlhf.reward_model.ensemble import BEST_RATE, MAX_RATE, RewardEnsemble
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout
from physai.train.collectors.collector import StepRecords
from physai.train.runners.runner import PlayedSource
from physai.train.settings.config import TrainConfig

SHARPNESS = 3
"""Power of the learned reward, relative to the best one, that a policy which learns from it alone is paid."""


class ScoringCollector:
    """A source of rollouts that takes them from another one, and has a learned reward for them."""

    def __init__(
        self, task: Task, config: TrainConfig, source: PlayedSource, *, model: RewardEnsemble | None = None
    ) -> None:
        """Plays nothing yet.

        Args:
            task: what is played.
            config: settings of the run.
            source: what plays: worlds in this process, or generators.
            model: the reward model; may be given later.
        """
        self.task, self.config, self.model = task, config, model
        self.source, self.learner = source, source.learner
        self.step_dt = task.contract.timing.control_dt * config.action_repeat
        self.failure_cost = MAX_RATE * self.step_dt / (1.0 - config.gamma(task.contract.timing.control_dt))
        """C, the most that a failure ever costs."""
        self.kl = 0.0
        """Latest mean divergence from the reference per step [nat]; 0 without one."""

    @property
    def success(self) -> float:
        """Share of the latest judged commands or episodes that succeeded, with exploration on."""
        return self.source.success

    @property
    def diverged(self) -> int:
        """Episodes that ended because the physics diverged, since this was built."""
        return self.source.diverged

    def state_dict(self) -> dict[str, Any]:
        """State of the worlds."""
        return self.source.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state_dict` left off."""
        self.source.load_state_dict(state)

    def begin_beside(self, state: dict[str, Any]) -> None:
        """Begins episodes that were not played yet, as one rank more than those that saved the state."""
        self.source.begin_beside(state)

    def liked(self, rollout: Rollout, played: StepRecords, learned: Tensor | None) -> Tensor:
        """Pay of each step, given its learned reward per second, (T, N); without one the cost of failures."""
        reward = -self.cost * (rollout.done.bool() & ~played.cut)
        if learned is not None:
            rollout.reward_terms["preferences"] = float(learned.mean())
            reward = reward + self.step_dt * self.paid(learned)
        return reward

    @property
    def cost(self) -> float:
        """Cost of a failure now."""
        return self.failure_cost

    def paid(self, learned: Tensor) -> Tensor:
        """Worth of a learned reward, both per second."""
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

    def collect(self, rollout: Rollout) -> Rollout:
        """Fills the rollout with the next steps of every world, and its summary of them."""
        if self.before is not None:
            self.before(self)
        played = self.source.gather(rollout)
        self.iteration += 1
        learned = None if self.model is None else self.model.reward(rollout.raw_critic, rollout.action)
        rollout.reward.copy_(self.liked(rollout, played, learned))
        return rollout
