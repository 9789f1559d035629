"""Adapter to Stable-Baselines3: tasks as a `VecEnv`, trained models as policy graphs."""

import time
from collections.abc import Callable
from typing import Any, cast

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import Tensor, nn

from physai.sdk.base.errors import ExportError
from physai.sim.tasks.task import Task
from physai.train.adapters.core import Bools, Floats, TaskWorlds, graph_from_network
from physai.train.adapters.gymnasium import spaces
from physai.train.models.policy_graph import PolicyGraph


class TaskVecEnv(VecEnv):
    """Vector environment of one task with same-step autoreset.

    Infos of an ended episode: `terminal_observation`, `TimeLimit.truncated`, `is_success`, and `episode` with its
    return `r`, length `l` and time `t` [s]. All others share one empty dict.
    """

    def __init__(self, task: Task, num_envs: int, **options: Any) -> None:
        """Builds the worlds; `options` as for `physai.train.adapters.core.TaskWorlds`."""
        self.worlds = TaskWorlds(task, num_envs, **options)
        self.render_mode: str | None = None
        self.critic: Floats = np.zeros((num_envs, task.critic_size), np.float32)
        """Privileged critic inputs of the last reset or step; SB3's own policies do not use them."""
        self._action: Floats | None = None
        self._start_s = time.monotonic()
        cast("Any", super()).__init__(num_envs, *spaces(self.worlds))

    def reset(self) -> Floats:
        """Starts a new episode in every world, with the seed set by `seed` if there is one."""
        observation, self.critic = self.worlds.reset(self._seeds[0])
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: np.ndarray[Any, Any]) -> None:
        """Stores the actions of the next step, shape (num_envs, actions)."""
        self._action = actions

    def step_wait(self) -> tuple[Floats, Floats, Bools, list[dict[str, Any]]]:
        """Applies the stored actions; returns observation, reward, done and info of each world."""
        step = self.worlds.step(np.zeros(0) if self._action is None else self._action)
        self._action = None
        self.critic = step.critic
        # One shared dict, not an allocation per world and step.
        empty: dict[str, Any] = {}
        infos = [empty] * self.num_envs
        if step.ended is not None:
            elapsed = round(time.monotonic() - self._start_s, 6)
            for row, world in enumerate(step.ended.worlds):
                infos[world] = {
                    "terminal_observation": step.ended.observation[row],
                    "TimeLimit.truncated": bool(step.ended.timed_out[row]),
                    "is_success": bool(step.ended.succeeded[row]),
                    "episode": {
                        "r": float(step.ended.returns[row]),
                        "l": int(step.ended.lengths[row]),
                        "t": elapsed,
                    },
                }
        return step.observation, step.reward, step.terminated | step.truncated, infos

    def close(self) -> None:
        """Nothing to release."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The attribute, repeated for each requested world; all worlds share it."""
        return [getattr(self, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Sets an attribute of all worlds.

        Raises:
            ValueError: only some worlds are named; they share their attributes.
        """
        if self._count(indices) != self.num_envs:
            raise ValueError(f"the worlds share {attr_name}: set it for all of them (indices=None)")
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of this object once and return its result for every requested world."""
        return [getattr(self, method_name)(*method_args, **method_kwargs)] * self._count(indices)

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Any = None
    ) -> list[bool]:
        """False for every world: none is a gymnasium environment that could be wrapped."""
        return [False] * self._count(indices)

    def _count(self, indices: Any) -> int:
        return len(list(self._get_indices(indices)))


class _ScaledNetwork(nn.Module):
    """VecNormalize's scaling of observations, then the layers of the actor."""

    shift: Tensor
    scale: Tensor

    def __init__(self, statistics: VecNormalize | None, size: int, layers: list[nn.Module]) -> None:
        super().__init__()
        normalised = statistics is not None and statistics.norm_obs
        rms: Any = statistics.obs_rms if statistics is not None and normalised else None
        mean, variance = (rms.mean, rms.var) if rms is not None else (np.zeros(size), np.ones(size))
        epsilon = statistics.epsilon if statistics is not None and normalised else 0.0
        self.register_buffer("shift", torch.as_tensor(mean, dtype=torch.float32))
        self.register_buffer("scale", torch.as_tensor(1.0 / np.sqrt(variance + epsilon), dtype=torch.float32))
        self.clip = statistics.clip_obs if statistics is not None and normalised else None
        self.layers = nn.Sequential(*layers)

    def forward(self, observation: Tensor) -> Tensor:
        if self.clip is not None:
            observation = ((observation - self.shift) * self.scale).clamp(-self.clip, self.clip)
        return self.layers(observation)


def graph_from_sb3(model: BaseAlgorithm, task: Task) -> PolicyGraph:
    """The deterministic policy of a Stable-Baselines3 model as a policy graph.

    Supports feed-forward policies of PPO, A2C, SAC, TD3 and DDPG on plain observations. The statistics of a
    `VecNormalize` around the model's environment become part of the graph.

    Raises:
        ExportError: the policy is not supported, or does not fit the task's observations and actions.
    """
    layers = next((read(model.policy) for kind, read in _ACTORS.items() if isinstance(model.policy, kind)), None)
    if layers is None or type(model.policy).__name__.startswith("Recurrent"):
        raise ExportError(
            f"a {type(model.policy).__name__} cannot be converted to a policy graph; "
            f"supported are feed-forward policies of PPO, A2C, SAC, TD3 and DDPG"
        )
    size = task.contract.observation_size
    observed: Any = cast("Any", model).observation_space
    if observed.shape != (size,):
        raise ExportError(
            f"the model observes {observed}, task {task.name} has {size} observations; "
            "train the model in a TaskVecEnv of the same task"
        )
    statistics = model.get_vec_normalize_env()
    return graph_from_network(_ScaledNetwork(statistics, size, layers), task)


def _actor_critic(policy: Any) -> list[nn.Module]:
    squash: list[nn.Module] = [nn.Tanh()] if policy.squash_output else []
    return [policy.pi_features_extractor, policy.mlp_extractor.policy_net, policy.action_net, *squash]


def _sac(policy: Any) -> list[nn.Module]:
    return [policy.actor.features_extractor, policy.actor.latent_pi, policy.actor.mu, nn.Tanh()]


def _td3(policy: Any) -> list[nn.Module]:
    return [policy.actor.features_extractor, policy.actor.mu]


_ACTORS: dict[type[Any], Callable[[Any], list[nn.Module]]] = {
    ActorCriticPolicy: _actor_critic,
    SACPolicy: _sac,
    TD3Policy: _td3,
}
"""Layers from observation to deterministic action in [-1, 1], by class of policy."""
