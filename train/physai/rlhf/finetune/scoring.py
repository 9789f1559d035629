"""Scorers that learn nothing while a policy is fine-tuned: the reward model, and the frozen reference."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor

from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.train.collectors.collector import Learner


class Reference:
    """The frozen policy that π may not leave."""

    def __init__(self, learner: Learner) -> None:
        """Copies graph and exploration noise."""
        self._graph = copy.deepcopy(learner.graph)
        self._log_std = learner.ppo.log_std.detach().clone()

    def memory(self, worlds: int) -> Tensor:
        """Memory of a recurrent reference before the first step, (N, hidden)."""
        return torch.zeros(worlds, int(getattr(self._graph.actor, "state_size", 0)))

    @torch.no_grad()
    def means(self, raw_observation: Tensor, done: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Means of its actions, with its own statistics of observations.

        Args:
            raw_observation: before normalisation, (T, N, O).
            done: 1 where an episode ended, (T, N).
            memory: before the first step, (N, hidden).

        Returns:
            Means of its actions, (T, N, A), and its memory after the last step, (N, hidden).
        """
        observation = self._graph.normaliser(raw_observation.flatten(0, 1)).view_as(raw_observation)
        if not memory.shape[1]:
            means = self._graph.actor(observation.flatten(0, 1), memory[:0])[0]
            return means.unflatten(0, observation.shape[:2]), memory
        steps: list[Tensor] = []
        for t in range(len(observation)):
            mean, memory = self._graph.actor(observation[t], memory)
            steps.append(mean)
            memory = memory * (1.0 - done[t, :, None])
        return torch.stack(steps), memory

    def divergence(self, mean: Tensor, reference: Tensor) -> float:
        """Mean of KL(π ‖ π_ref) per step [nat], for policies that explore alike."""
        away = (mean - reference) * torch.exp(-self._log_std)
        return float(0.5 * (away * away).sum(-1).mean())


class PreferenceScorer:
    """Reward model and reference, in whatever process they score. Scores follow from columns and memory alone."""

    columns = ("raw_observation", "raw_critic", "action", "done")
    """Of a rollout, (T, N, …), by which it scores."""

    def __init__(self, model: RewardEnsemble, reference: Reference) -> None:
        """Keeps both."""
        self._model, self._reference = model, reference

    def memory(self, worlds: int) -> Tensor:
        """See `Reference.memory`."""
        return self._reference.memory(worlds)

    @torch.no_grad()
    def score(self, columns: Mapping[str, Tensor], memory: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Scores steps.

        Args:
            columns: `columns` by name.
            memory: of the reference before the first step, (N, hidden).

        Returns:
            `learned`, the learned reward per second, (T, N), and `reference_mean`, what the reference would have done,
            (T, N, A); and its memory after the last step.
        """
        observation, critic, action, done = (columns[name] for name in self.columns)
        means, memory = self._reference.means(observation, done, memory)
        return {"learned": self._model.reward(critic, action), "reference_mean": means}, memory
