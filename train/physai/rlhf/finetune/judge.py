"""Worth of a policy by the task's reward, by a taste and by a reward model, without exploration."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from physai.rlhf.answers.preferences import term_names
from physai.rlhf.answers.segment import REWARD
from physai.rlhf.collection.draw import play
from physai.rlhf.reward_model.ensemble import RewardEnsemble
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph

SEED = 0x5EED_0B1A5
"""Episodes of a judgement share no seed with training."""


@dataclass(frozen=True, kw_only=True)
class Worth:
    """Means over episodes."""

    episode_return: float
    """Sum of the task's reward over an episode."""
    terms: dict[str, float]
    """Mean of each term of the task's segments while episodes run, per second."""
    learned: float | None
    """Mean of the learned reward, per second."""
    success: float | None
    """Share of what was judged that succeeded; None if nothing was judged."""

    def taste(self, weights: Mapping[str, float]) -> float:
        """Mean of a taste, per second."""
        return sum(weight * self.terms[name] for name, weight in weights.items())


def judge(
    graph: PolicyGraph,
    task: Task,
    *,
    episodes: int = 128,
    seed: int = SEED,
    model: RewardEnsemble | None = None,
    action_repeat: int = 1,
    num_threads: int = 0,
) -> Worth:
    """Plays one episode in each of so many worlds; the same ones for every policy."""
    steps = round(task.episode_length_s / (task.contract.timing.control_dt * action_repeat))
    played = play(
        graph,
        task,
        worlds=episodes,
        steps=steps,
        seed=seed,
        action_repeat=action_repeat,
        num_threads=num_threads,
    )
    # Steps up to the first end of each world; later ones belong to other episodes.
    running = np.cumsum(played.done, axis=0) - played.done == 0
    names = term_names(task)
    values = played.terms[running].astype(np.float64)
    step_dt = task.contract.timing.control_dt * action_repeat
    learned = None
    if model is not None:
        critic, action = torch.as_tensor(played.critic[running]), torch.as_tensor(played.action[running])
        learned = float(model.reward(critic, action).mean())
    column = names.index(REWARD)
    judged = played.judged & running
    return Worth(
        episode_return=float(values[:, column].sum()) * step_dt / episodes,
        terms=dict(zip(names, values.mean(axis=0).tolist(), strict=True)),
        learned=learned,
        success=float(played.succeeded[judged].mean()) if judged.any() else None,
    )
