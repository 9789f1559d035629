"""A session as gymnasium vector environment, so that a learner elsewhere trains in a served twin."""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from physai.service.client.remote_session import RemoteSession

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


class RemoteVectorEnv(VectorEnv[Floats, Floats, Any]):
    """Worlds of one task in a service, with same-step autoreset.

    Observations are those of the policy's network before normalisation; actions are its outputs, -1 to 1. Infos, with
    gymnasium's convention of a mask `_key` for each `key`: `final_obs` where an episode ended; `success` where a
    command or episode was judged; `critic` (float32, shape (num_envs, critic inputs), no mask).
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - gymnasium's own form

    def __init__(
        self, base_url: str, task: str, num_envs: int, *, access_token: str | None = None, **options: Any
    ) -> None:
        """Creates the session; `options` as for `RemoteSession.create`.

        Raises:
            ServiceError: the service refuses the options, lacks the `policy` interface, or cannot be reached.
        """
        self.session = RemoteSession.create(
            base_url, task, access_token=access_token, interface="policy", worlds=num_envs, **options
        )
        self.num_envs = num_envs
        description = self.session.description
        (observations,) = description["observations"]["observation"]["shape"]
        (actions,) = description["actions"]["action"]["shape"]
        self.spaces = (
            gymnasium.spaces.Box(-np.inf, np.inf, (observations,), np.float32),
            gymnasium.spaces.Box(-1.0, 1.0, (actions,), np.float32),
        )
        """Observation and action space of one world."""
        self.single_observation_space, self.single_action_space = self.spaces
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Starts a new episode in every world.

        Raises:
            ValueError: `options` has `reset_mask`, which same-step autoreset does not support.
        """
        if options and "reset_mask" in options:
            raise ValueError("the worlds reset in the same step in which an episode ends; leave reset_mask out")
        super().reset(seed=seed)
        first = self.session.reset(seed)
        return first["observation"], {"critic": first["critic"]}

    def step(self, actions: Floats) -> tuple[Floats, Floats, Bools, Bools, dict[str, Any]]:
        """One step of every world; actions have shape (num_envs, actions)."""
        reply = self.session.step({"action": np.asarray(actions, np.float32)})
        infos: dict[str, Any] = {"critic": reply.observations["critic"]}
        if reply.judged.any():
            infos |= {"success": reply.succeeded, "_success": reply.judged}
        if reply.final is not None:
            done, final = reply.terminated | reply.truncated, np.full(self.num_envs, None, object)
            for world, observation in zip(np.flatnonzero(done), reply.final["observation"], strict=True):
                final[world] = observation
            infos |= {"final_obs": final, "_final_obs": done}
        return reply.observations["observation"], reply.reward, reply.terminated, reply.truncated, infos

    def close_extras(self, **_: Any) -> None:
        """Closes the session."""
        self.session.close()
