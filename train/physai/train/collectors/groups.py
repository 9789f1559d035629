"""Learning from how episodes end: sparse rewards, and advantages relative to a group instead of a critic.

A group is G worlds that begin the same episode: the same state, parameters, sensor noise and delays, drawn from one
seed. They differ in their exploration only, so the mean return of a group says what its beginning is worth, and no
critic has to. With the return R_i of world i, and of its group the mean R̄ and the standard deviation s, all steps of
its episode have the advantage

- `grpo`: (R_i - R̄) / s (Shao et al. 2024, arXiv:2402.03300, equation 3), 0 where all of a group do equally well;
- `rloo`: R_i - mean of the G - 1 others (Ahmadian et al. 2024, arXiv:2402.14740, section 2.3), which has no bias.

The statistics that observations are normalised with are those of the policy that a run begins with, or of its first
episodes. Groups all begin at once, and where they do the states differ from those of staggered worlds: a policy that
balanced a pole in 79 % of the episodes lost it within four updates of nothing but its statistics.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from physai.sim.envs.rng import episode_seeds
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout
from physai.train.collectors.collector import Collector, Learner, StepRecords
from physai.train.settings.config import TrainConfig

EQUAL = 1e-6
"""Standard deviation of the returns of a group [share of the greatest] below which its worlds did equally well."""


class OutcomeCollector(Collector):
    """A collector whose rollouts are paid for successes alone: 1 when what is judged succeeds, 0 elsewhere."""

    def play(self, rollout: Rollout) -> StepRecords:
        played = super().play(rollout)
        if self.config.reward == "success":
            rollout.reward.copy_(played.outcomes.clamp(min=0.0))
        return played


class GroupCollector(OutcomeCollector):
    """Plays one whole episode in each world, the same in all worlds of a group."""

    def __init__(self, task: Task, config: TrainConfig, learner: Learner, *, num_threads: int) -> None:
        """See `Collector`; the horizon is an episode."""
        super().__init__(task, config, learner, num_threads=num_threads)
        self._rounds = 0

    def play(self, rollout: Rollout) -> StepRecords:
        self._begin_groups()
        played = super().play(rollout)
        # Steps after the first end of an episode belong to another one, which no other world of the group plays.
        running = (torch.cumsum(rollout.done, dim=0) - rollout.done == 0.0).float()
        played.outcomes[running == 0.0] = -1.0
        returns = (rollout.reward * running).sum(dim=0)
        advantage = relative(returns.view(-1, self.config.group), self.config.advantage).flatten()
        rollout.second_advantage = advantage.expand_as(running) * running
        rollout.second_share = 1.0
        rollout.importance = running
        return played

    def _begin_groups(self) -> None:
        groups = np.arange(self.config.num_envs) // self.config.group
        self._rounds += 1
        rounds = np.full(len(groups), self._rounds)
        self.now = self.env.reset(episode_seeds(self.config.seed, groups, rounds))
        # Training staggers episodes, so that not all end at once; a group's are to be whole.
        self.env.steps_in_episode[:] = 0
        for memory in self.memory.values():
            memory.zero_()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"rounds": torch.tensor(self._rounds)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._rounds = int(state["rounds"])


def relative(returns: Tensor, kind: str) -> Tensor:
    """Advantages of worlds relative to their groups, (groups, G), given their returns of that shape."""
    size = returns.shape[1]
    deviation = returns - returns.mean(dim=1, keepdim=True)
    if kind == "rloo":
        # R_i - (G R̄ - R_i) / (G - 1)
        return deviation * (size / (size - 1))
    spread = returns.std(dim=1, keepdim=True)
    least = EQUAL * max(1.0, float(returns.abs().max()))
    return torch.where(spread > least, deviation / spread.clamp(min=least), 0.0)
