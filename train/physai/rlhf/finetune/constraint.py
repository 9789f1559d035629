"""Limit of the task's performance that a fine-tuned policy may lose, judged without exploration.

While a policy learns, it is judged every few iterations on the same episodes as its reference. Where it lost half of
what may be lost, the learned reward counts nothing until it does not, and half as much afterwards: the task is
repaired first, as in Xu, Liang, Lan 2021 (CRPO, arXiv:2011.05869). At the end the policies that held the constraint are
judged again, on episodes that chose nothing, the most liked one first. The first that still holds it is kept; if none
does, the reference is.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from physai.rlhf.finetune.judge import SEED, Worth, judge
from physai.rlhf.finetune.kl_penalty import LeashedCollector
from physai.rlhf.finetune.record import EPISODES, Curve, point
from physai.train.runners.runner import Trainer

EVERY = 4
"""Iterations between two judgements."""
CONFIRMING_EPISODES = 256
CONFIRMING_SEED = SEED + 1


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """Share of the task that may be lost."""

    reward_loss: float = 0.1
    """Share of the reference's return."""
    success_loss: float = 0.03
    """Share of what is judged that may succeed no longer."""

    def half(self) -> "Constraint":
        """Half of it, which leaves room for other episodes."""
        return Constraint(reward_loss=0.5 * self.reward_loss, success_loss=0.5 * self.success_loss)

    def excess(self, worth: Worth, reference: Worth) -> float:
        """Loss beyond what is allowed, as the greater share of return or successes; at most 0 if the limit is kept."""
        lost = (reference.episode_return - worth.episode_return) / max(abs(reference.episode_return), 1e-6)
        excess = lost - self.reward_loss
        if reference.success is not None:
            excess = max(excess, reference.success - (worth.success or 0.0) - self.success_loss)
        return excess if math.isfinite(excess) or math.isinf(self.reward_loss) else math.inf


@dataclass(frozen=True)
class _Candidate:
    """A policy that held the constraint."""

    iteration: int
    learned: float
    state: dict[str, Any]


class Keeper(Curve):
    """Judges a policy as it is fine-tuned, steers how much preferences count, and decides which policy is kept."""

    def __init__(
        self,
        trainer: Trainer,
        collector: LeashedCollector,
        constraint: Constraint,
        *,
        weight: float,
        taste: Mapping[str, float] | None,
        say: Callable[[str], None] = print,
    ) -> None:
        """Takes the learner as it is as the reference, and judges it.

        Args:
            trainer: with the reference's weights.
            collector: what it collects with.
            constraint: what may be lost.
            weight: of the learned reward, relative to the task's.
            taste: see `Curve`.
            say: takes messages for the user.
        """
        say(f"judging the reference on {EPISODES} episodes")
        super().__init__(trainer.graph, trainer.task, collector, EVERY, taste)
        self._trainer, self._leashed, self._constraint = trainer, collector, constraint
        self._strict, self._say = constraint.half(), say
        self._greatest = collector.share = weight / (1.0 + weight)
        self._share = self._greatest
        self._start = copy.deepcopy(trainer.learner.state_dict())
        self._candidates: list[_Candidate] = []
        self.kept = 0
        """Iteration of the policy that was kept; 0 for the reference."""
        self._reference = super().add(0)
        self.before = self.after = self.points[0]
        """What reference and kept policy are worth on the episodes that chose nothing."""

    def add(self, iteration: int) -> Worth:
        worth = super().add(iteration)
        if self._strict.excess(worth, self._reference) > 0.0:
            self._share = 0.5 * self._share
            self._leashed.share = 0.0
            return worth
        if not self._leashed.share:
            self._leashed.share = self._share
        else:
            self._leashed.share = self._share = min(1.25 * self._share, self._greatest)
        if _more_liked(worth, self._reference):
            state = copy.deepcopy(self._trainer.learner.state_dict())
            self._candidates.append(_Candidate(iteration, worth.learned or 0.0, state))
        return worth

    def settle(self) -> None:
        """Leaves the trainer with the policy that is kept."""
        if self.points[-1].iteration != self._trainer.iteration:
            self.add(self._trainer.iteration)
        liked = f"the most liked of {len(self._candidates)} policies"
        self._say(f"judging the reference and {liked} on {CONFIRMING_EPISODES} other episodes")
        self._load(self._start)
        reference = self._confirm()
        self.before = self.after = point(reference, iteration=0, kl=0.0, taste=self.taste)
        known = {one.iteration: one for one in self.points}
        for one in sorted(self._candidates, key=lambda candidate: -candidate.learned):
            self._load(one.state)
            worth = self._confirm()
            if self._constraint.excess(worth, reference) <= 0.0 and _more_liked(worth, reference):
                self.kept = one.iteration
                self.after = point(worth, iteration=one.iteration, kl=known[one.iteration].kl, taste=self.taste)
                return
        self._load(self._start)

    def _confirm(self) -> Worth:
        return judge(
            self.graph,
            self.task,
            episodes=CONFIRMING_EPISODES,
            seed=CONFIRMING_SEED,
            model=self.collector.model,
            action_repeat=self.collector.config.action_repeat,
        )

    def _load(self, state: dict[str, Any]) -> None:
        learner = self._trainer.learner
        learner.load_state_dict(state)
        learner.graph.normaliser.refresh()
        learner.critic_normaliser.refresh()


def _more_liked(worth: Worth, reference: Worth) -> bool:
    return (worth.learned or 0.0) > (reference.learned or 0.0)
