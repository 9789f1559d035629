"""Our tasks as gymnasium environments: `TaskVectorEnv` for many worlds, `TaskEnv` for one."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from physai.sim.tasks.task import Task
from physai.train.adapters.core import Bools, Floats, TaskWorlds


def spaces(worlds: TaskWorlds) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    """Observation and action space of one world; actions are network outputs, -1 to 1."""
    observations = gymnasium.spaces.Box(-np.inf, np.inf, (worlds.observations,), np.float32)
    return observations, gymnasium.spaces.Box(-1.0, 1.0, (worlds.actions,), np.float32)


class TaskVectorEnv(VectorEnv[Floats, Floats, Any]):
    """Vector environment of one task with same-step autoreset.

    Infos, with gymnasium's convention of a mask `_key` for each `key`: `final_obs` (observation before the reset)
    and `final_info` where an episode ended; `success` where a command or episode was judged; `critic` (float32, shape
    (num_envs, critic inputs), no mask) for learners whose critic may see more than the actor.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - gymnasium's own form

    def __init__(self, task: Task, num_envs: int, **options: Any) -> None:
        """Builds the worlds; `options` as for `physai.train.adapters.core.TaskWorlds`."""
        self.worlds = TaskWorlds(task, num_envs, **options)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces(self.worlds)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space: gymnasium.Space[Any] = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Starts a new episode in every world; with a seed, the following steps depend on it and the actions only.

        Raises:
            ValueError: `options` has `reset_mask`, which same-step autoreset does not support.
        """
        if options and "reset_mask" in options:
            raise ValueError("the worlds reset in the same step in which an episode ends; leave reset_mask out")
        super().reset(seed=seed)
        observation, critic = self.worlds.reset(seed)
        return observation, {"critic": critic}

    def step(self, actions: Floats) -> tuple[Floats, Floats, Bools, Bools, dict[str, Any]]:
        """One step of every world; actions have shape (num_envs, actions)."""
        step = self.worlds.step(actions)
        infos: dict[str, Any] = {"critic": step.critic}
        if step.judged.any():
            infos |= {"success": step.succeeded, "_success": step.judged}
        if step.ended is not None:
            done, final = step.terminated | step.truncated, np.full(self.num_envs, None, object)
            for world, observation in zip(step.ended.worlds, step.ended.observation, strict=True):
                final[world] = observation
            critic = np.zeros_like(step.critic)
            critic[step.ended.worlds] = step.ended.critic
            success = np.zeros(self.num_envs, bool)
            success[step.ended.worlds] = step.ended.succeeded
            last = {"critic": critic, "_critic": done, "success": success, "_success": done}
            infos |= {"final_obs": final, "_final_obs": done, "final_info": last, "_final_info": done}
        return step.observation, step.reward, step.terminated, step.truncated, infos


class TaskEnv(gymnasium.Env[Any, Any]):
    """One world of one task, for learners and tools that take no vector of them."""

    def __init__(self, task: Task, **options: Any) -> None:
        """Builds the world; `options` as for `physai.train.adapters.core.TaskWorlds`."""
        self.worlds = TaskWorlds(task, 1, **options)
        self.observation_space: gymnasium.Space[Any]
        self.action_space: gymnasium.Space[Any]
        self.observation_space, self.action_space = spaces(self.worlds)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Starts a new episode; a seed makes all that follows a function of it and the actions."""
        super().reset(seed=seed)
        observation, critic = self.worlds.reset(seed)
        return observation[0], {"critic": critic[0]}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """One step; action has shape (actions,)."""
        step = self.worlds.step(np.asarray(action)[None])
        observation, critic = step.observation[0], step.critic[0]
        if step.ended is not None:
            observation, critic = step.ended.observation[0], step.ended.critic[0]
        info: dict[str, Any] = {"critic": critic}
        if step.judged[0]:
            info["is_success"] = bool(step.succeeded[0])
        return observation, float(step.reward[0]), bool(step.terminated[0]), bool(step.truncated[0]), info
