"""The reward of preference learning: what people like, and what they cannot change.

Per step of Δt with discount γ, for the policy π and its frozen reference π_ref:

    r = w r̂ Δt + (k + λ) r_task - C [failed] - β (log π(a|o) - log π_ref(a|o))

- r̂ ∈ [0, r̂_max] is the learned reward per second; its scale is frozen with each fit.
- C = w r̂_max Δt / (1 - γ) is the most that the learned reward can ever pay, so no preference is worth a failure.
- λ ≥ 0 rises while the task is done worse than by the reference less a tolerance, and falls while it is not (dual
  ascent on a Lagrangian; Tessler et al. 2019): what raters like is chosen among the ways that do the task.
- β follows the measured divergence (Ziegler et al. 2019, section 2.2): β ← β (1 + K clip(KL / target - 1, ±0.2)).
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import LOG_SQRT_2PI, Rollout
from physai.train.config import TrainConfig
from physai.train.preferences.ensemble import MAX_RATE, RewardEnsemble
from physai.train.runners.collector import Collector, Learner, Played

KL_GAIN = 0.5
"""K: how fast β follows, per iteration."""
KL_CLIP = 0.2
MAX_BETA, MIN_BETA = 1e3, 1e-6
MAX_MULTIPLIER = 100.0


@dataclass(frozen=True, kw_only=True)
class Leash:
    """How far fine-tuning may go from the reference, and how much worse it may do the task."""

    target_kl: float
    """Divergence per step that β aims at [nat]."""
    initial_beta: float = 0.05
    stop_factor: float = 4.0
    """Multiple of the target at which a run ends."""
    reward_tolerance: float = 0.05
    """Share of the reference's task reward that may be lost."""
    success_tolerance: float = 0.02
    """Share of successes that may be lost."""
    multiplier_rate: float = 5.0
    """Rise of λ per iteration and share of the reference's task reward that is lacking."""


class Reference:
    """The frozen policy that π may not leave."""

    def __init__(self, learner: Learner, worlds: int) -> None:
        """Copies graph and exploration noise."""
        self._graph = copy.deepcopy(learner.graph)
        self._log_std = learner.ppo.log_std.detach().clone()
        self._hidden = torch.zeros(worlds, int(getattr(self._graph.actor, "state_size", 0)))

    @torch.no_grad()
    def compare(self, rollout: Rollout, log_std: Tensor) -> tuple[Tensor, float]:
        """Log-probability ratio of the actions, (T, N), and the mean divergence KL(π ‖ π_ref) per step [nat].

        For Gaussians KL = Σ log(σ_ref / σ) + (σ² + (μ - μ_ref)²) / (2 σ_ref²) - 1/2.
        """
        mean = self._means(rollout)
        deviation = (rollout.action - mean) * torch.exp(-self._log_std)
        log_prob = (-0.5 * deviation * deviation - self._log_std - LOG_SQRT_2PI).sum(-1)
        variance, shift = torch.exp(2.0 * (log_std - self._log_std)), (rollout.mean - mean) * torch.exp(-self._log_std)
        kl = (self._log_std - log_std - 0.5 + 0.5 * (variance + shift * shift)).sum(-1).mean()
        return rollout.log_prob - log_prob, float(kl)

    def _means(self, rollout: Rollout) -> Tensor:
        observation = self._graph.normaliser(rollout.raw_observation.flatten(0, 1)).view_as(rollout.raw_observation)
        if not self._hidden.shape[1]:
            return self._graph.actor(observation.flatten(0, 1), self._hidden[:0])[0].view_as(rollout.mean)
        means: list[Tensor] = []
        for t in range(len(observation)):
            mean, hidden = self._graph.actor(observation[t], self._hidden)
            means.append(mean)
            self._hidden = hidden * (1.0 - rollout.done[t, :, None])
        return torch.stack(means)


class PreferenceCollector(Collector):
    """A collector whose rollouts carry the learned reward and the task's."""

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        learner: Learner,
        *,
        num_threads: int,
        model: RewardEnsemble | None = None,
        weight: float = 1.0,
        task_weight: float = 1.0,
        leash: Leash | None = None,
        before: Callable[["PreferenceCollector"], None] | None = None,
    ) -> None:
        """Steps worlds as `Collector` does.

        Args:
            task: what is played.
            config: settings of the run.
            learner: the one that learns.
            num_threads: threads of the engine.
            model: the reward model; may be given later.
            weight: w, of the learned reward.
            task_weight: k, of the task's reward.
            leash: how far to go from the learner as it is at the first rollout; None for as far as it likes.
            before: called before each rollout, for instance to ask and fit.
        """
        super().__init__(task, config, learner, num_threads=num_threads)
        self.model = model
        self.weight, self.task_weight, self.leash = weight, task_weight, leash
        self._before = before
        self._reference: Reference | None = None
        step_dt = self.env.step_dt
        self.failure_cost = weight * MAX_RATE * step_dt / (1.0 - config.gamma(task.contract.timing.control_dt))
        """C."""
        self.beta = leash.initial_beta if leash else 0.0
        self.multiplier = 0.0
        """λ."""
        self.kl = 0.0
        """Latest mean divergence from the reference per step [nat]."""
        self.task_rate = self.learned_rate = 0.0
        """Latest mean rewards per second, with exploration."""
        self.floor: tuple[float, float] | None = None
        """Task reward per second, and success, below which λ rises."""
        self.iteration = 0

    def play(self, rollout: Rollout) -> Played:
        if self._before is not None:
            self._before(self)
        if self.leash is not None and self._reference is None:
            self._reference = Reference(self.learner, self.config.num_envs)
        played = super().play(rollout)
        self.iteration += 1
        self._shape(rollout, played)
        return played

    @torch.no_grad()
    def _shape(self, rollout: Rollout, played: Played) -> None:
        """Replaces the rollout's reward."""
        step_dt = self.env.step_dt
        task = rollout.reward.clone()
        self.task_rate = float(task.mean()) / step_dt
        failed = rollout.done.bool() & ~played.cut
        reward = (self.task_weight + self.multiplier) * task - self.failure_cost * failed
        if self.model is not None:
            learned = self.model.reward(rollout.raw_critic, rollout.action)
            self.learned_rate = float(learned.mean())
            reward += self.weight * step_dt * learned
        if self._reference is not None and self.leash is not None:
            ratio, self.kl = self._reference.compare(rollout, self.learner.ppo.log_std)
            reward -= self.beta * ratio
            self._adapt(self.leash)
        rollout.reward.copy_(reward)
        rollout.reward_terms |= {
            "preferences": self.learned_rate,
            "kl": self.kl,
            "kl_weight": self.beta,
            "task_multiplier": self.multiplier,
        }

    def _adapt(self, leash: Leash) -> None:
        """Moves β and λ."""
        error = min(max(self.kl / leash.target_kl - 1.0, -KL_CLIP), KL_CLIP)
        self.beta = min(max(self.beta * (1.0 + KL_GAIN * error), MIN_BETA), MAX_BETA)
        success = self.success if len(self.judged) else None
        if self.floor is None:
            # The first rollout is the reference's own.
            lost = leash.reward_tolerance * abs(self.task_rate)
            self.floor = self.task_rate - lost, (success or 0.0) - leash.success_tolerance
        least, least_success = self.floor
        lacking = (least - self.task_rate) / max(abs(least), 1e-6)
        if success is not None:
            lacking = max(lacking, least_success - success)
        self.multiplier = min(max(self.multiplier + leash.multiplier_rate * lacking, 0.0), MAX_MULTIPLIER)

    @property
    def stop_reason(self) -> str | None:
        """Why the run must end: the policy left the reference; None if it has not."""
        leash = self.leash
        if leash is None or self.kl <= leash.stop_factor * leash.target_kl:
            return None
        return f"KL {self.kl:.3g} nat exceeds {leash.stop_factor:g} times its target {leash.target_kl:g}"
