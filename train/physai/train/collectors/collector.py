"""Collects rollouts: the worlds, the policy that acts in them, and where both stand."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from physai.sim.envs.environment import Environment, StepResult
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import PPO, Rollout
from physai.train.collectors.distributed import Ranks
from physai.train.models.numpy_policy import as_tensor, as_tensors, seeded
from physai.train.models.policy_graph import Normaliser, PolicyGraph, State
from physai.train.settings.config import TrainConfig


class Learner(nn.Module):
    """Parameters that learning changes: the policy graph, PPO's critic and exploration around it, the critic's
    normaliser.
    """

    def __init__(self, graph: PolicyGraph, ppo: PPO, critic_normaliser: Normaliser) -> None:
        """Holds the three together so that they are copied together."""
        super().__init__()
        self.graph = graph
        self.ppo = ppo
        self.critic_normaliser = critic_normaliser

    @torch.no_grad()
    def follow(self, other: "Learner") -> None:
        """Takes over the other's weights and statistics."""
        for mine, theirs in zip(self.parameters(), other.parameters(), strict=True):
            mine.copy_(theirs)
        for mine, theirs in zip(self.buffers(), other.buffers(), strict=True):
            mine.copy_(theirs)

    def value(self, critic_input: Tensor) -> Tensor:
        """State values from raw critic inputs."""
        return self.ppo.value(self.critic_normaliser(critic_input))


@dataclass(frozen=True)
class Share:
    """A share of a run's worlds: those from `first` on."""

    first: int
    all: int
    """Worlds of the run."""


@dataclass(frozen=True)
class StepRecords:
    """Results of steps besides the columns of the rollout; T steps of N worlds, C critic inputs."""

    outcomes: Tensor
    """1 for success, 0 for failure, -1 where nothing was judged, (T, N)."""
    metrics: dict[str, Tensor]
    """The task's metrics of what was judged, in the order of steps, then of worlds, double precision."""
    cut: Tensor
    """Where a time-out cut an episode off, bool, (T, N)."""
    final_critic: Tensor
    """Critic inputs of the states cut off, in the order of steps, then of worlds, (number of them, C)."""
    last_critic: Tensor
    """Critic inputs after the last step, (N, C)."""
    scores: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    """What a scorer, if there is one where the steps were played, made of them by name, (T, N, …)."""


class Scorer(Protocol):
    """Scorer of a trainer's steps, in whatever process: scores follow from columns and memory alone."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a rollout that it scores by."""
        ...

    def memory(self, worlds: int) -> Tensor:
        """Its memory of as many worlds before their first step, (N, hidden)."""
        ...

    def score(self, columns: Mapping[str, Tensor], memory: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Scores of steps by name, (T, N, …), given `columns` by name and the memory; and the memory after them."""
        ...


@dataclass
class Scoring:
    """A scorer, and what it remembers of some worlds."""

    scorer: Scorer
    memory: Tensor

    @classmethod
    def of(cls, scorer: Scorer, worlds: int) -> "Scoring":
        """As of worlds before their first step."""
        return cls(scorer, scorer.memory(worlds))

    def scored(self, rollout: Rollout, played: StepRecords) -> StepRecords:
        """The played steps with their scores."""
        columns = {name: getattr(rollout, name) for name in self.scorer.columns}
        scores, self.memory = self.scorer.score(columns, self.memory)
        return replace(played, scores=scores)


@dataclass
class Playing:
    """Lists from which `StepRecords` is made, while the steps are played."""

    noise: Tensor
    """Exploration of each step, standard normal, (T, N, A)."""
    outcomes: Tensor
    """As in `StepRecords`, as are the others; here each step's metrics and final critic inputs are apart."""
    cut: Tensor
    metrics: dict[str, list[Tensor]] = field(default_factory=dict[str, list[Tensor]])
    final_critic: list[Tensor] = field(default_factory=list[Tensor])


@torch.no_grad()
def add_values(rollout: Rollout, played: StepRecords, learner: Learner) -> None:
    """Fills what the rollout has from the critic, and the spread that the learner explored with."""
    rollout.log_std.copy_(learner.ppo.log_std)
    rollout.critic.copy_(learner.critic_normaliser(rollout.raw_critic))
    rollout.value.copy_(learner.ppo.value(rollout.critic))
    rollout.last_value.copy_(learner.value(played.last_critic))
    rollout.bootstrap.zero_()
    if len(played.final_critic):
        rollout.bootstrap[played.cut] = learner.value(played.final_critic)


class Collector:
    """Steps the worlds with a copy of the learner, so that it may run while the learner learns.

    Of several ranks each steps the worlds that follow those of the rank before it. What it reports is of all.
    """

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        learner: Learner,
        *,
        num_threads: int,
        ranks: Ranks | None = None,
        share: Share | None = None,
        robot: tuple[Environment, StepResult] | None = None,
    ) -> None:
        """Builds the worlds and resets them.

        Args:
            task: what they play.
            config: settings; its `num_envs` worlds are stepped here.
            learner: whose copy acts.
            num_threads: threads of the engine.
            ranks: processes that learn together; this one alone if None.
            share: which of the run's worlds these are; by the rank if None.
            robot: one of several robots' part of worlds that were reset, and what it sees there; `act` and `take` are
                called in place of `play` then.
        """
        self.config = config
        self.ranks = ranks or Ranks()
        share = share or Share(self.ranks.rank * config.num_envs, self.ranks.size * config.num_envs)
        self._first, self._all = share.first, share.all
        self.learner = copy.deepcopy(learner)
        if robot is None:
            env = Environment(
                task,
                config.num_envs,
                seed=config.seed,
                training=True,
                first_world=self._first,
                action_repeat=config.action_repeat,
                num_threads=num_threads,
            )
            robot = env, env.reset()
        self.env, self.now = robot
        self.generator = seeded(config.seed)
        self.memory: State = self.learner.graph.initial_state(config.num_envs)
        self.judged = torch.zeros(0)
        """Outcomes of the latest judged commands or episodes of all ranks, 1 for success, oldest first."""
        self.begun = 0
        """Episodes that worlds have begun which are no longer stepped; no other world begins them again."""
        self.scoring: Scoring | None = None
        """Of these worlds; not part of `state_dict`."""
        self.env.curriculum = 0.0 if config.curriculum_iterations else 1.0

    @property
    def diverged(self) -> int:
        """Episodes that ended because the physics diverged, since the collector was built."""
        return len(self.env.diverged_episodes)

    @property
    def success(self) -> float:
        """Share of the latest judged commands or episodes that succeeded, with exploration on."""
        return float(self.judged.mean()) if len(self.judged) else 0.0

    def collect(self, rollout: Rollout) -> Rollout:
        """Fills the rollout with the next steps of every world, and its summary of them."""
        self.gather(rollout)
        return rollout

    def gather(self, rollout: Rollout) -> StepRecords:
        """`collect`, and what the steps left besides."""
        played = self.play(rollout)
        self.finish(rollout, played)
        return self.scoring.scored(rollout, played) if self.scoring else played

    def score_with(self, scorer: Scorer) -> None:
        """Scores what is played from now on."""
        self.scoring = Scoring.of(scorer, self.config.num_envs)

    def finish(self, rollout: Rollout, played: StepRecords) -> Rollout:
        """Adds to a rollout that was played what the learner needs, and the summary."""
        add_values(rollout, played, self.learner)
        outcomes = self.ranks.stack(played.outcomes).transpose(0, 1).flatten()
        self.judged = torch.cat([self.judged, outcomes[outcomes >= 0.0]])[-self._all :]
        self.env.curriculum = self.config.curriculum(self.env.curriculum, self.success)
        self._summarise(rollout, played.metrics)
        return rollout

    @torch.no_grad()
    def play(self, rollout: Rollout) -> StepRecords:
        """Fills what acting fills of the rollout, with the next steps of every world; `add_values` adds the rest."""
        playing = self.begin(rollout)
        for t in range(self.config.horizon):
            self.take(t, self.env.step(*self.act(t, playing, rollout)), playing, rollout)
        return self.end(playing)

    def begin(self, rollout: Rollout) -> Playing:
        """Draws the exploration of the next steps, and notes the memory that they begin with."""
        config = self.config
        # Of all worlds, so that each explores as it would in a process that steps them all.
        shape = (config.horizon, self._all, rollout.action.shape[2])
        noise = torch.randn(shape, generator=self.generator)[:, self._first : self._first + config.num_envs]
        if "hidden" in self.memory:
            rollout.hidden.copy_(self.memory["hidden"])
        rollout.reward_terms.clear()
        outcomes = torch.full((config.horizon, config.num_envs), -1.0)
        return Playing(noise, outcomes, torch.zeros(outcomes.shape, dtype=torch.bool))

    def take(self, t: int, result: StepResult, playing: Playing, rollout: Rollout) -> None:
        """Notes what step t brought; worlds that ended forget."""
        rollout.reward[t] = as_tensor(result.reward)
        done = as_tensor(result.done)
        rollout.done[t] = done
        if result.done.any():
            for memory in self.memory.values():
                memory[done] = 0.0
        if result.truncated.any():
            playing.cut[t] = as_tensor(result.truncated)
            playing.final_critic.append(as_tensor(result.final_critic)[playing.cut[t]])
        if result.judged.any():
            playing.outcomes[t] = torch.where(as_tensor(result.judged), as_tensor(result.succeeded).float(), -1.0)
            for name, values in result.metrics.items():
                playing.metrics.setdefault(name, []).append(torch.as_tensor(values))
        for name, value in result.reward_terms.items():
            rollout.reward_terms[name] = rollout.reward_terms.get(name, 0.0) + value / self.config.horizon
        self.now = result

    def end(self, playing: Playing) -> StepRecords:
        """Results of the steps."""
        last_critic = as_tensor(self.now.critic)
        return StepRecords(
            outcomes=playing.outcomes,
            metrics={name: torch.cat(parts).double() for name, parts in playing.metrics.items()},
            cut=playing.cut,
            final_critic=torch.cat(playing.final_critic) if playing.final_critic else last_critic[:0],
            last_critic=last_critic,
        )

    def _summarise(self, rollout: Rollout, metrics: Mapping[str, Tensor]) -> None:
        """Means of reward terms and of the metrics of what was judged, over all ranks."""
        names = tuple(self.env.task.metrics)
        values = [metrics.get(name, torch.zeros(0)) for name in names]
        numbers = [*rollout.reward_terms.values(), *(float(x.sum()) for x in values), *(len(x) for x in values)]
        means = self.ranks.means(numbers)
        rollout.reward_terms = dict(zip(rollout.reward_terms, means, strict=False))
        sums = means[len(rollout.reward_terms) :]
        rollout.metrics = {n: s / c for n, s, c in zip(names, sums, sums[len(names) :], strict=False) if c > 0.0}

    @torch.no_grad()
    def act(self, t: int, playing: Playing, rollout: Rollout) -> list[dict[str, Any]]:
        """Commands of every world in step t, with exploration; fills row t and advances the graph's memory.

        Returns:
            For each control period of the step the graph's outputs by name, shape (N, joints of the term).
        """
        graph, memory, noise = self.learner.graph, self.memory, playing.noise[t]
        rollout.raw_critic[t] = as_tensor(self.now.critic)
        sensors, commands = as_tensors(self.now.sensors), as_tensors(self.now.commands)
        observation, histories = graph.observe(sensors, commands, memory)
        rollout.raw_observation[t] = observation
        normalised = graph.normaliser(observation)
        hidden = memory.get("hidden", observation[:, :0])
        action, mean, log_prob, hidden = self.learner.ppo.act(normalised, hidden, noise)
        rollout.observation[t], rollout.action[t] = normalised, action
        rollout.mean[t], rollout.log_prob[t] = mean, log_prob
        periods: list[dict[str, Any]] = []
        after = memory
        for _ in range(self.config.action_repeat):
            targets, changed = graph.command(action, sensors, after)
            periods.append({name: target.numpy() for name, target in targets.items()})
            after = {**after, **changed}
        self.memory = {**after, **histories, **({"hidden": hidden} if "hidden" in memory else {})}
        return periods

    def state_dict(self) -> dict[str, Any]:
        """State of the worlds and of their policy's memory; tensors only."""
        return {
            "environment": as_tensors(self.env.snapshot()),
            "memory": self.memory,
            "generator": self.generator.get_state(),
            "judged": self.judged,
            "curriculum": torch.tensor(self.env.curriculum, dtype=torch.float64),
            "begun": torch.tensor(max(self.begun, self.env.begun)),
            "sensors": as_tensors(self.now.sensors),
            "commands": as_tensors(self.now.commands),
            "critic": as_tensor(self.now.critic),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state_dict` left off."""
        self.env.restore({name: tensor.numpy() for name, tensor in state["environment"].items()})
        self.memory = {name: tensor.clone() for name, tensor in state["memory"].items()}
        self._load_shared(state)
        self.now.sensors = {name: tensor.numpy() for name, tensor in state["sensors"].items()}
        self.now.commands = {name: tensor.numpy() for name, tensor in state["commands"].items()}
        self.now.critic = state["critic"].numpy()

    def begin_beside(self, state: dict[str, Any]) -> None:
        """Begins episodes that nobody played yet, as one rank more than those that saved the state."""
        self._load_shared(state)
        self.env.reseed(self.config.seed, begun=self.begun)
        self.now = self.env.reset()

    def _load_shared(self, state: dict[str, Any]) -> None:
        """Loads the part that is equal on all ranks."""
        self.generator.set_state(state["generator"])
        self.judged = state["judged"][-self._all :]
        self.env.curriculum = float(state["curriculum"])
        # Runs of physai 0.1 had one rank, whose worlds go on with their own count.
        self.begun = int(state.get("begun", 0))
