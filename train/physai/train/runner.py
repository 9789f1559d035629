"""The training loop: collect, learn, judge, save."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from physai.sim.environment import Environment, StepResult
from physai.sim.randomness import episode_seeds
from physai.sim.tasks.task import Task
from physai.train.config import TrainConfig
from physai.train.graph import ActorGRU, ActorMLP, Normaliser, PolicyGraph, State
from physai.train.ppo import PPO, Rollout, UpdateStats

EVALUATION_SEED = 0x5EED_0E7A1
"""Episodes that judge a policy share no seed with any training run."""


@dataclass
class IterationStats:
    """What one iteration did."""

    iteration: int
    env_steps: int
    """Environment steps of the whole run so far."""
    seconds: float
    """Time the run has trained [s], interruptions not counted."""
    steps_per_s: float
    """Environment steps per second of this iteration, learning included."""
    reward_per_s: float
    """Mean reward rate [1/s]."""
    success: float
    """Share of the latest judged commands or episodes that succeeded, with exploration on."""
    learning_rate: float
    action_std: float
    update: UpdateStats
    reward_terms: dict[str, float] = field(default_factory=dict[str, float])
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    broken_episodes: int = 0


def use_threads(num_threads: int) -> None:
    """Lets torch use that many threads, 0 for one per processor this process may run on."""
    torch.set_num_threads(num_threads or len(os.sched_getaffinity(0)))


def build_graph(task: Task, config: TrainConfig) -> PolicyGraph:
    """An untrained policy graph for the task's contract."""
    probe = PolicyGraph(task.contract, torch.nn.Identity())
    observations, actions = probe.observation.size, task.contract.action.size
    if config.actor == "gru":
        actor: torch.nn.Module = ActorGRU(observations, actions, config.hidden, config.activation, config.gru_size)
    else:
        actor = ActorMLP(observations, actions, config.hidden, config.activation)
    return PolicyGraph(task.contract, actor)


def as_tensors(arrays: dict[str, Any]) -> dict[str, Tensor]:
    """Torch views of numpy arrays, float32."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


class Trainer:
    """One training run in memory; `physai.train.checkpoint` puts it on disk and takes it back."""

    def __init__(self, task: Task, config: TrainConfig) -> None:
        """Builds environment, graph and learner from the configuration's seed."""
        self.task, self.config = task, config
        torch.manual_seed(config.seed)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.graph = build_graph(task, config)
        self.critic_normaliser = Normaliser(task.critic_size)
        self.ppo = PPO(self.graph.actor, task.critic_size, task.contract.action.size, config)
        self.env = Environment(
            task,
            config.num_envs,
            seed=config.seed,
            training=True,
            control_repeat=config.control_repeat,
            num_threads=config.num_threads,
        )
        self.gamma = config.gamma(task.contract.timing.control_dt)
        hidden = int(getattr(self.graph.actor, "state_size", 0))
        self.rollout = Rollout(
            config, self.graph.observation.size, task.critic_size, task.contract.action.size, hidden
        )
        self.now: StepResult = self.env.reset()
        self.state: State = self.graph.initial_state(config.num_envs)
        self.iteration = 0
        self.seconds = 0.0
        self.judged = torch.zeros(0)
        """Outcomes of the latest judged commands or episodes, 1 for success, oldest first."""

    def train_iteration(self) -> IterationStats:
        """Collects one rollout, learns from it and reports."""
        start = time.perf_counter()
        observations, critics, terms, metrics = self._collect()
        with torch.no_grad():
            last_value = self.ppo.value(self.critic_normaliser(torch.from_numpy(self.now.critic)))
        update = self.ppo.update(self.rollout, last_value, self.gamma, self.generator)
        self.graph.normaliser.update(observations)
        self.critic_normaliser.update(critics)
        self.iteration += 1
        elapsed = time.perf_counter() - start
        self.seconds += elapsed
        steps = self.config.num_envs * self.config.horizon
        return IterationStats(
            iteration=self.iteration,
            env_steps=steps * self.iteration,
            seconds=self.seconds,
            steps_per_s=steps / elapsed,
            reward_per_s=float(self.rollout.reward.mean()) / self.env.step_dt,
            success=float(self.judged.mean()) if len(self.judged) else 0.0,
            learning_rate=self.ppo.learning_rate,
            action_std=float(self.ppo.log_std.detach().exp().mean()),
            update=update,
            reward_terms=terms,
            metrics=metrics,
            broken_episodes=len(self.env.broken_episodes),
        )

    @torch.no_grad()
    def _collect(self) -> tuple[Tensor, Tensor, dict[str, float], dict[str, float]]:
        """Fills the rollout; returns raw observations and critic inputs (T·N, …), reward terms and metrics."""
        rollout, config = self.rollout, self.config
        raw_observations = torch.empty_like(rollout.observation)
        raw_critics = torch.empty_like(rollout.critic)
        noise = torch.randn(rollout.action.shape, generator=self.generator)
        if "hidden" in self.state:
            rollout.hidden.copy_(self.state["hidden"])
        outcomes: list[Tensor] = []
        terms: dict[str, float] = {}
        metrics: dict[str, list[Tensor]] = {}
        for t in range(config.horizon):
            raw_critics[t] = torch.from_numpy(self.now.critic)
            result = self._act(t, noise[t], raw_observations)
            rollout.reward[t] = torch.from_numpy(result.reward)
            done = torch.from_numpy(result.done)
            rollout.done[t] = done
            rollout.bootstrap[t] = 0.0
            if result.truncated.any():
                cut = torch.from_numpy(result.truncated)
                final = torch.from_numpy(result.final_critic)[cut]
                rollout.bootstrap[t, cut] = self.ppo.value(self.critic_normaliser(final))
            if result.done.any():
                for memory in self.state.values():
                    memory[done] = 0.0
            if result.judged.any():
                outcomes.append(torch.from_numpy(result.succeeded[result.judged]).float())
                for name, values in result.metrics.items():
                    metrics.setdefault(name, []).append(torch.as_tensor(values))
            for name, value in result.reward_terms.items():
                terms[name] = terms.get(name, 0.0) + value / config.horizon
            self.now = result
        rollout.critic.copy_(self.critic_normaliser(raw_critics))
        rollout.value.copy_(self.ppo.value(rollout.critic))
        self.judged = torch.cat([self.judged, *outcomes])[-config.num_envs :]
        means = {name: float(torch.cat(values).double().mean()) for name, values in metrics.items()}
        return raw_observations.flatten(0, 1), raw_critics.flatten(0, 1), terms, means

    def _act(self, t: int, noise: Tensor, raw_observations: Tensor) -> StepResult:
        """One step of every world with exploration; fills row t of the rollout and advances the graph's state."""
        sensors, commands = as_tensors(self.now.sensors), as_tensors(self.now.commands)
        observation, histories = self.graph.observe(sensors, commands, self.state)
        raw_observations[t] = observation
        normalised = self.graph.normaliser(observation)
        hidden = self.state.get("hidden", observation[:, :0])
        action, mean, log_prob, hidden = self.ppo.act(normalised, hidden, noise)
        periods: list[dict[str, Any]] = []
        state = self.state
        for _ in range(self.config.control_repeat):
            targets, memory = self.graph.command(action, sensors, state)
            periods.append({name: target.numpy() for name, target in targets.items()})
            state = {**state, **memory}
        rollout = self.rollout
        rollout.observation[t], rollout.action[t] = normalised, action
        rollout.mean[t], rollout.log_prob[t] = mean, log_prob
        self.state = {**state, **histories, **({"hidden": hidden} if "hidden" in state else {})}
        return self.env.step(*periods)

    def evaluate(self, episodes: int = 256) -> dict[str, float]:
        """Judges the policy without exploration; see `evaluate_graph`."""
        return evaluate_graph(self.graph, self.task, episodes=episodes, num_threads=self.config.num_threads)


@torch.no_grad()
def evaluate_graph(
    graph: PolicyGraph,
    task: Task,
    *,
    episodes: int,
    num_threads: int = 0,
    randomise: bool = True,
    progress: Callable[[float], None] | None = None,
) -> dict[str, float]:
    """Plays one episode per world and reports successes and mean metrics.

    Returns:
        `judged` and `succeeded` (counts), `success` (share), and each of the task's metrics (mean).
    """
    env = Environment(task, episodes, seed=EVALUATION_SEED, randomise=randomise, num_threads=num_threads)
    worlds = torch.arange(episodes).numpy()
    now = env.reset(episode_seeds(EVALUATION_SEED, worlds, worlds * 0))
    state = graph.initial_state(episodes)
    running = torch.ones(episodes, dtype=torch.bool)
    judged = succeeded = 0
    metrics: dict[str, list[Tensor]] = {}
    steps = round(task.episode_length_s / env.step_dt)
    for step in range(steps):
        targets, state = graph(as_tensors(now.sensors), as_tensors(now.commands), state)
        now = env.step({name: target.numpy() for name, target in targets.items()})
        counted = torch.from_numpy(now.judged) & running
        judged += int(counted.sum())
        succeeded += int((torch.from_numpy(now.succeeded) & running).sum())
        for name, values in now.metrics.items():
            metrics.setdefault(name, []).append(torch.as_tensor(values)[counted[torch.from_numpy(now.judged)]])
        done = torch.from_numpy(now.done)
        running &= ~done
        for memory in state.values():
            memory[done] = 0.0
        if progress is not None:
            progress((step + 1) / steps)
        if not running.any():
            break
    means = {name: float(torch.cat(values).double().mean()) for name, values in metrics.items()}
    return {"judged": judged, "succeeded": succeeded, "success": succeeded / max(1, judged), **means}
