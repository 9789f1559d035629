"""Proximal policy optimisation for each robot of a team, with critics that see all robots.

The actors are decentralised, as the robots are; a critic is needed while training only, so it may see more. This is
MAPPO (Yu et al., "The Surprising Effectiveness of PPO in Cooperative, Multi-Agent Games", 2022, arXiv:2103.01955)
without shared weights: each robot has a reward of its own, therefore a value of its own.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from physai.sim.envs.step_result import StepResult
from physai.sim.teams.team import Team
from physai.sim.teams.team_environment import TeamEnvironment, joined, member_seed
from physai.sim.teams.team_evaluate import TeamEpisodes, play_team
from physai.train.algorithms.ppo import Rollout, UpdateStats
from physai.train.collectors.collector import Collector, Learner
from physai.train.models.numpy_policy import GraphPolicy, seed_torch, seeded
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.checkpoint import learner_state, load_learner
from physai.train.runners.runner import (
    IterationStats,
    build_learner,
    check_action_repeat,
    empty_rollout,
    processors,
)
from physai.train.settings.config import ConfigError, TrainConfig


class TeamTrainer:
    """One training run of a team in memory."""

    def __init__(self, team: Team, config: TrainConfig, *, shared_critic: bool = True) -> None:
        """Builds worlds, graphs and learners from the configuration's seed.

        Args:
            team: what to learn.
            config: settings of every robot; its worlds hold all robots.
            shared_critic: whether each robot's critic sees what the critics of all see, or what its own does only.

        Raises:
            ConfigError: a setting is for runs of one robot.
        """
        _require_supported(config)
        for task in team.members.values():
            check_action_repeat(task, config)
        self.team, self.config, self.shared_critic = team, config, shared_critic
        self.learners: dict[str, Learner] = {}
        self._configs: dict[str, TrainConfig] = {}
        for index, (name, task) in enumerate(team.members.items()):
            # Members explore apart: with one seed, robots of one kind would draw the same numbers.
            self._configs[name] = replace(config, seed=member_seed(config.seed, index) >> 1)
            seed_torch(self._configs[name].seed)
            seen = replace(task, critic_size=team.critic_size) if shared_critic else task
            self.learners[name] = build_learner(seen, self._configs[name])
        self.env = TeamEnvironment(
            team,
            config.num_envs,
            seed=config.seed,
            training=True,
            action_repeat=config.action_repeat,
            num_threads=processors(config),
        )
        now = self._seen(self.env.reset())
        self._collectors = {
            name: Collector(
                task, self._configs[name], self.learners[name], num_threads=1, robot=(self.env.members[name], now[name])
            )
            for name, task in team.members.items()
        }
        self._rollouts = {name: self._new_rollout(name) for name in team.members}
        self._orders = {name: seeded(own.seed + 1) for name, own in self._configs.items()}
        self.iteration = 0
        self.env_steps = 0
        """Steps of worlds; in each all robots act."""
        self.seconds = 0.0
        self._diverged_before = dict.fromkeys(team.members, 0)

    @property
    def graphs(self) -> dict[str, PolicyGraph]:
        """The policies being trained."""
        return {name: learner.graph for name, learner in self.learners.items()}

    def train_iteration(self) -> dict[str, IterationStats]:
        """Lets all robots act, then learn, each from its own reward."""
        start = time.perf_counter()
        self._play()
        updates = {name: self._learn(name) for name in self.team.members}
        self.iteration += 1
        steps = self.config.num_envs * self.config.horizon
        self.env_steps += steps
        elapsed = time.perf_counter() - start
        self.seconds += elapsed
        return {name: self._stats(name, update, steps / elapsed) for name, update in updates.items()}

    def _stats(self, name: str, update: UpdateStats, steps_per_s: float) -> IterationStats:
        rollout, collector, ppo = self._rollouts[name], self._collectors[name], self.learners[name].ppo
        return IterationStats(
            iteration=self.iteration,
            env_steps=self.env_steps,
            seconds=self.seconds,
            steps_per_s=steps_per_s,
            reward_per_s=float(rollout.reward.mean()) / collector.env.step_dt,
            success=collector.success,
            learning_rate=ppo.learning_rate,
            action_std=float(ppo.log_std.detach().exp().mean()),
            update=update,
            reward_terms=dict(rollout.reward_terms),
            metrics=rollout.metrics,
            diverged_episodes=self._diverged_before[name] + collector.diverged,
        )

    def state_dict(self) -> dict[str, Any]:
        """State from which a trainer of the same team and settings continues bit for bit; tensors, numbers and text
        only.
        """
        members = {
            name: {
                **learner_state(learner, self._orders[name]),
                "collector": self._collectors[name].state_dict(),
                "diverged": self._diverged_before[name] + self._collectors[name].diverged,
            }
            for name, learner in self.learners.items()
        }
        return {"iteration": self.iteration, "env_steps": self.env_steps, "seconds": self.seconds, "members": members}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state_dict` left off; raises one of `checkpoint.MISFIT` for the state of another trainer."""
        self.iteration, self.env_steps = int(state["iteration"]), int(state["env_steps"])
        self.seconds = float(state["seconds"])
        for name, learner in self.learners.items():
            member = state["members"][name]
            load_learner(learner, self._orders[name], member)
            self._collectors[name].load_state_dict(member["collector"])
            self._diverged_before[name] = int(member["diverged"])

    def evaluate(self, episodes: int = 256) -> TeamEpisodes:
        """Judges the policies without exploration; see `play_team`."""
        policies = {name: GraphPolicy(graph) for name, graph in self.graphs.items()}
        return play_team(policies, self.team, episodes=episodes, num_threads=self.config.num_threads)

    @torch.no_grad()
    def _play(self) -> None:
        """Fills the rollouts with the next steps of every world."""
        collectors = self._collectors
        for name, collector in collectors.items():
            collector.learner.follow(self.learners[name])
        playing = {name: collector.begin(self._rollouts[name]) for name, collector in collectors.items()}
        for t in range(self.config.horizon):
            acts = {name: c.act(t, playing[name], self._rollouts[name]) for name, c in collectors.items()}
            periods = [{name: act[k] for name, act in acts.items()} for k in range(self.config.action_repeat)]
            results = self._seen(self.env.step(*periods))
            for name, collector in collectors.items():
                collector.take(t, results[name], playing[name], self._rollouts[name])
        for name, collector in collectors.items():
            collector.finish(self._rollouts[name], collector.end(playing[name]))

    def _learn(self, name: str) -> UpdateStats:
        learner, rollout = self.learners[name], self._rollouts[name]
        gamma = self.config.gamma(self.team.members[name].contract.timing.control_dt)
        update = learner.ppo.update(rollout, gamma, self._orders[name])
        learner.graph.normaliser.update(rollout.raw_observation.flatten(0, 1))
        learner.critic_normaliser.update(rollout.raw_critic.flatten(0, 1))
        return update

    def _seen(self, results: Mapping[str, StepResult]) -> Mapping[str, StepResult]:
        """The results with what the critics see."""
        if not self.shared_critic:
            return results
        critic = {name: result.critic for name, result in results.items()}
        final = {name: result.final_critic for name, result in results.items()}
        return {
            name: replace(result, critic=joined(name, critic), final_critic=joined(name, final))
            for name, result in results.items()
        }

    def _new_rollout(self, name: str) -> Rollout:
        task = self.team.members[name]
        seen = replace(task, critic_size=self.team.critic_size) if self.shared_critic else task
        return empty_rollout(self.graphs[name], seen, self._configs[name])


def _require_supported(config: TrainConfig) -> None:
    alone = {
        "engine": "mujoco",
        "overlap": False,
        "staleness": 0,
        "segments": 1,
        "shards": 1,
        "reward": "task",
        "advantage": "gae",
    }
    for name, needed in alone.items():
        if getattr(config, name) != needed:
            raise ConfigError(f"{name} is {getattr(config, name)}, but a team learns with {name}={needed} only")
