"""Code shared by all adapters: a batch of worlds for an external learner, and its network as a policy graph.

The graph's `observe` and `command` stages stay in the loop, so an external network gets the same observations as the
network of `physai train` and acts in the same units: -1 to 1 spans each action term.
"""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from physai.sdk.base.errors import ExportError, PhysaiError
from physai.sim.engines.protocol import Snapshot, put
from physai.sim.envs.environment import Bools, Environment, StepResult
from physai.sim.tasks.task import Task
from physai.train.models.numpy_policy import as_tensors
from physai.train.models.policy_graph import Normaliser, PolicyGraph, State
from physai.train.runners.runner import check_action_repeat
from physai.train.settings.config import TrainConfig

Floats = npt.NDArray[np.float32]


class ActionError(PhysaiError):
    """A learner's action has the wrong shape or is not finite."""


@dataclass(frozen=True)
class EndedEpisodes:
    """Episodes that ended in a step, one row each, ordered by world."""

    worlds: npt.NDArray[np.int64]
    observation: Floats
    """Final observation, before the reset, shape (n, observations); a time-out bootstraps from it."""
    critic: Floats
    """Final critic input, before the reset, shape (n, critic inputs)."""
    timed_out: Bools
    """Ended by time, not by failure."""
    succeeded: Bools
    """Met the task's criterion at the end."""
    returns: npt.NDArray[np.float64]
    """Sum of the rewards since `reset` or the last end."""
    lengths: npt.NDArray[np.int64]
    """Steps since `reset` or the last end."""


@dataclass(frozen=True)
class AdapterStep:
    """Result of one step, first axis the world; where an episode ended, the observation is the next episode's first."""

    observation: Floats
    """Observation before normalisation, shape (num_worlds, observations)."""
    critic: Floats
    """Critic input, which may be privileged, shape (num_worlds, critic inputs)."""
    reward: Floats
    terminated: Bools
    """Ended by failure."""
    truncated: Bools
    """Ended by time."""
    judged: Bools
    """Command or episode ended."""
    succeeded: Bools
    """Judged and met the task's criterion."""
    metrics: dict[str, npt.NDArray[np.float64]]
    """The task's metrics of the judged worlds, shape (judged.sum(),)."""
    ended: EndedEpisodes | None
    """None where no episode ended."""


class TaskWorlds:
    """Worlds of one task behind the graph's observation and command stages; each resets when its episode ends."""

    def __init__(
        self,
        task: Task,
        num_worlds: int,
        *,
        seed: int = 0,
        training: bool = True,
        randomise: bool = True,
        action_repeat: int = 1,
        num_threads: int = 0,
        environment: Environment | None = None,
    ) -> None:
        """Builds the worlds; arguments as for `physai.sim.envs.environment.Environment`. Call `reset` before `step`.

        With an `environment`, one robot's part of worlds that somebody else resets and steps: call `begin`, `act` and
        `take` in place of `reset` and `step`.

        Raises:
            ConfigError: actions are repeated although an observation has a history.
        """
        check_action_repeat(task, TrainConfig(action_repeat=action_repeat))
        self.task = task
        self.num_worlds = num_worlds
        self._action_repeat = action_repeat
        self.environment = environment or Environment(
            task,
            num_worlds,
            seed=seed,
            training=training,
            randomise=randomise,
            action_repeat=action_repeat,
            num_threads=num_threads,
            keep_final=True,
        )
        self.graph = PolicyGraph(task.contract, nn.Identity())
        self.observations, self.actions = self.graph.observation.size, task.contract.action.size
        self.steps_taken = 0
        """Steps taken by every world since construction."""
        self.outcomes: deque[bool] = deque(maxlen=num_worlds)
        """Whether the latest judged commands or episodes succeeded, oldest first."""
        self._returns = np.zeros(num_worlds)
        self._lengths = np.zeros(num_worlds, np.int64)
        self._now: StepResult | None = None
        self._memory: State = {}

    def reset(self, seed: int | None = None) -> tuple[Floats, Floats]:
        """Starts a new episode in every world; with a seed, the following steps depend on it and the actions only.

        Returns:
            Observation, shape (num_worlds, observations), and critic input, shape (num_worlds, critic inputs).
        """
        if seed is not None:
            self.environment.reseed(seed)
        return self.begin(self.environment.reset())

    def begin(self, result: StepResult) -> tuple[Floats, Floats]:
        """Takes what a reset shows; see `reset`."""
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self._now = result
        with torch.inference_mode(False), torch.no_grad():
            self._memory = self.graph.initial_state(self.num_worlds)
            return self._observe(self._now), self._now.critic

    def step(self, action: npt.ArrayLike | Tensor) -> AdapterStep:
        """Applies one action, in network output units, shape (num_worlds, actions), for `action_repeat` periods.

        Raises:
            ActionError: the action has another shape or is not finite.
        """
        return self.take(self.environment.step(*self.act(action)))

    def act(self, action: npt.ArrayLike | Tensor) -> list[dict[str, Floats]]:
        """Joint commands of each control period for an action; see `step`."""
        if self._now is None:
            raise ActionError("call reset before the first step")
        # Tensors made in a learner's inference mode could not be updated outside of it later.
        with torch.inference_mode(False), torch.no_grad():
            return self._command(self.checked(action), self._now)

    def take(self, result: StepResult) -> AdapterStep:
        """Takes what the environment's step brought; see `step`."""
        with torch.inference_mode(False), torch.no_grad():
            self.steps_taken += 1
            self.outcomes.extend(result.succeeded[result.judged].tolist())
            self._returns += result.reward
            self._lengths += 1
            done = result.done
            ended = self._end(result, done) if done.any() else None
            observation = self._observe(result)
        self._now = result
        return AdapterStep(
            observation=observation,
            critic=result.critic,
            reward=result.reward,
            terminated=result.terminated,
            truncated=result.truncated,
            judged=result.judged,
            succeeded=result.succeeded,
            metrics=result.metrics,
            ended=ended,
        )

    def snapshot(self) -> Snapshot:
        """Everything that `restore` needs to continue bit for bit; arrays only.

        Raises:
            ActionError: `reset` was not called.
        """
        if self._now is None:
            raise ActionError("call reset before the first snapshot")
        memory = {f"memory/{name}": value.numpy().copy() for name, value in self._memory.items()}
        now = {f"sensors/{name}": np.array(value) for name, value in self._now.sensors.items()}
        environment = {f"environment/{name}": value for name, value in self.environment.snapshot().items()}
        own = {
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "seed": np.array(self.environment.seed),
        }
        return {**own, **memory, **now, **environment}

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to a snapshot of worlds of the same task, options and number.

        Raises:
            ActionError: `reset` was not called.
            TaskError: it is of other worlds.
        """
        if self._now is None:
            raise ActionError("call reset before the first restore")
        parts: dict[str, Snapshot] = {"memory": {}, "sensors": {}, "environment": {}}
        for key, array in snapshot.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = array
        self.environment.restore(parts["environment"])
        self.environment.seed = int(snapshot["seed"])
        put(self._returns, snapshot, "returns")
        put(self._lengths, snapshot, "lengths")
        self._memory = {name: torch.as_tensor(np.array(value)) for name, value in parts["memory"].items()}
        self._now = replace(self._now, sensors={name: np.array(v) for name, v in parts["sensors"].items()})

    def checked(self, action: npt.ArrayLike | Tensor) -> Tensor:
        """An action as `step` takes it.

        Raises:
            ActionError: it has another shape or is not finite.
        """
        tensor = torch.as_tensor(action, dtype=torch.float32).detach()
        if tensor.shape != (self.num_worlds, self.actions):
            raise ActionError(
                f"actions have shape {tuple(tensor.shape)}, expected {(self.num_worlds, self.actions)}: worlds, actions"
            )
        if not bool(torch.isfinite(tensor).all()):
            world = int((~torch.isfinite(tensor)).any(dim=1).int().argmax())
            raise ActionError(f"the action of world {world} is {tensor[world].numpy()}; the learner has diverged")
        return tensor

    def _command(self, action: Tensor, now: StepResult) -> list[dict[str, Floats]]:
        """Joint commands of each control period; advances the graph's memory."""
        sensors = as_tensors(now.sensors)
        periods: list[dict[str, Floats]] = []
        for _ in range(self._action_repeat):
            targets, memory = self.graph.command(action, sensors, self._memory)
            periods.append({name: target.numpy() for name, target in targets.items()})
            self._memory = {**self._memory, **memory}
        return periods

    def _observe(self, result: StepResult) -> Floats:
        observation, histories = self.graph.observe(
            as_tensors(result.sensors), as_tensors(result.commands), self._memory
        )
        self._memory = {**self._memory, **histories}
        return observation.numpy()

    def _end(self, result: StepResult, done: Bools) -> EndedEpisodes:
        """Collects the ended episodes and clears their memory in the graph."""
        worlds = np.flatnonzero(done)
        rows = torch.as_tensor(worlds)
        memory = {name: value[rows] for name, value in self._memory.items()}
        sensors, commands = as_tensors(result.final_sensors or {}), as_tensors(result.final_commands or {})
        ended = EndedEpisodes(
            worlds=worlds,
            observation=self.graph.observe(sensors, commands, memory)[0].numpy(),
            critic=result.final_critic[worlds],
            timed_out=result.truncated[worlds],
            succeeded=result.succeeded[worlds],
            returns=self._returns[worlds],
            lengths=self._lengths[worlds],
        )
        self._returns[worlds] = 0.0
        self._lengths[worlds] = 0
        self._memory = {name: value.index_fill(0, rows, 0.0) for name, value in self._memory.items()}
        return ended


class PassThrough(Normaliser):
    """Identity, for a network with its own normalisation."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class NetworkActor(nn.Module):
    """A feed-forward network as the actor of a policy graph (see `physai.train.models.policy_graph.Actor`)."""

    state_size = 0

    def __init__(self, network: nn.Module) -> None:
        """Wraps a network from raw observations (n, observations) to actions (n, actions)."""
        super().__init__()
        self.network = network

    def forward(self, observation: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Action, shape (n, actions); the empty hidden state is passed through."""
        return self.network(observation), hidden


@torch.no_grad()
def graph_from_network(network: nn.Module, task: Task) -> PolicyGraph:
    """A policy graph around a trained network, ready for `physai.train.onnx_export.export.export_policy`.

    Args:
        network: from observations as `TaskWorlds` gives them (n, observations) to actions (n, actions), its own
            normalisation included; outputs beyond [-1, 1] are clipped.
        task: the task it was trained on.

    Raises:
        ExportError: the network does not fit the task's observations and actions.
    """
    graph = PolicyGraph(task.contract, NetworkActor(network.eval()))
    graph.normaliser = PassThrough(graph.observation.size)
    expected = (2, task.contract.action.size)
    try:
        output = network(torch.zeros(2, graph.observation.size))
    except (RuntimeError, ValueError) as error:
        raise ExportError(
            f"the network cannot take the {graph.observation.size} observations of task {task.name}: {error}"
        ) from error
    if output.shape != expected:
        raise ExportError(f"the network returns shape {tuple(output.shape)}, task {task.name} needs {expected}")
    return graph.eval()
