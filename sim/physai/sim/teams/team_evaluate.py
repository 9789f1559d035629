"""Evaluates the policies of a team: successes of each robot, and of all together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from physai.sdk.base.errors import TaskError
from physai.sdk.contract.contract_diff import require_same
from physai.sdk.stats.statistics import clopper_pearson
from physai.sim.envs.rng import episode_seeds
from physai.sim.policies.evaluate import EVALUATION_SEED, Episodes, Policy, play_worlds
from physai.sim.teams.team import Team
from physai.sim.teams.team_environment import TeamEnvironment


@dataclass(frozen=True)
class TeamEpisodes:
    """Results of a team's episodes."""

    members: dict[str, Episodes]
    """Of each robot."""
    together: tuple[bool, ...]
    """For each episode whether every robot met its criterion each time that it was checked."""

    @property
    def success(self) -> float:
        """Share of episodes in which all robots succeeded."""
        return sum(self.together) / len(self.together)

    def success_interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Clopper-Pearson interval of `success`."""
        return clopper_pearson(sum(self.together), len(self.together), confidence=confidence)


def play_team(
    policies: Mapping[str, Policy],
    team: Team,
    *,
    episodes: int,
    randomise: bool = True,
    num_threads: int = 0,
    progress: Callable[[float], None] | None = None,
) -> TeamEpisodes:
    """Plays one episode per world with a policy for each robot, without exploration.

    The first member plays the episodes of `play_episodes` as far as its own robot goes, the others other ones.

    Args:
        policies: by member.
        team: what is played.
        episodes: number of episodes.
        randomise: draw model parameters, noise, delays and pushes; otherwise use the nominal twin.
        num_threads: threads of the engine, 0 for one per processor.
        progress: called with the fraction of the time played, in (0, 1].

    Raises:
        ContractMismatchError: a policy and its member's task have different contracts.
        TaskError: a member has no policy, two share one, or `episodes` is below 1.
    """
    require_policies(policies, team)
    if episodes < 1:
        raise TaskError(f"at least one episode must be played, got {episodes}")
    env = TeamEnvironment(team, episodes, seed=EVALUATION_SEED, randomise=randomise, num_threads=num_threads)
    worlds = np.arange(episodes)
    seeds = {name: episode_seeds(EVALUATION_SEED, worlds, np.full(episodes, i)) for i, name in enumerate(team.members)}
    members = play_worlds({name: policies[name] for name in team.members}, env, seeds, progress)
    judged, succeeded = (np.array([getattr(m, what) for m in members.values()]) for what in ("judged", "succeeded"))
    together = ((succeeded == judged) & (judged > 0)).all(axis=0)
    return TeamEpisodes(members=members, together=tuple(together.tolist()))


def require_policies(policies: Mapping[str, Policy], team: Team) -> None:
    """Checks that there is a policy for each member, with a memory of its own.

    Raises:
        ContractMismatchError: a policy and its member's task have different contracts.
        TaskError: a member has no policy, or two share one.
    """
    if set(policies) != set(team.members):
        raise TaskError(
            f"team {team.name} needs a policy for each of {', '.join(team.members)}, got policies for "
            f"{', '.join(policies) or 'none'}"
        )
    if len({id(policy) for policy in policies.values()}) < len(policies):
        raise TaskError(
            "two members share one policy object, whose memory is of one robot; open the file once for each"
        )
    for name, policy in policies.items():
        task = team.members[name]
        require_same(policy.contract, task.contract, left=f"the policy of {name}", right=f"the task {task.name}")
