"""A service's session as Stable-Baselines3 `VecEnv`."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.vec_env import VecEnv

from physai.service import RemoteVectorEnv

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class RemoteVecEnv(VecEnv):
    """Worlds in a service, with same-step autoreset; infos as in `physai.train.adapters.sb3.TaskVecEnv`."""

    def __init__(self, environment: RemoteVectorEnv) -> None:
        """Wraps an environment; `close` closes its session."""
        self._environment = environment
        self._action: Floats = np.zeros(0, np.float32)
        self._returns = np.zeros(environment.num_envs)
        self._lengths = np.zeros(environment.num_envs, np.int64)
        self.render_mode: str | None = None
        cast("Any", super()).__init__(environment.num_envs, *environment.spaces)

    def reset(self) -> Floats:
        """Starts a new episode in every world, with the seed set by `seed` if there is one."""
        observation, _ = self._environment.reset(seed=self._seeds[0])
        self._returns[:], self._lengths[:] = 0.0, 0
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: np.ndarray[Any, Any]) -> None:
        """Stores the actions of the next step, shape (num_envs, actions)."""
        self._action = actions

    def step_wait(self) -> tuple[Floats, Floats, Bools, list[dict[str, Any]]]:
        """Applies the stored actions; returns observation, reward, done and info of each world."""
        observation, reward, terminated, truncated, more = self._environment.step(self._action)
        done = terminated | truncated
        self._returns += reward
        self._lengths += 1
        # One shared dict, not an allocation per world and step.
        empty: dict[str, Any] = {}
        infos = [empty] * self.num_envs
        for world in np.flatnonzero(done):
            infos[world] = {
                "terminal_observation": more["final_obs"][world],
                "TimeLimit.truncated": bool(truncated[world]),
                "is_success": bool(more["success"][world]) if "success" in more else False,
                "episode": {"r": float(self._returns[world]), "l": int(self._lengths[world])},
            }
        self._returns[done], self._lengths[done] = 0.0, 0
        return observation, reward, done, infos

    def close(self) -> None:
        """Closes the session."""
        self._environment.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The attribute, repeated for each requested world; all worlds share it."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not supported: the worlds are in the service."""
        raise AttributeError(f"{attr_name} cannot be set in a service; create a session with other options")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Not supported: the worlds are in the service."""
        raise AttributeError(f"{method_name} cannot be called in a service")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No world is wrapped."""
        return [False] * len(list(self._get_indices(indices)))
