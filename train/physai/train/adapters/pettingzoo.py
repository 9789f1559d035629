"""A team of robots as PettingZoo's parallel environment, for other people's multi-agent learners."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv  # pyright: ignore[reportMissingTypeStubs]

from physai.sim.teams.team import Team
from physai.sim.teams.team_environment import TeamEnvironment
from physai.train.adapters.core import ActionError, Floats, TaskWorlds
from physai.train.adapters.gymnasium import spaces


class TeamParallelEnv(ParallelEnv[str, Floats, Floats]):
    """One world of a team; agents are its members, actions are network outputs, -1 to 1.

    An episode ends for all agents in the same step. Infos: `critic` (float32, shape (critic inputs,)), what the critic
    of this agent sees of its own robot, and `is_success` where a command or the episode was judged; `state` is what the
    critics of all agents see together.
    """

    def __init__(self, team: Team, **options: Any) -> None:
        """Builds the world; `options` as for `physai.sim.teams.team_environment.TeamEnvironment`."""
        self.metadata = {"name": team.name, "render_modes": []}
        self.render_mode = None
        self.team = team
        self.environment = TeamEnvironment(team, 1, keep_final=True, **options)
        repeat = int(options.get("action_repeat", 1))
        self.worlds = {
            name: TaskWorlds(task, 1, action_repeat=repeat, environment=self.environment.members[name])
            for name, task in team.members.items()
        }
        """Each agent's observations and commands."""
        self._spaces = {name: spaces(worlds) for name, worlds in self.worlds.items()}
        self.possible_agents = list(team.members)
        self.agents: list[str] = []
        self._critic: dict[str, Floats] = {}

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Observations of an agent before normalisation."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Actions of an agent."""
        return self._spaces[agent][1]

    @property
    def state_space(self) -> gymnasium.spaces.Box:
        """Space of `state`."""
        return gymnasium.spaces.Box(-np.inf, np.inf, (self.team.critic_size,), np.float32)

    def state(self) -> Floats:
        """Inputs of the critics of all agents, in the agents' order, float32, shape (team.critic_size,).

        Raises:
            ActionError: `reset` was not called.
        """
        if not self._critic:
            raise ActionError("call reset before state")
        return np.concatenate([self._critic[agent] for agent in self.possible_agents])

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Floats], dict[str, dict[str, Any]]]:
        """Starts a new episode; a seed makes all that follows a function of it and the actions."""
        if seed is not None:
            self.environment.reseed(seed)
        begun = {agent: self.worlds[agent].begin(now) for agent, now in self.environment.reset().items()}
        self.agents = list(self.possible_agents)
        self._critic = {agent: critic[0] for agent, (_, critic) in begun.items()}
        observations = {agent: observation[0] for agent, (observation, _) in begun.items()}
        return observations, {agent: {"critic": self._critic[agent]} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Floats]
    ) -> tuple[dict[str, Floats], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One step of all agents.

        Raises:
            ActionError: there is no episode, an agent has no action, or one of another shape or that is not finite.
        """
        if not self.agents:
            raise ActionError("no episode is under way; call reset before the first step, and after an episode's end")
        if set(actions) != set(self.agents):
            raise ActionError(f"actions are for {sorted(actions)}, the agents are {self.agents}")
        # All before any, as acting moves an agent's memory on.
        checked = {agent: self.worlds[agent].checked(np.asarray(actions[agent])[None]) for agent in self.agents}
        acts = {agent: self.worlds[agent].act(action) for agent, action in checked.items()}
        periods = zip(*acts.values(), strict=True)
        results = self.environment.step(*(dict(zip(acts, period, strict=True)) for period in periods))
        steps = {agent: self.worlds[agent].take(result) for agent, result in results.items()}
        observations: dict[str, Floats] = {}
        infos: dict[str, dict[str, Any]] = {}
        for agent, step in steps.items():
            ended = step.ended
            observations[agent] = step.observation[0] if ended is None else ended.observation[0]
            self._critic[agent] = step.critic[0] if ended is None else ended.critic[0]
            infos[agent] = {"critic": self._critic[agent]}
            if step.judged[0]:
                infos[agent]["is_success"] = bool(step.succeeded[0])
        terminated = {agent: bool(step.terminated[0]) for agent, step in steps.items()}
        truncated = {agent: bool(step.truncated[0]) for agent, step in steps.items()}
        rewards = {agent: float(step.reward[0]) for agent, step in steps.items()}
        if any(terminated.values()) or any(truncated.values()):
            self.agents = []
        return observations, rewards, terminated, truncated, infos

    def render(self) -> None:
        """Nothing; film a robot by its own task with `physai play`."""

    def close(self) -> None:
        """Nothing is held that outlives the environment."""
