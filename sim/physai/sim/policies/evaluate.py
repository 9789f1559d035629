"""Plays episodes with a policy and counts what it achieved: one loop for every kind of policy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.diff import require_same
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sim.engines.protocol import Array
from physai.sim.envs.environment import Bools, DivergedEpisode, Environment
from physai.sim.envs.rng import Seeds, episode_seeds
from physai.sim.stats.statistics import clopper_pearson
from physai.sim.tasks.task import Task

EVALUATION_SEED = 0x5EED_0E7A1
"""Episodes that judge a policy share no seed with any training run."""


class Policy(Protocol):
    """What plays: sensor fields and commands in, joint commands out, memory kept by itself."""

    @property
    def contract(self) -> PolicyContract:
        """The contract it was trained under."""
        ...

    def reset(self, num_worlds: int) -> None:
        """Forgets everything, in that many worlds."""
        ...

    def reset_worlds(self, mask: Bools) -> None:
        """Forgets everything in the masked worlds, shape (num_worlds,)."""
        ...

    def __call__(self, sensors: Mapping[str, Array], commands: Mapping[str, Array]) -> Mapping[str, Array]:
        """Joint commands of one control period by output name, shape (num_worlds, joints of the term)."""
        ...


@dataclass(frozen=True)
class Episodes:
    """What a policy achieved in its episodes. What is judged is each command where a task draws several."""

    judged: tuple[int, ...]
    """Commands or episodes judged, one number per episode."""
    succeeded: tuple[int, ...]
    """How many of them met the task's criterion, one number per episode."""
    metrics: dict[str, float]
    """Mean of each of the task's metrics over all that was judged."""
    diverged: tuple[DivergedEpisode, ...]
    """Episodes in which the physics diverged; they count as failed."""

    @property
    def success(self) -> float:
        """Share of what was judged that succeeded."""
        return sum(self.succeeded) / max(1, sum(self.judged))

    def success_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Clopper-Pearson interval of the success rate.

        Exact where an episode is judged once; several commands of one episode share its randomised model, so that
        theirs are not quite independent trials.
        """
        return clopper_pearson(sum(self.succeeded), sum(self.judged), confidence=confidence)


def evaluation_seeds(episodes: int, seed: int = EVALUATION_SEED) -> Seeds:
    """Seeds of that many episodes, the same for every policy, so that outcomes can be compared pair by pair."""
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
    """Plays one episode per world, from the task's own start, without exploration.

    Args:
        policy: what plays.
        task: what it plays.
        episodes: how many.
        seeds: seed of each episode, shape (episodes,); `evaluation_seeds` if None.
        randomise: draw model parameters, noise, delays and pushes; else the nominal twin.
        num_threads: threads of the engine, 0 for one per processor.
        progress: gets the share of the time that is played, in (0, 1].

    Raises:
        ContractMismatchError: the policy keeps another contract than the task.
        TaskError: no episodes, or not one seed for each.
    """
    require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
    if episodes < 1:
        raise TaskError(f"at least one episode must be played, got {episodes}")
    seeds = evaluation_seeds(episodes) if seeds is None else seeds
    if seeds.shape != (episodes,):
        raise TaskError(f"{episodes} episodes need one seed each, got seeds of shape {seeds.shape}")
    env = Environment(task, episodes, seed=EVALUATION_SEED, randomise=randomise, num_threads=num_threads)
    return _play(policy, env, seeds, progress)


def _play(policy: Policy, env: Environment, seeds: Seeds, progress: Callable[[float], None] | None) -> Episodes:
    now = env.reset(seeds)
    policy.reset(env.num_worlds)
    running = np.ones(env.num_worlds, bool)
    judged, succeeded = np.zeros(env.num_worlds, int), np.zeros(env.num_worlds, int)
    metrics: dict[str, list[Array]] = {}
    steps = round(env.task.episode_length_s / env.step_dt)
    for step in range(steps):
        now = env.step(policy(now.sensors, now.commands))
        judged += now.judged & running
        succeeded += now.succeeded & running
        for name, values in now.metrics.items():
            metrics.setdefault(name, []).append(values[running[now.judged]])
        running &= ~now.done
        if now.done.any():
            policy.reset_worlds(now.done)
        if progress is not None:
            progress((step + 1) / steps if running.any() else 1.0)
        if not running.any():
            break
    own = {int(seed) for seed in seeds}
    return Episodes(
        judged=tuple(judged.tolist()),
        succeeded=tuple(succeeded.tolist()),
        metrics={name: float(np.concatenate(values).mean(dtype=np.float64)) for name, values in metrics.items()},
        diverged=tuple(episode for episode in env.diverged_episodes if episode.episode_seed in own),
    )
