"""Proximal policy optimisation (Schulman et al. 2017), the whole algorithm in this file.

With generalised advantage estimation (Schulman et al. 2016), a learning rate that follows the measured KL divergence,
and a critic that may see more than the actor. Shapes: T steps, N worlds, O observations, A actions.
"""

import functools
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from physai.sdk.base.errors import PhysaiError
from physai.train.models.moments import Peers, moments
from physai.train.models.policy_graph import mlp
from physai.train.settings.config import TrainConfig

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class LearningDivergedError(PhysaiError):
    """A loss or gradient became non-finite; the last checkpoint is from before."""


class Rollout:
    """T steps of N worlds, filled in order and reused; all float32."""

    def __init__(
        self,
        config: TrainConfig,
        observations: int,
        critic: int,
        actions: int,
        hidden: int,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocates for `config.horizon` steps of `config.num_envs` worlds on a device."""
        zeros = functools.partial(torch.zeros, device=device)
        steps, worlds = config.horizon, config.num_envs
        self.observation = zeros(steps, worlds, observations)
        """Normalised observations the actor saw, (T, N, O)."""
        self.critic = zeros(steps, worlds, critic)
        """Normalised critic inputs, (T, N, C)."""
        self.raw_observation = torch.zeros_like(self.observation)
        """Observations before normalisation, (T, N, O)."""
        self.raw_critic = torch.zeros_like(self.critic)
        """Critic inputs before normalisation, (T, N, C)."""
        self.action = zeros(steps, worlds, actions)
        """Sampled network outputs before clipping, (T, N, A)."""
        self.mean = zeros(steps, worlds, actions)
        self.log_std = zeros(actions)
        """Logarithm of the exploration noise the actions were sampled with, (A,)."""
        self.log_prob = zeros(steps, worlds)
        self.value = zeros(steps, worlds)
        self.reward = zeros(steps, worlds)
        self.bootstrap = zeros(steps, worlds)
        """Value of the state a time-out cut off, 0 elsewhere, (T, N)."""
        self.done = zeros(steps, worlds)
        """1 where the episode ended with this step, (T, N)."""
        self.hidden = zeros(worlds, hidden)
        """Recurrent state before the first step, (N, H)."""
        self.last_value = zeros(worlds)
        """Values of the states after the last step, (N,)."""
        self.importance: Tensor | None = None
        """What each sample counts, (T, N), where some were played with older weights; None if each counts 1."""
        self.second_advantage: Tensor | None = None
        """Standardised advantages of a second reward, (T, N), if there is one."""
        self.second_share = 0.0
        """What they count, in [0, 1]; those of `reward` count the rest."""
        self.reference_mean: Tensor | None = None
        """Means of a policy that explores alike and that the actor must stay near, (T, N, A), if there is one."""
        self.reference_weight = 0.0
        """Weight of the divergence from it in the loss."""
        self.asynchronous: dict[str, float] = {}
        """How old the weights were that played these steps, and what became of that; empty if they were the present."""
        self.reward_terms: dict[str, float] = {}
        """Mean of each weighted reward term, per second."""
        self.metrics: dict[str, float] = {}
        """Mean of the task's metrics over what was judged in these steps."""

    def state_dict(self) -> dict[str, Tensor]:
        """All tensors by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes over the tensors of another rollout of the same shape."""
        for name, value in self.state_dict().items():
            value.copy_(state[name])


def advantages(rollout: Rollout, gamma: float, gae_lambda: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and value targets, both (T, N).

    A_t = δ_t + γ λ (1 - done_t) A_{t+1} with δ_t = r_t + γ V(s_{t+1}) - V(s_t). Where an episode ended, V(s_{t+1}) is
    0 after a failure and the value of the cut-off state after a time-out.
    """
    steps = rollout.reward.shape[0]
    alive = 1.0 - rollout.done
    following = torch.cat([rollout.value[1:], rollout.last_value[None]]) * alive + rollout.bootstrap
    delta = rollout.reward + gamma * following - rollout.value
    decay = gamma * gae_lambda * alive
    result = torch.empty_like(delta)
    running = torch.zeros_like(rollout.last_value)
    for t in range(steps - 1, -1, -1):
        running = delta[t] + decay[t] * running
        result[t] = running
    return result, result + rollout.value


def standardised(advantage: Tensor, peers: Peers | None) -> Tensor:
    """Advantages less their mean over their standard deviation, both over the samples of all peers."""
    if peers is None:
        return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    count = advantage.numel() * peers.size
    mean, variance = (x.to(advantage.dtype) for x in moments(advantage.reshape(-1, 1), peers))
    return (advantage - mean) / (torch.sqrt(variance * (count / (count - 1))) + 1e-8)


def orders(steps: int, worlds: int, minibatches: int, generators: Sequence[torch.Generator]) -> Sequence[Tensor]:
    """Draws what goes into each minibatch.

    Each generator shuffles an equal share of the worlds, and every minibatch takes as much of each share. A process
    that draws for all shares thus forms the minibatches that as many processes form together, each of its own share.

    Args:
        steps: number of steps T, 1 where whole sequences are drawn.
        worlds: number of worlds N, a multiple of the number of generators.
        minibatches: how many to form.
        generators: one per share of the worlds, in their order.

    Returns:
        For each minibatch the numbers t · N + w of steps t of worlds w, int64.
    """
    share = worlds // len(generators)
    drawn = [torch.randperm(steps * share, generator=g, device=g.device).chunk(minibatches) for g in generators]
    if len(drawn) == 1:
        return drawn[0]
    return [
        torch.cat([piece // share * worlds + piece % share + number * share for number, piece in enumerate(pieces)])
        for pieces in zip(*drawn, strict=True)
    ]


@dataclass
class UpdateStats:
    """Means over the minibatches of one update."""

    policy_loss: float = 0.0
    value_loss: float = 0.0
    entropy: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    """Share of samples whose probability ratio was clipped."""


class PPO(nn.Module):
    """Actor, critic, exploration noise and their optimiser."""

    _rate: Tensor

    def __init__(self, actor: nn.Module, critic_size: int, actions: int, config: TrainConfig) -> None:
        """Takes over an actor (see `physai.train.models.policy_graph.Actor`); builds a critic like it beside it."""
        super().__init__()
        self.config = config
        self.actor = actor
        self.critic = mlp([critic_size, *config.hidden, 1], config.activation, 1.0)
        self.log_std = nn.Parameter(torch.full((actions,), math.log(config.initial_std)))
        self.to(next(actor.parameters()).device)
        # A tensor, so that the schedule changes it where the networks are.
        self.register_buffer("_rate", torch.tensor(config.learning_rate, device=self.log_std.device), persistent=False)
        self.optimizer: Any = torch.optim.Adam(self.parameters(), lr=self._rate, fused=True)

    def act(self, observation: Tensor, hidden: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Samples actions.

        Args:
            observation: normalised, (N, O).
            hidden: recurrent state, (N, H).
            noise: standard normal numbers, (N, A).

        Returns:
            Sampled action (N, A), its mean (N, A), its log-probability (N,), next recurrent state (N, H).
        """
        mean, hidden = self.actor(observation, hidden)
        action = mean + noise * self.log_std.exp()
        log_prob = (-0.5 * noise * noise - self.log_std - LOG_SQRT_2PI).sum(-1)
        return action, mean, log_prob, hidden

    def value(self, critic_input: Tensor) -> Tensor:
        """State values, shape of the input without its last axis."""
        return self.critic(critic_input).squeeze(-1)

    def update(
        self, rollout: Rollout, gamma: float, *generators: torch.Generator, peers: Peers | None = None
    ) -> UpdateStats:
        """Improves actor and critic on one rollout.

        Args:
            rollout: the collected steps.
            gamma: discount per step.
            generators: sources of the minibatches' order; see `orders`.
            peers: processes that do the same with rollouts of their own, so that all learn from all rollouts.

        Raises:
            LearningDivergedError: a gradient is not finite.
        """
        config = self.config
        advantage, target = advantages(rollout, gamma, config.gae_lambda)
        advantage = standardised(advantage, peers)
        if rollout.second_advantage is not None:
            share = rollout.second_share
            advantage = (1.0 - share) * advantage + share * rollout.second_advantage
        if rollout.importance is not None:
            # Not negative, so that it scales the clipped objective as well.
            advantage = advantage * rollout.importance
        steps, worlds = rollout.done.shape
        recurrent = rollout.hidden.shape[1] > 0
        parts = [rollout.observation, rollout.critic, rollout.action, rollout.mean]
        parts += [x.unsqueeze(-1) for x in (rollout.log_prob, advantage, target, rollout.value, rollout.done)]
        # A GRU learns from whole sequences, so its minibatches are worlds; else they are single steps.
        parts = [part.transpose(0, 1) if recurrent else part.flatten(0, 1) for part in parts]
        parts.append(rollout.hidden if recurrent else parts[0][:, :0])
        if rollout.reference_mean is not None:
            reference = rollout.reference_mean
            parts.append(reference.transpose(0, 1) if recurrent else reference.flatten(0, 1))
        summaries: list[Tensor] = []
        self.optimizer.found_inf = None
        with self._beside() as beside:
            for _ in range(config.epochs):
                for order in orders(1 if recurrent else steps, worlds, config.minibatches, generators):
                    chosen = order.to(advantage.device, non_blocking=True)
                    batch = tuple(part.index_select(0, chosen) for part in parts)
                    summaries.append(self._step(batch, rollout, beside, peers))
        # The only look at values, after all was computed.
        norm, *means = (float(value) for value in torch.stack(summaries).double().mean(dim=0).cpu())
        if not math.isfinite(norm):
            bad = [f"reward term {name} is {x}" for name, x in rollout.reward_terms.items() if not math.isfinite(x)]
            cause = f"{', '.join(bad)}: correct it; " if bad else ""
            raise LearningDivergedError(f"{cause}gradient norm is {norm} at learning rate {self.learning_rate:.2g}")
        return UpdateStats(*means)

    @torch.no_grad()
    def decouple(self, rollout: Rollout, stale: Tensor) -> Tensor:
        """Prepares what older weights played for an update (decoupled PPO, Hilton et al. 2022, arXiv:2110.00641).

        The present policy becomes the proximal one that the update is clipped to, and each sample counts by its ratio
        to the policy that played, at most `importance_cap`. Where that was the present one, both ratios are 1.

        Args:
            rollout: with the present critic's values and observations normalised as at present; changed in place.
            stale: which worlds' steps were played with older weights, bool, (N,).

        Returns:
            Logarithm of the ratio of each stale sample before the cap, (T, number of stale worlds).
        """
        observation, action = rollout.observation[:, stale], rollout.action[:, stale]
        hidden, done = rollout.hidden[stale], rollout.done[:, stale]
        if hidden.shape[1] > 0:
            mean = self._mean(observation.transpose(0, 1), hidden, done.T.unsqueeze(-1)).transpose(0, 1)
        else:
            mean = self._mean(observation.flatten(0, 1), observation.flatten(0, 1)[:, :0], done).view_as(action)
        log_prob = self._log_prob(action, mean)
        log_ratio = log_prob - rollout.log_prob[:, stale]
        rollout.mean[:, stale], rollout.log_prob[:, stale] = mean, log_prob
        rollout.importance = torch.ones_like(rollout.done)
        rollout.importance[:, stale] = log_ratio.exp().clamp(max=self.config.importance_cap)
        return log_ratio

    def _log_prob(self, action: Tensor, mean: Tensor) -> Tensor:
        deviation = (action - mean) * torch.exp(-self.log_std)
        return (-0.5 * deviation * deviation - self.log_std - LOG_SQRT_2PI).sum(-1)

    def _beside(self) -> AbstractContextManager[ThreadPoolExecutor | None]:
        """A thread for the critic's gradient on a CPU."""
        # Two small networks use two processors better so than by splitting each matrix product.
        if self.log_std.device.type != "cpu":
            return nullcontext()
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="critic")

    def _step(
        self,
        batch: tuple[Tensor, ...],
        rollout: Rollout,
        beside: ThreadPoolExecutor | None,
        peers: Peers | None,
    ) -> Tensor:
        """One gradient step on one minibatch; returns gradient norm and `UpdateStats` of it."""
        config = self.config
        observation, critic_input, action, old_mean, old_log_prob, advantage, target, old_value, done, *rest = batch
        hidden, *reference_mean = rest
        old_log_std = rollout.log_std
        self.optimizer.zero_grad(set_to_none=True)
        critic = beside and beside.submit(self._value_gradient, critic_input, target, old_value)
        mean = self._mean(observation, hidden, done)
        ratio = torch.exp(self._log_prob(action, mean).unsqueeze(-1) - old_log_prob)
        clipped_ratio = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        policy_loss = -torch.minimum(ratio * advantage, clipped_ratio * advantage).mean()
        entropy = (self.log_std + 0.5 + LOG_SQRT_2PI).sum()
        loss = policy_loss - config.entropy_weight * entropy
        if reference_mean:
            away = (mean - reference_mean[0]) * torch.exp(-self.log_std.detach())
            loss = loss + rollout.reference_weight * 0.5 * (away * away).sum(-1).mean()
        torch.autograd.backward(loss)
        value_loss = critic.result() if critic else self._value_gradient(critic_input, target, old_value)
        with torch.no_grad():
            spread = torch.exp(2.0 * (old_log_std - self.log_std))
            shift = ((old_mean - mean) * torch.exp(-self.log_std)) ** 2
            kl = (self.log_std - old_log_std - 0.5 + 0.5 * (spread + shift)).sum(-1).mean()
            clipped = (ratio != clipped_ratio).float().mean()
            means = torch.stack([policy_loss, value_loss, entropy, kl, clipped])
        if peers is not None:
            self._average(means, peers)
        norm = self._clip_gradients()
        # From the first norm that is not finite on, fused Adam leaves the weights as they are.
        found = getattr(self.optimizer, "found_inf", None)
        broken = (~torch.isfinite(norm)).float()
        self.optimizer.found_inf = broken if found is None else torch.maximum(found, broken)
        # Only now: it changes log_std, and the divergence is that of the network the means came from.
        self.optimizer.step()
        if config.schedule == "adaptive":
            self._adapt(means[3])
        return torch.cat([norm[None], means])

    @torch.no_grad()
    def _average(self, means: Tensor, peers: Peers) -> None:
        """Averages gradients and means over the peers, in place."""
        # One message for all: many small ones would wait for the network each.
        shared = [*(x.grad for x in self.parameters() if x.grad is not None), means]
        flat: Any = torch.cat([x.flatten() for x in shared])
        peers.average(flat)
        for x, part in zip(shared, flat.split([x.numel() for x in shared]), strict=True):
            x.copy_(part.view_as(x))

    def _clip_gradients(self) -> Tensor:
        """Bounds the gradients of actor and critic, each by itself, so that a value far off does not slow the actor.

        Returns:
            The norm of both together before, shape ().
        """
        parts = [*self.actor.parameters(), self.log_std], self.critic.parameters()
        return torch.hypot(*(nn.utils.clip_grad_norm_(part, self.config.max_grad_norm) for part in parts))

    def _value_gradient(self, critic_input: Tensor, target: Tensor, old_value: Tensor) -> Tensor:
        """Adds the gradient of the critic's clipped loss to its parameters; returns the loss."""
        value = self.critic(critic_input)
        near = old_value + (value - old_value).clamp(-self.config.clip, self.config.clip)
        loss = torch.maximum((value - target) ** 2, (near - target) ** 2).mean()
        torch.autograd.backward(self.config.value_weight * loss)
        return loss.detach()

    def _mean(self, observation: Tensor, hidden: Tensor, done: Tensor) -> Tensor:
        """Action means of a minibatch; sequences (n, T, O) run through the GRU from `hidden`, steps do not."""
        if observation.dim() == 2:
            return self.actor(observation, hidden)[0]
        means: list[Tensor] = []
        for t in range(observation.shape[1]):
            mean, hidden = self.actor(observation[:, t], hidden)
            means.append(mean)
            hidden = hidden * (1.0 - done[:, t])
        return torch.stack(means, dim=1)

    def _adapt(self, kl: Tensor) -> None:
        """Keeps the KL divergence per update near the desired one (rsl_rl's rule)."""
        config = self.config
        lower = torch.where(kl > 2.0 * config.desired_kl, self._rate / 1.5, self._rate)
        rate = torch.where(kl < 0.5 * config.desired_kl, self._rate * 1.5, lower)
        self._rate.copy_(rate.clamp(config.min_learning_rate, config.max_learning_rate))

    @property
    def learning_rate(self) -> float:
        """The optimiser's step size; waits for the device."""
        return float(self._rate)

    def set_learning_rate(self, value: float) -> None:
        """Sets the optimiser's step size."""
        self._rate.fill_(value)
        # An optimiser's state that was loaded has a rate of its own.
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate
