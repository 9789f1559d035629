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
from physai.train.algorithms.ppo import Rollout
from physai.train.collectors.collector import Collector, Learner
from physai.train.collectors.distributed import Ranks
from physai.train.models.numpy_policy import GraphPolicy
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.checkpoint import learner_state, load_learner
from physai.train.runners.runner import IterationStats, Trainer, processors
from physai.train.settings.config import ConfigError, TrainConfig


class TeamTrainer:
    """One training run of a team in memory: a `Trainer` for each robot, whose rollouts are played together."""

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
        self.team, self.config, self.shared_critic = team, config, shared_critic
        self.ranks = Ranks()
        self.seconds = 0.0
        """Time that the run has trained [s]."""
        self.env = TeamEnvironment(
            team,
            config.num_envs,
            seed=config.seed,
            training=True,
            action_repeat=config.action_repeat,
            num_threads=processors(config),
        )
        self._collectors: dict[str, Collector] = {}
        now = self._seen(self.env.reset())
        self._trainers = {name: self._trainer(name, index, now[name]) for index, name in enumerate(team.members)}
        self._first = next(iter(self._trainers.values()))

    def _trainer(self, name: str, index: int, now: StepResult) -> Trainer:
        task = self.team.members[name]
        # Members explore apart: with one seed, robots of one kind would draw the same numbers.
        own = replace(self.config, seed=member_seed(self.config.seed, index) >> 1)

        def collector(learner: Learner) -> Collector:
            robot = self.env.members[name], now
            self._collectors[name] = Collector(task, own, learner, num_threads=1, robot=robot)
            return self._collectors[name]

        seen = replace(task, critic_size=self.team.critic_size) if self.shared_critic else task
        return Trainer(seen, own, source=collector)

    @property
    def learners(self) -> dict[str, Learner]:
        """The networks being trained."""
        return {name: trainer.learner for name, trainer in self._trainers.items()}

    @property
    def graphs(self) -> dict[str, PolicyGraph]:
        """The policies being trained."""
        return {name: trainer.graph for name, trainer in self._trainers.items()}

    @property
    def iteration(self) -> int:
        """Number of iterations."""
        return self._first.iteration

    @property
    def env_steps(self) -> int:
        """Steps of worlds; in each all robots act."""
        return self._first.env_steps

    def train_iteration(self) -> dict[str, IterationStats]:
        """Lets all robots act, then learn, each from its own reward."""
        start = time.perf_counter()
        rollouts = self._play()
        updates = {name: trainer.learn(rollouts[name]) for name, trainer in self._trainers.items()}
        elapsed = time.perf_counter() - start
        stats: dict[str, IterationStats] = {}
        for name, trainer in self._trainers.items():
            trainer.seconds = self.seconds
            stats[name] = trainer.conclude(rollouts[name], updates[name], elapsed)
        self.seconds += elapsed
        return stats

    def state_dict(self) -> dict[str, Any]:
        """State from which a trainer of the same team and settings continues bit for bit; tensors, numbers and text
        only.
        """
        members = {
            name: {
                **learner_state(trainer.learner, trainer.generator),
                "collector": self._collectors[name].state_dict(),
                "diverged": trainer.diverged_episodes,
            }
            for name, trainer in self._trainers.items()
        }
        return {"iteration": self.iteration, "env_steps": self.env_steps, "seconds": self.seconds, "members": members}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where `state_dict` left off; raises one of `checkpoint.MISFIT` for the state of another trainer."""
        self.seconds = float(state["seconds"])
        for name, trainer in self._trainers.items():
            member = state["members"][name]
            load_learner(trainer.learner, trainer.generator, member)
            self._collectors[name].load_state_dict(member["collector"])
            trainer.iteration, trainer.env_steps = int(state["iteration"]), int(state["env_steps"])
            trainer.diverged_episodes = trainer.diverged_before = int(member["diverged"])

    def evaluate(self, episodes: int = 256) -> TeamEpisodes:
        """Judges the policies without exploration; see `play_team`."""
        policies = {name: GraphPolicy(graph) for name, graph in self.graphs.items()}
        return play_team(policies, self.team, episodes=episodes, num_threads=self.config.num_threads)

    @torch.no_grad()
    def _play(self) -> dict[str, Rollout]:
        """Rollouts of the next steps of every world, by member."""
        collectors = self._collectors
        rollouts = {name: trainer.spare_rollout() for name, trainer in self._trainers.items()}
        for name, collector in collectors.items():
            collector.learner.follow(self._trainers[name].learner)
        playing = {name: collector.begin(rollouts[name]) for name, collector in collectors.items()}
        for t in range(self.config.horizon):
            acts = {name: c.act(t, playing[name], rollouts[name]) for name, c in collectors.items()}
            periods = [{name: act[k] for name, act in acts.items()} for k in range(self.config.action_repeat)]
            results = self._seen(self.env.step(*periods))
            for name, collector in collectors.items():
                collector.take(t, results[name], playing[name], rollouts[name])
        return {name: c.finish(rollouts[name], c.end(playing[name])) for name, c in collectors.items()}

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
