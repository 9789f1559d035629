"""Evaluates policies: plays episodes and counts successes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.contract_diff import require_same
from physai.sdk.stats.statistics import clopper_pearson
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Bools, DivergedEpisode, Environment
from physai.sim.envs.rng import Seeds, episode_seeds
from physai.sim.envs.step_result import StepResult
from physai.sim.policies.policy_protocol import Policy as Policy
from physai.sim.policies.ramped import ramped
from physai.sim.tasks.task import Task

EVALUATION_SEED = 0x5EED_0E7A1
"""Evaluation episodes share no seed with training."""


@dataclass(frozen=True)
class Episodes:
    """Results of a policy's episodes. Success is checked per command, or per episode if a task draws only one."""

    judged: tuple[int, ...]
    """Number of success checks in each episode."""
    succeeded: tuple[int, ...]
    """Number of successes in each episode."""
    metrics: dict[str, float]
    """Mean of each task metric over all success checks."""
    diverged: tuple[DivergedEpisode, ...]
    """Episodes in which the physics diverged; they count as failed."""

    @property
    def success(self) -> float:
        """Success rate."""
        return sum(self.succeeded) / max(1, sum(self.judged))

    def success_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Clopper-Pearson interval of the success rate.

        Exact for one command per episode; several commands share the episode's randomised model and are therefore not
        fully independent trials.
        """
        return clopper_pearson(sum(self.succeeded), sum(self.judged), confidence=confidence)


def evaluation_seeds(episodes: int, seed: int = EVALUATION_SEED) -> Seeds:
    """Episode seeds that are the same for every policy, for paired comparisons; shape (episodes,)."""
    worlds = np.arange(episodes)
    return episode_seeds(seed, worlds, np.zeros_like(worlds))


def play_episodes(
    policy: Policy,
    task: Task,
    *,
    episodes: int,
    seeds: Seeds | None = None,
    randomise: bool = True,
    num_threads: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Episodes:
    """Plays one episode per world from the task's initial states, without exploration.

    Args:
        policy: policy to evaluate.
        task: task to play.
        episodes: number of episodes.
        seeds: seed of each episode, shape (episodes,); `evaluation_seeds` if None.
        randomise: draw model parameters, noise, delays and pushes; otherwise use the nominal twin.
        num_threads: threads of the engine, 0 for one per processor.
        progress: called with the fraction of the time played, in (0, 1].

    Raises:
        ContractMismatchError: policy and task have different contracts.
        TaskError: `episodes` is below 1, or the number of seeds differs from it.
    """
    require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
    if episodes < 1:
        raise TaskError(f"at least one episode must be played, got {episodes}")
    seeds = evaluation_seeds(episodes) if seeds is None else seeds
    if seeds.shape != (episodes,):
        raise TaskError(f"{episodes} episodes need one seed each, got seeds of shape {seeds.shape}")
    env = Environment(task, episodes, seed=EVALUATION_SEED, randomise=randomise, num_threads=num_threads)
    return play_worlds({"": policy}, Alone(env), {"": seeds}, progress)[""]


class Worlds(Protocol):
    """Worlds of one robot or of several, by the robot's name: `Alone`, or a `TeamEnvironment`."""

    num_worlds: int
    members: dict[str, Environment]

    def reset(self, seeds: Mapping[str, Seeds]) -> dict[str, StepResult]:
        """Starts a new episode everywhere."""
        ...

    def step(self, targets: Mapping[str, Mapping[str, Array]], /) -> dict[str, StepResult]:
        """Applies commands for one control period."""
        ...


class Alone:
    """Worlds of one robot, whose name is empty."""

    def __init__(self, env: Environment) -> None:
        self.num_worlds, self.members = env.num_worlds, {"": env}

    def reset(self, seeds: Mapping[str, Seeds]) -> dict[str, StepResult]:
        return {"": self.members[""].reset(seeds[""])}

    def step(self, targets: Mapping[str, Mapping[str, Array]], /) -> dict[str, StepResult]:
        return {"": self.members[""].step(targets[""])}


class _Tally:
    """Counts of one robot's episodes."""

    def __init__(self, worlds: int) -> None:
        self._judged, self._succeeded = np.zeros(worlds, int), np.zeros(worlds, int)
        self._metrics: dict[str, list[Array]] = {}

    def add(self, result: StepResult, running: Bools) -> None:
        self._judged += result.judged & running
        self._succeeded += result.succeeded & running
        for name, values in result.metrics.items():
            self._metrics.setdefault(name, []).append(values[running[result.judged]])

    def episodes(self, env: Environment, seeds: Seeds) -> Episodes:
        # Worlds that have ended play on in a new episode, whose divergences do not count.
        own = {int(seed) for seed in seeds}
        return Episodes(
            judged=tuple(self._judged.tolist()),
            succeeded=tuple(self._succeeded.tolist()),
            metrics={name: float(np.concatenate(v).mean(dtype=np.float64)) for name, v in self._metrics.items()},
            diverged=tuple(episode for episode in env.diverged_episodes if episode.episode_seed in own),
        )


def play_worlds(
    policies: Mapping[str, Policy],
    worlds: Worlds,
    seeds: Mapping[str, Seeds],
    progress: Callable[[float], None] | None = None,
) -> dict[str, Episodes]:
    """Plays one episode per world without exploration.

    Args:
        policies: by the robot's name.
        worlds: of the robots.
        seeds: of each robot's episodes, shape (num_worlds,).
        progress: called with the fraction of the time played, in (0, 1].
    """
    policies = {name: ramped(policy) for name, policy in policies.items()}
    now = worlds.reset(seeds)
    for policy in policies.values():
        policy.reset(worlds.num_worlds)
    running = np.ones(worlds.num_worlds, bool)
    tallies = {name: _Tally(worlds.num_worlds) for name in policies}
    first = next(iter(policies))
    steps = worlds.members[first].episode_steps
    for step in range(steps):
        now = worlds.step({name: policy(now[name].sensors, now[name].commands) for name, policy in policies.items()})
        for name, tally in tallies.items():
            tally.add(now[name], running)
        # An episode ends for all robots at once.
        done = now[first].done
        running &= ~done
        if done.any():
            for policy in policies.values():
                policy.reset_worlds(done)
        if progress is not None:
            progress((step + 1) / steps if running.any() else 1.0)
        if not running.any():
            break
    return {name: tally.episodes(worlds.members[name], seeds[name]) for name, tally in tallies.items()}
