"""Our tasks for rsl_rl (5.x), and what it trained as a policy graph."""

from typing import Any

import torch
from rsl_rl.env import VecEnv
from rsl_rl.models import MLPModel
from tensordict import TensorDict
from torch import Tensor

from physai.sdk.base.errors import ExportError
from physai.sim.tasks.task import Task
from physai.train.adapters.core import Floats, TaskWorlds, graph_from_network
from physai.train.models.policy_graph import PolicyGraph

ACTOR_GROUP, CRITIC_GROUP = "policy", "critic"
OBS_GROUPS = {"actor": [ACTOR_GROUP], "critic": [CRITIC_GROUP]}
"""`obs_groups` of a runner's configuration that gives the critic the noise-free state."""


class TaskVecEnv(VecEnv):
    """Many worlds of one task; an episode that ends is followed by the next one in the same step.

    Observation groups `policy` (what the deployed network sees) and `critic`. Extras: `time_outs`, and `log` with the
    share of successes and the task's metrics wherever something was judged.
    """

    def __init__(self, task: Task, num_envs: int, **options: Any) -> None:
        """Builds the worlds and resets them; `options` as for `physai.train.adapters.core.TaskWorlds`."""
        self.worlds = TaskWorlds(task, num_envs, **options)
        self.num_envs = num_envs
        self.num_actions = self.worlds.actions
        self.max_episode_length = self.worlds.environment.episode_steps
        self.device = "cpu"
        self.cfg: dict[str, Any] = {"task": task.name, "fingerprint": task.contract.fingerprint, **options}
        self._observations = self._groups(*self.worlds.reset())

    def _groups(self, observation: Floats, critic: Floats) -> TensorDict:
        groups = {ACTOR_GROUP: torch.as_tensor(observation), CRITIC_GROUP: torch.as_tensor(critic)}
        return TensorDict(groups, batch_size=[self.num_envs])

    @property
    def episode_length_buf(self) -> Tensor:
        """Steps taken in each running episode, shape (num_envs,); setting it moves the episodes' ends."""
        return torch.as_tensor(self.worlds.environment.steps_in_episode.copy())

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        self.worlds.environment.steps_in_episode[...] = value.numpy()

    def get_observations(self) -> TensorDict:
        """Observations as of the last step."""
        return self._observations

    def reset(self, seed: int | None = None) -> TensorDict:
        """Starts a new episode in every world; with a seed, the following steps depend on it and the actions only."""
        self._observations = self._groups(*self.worlds.reset(seed))
        return self._observations

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """One step of every world; actions have shape (num_envs, num_actions)."""
        step = self.worlds.step(actions)
        self._observations = self._groups(step.observation, step.critic)
        extras: dict[str, Any] = {"time_outs": torch.as_tensor(step.truncated)}
        if step.judged.any():
            log = {f"/{name}": float(values.mean()) for name, values in step.metrics.items()}
            extras["log"] = {"/success": float(step.succeeded[step.judged].mean()), **log}
        done = torch.as_tensor(step.terminated | step.truncated)
        return self._observations, torch.as_tensor(step.reward), done.long(), extras


def graph_from_rsl_rl(actor: MLPModel, task: Task) -> PolicyGraph:
    """The deterministic policy of an rsl_rl actor as a policy graph, its normaliser included.

    Args:
        actor: what `OnPolicyRunner.get_inference_policy()` returns.
        task: the task it was trained on.

    Raises:
        ExportError: the actor is recurrent, sees other groups than `policy`, or does not fit the task.
    """
    if actor.is_recurrent:
        raise ExportError("a recurrent rsl_rl actor cannot be converted to a policy graph; use an MLPModel")
    if list(actor.obs_groups) != [ACTOR_GROUP]:
        raise ExportError(
            f"the actor observes the groups {list(actor.obs_groups)}, but on the robot only {ACTOR_GROUP!r} is "
            f"available; train with obs_groups {OBS_GROUPS}"
        )
    return graph_from_network(actor.as_onnx(verbose=False), task)
