"""Served worlds as an environment of RLinf's workers (0.3); RLinf is imported by `register` only.

RLinf calls `register` if `RLINF_EXT_MODULE` names this module.
"""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from physai.sdk import PhysaiError
from physai.service import RemoteVectorEnv

NAME = "physai-twin"
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Infos = dict[str, Any]
Observation = dict[str, Tensor]


class ConfigError(PhysaiError):
    """The configuration asks for what worlds of a service cannot do."""


def register() -> None:
    """Makes `TwinEnv` known to the RLinf worker of this process; RLinf calls it.

    The table of Isaac Lab's environments is the only one in RLinf that takes a new name.
    """
    from rlinf.envs.isaaclab import REGISTER_ISAACLAB_ENVS

    REGISTER_ISAACLAB_ENVS[NAME] = TwinEnv


class TwinEnv(gymnasium.Env[Any, Any]):
    """Worlds of one task; observations are `states`, actions the outputs of the policy's network, -1 to 1.

    The service resets a world in the step in which its episode ends. If that is amid a chunk, the rest of the chunk
    plays in the next episode, but its rewards are 0 and it counts in no metric.
    """

    def __init__(self, cfg: Any, num_envs: int, seed_offset: int, total_num_processes: int, worker_info: Any) -> None:
        """Creates the session.

        The arguments are RLinf's: `cfg.init_params` are, beside `id`, those of `RemoteVectorEnv`, and `seed_offset`
        tells the environments of all workers apart; the last two are not used.

        Raises:
            ConfigError: the configuration asks for what worlds of a service cannot do.
            ServiceError: the service refuses the options, or cannot be reached.
        """
        if cfg.get("ignore_terminations", False):
            raise ConfigError("a world is reset where its episode fails; set ignore_terminations to False")
        if cfg.get("group_size", 1) != 1:
            raise ConfigError(f"group_size is {cfg.group_size}, but worlds begin in different states; set it to 1")
        options = {name: value for name, value in cfg.init_params.items() if name not in ("id", "num_envs")}
        if missing := {"url", "task"} - options.keys():
            raise ConfigError(f"init_params has no {' and no '.join(sorted(missing))}; name the service and its task")
        self.cfg, self.num_envs, self.auto_reset = cfg, num_envs, bool(cfg.auto_reset)
        self.seed = int(cfg.seed) + seed_offset
        self.is_start = True
        self._env = RemoteVectorEnv(options.pop("url"), options.pop("task"), num_envs, seed=self.seed, **options)
        self.observation_space, self.action_space = self._env.spaces
        self._seed: int | None = self.seed
        self._forget()

    def _forget(self) -> None:
        count = self.num_envs
        self._return: Floats = np.zeros(count, np.float32)
        self._length: npt.NDArray[np.int32] = np.zeros(count, np.int32)
        self._success: Bools = np.zeros(count, np.bool_)
        self._terminated, self._truncated = self._success.copy(), self._success.copy()
        self._final: Floats = np.zeros((count, *self._env.spaces[0].shape), np.float32)

    def update_reset_state_ids(self) -> None:
        """Does nothing: the service draws a new initial state for every episode."""

    def reset(self, env_idx: object = None, reset_state_ids: object = None) -> tuple[Observation, Infos]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Starts a new episode in every world.

        Raises:
            ConfigError: only some worlds are to be reset, or to given states.
        """
        if env_idx is not None or reset_state_ids is not None:
            raise ConfigError("the worlds of a service are reset together, to states that it draws; reset all")
        states, _ = self._env.reset(seed=self._seed)
        self._seed = None
        self._forget()
        return {"states": torch.tensor(states)}, {}

    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, actions: Any, auto_reset: bool = True
    ) -> tuple[Observation, Tensor, Tensor, Tensor, Infos]:
        """One step of every world; actions have shape (num_envs, actions).

        Returns:
            Observation, reward, terminated, truncated, each with first axis the world, and infos: `episode`; or, where
            an episode ended and the next one began, `final_observation`, `final_info` and their masks.
        """
        states, reward, terminated, truncated, more = self._env.step(torch.as_tensor(actions).detach().cpu().numpy())
        live = ~(self._terminated | self._truncated)
        reward = np.where(live, reward, np.float32(0.0))
        self._return += reward
        self._length += live
        self._success |= live & more.get("success", False)
        self._terminated |= live & terminated
        self._truncated |= live & truncated
        for world in np.flatnonzero(live & (terminated | truncated)):
            self._final[world] = more["final_obs"][world]
        flags = torch.tensor(self._terminated), torch.tensor(self._truncated)
        infos: Infos = {"episode": self._episode()}
        if auto_reset and self.auto_reset:
            infos = self._begin_next(states, infos)
        return {"states": torch.tensor(states)}, torch.tensor(reward), *flags, infos

    def chunk_step(self, chunk_actions: Any) -> tuple[list[Observation], Tensor, Tensor, Tensor, list[Infos]]:
        """Several steps; actions have shape (num_envs, steps, actions).

        Returns:
            Observations by step; rewards, terminated and truncated, shape (num_envs, steps); infos by step. With
            `auto_reset` an end counts in the last column, and the last infos have what `step` has there.
        """
        steps = [self.step(chunk_actions[:, index], auto_reset=False) for index in range(chunk_actions.shape[1])]
        rewards, terminated, truncated = (
            torch.stack(part, dim=1) for part in zip(*(s[1:4] for s in steps), strict=True)
        )
        observations, infos = [step[0] for step in steps], [step[4] for step in steps]
        if self.auto_reset:
            terminated[:, :-1] = truncated[:, :-1] = False
            infos[-1] = self._begin_next(observations[-1]["states"].numpy(), infos[-1])
        return observations, rewards, terminated, truncated, infos

    def _episode(self) -> dict[str, Tensor]:
        total, length = torch.tensor(self._return), torch.tensor(self._length)
        mean = total / length.clamp(min=1)
        return {"success_once": torch.tensor(self._success), "return": total, "episode_len": length, "reward": mean}

    def _begin_next(self, states: Floats, infos: Infos) -> Infos:
        """Infos at the border of two episodes; as they are where none ended."""
        ended: Bools = self._terminated | self._truncated
        if not ended.any():
            return infos
        final = torch.tensor(np.where(ended[:, None], self._final, states))
        self._return[ended] = self._length[ended] = 0
        self._success[ended] = self._terminated[ended] = self._truncated[ended] = False
        masks = dict.fromkeys(("_final_observation", "_final_info", "_elapsed_steps"), torch.tensor(ended))
        return {"final_observation": {"states": final}, "final_info": infos, **masks}

    def close(self) -> None:
        """Closes the session."""
        self._env.close()
