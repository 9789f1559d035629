"""The twin of a team: one physics, and for each robot its own sensors, delays, rewards and success."""

from collections.abc import Mapping

import numpy as np

from physai.sdk.base.errors import TaskError, unknown_name
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array, Snapshot
from physai.sim.envs.environment import Environment
from physai.sim.envs.rng import Seeds, episode_seeds
from physai.sim.envs.step_result import Bools, StepResult
from physai.sim.teams.team import Team
from physai.sim.teams.worlds import SharedWorlds


class TeamEnvironment:
    """Many worlds of one team. A world's episode ends for all robots when one of them fails, or by time."""

    def __init__(
        self,
        team: Team,
        num_worlds: int,
        *,
        seed: int = 0,
        training: bool = False,
        randomise: bool = True,
        action_repeat: int = 1,
        num_threads: int = 0,
        engine: MujocoEngine | None = None,
        keep_final: bool = False,
    ) -> None:
        """Builds the worlds; arguments as for `physai.sim.envs.environment.Environment`. Call `reset` before `step`.

        Raises:
            TaskError: a task asks for what a robot of a team does not have.
        """
        self.team, self.num_worlds = team, num_worlds
        self._worlds = SharedWorlds(team, num_worlds, num_threads=num_threads, randomise=randomise, engine=engine)
        self.members = {
            name: Environment(
                task,
                num_worlds,
                seed=member_seed(seed, index),
                training=training,
                randomise=randomise,
                action_repeat=action_repeat,
                engine=self._worlds.members[name],
                keep_final=keep_final,
            )
            for index, (name, task) in enumerate(team.members.items())
        }
        """Each robot's part; its clock is that of the first one."""

    def reseed(self, seed: int) -> None:
        """Makes the next reset begin the same episodes as in a new environment with this seed."""
        for index, member in enumerate(self.members.values()):
            member.reseed(member_seed(seed, index))

    def reset(self, seeds: Mapping[str, Seeds] | None = None) -> dict[str, StepResult]:
        """Starts a new episode everywhere.

        Args:
            seeds: for each member episode seeds, uint64, shape (num_worlds,); if None, drawn from the environment's.

        Raises:
            TaskError: a member lacks seeds, or has not one per world.
        """
        if seeds is not None:
            self._require_all(seeds, "seeds")
        for name, member in self.members.items():
            member.begin_episodes(None if seeds is None else seeds[name])
        self._begin()
        return {name: member.first_look() for name, member in self.members.items()}

    def step(self, *targets: Mapping[str, Mapping[str, Array]]) -> dict[str, StepResult]:
        """Applies joint commands of all members for one control period, or for `action_repeat` of them.

        Args:
            targets: for each control period, for each member the commands of `Environment.step`.

        Returns:
            What the step brought for each member; worlds whose episode ended are already in their next one.

        Raises:
            TaskError: a member has no commands, or `reset` was not called.
        """
        for period in targets:
            self._require_all(period, "commands")
        for name, member in self.members.items():
            member.command([period[name] for period in targets])
        self._worlds.drive()
        members = self.members.values()
        diverged = _any([member.diverged() for member in members])
        for member in members:
            member.contain(diverged)
        self._worlds.reset()
        ended = _any([diverged, *(member.failed() for member in members)])
        results = {name: member.conclude(ended, diverged) for name, member in self.members.items()}
        self._begin()
        return {name: member.look(results[name]) for name, member in self.members.items()}

    def _begin(self) -> None:
        """Begins the episodes that all members have a start for, with one clock for all."""
        self._worlds.reset()
        first, *others = self.members.values()
        for member in others:
            member.keep_time_of(first)

    def _require_all(self, given: Mapping[str, object], what: str) -> None:
        for name in self.members:
            if name not in given:
                raise TaskError(f"team {self.team.name}: no {what} for the member {name}")
        for name in given:
            if name not in self.members:
                raise TaskError(f"team {self.team.name}: {unknown_name('member', name, list(self.members))}")

    def snapshot(self) -> Snapshot:
        """Everything `restore` needs to continue bit for bit; arrays only, first axis the world."""
        parts = {name: member.snapshot() for name, member in self.members.items()}
        return {f"{name}/{key}": array for name, arrays in parts.items() for key, array in arrays.items()}

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to a snapshot of an environment of the same team, options and size.

        Raises:
            TaskError: it is of another one.
        """
        for name, member in self.members.items():
            start = f"{name}/"
            member.restore({key.removeprefix(start): a for key, a in snapshot.items() if key.startswith(start)})


def member_seed(seed: int, index: int) -> int:
    """The seed of a team's member, so that the members draw different numbers."""
    return int(episode_seeds(seed, np.array([index]), np.array([0]))[0])


def joined(name: str, parts: Mapping[str, Array]) -> Array:
    """Inputs of one member's critic from all: its own part first, then the others' in the team's order.

    Args:
        name: the member.
        parts: critic inputs of each member, shape (n, critic_size).
    """
    return np.concatenate([parts[name], *(part for other, part in parts.items() if other != name)], axis=1)


def _any(masks: list[Bools]) -> Bools:
    return np.logical_or.reduce(masks)
