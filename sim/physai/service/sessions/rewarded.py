"""Worlds whose reward is that of a user's file instead of the task's."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.compute.sandbox.reward import UserReward, UserRewardError
from physai.service.problems import ProblemError, invalid
from physai.service.sessions.worlds import Arrays, SessionWorlds
from physai.sim.engines.protocol import Snapshot

MAX_WORLDS = 256
"""Worlds of one session with a rubric, which keeps whole episodes."""
FLAGS = ("terminated", "truncated", "succeeded")


class RewardedWorlds:
    """Steps worlds and asks a user's file for their reward.

    A `reward` is given a step of all worlds at once. A `rubric` is given each episode when it ends, and its number is
    the reward of the last step; the steps before have none.
    """

    def __init__(self, worlds: SessionWorlds, reward: UserReward) -> None:
        """Takes the worlds over.

        Raises:
            ProblemError: a rubric would have to keep the episodes of too many worlds.
        """
        if reward.form == "rubric" and worlds.num_worlds > MAX_WORLDS:
            raise invalid(f"{worlds.num_worlds} worlds are judged by a rubric, at most {MAX_WORLDS}; use fewer worlds")
        self._worlds = worlds
        self._reward = reward
        self.num_worlds = worlds.num_worlds
        self.model = worlds.model
        self.step_dt = worlds.step_dt
        self.first = worlds.first
        self._begin(worlds.first)

    def _begin(self, observed: Arrays) -> Arrays:
        self._observed = observed
        self._kept: list[dict[str, npt.NDArray[Any]]] = []
        self._begun = np.zeros(self.num_worlds, np.int64)
        return observed

    @property
    def kept_steps(self) -> int:
        """Steps that are kept for a rubric, of the longest episode that runs."""
        return len(self._kept)

    def describe(self) -> dict[str, Any]:
        """As without a reward of the user's."""
        return self._worlds.describe()

    def reset(self, seed: int | None) -> Arrays:
        """Starts a new episode in every world; those that had begun are not judged."""
        return self._begin(self._worlds.reset(seed))

    def step(self, actions: Mapping[str, Any]) -> dict[str, Any]:
        """Advances every world by one step.

        Raises:
            ProblemError: the user's file failed; the worlds were stepped.
        """
        before = self._observed
        reply = self._worlds.step(actions)
        self._observed = reply["observations"]
        ended = np.asarray(reply["terminated"] | reply["truncated"], bool)
        steps: dict[str, npt.NDArray[Any]] = {"task_reward": reply["reward"], **{name: reply[name] for name in FLAGS}}
        for name, seen in before.items():
            after = np.array(reply["observations"][name])
            if ended.any():
                # The world has begun its next episode; the last observation of this one is the final one.
                after[ended] = reply["final"][name]
            steps |= {f"observation.{name}": np.asarray(seen), f"next_observation.{name}": after}
        steps |= {f"action.{name}": np.asarray(value) for name, value in actions.items()}
        try:
            score = self._reward.score(steps) if self._reward.form == "reward" else self._judge(steps, ended)
        except UserRewardError as error:
            raise ProblemError(500, "reward-failed", str(error)) from error
        return {**reply, "reward": score}

    def _judge(self, steps: dict[str, npt.NDArray[Any]], ended: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        self._kept.append({name: array.copy() for name, array in steps.items()})
        over = np.flatnonzero(ended)
        episodes = [
            {name: np.stack([step[name][world] for step in self._kept[self._begun[world] :]]) for name in steps}
            for world in over
        ]
        self._begun[over] = len(self._kept)
        oldest = int(self._begun.min())
        del self._kept[:oldest]
        self._begun -= oldest
        score = np.zeros(self.num_worlds)
        for world, episode in zip(over, episodes, strict=True):
            score[world] = self._reward.score(episode)[0]
        return score

    def state(self) -> Arrays:
        """As without a reward of the user's."""
        return self._worlds.state()

    def snapshot(self) -> Snapshot:
        """Raises ProblemError: what has been seen of an episode is not part of a snapshot."""
        raise invalid("a session with a user's reward has no snapshots")

    def restore(self, snapshot: Snapshot) -> None:
        """Raises as `snapshot` does."""
        self.snapshot()
