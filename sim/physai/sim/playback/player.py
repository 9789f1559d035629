"""Plays policies in one world and yields every moment, for videos, recordings and the viewer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from statistics import fmean
from typing import TypedDict, Unpack

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.contract_diff import require_same
from physai.sim.engines.mujoco import LastStateEngine
from physai.sim.engines.protocol import Array
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import Seeds, episode_seeds
from physai.sim.envs.step_result import StepResult
from physai.sim.playback.moment import (
    EpisodeEnd,
    EpisodeOutcome,
    EpisodeVerdict,
    Fields,
    Moment,
    first_row,
    step_verdict,
)
from physai.sim.policies.evaluate import EVALUATION_SEED, Alone, Policy, Worlds
from physai.sim.policies.ramped import ramped
from physai.sim.tasks.task import Task
from physai.sim.teams.team import Team
from physai.sim.teams.team_environment import TeamEnvironment
from physai.sim.teams.team_evaluate import require_policies
from physai.sim.teams.worlds import drawn_fields


def episode_seed(seed: int, episode: int, *, member: int = 0) -> Seeds:
    """Seed of an episode, shape (1,), for one of a team's members; seed 0 yields the episodes of `physai eval`."""
    return episode_seeds((EVALUATION_SEED + seed) & 0xFFFFFFFFFFFFFFFF, np.array([episode]), np.array([member]))


@dataclass
class _Tally:
    """Running totals of an episode."""

    total_reward: float = 0.0
    verdicts: list[EpisodeVerdict] = field(default_factory=list[EpisodeVerdict])

    def add(self, reward: float, verdict: EpisodeVerdict | None) -> None:
        self.total_reward += reward
        if verdict is not None:
            self.verdicts.append(verdict)

    def outcome(self, episode: int, seed: int, ended: EpisodeEnd, length_s: float) -> EpisodeOutcome:
        metrics: dict[str, list[float]] = {}
        for verdict in self.verdicts:
            for name, value in verdict.metrics.items():
                metrics.setdefault(name, []).append(value)
        return EpisodeOutcome(
            episode=episode,
            seed=seed,
            ended=ended,
            length_s=length_s,
            total_reward=self.total_reward,
            judged=len(self.verdicts),
            succeeded=sum(verdict.succeeded for verdict in self.verdicts),
            metrics={name: fmean(values) for name, values in metrics.items()},
        )


class PlayOptions(TypedDict, total=False):
    """Options of every player; see `EpisodePlayer`."""

    episodes: int | None
    seed: int
    duration_s: float | None


class EpisodePlayer:
    """Plays episodes in one world; iterate over it to get their moments."""

    def __init__(
        self,
        policies: Mapping[str, Policy],
        worlds: Worlds,
        engine: LastStateEngine,
        *,
        episodes: int | None = None,
        seed: int = 0,
        duration_s: float | None = None,
    ) -> None:
        """Takes policies and the world of their robots.

        Args:
            policies: by the robot's name.
            worlds: of the robots.
            engine: its physics.
            episodes: number of episodes; None for no limit.
            seed: seed of the episodes, see `episode_seed`.
            duration_s: simulated time after which playing stops [s]; None for no limit.

        Raises:
            TaskError: `episodes` is below 1, or `duration_s` is not positive.
        """
        if episodes is not None and episodes < 1:
            raise TaskError(f"at least one episode must be played, got {episodes}")
        if duration_s is not None and not duration_s > 0.0:
            raise TaskError(f"playing must last longer than 0 s, got {duration_s} s")
        self._policies = {name: ramped(policy) for name, policy in policies.items()}
        self._worlds, self._engine = worlds, engine
        self._seed, self._episodes, self._duration_s = seed, episodes, duration_s
        # Robots in one world have one clock and one end.
        self._first = next(iter(worlds.members))
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
        env, tally = self._worlds.members[self._first], _Tally()
        seeds = {
            name: episode_seed(self._seed, episode, member=index) for index, name in enumerate(self._worlds.members)
        }
        seed = int(seeds[self._first][0])
        now = self._worlds.reset(seeds)
        for policy in self._policies.values():
            policy.reset(1)
        commands = _joined({name: result.commands for name, result in now.items()})
        # One more moment than steps: the last has a state and an outcome, but no command.
        for step in count():
            time_s, done = step * env.step_dt, bool(now[self._first].done[0])
            ended = self._ending(now[self._first], time_s)
            reward, verdict = sum(float(result.reward[0]) for result in now.values()), _verdict(now)
            if step:
                tally.add(reward, verdict)
            targets: dict[str, Fields] = {}
            if not ended:
                targets = {
                    name: policy(now[name].sensors, now[name].commands) for name, policy in self._policies.items()
                }
            if not done:
                commands = _joined({name: result.commands for name, result in now.items()})
            outcome = None if ended is None else tally.outcome(episode, seed, ended, time_s)
            if outcome is not None:
                self.outcomes.append(outcome)
            yield Moment(
                episode=episode,
                seed=seed,
                start_s=self._played_s,
                time_s=time_s,
                qpos=self._engine.last_qpos[0] if done else self._engine.state("qpos")[0].copy(),
                qvel=self._engine.last_qvel[0] if done else self._engine.state("qvel")[0].copy(),
                sensors={} if ended else _joined({name: result.sensors for name, result in now.items()}),
                commands=commands,
                targets=_joined(targets),
                reward=reward if step else None,
                verdict=verdict,
                outcome=outcome,
            )
            if ended:
                return
            now = self._worlds.step(targets)

    def _ending(self, now: StepResult, time_s: float) -> EpisodeEnd | None:
        if now.terminated[0]:
            count_before, self._num_diverged = self._num_diverged, self._diverged()
            return "diverged" if self._num_diverged > count_before else "failure"
        if now.truncated[0]:
            return "time"
        return "stopped" if self._finished(time_s) else None

    def _diverged(self) -> int:
        return len(self._worlds.members[self._first].diverged_episodes)


class Player(EpisodePlayer):
    """Plays a policy on its task."""

    def __init__(self, policy: Policy, task: Task, *, randomise: bool = True, **options: Unpack[PlayOptions]) -> None:
        """Builds the world.

        Args:
            policy: policy to play.
            task: task to play.
            randomise: draw model parameters, sensor noise, bias, delay and pushes; otherwise use the nominal twin.
            options: see `EpisodePlayer`.

        Raises:
            ContractMismatchError: policy and task have different contracts.
            TaskError: see `EpisodePlayer`.
        """
        require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
        engine = LastStateEngine(
            task.model,
            1,
            num_threads=1,
            stage=task.stage,
            parameters=ParameterDraws.fields(task) if randomise else (),
            derived=task.derived,
        )
        worlds = Alone(Environment(task, 1, randomise=randomise, engine=engine))
        super().__init__({"": policy}, worlds, engine, **options)


class TeamPlayer(EpisodePlayer):
    """Plays the policies of a team in their shared world.

    What a moment holds of a robot has its name and `/` before its own. A moment's success check is passed if all robots
    pass that are checked then; rewards are those of all.
    """

    def __init__(
        self, policies: Mapping[str, Policy], team: Team, *, randomise: bool = True, **options: Unpack[PlayOptions]
    ) -> None:
        """Builds the world; seed 0 yields the episodes of `play_team`.

        Args:
            policies: by member.
            team: team to play.
            randomise: see `Player`.
            options: see `EpisodePlayer`.

        Raises:
            ContractMismatchError: a policy and its member's task have different contracts.
            TaskError: a member has no policy, or two share one; see also `EpisodePlayer`.
        """
        require_policies(policies, team)
        fields = drawn_fields(team) if randomise else ()
        engine = LastStateEngine(team.model, 1, num_threads=1, parameters=fields)
        worlds = TeamEnvironment(team, 1, randomise=randomise, engine=engine)
        in_order = {name: policies[name] for name in team.members}
        super().__init__(in_order, worlds, engine, **options)


def _verdict(now: Mapping[str, StepResult]) -> EpisodeVerdict | None:
    """The success checks of all robots that had one."""
    found = {name: verdict for name, result in now.items() if (verdict := step_verdict(result)) is not None}
    if not found:
        return None
    metrics = {_in(name, metric): value for name, verdict in found.items() for metric, value in verdict.metrics.items()}
    return EpisodeVerdict(all(verdict.succeeded for verdict in found.values()), metrics)


def _joined(parts: Mapping[str, Fields]) -> dict[str, Array]:
    return {_in(name, key): values for name, fields in parts.items() for key, values in first_row(fields).items()}


def _in(member: str, name: str) -> str:
    return f"{member}/{name}" if member else name
