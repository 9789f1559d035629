"""Plays a policy in one world and yields every moment, for videos, recordings and the viewer."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from statistics import fmean
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.diff import require_same
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import Seeds, episode_seeds
from physai.sim.envs.step_result import StepResult
from physai.sim.policies.evaluate import EVALUATION_SEED, Policy
from physai.sim.tasks.task import Task

Vector = npt.NDArray[np.float64]
Fields = Mapping[str, Array]
"""Vectors by name, shape (size,)."""

EpisodeEnd = Literal["time", "failure", "diverged", "stopped"]


def finite_or_none(value: float) -> float | None:
    """The value, or None for NaN and infinity, which JSON cannot represent."""
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class EpisodeOutcome:
    """How an episode went."""

    episode: int
    """Number of the episode, from 0."""
    seed: int
    """Seed that replays it."""
    ended: EpisodeEnd
    """Time limit, termination of the task, diverged physics, or stopped by the user."""
    length_s: float
    total_reward: float
    judged: int
    """Number of success checks: one per command, or one per episode if the task draws only one."""
    succeeded: int
    """How many of them met the task's criterion."""
    metrics: dict[str, float]
    """Mean of each task metric over the success checks."""

    @property
    def success(self) -> bool | None:
        """Whether all success checks passed; None if there were none."""
        return self.succeeded == self.judged if self.judged else None

    def as_json(self) -> dict[str, Any]:
        # The seed is text because JSON readers round integers beyond 2^53.
        return {
            "episode": self.episode,
            "seed": str(self.seed),
            "ended": self.ended,
            "length_s": self.length_s,
            "return": finite_or_none(self.total_reward),
            "judged": self.judged,
            "succeeded": self.succeeded,
            "success": self.success,
            "metrics": {name: finite_or_none(value) for name, value in self.metrics.items()},
        }


@dataclass(frozen=True)
class EpisodeVerdict:
    """The success check of one command or episode."""

    succeeded: bool
    """Whether it met the task's criterion."""
    metrics: dict[str, float]
    """The task's metrics at that time."""


@dataclass(frozen=True)
class Moment:
    """One control period of an episode: the result of the last step and the next command. Arrays are copies."""

    episode: int
    seed: int
    start_s: float
    """Time played before this episode [s]."""
    time_s: float
    """Time in the episode [s]."""
    qpos: Vector
    """MuJoCo's generalised positions, shape (nq,)."""
    qvel: Vector
    """MuJoCo's generalised velocities, shape (nv,)."""
    sensors: Fields
    """The policy's sensor inputs, with noise and delay; empty at the end of an episode."""
    commands: Fields
    """The policy's command inputs; at the end of an episode, the last ones."""
    targets: Fields
    """The policy's joint commands [rad, m, N·m or N]; empty at the end of an episode."""
    reward: float | None
    """Reward of the last step; None at the start of an episode."""
    verdict: EpisodeVerdict | None
    """The success check, if there was one in this period."""
    outcome: EpisodeOutcome | None
    """The result of the episode, at its end."""


class LastStateEngine(MujocoEngine):
    """An engine that keeps the state before the last reset, which is the final state of the episode."""

    last_qpos: Array = np.zeros(0)
    last_qvel: Array = np.zeros(0)

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        """Resets the masked worlds; see `Engine.reset`."""
        self.last_qpos, self.last_qvel = self.state("qpos").copy(), self.state("qvel").copy()
        super().reset(mask, qpos, qvel)


def episode_seed(seed: int, episode: int) -> Seeds:
    """Seed of an episode, shape (1,); seed 0 yields the episodes of `physai eval` in the same order."""
    return episode_seeds((EVALUATION_SEED + seed) & 0xFFFFFFFFFFFFFFFF, np.array([episode]), np.array([0]))


@dataclass
class _Tally:
    """Running totals of an episode."""

    total_reward: float = 0.0
    verdicts: list[EpisodeVerdict] = field(default_factory=list[EpisodeVerdict])

    def add(self, now: StepResult) -> None:
        self.total_reward += float(now.reward[0])
        verdict = step_verdict(now)
        if verdict is not None:
            self.verdicts.append(verdict)

    def outcome(self, episode: int, seed: int, ended: EpisodeEnd, length_s: float) -> EpisodeOutcome:
        names = self.verdicts[0].metrics if self.verdicts else ()
        return EpisodeOutcome(
            episode=episode,
            seed=seed,
            ended=ended,
            length_s=length_s,
            total_reward=self.total_reward,
            judged=len(self.verdicts),
            succeeded=sum(verdict.succeeded for verdict in self.verdicts),
            metrics={name: fmean(verdict.metrics[name] for verdict in self.verdicts) for name in names},
        )


class Player:
    """Plays episodes; iterate over it to get their moments."""

    def __init__(
        self,
        policy: Policy,
        task: Task,
        *,
        episodes: int | None = None,
        seed: int = 0,
        duration_s: float | None = None,
        randomise: bool = True,
    ) -> None:
        """Builds the world.

        Args:
            policy: policy to play.
            task: task to play.
            episodes: number of episodes; None for no limit.
            seed: seed of the episodes, see `episode_seed`.
            duration_s: simulated time after which playing stops [s]; None for no limit.
            randomise: draw model parameters, sensor noise, bias, delay and pushes; otherwise use the nominal twin.

        Raises:
            ContractMismatchError: policy and task have different contracts.
            TaskError: `episodes` is below 1, or `duration_s` is not positive.
        """
        require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
        if episodes is not None and episodes < 1:
            raise TaskError(f"at least one episode must be played, got {episodes}")
        if duration_s is not None and not duration_s > 0.0:
            raise TaskError(f"playing must last longer than 0 s, got {duration_s} s")
        self._policy, self._seed, self._episodes, self._duration_s = policy, seed, episodes, duration_s
        self._engine = LastStateEngine(
            task.model,
            1,
            num_threads=1,
            stage=task.stage,
            parameters=ParameterDraws.fields(task) if randomise else (),
            derived=task.derived,
        )
        self._env = Environment(task, 1, randomise=randomise, engine=self._engine)
        self._stopped = False
        self._played_s = 0.0
        self._num_diverged = 0
        self.outcomes: list[EpisodeOutcome] = []
        """Outcomes of the finished episodes."""

    @property
    def forces(self) -> Array:
        """External forces and torques on the bodies, world frame [N, N·m], shape (nbody, 6); live and writable."""
        return self._engine.state("xfrc_applied")[0]

    def stop(self) -> None:
        """Stops at the next moment."""
        self._stopped = True

    def __iter__(self) -> Iterator[Moment]:
        """The moments of all episodes: one per control period, and one at the end of each episode."""
        episode = 0
        while (self._episodes is None or episode < self._episodes) and not self._finished(0.0):
            yield from self._play(episode)
            self._played_s += self.outcomes[-1].length_s
            episode += 1

    def _finished(self, time_s: float) -> bool:
        """Whether playing stops at this time of the current episode."""
        # The tolerance keeps rounding errors in sums of periods from adding a period.
        return self._stopped or (self._duration_s is not None and self._played_s + time_s > self._duration_s - 1e-9)

    def _play(self, episode: int) -> Iterator[Moment]:
        env, tally = self._env, _Tally()
        seed = episode_seed(self._seed, episode)
        now = env.reset(seed)
        self._policy.reset(1)
        commands = now.commands
        # One more moment than steps: the last has a state and an outcome, but no command.
        for step in count():
            time_s = step * env.step_dt
            ended = self._ending(now, time_s)
            if step:
                tally.add(now)
            targets: Mapping[str, Array] = {} if ended else self._policy(now.sensors, now.commands)
            commands = commands if now.done[0] else now.commands
            outcome = None if ended is None else tally.outcome(episode, int(seed[0]), ended, time_s)
            if outcome is not None:
                self.outcomes.append(outcome)
            yield Moment(
                episode=episode,
                seed=int(seed[0]),
                start_s=self._played_s,
                time_s=time_s,
                qpos=self._engine.last_qpos[0] if now.done[0] else env.view.qpos[0].copy(),
                qvel=self._engine.last_qvel[0] if now.done[0] else env.view.qvel[0].copy(),
                sensors={} if ended else first_row(now.sensors),
                commands=first_row(commands),
                targets=first_row(targets),
                reward=float(now.reward[0]) if step else None,
                verdict=step_verdict(now),
                outcome=outcome,
            )
            if ended:
                return
            now = env.step(targets)

    def _ending(self, now: StepResult, time_s: float) -> EpisodeEnd | None:
        if now.terminated[0]:
            diverged = len(self._env.diverged_episodes) > self._num_diverged
            self._num_diverged = len(self._env.diverged_episodes)
            return "diverged" if diverged else "failure"
        if now.truncated[0]:
            return "time"
        return "stopped" if self._finished(time_s) else None


def first_row(fields: Fields) -> dict[str, Array]:
    """Copies of the first world's vectors."""
    return {name: np.array(values[0]) for name, values in fields.items()}


def step_verdict(now: StepResult) -> EpisodeVerdict | None:
    """The success check of the first world; None if the step had none."""
    if not now.judged[0]:
        return None
    return EpisodeVerdict(bool(now.succeeded[0]), {name: float(values[0]) for name, values in now.metrics.items()})
