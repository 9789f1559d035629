"""The training loop: collect, learn, judge, save."""

import copy
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from physai.sim.envs.rng import episode_seeds
from physai.sim.policies.evaluate import play_episodes
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import PPO, Rollout, UpdateStats
from physai.train.collectors.collector import Collector, Learner, Scorer, StepRecords
from physai.train.collectors.devices import make_deterministic
from physai.train.collectors.distributed import Ranks, local_size
from physai.train.collectors.groups import GroupCollector, OutcomeCollector
from physai.train.models.numpy_policy import GraphPolicy, seed_torch, seeded
from physai.train.models.policy_graph import ActorGRU, ActorMLP, Normaliser, PolicyGraph
from physai.train.settings.config import ConfigError, TrainConfig

if TYPE_CHECKING:
    from physai.sim.engines.warp_device import WarpDeviceEngine


@dataclass
class IterationStats:
    """Statistics of one iteration."""

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
    asynchronous: dict[str, float] = field(default_factory=dict[str, float])
    """See `Rollout.asynchronous`."""
    diverged_episodes: int = 0


def processors(config: TrainConfig) -> int:
    """Processors this process may use."""
    return config.num_threads or max(1, len(os.sched_getaffinity(0)) // local_size())


def engine_threads(config: TrainConfig) -> int:
    """Threads that step the worlds: all processors, or those the overlapping learner leaves."""
    return max(1, processors(config) // 2) if config.overlap else processors(config)


def learner_threads(config: TrainConfig) -> int:
    """Threads of each torch operation: half of the processors, because actor and critic learn in parallel."""
    return max(1, processors(config) // 2)


def check_action_repeat(task: Task, config: TrainConfig) -> None:
    """A history would span other times on the robot than in training if actions were repeated.

    Raises:
        ConfigError: the task's observations have a history and `action_repeat` is not 1.
    """
    remembered = [term.name for term in task.contract.observation.terms if term.history > 1]
    if remembered and config.action_repeat != 1:
        raise ConfigError(
            f"action_repeat {config.action_repeat}: the observation {remembered[0]} of {task.name} has a history, "
            "which needs action_repeat 1"
        )


def check_settings(task: Task, config: TrainConfig, *, ranks: int = 1) -> None:
    """Refuses settings that do not go with the task or the number of processes, before anything is built.

    Raises:
        ConfigError: `check_action_repeat` refuses them, or groups of worlds do not play whole episodes in one process.
    """
    check_action_repeat(task, config)
    if config.advantage == "gae":
        return
    if ranks > 1:
        raise ConfigError(f"advantage={config.advantage} takes one process; start it without `gpus` and torchrun")
    steps = round(task.episode_length_s / (task.contract.timing.control_dt * config.action_repeat))
    if config.horizon != steps:
        raise ConfigError(
            f"advantage={config.advantage} plays whole episodes, which have {steps} steps in {task.name}; horizon is "
            f"{config.horizon}: set horizon={steps}"
        )


def device_engine(task: Task, config: TrainConfig, device: torch.device) -> "WarpDeviceEngine":
    """The worlds of a run with engine `warp`.

    Raises:
        MissingExtraError: warp or mujoco_warp is not installed.
        ModelError: MuJoCo Warp cannot simulate the task's model.
    """
    from physai.sim.envs.device.capacity import build_engine

    return build_engine(task, config.num_envs, device=str(device), deterministic=config.deterministic)


def build_graph(task: Task, config: TrainConfig) -> PolicyGraph:
    """An untrained policy graph for the task's contract."""
    probe = PolicyGraph(task.contract, torch.nn.Identity())
    observations, actions = probe.observation.size, task.contract.action.size
    if config.actor == "gru":
        actor: torch.nn.Module = ActorGRU(observations, actions, config.hidden, config.activation, config.gru_size)
    else:
        actor = ActorMLP(observations, actions, config.hidden, config.activation)
    return PolicyGraph(task.contract, actor)


def build_learner(task: Task, config: TrainConfig, device: torch.device | str = "cpu") -> Learner:
    """An untrained learner; torch's global generator draws its weights."""
    graph = build_graph(task, config).to(device)
    ppo = PPO(graph.actor, task.critic_size, task.contract.action.size, config)
    return Learner(graph, ppo, Normaliser(task.critic_size).to(device))


def empty_rollout(graph: PolicyGraph, task: Task, config: TrainConfig, device: torch.device | str = "cpu") -> Rollout:
    """A rollout of the sizes of graph, task and configuration."""
    hidden = int(getattr(graph.actor, "state_size", 0))
    sizes = (graph.observation.size, task.critic_size, task.contract.action.size, hidden)
    return Rollout(config, *sizes, device=device)


class RolloutSource(Protocol):
    """Collector of a trainer's rollouts: `Collector`, `DeviceCollector`, or generators on other computers."""

    learner: Learner
    """The copy that acts."""

    @property
    def success(self) -> float:
        """Share of the latest judged commands or episodes that succeeded, with exploration on."""
        ...

    @property
    def diverged(self) -> int:
        """Episodes that ended because the physics diverged, since this was built."""
        ...

    def collect(self, rollout: Rollout) -> Rollout:
        """Fills the rollout with the next steps of every world, and its summary of them."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """State of the worlds and of their policy's memory; tensors only."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state_dict` left off."""
        ...

    def begin_beside(self, state: dict[str, Any]) -> None:
        """Begins episodes that nobody played yet, as one rank more than those that saved the state."""
        ...


class PlayedSource(RolloutSource, Protocol):
    """A source that also tells what was played: `Collector`, or generators that take turns with the learner."""

    def score_with(self, scorer: Scorer) -> None:
        """Has what is played scored; to be called before the first rollout."""
        ...

    def gather(self, rollout: Rollout) -> StepRecords:
        """`collect`, and what the steps left besides, with their scores if there is a scorer."""
        ...


class Trainer:
    """One training run in memory; `physai.train.runners.checkpoint` puts it on disk and takes it back."""

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        *,
        device: str = "cpu",
        ranks: Ranks | None = None,
        source: Callable[[Learner], RolloutSource] | None = None,
    ) -> None:
        """Builds worlds, graph and learner from the configuration's seed.

        Args:
            task: what to learn.
            config: settings; its engine decides where the worlds are stepped, `num_envs` are those of this process.
            device: where to learn, `cpu` or `cuda:N`; a GPU takes engine `warp`.
            ranks: the processes that learn together; this one alone if None.
            source: makes what collects the rollouts, given the learner; worlds in this process if None.

        Raises:
            ConfigError: see `check_settings`; or the engine steps worlds on the CPU and the device is another one.
        """
        self.task, self.config = task, config
        self.ranks = ranks or Ranks()
        check_settings(task, config, ranks=self.ranks.size)
        self.device = torch.device(device)
        if config.engine != "warp" and self.device.type != "cpu":
            raise ConfigError(f"engine {config.engine} steps worlds on the CPU; learning on {device} takes engine warp")
        if config.deterministic and self.device.type != "cpu":
            make_deterministic()
        seed_torch(config.seed)
        self.generator = seeded(config.seed + 1, device)
        self.learner = build_learner(task, config, self.device)
        self.ranks.follow_first(self.learner)
        self.collector: RolloutSource = source(self.learner) if source else self._collector()
        self.gamma = config.gamma(task.contract.timing.control_dt)
        self.pending: Rollout | None = None
        """With overlap, the rollout that is collected but not yet learned from."""
        self._spare: list[Rollout] = []
        self.iteration = 0
        self.env_steps = 0
        """Environment steps of all ranks."""
        self.diverged_episodes = 0
        """Episodes of all ranks that ended because the physics diverged, those before a resume included."""
        self.diverged_before = 0
        """Those of them before a resume."""
        self.seconds = 0.0

    def _collector(self) -> RolloutSource:
        config = self.config
        ranks = self.ranks.beside() if config.overlap else self.ranks
        if config.advantage != "gae":
            return GroupCollector(self.task, config, self.learner, num_threads=engine_threads(config))
        if config.engine != "warp":
            made = Collector if config.reward == "task" else OutcomeCollector
            return made(self.task, config, self.learner, num_threads=engine_threads(config), ranks=ranks)
        from physai.train.collectors.device_collector import DeviceCollector

        def build() -> DeviceCollector:
            return DeviceCollector(
                self.task, config, self.learner, device_engine(self.task, config, self.device), ranks=ranks
            )

        # The others find compiled kernels and measured capacities.
        return ranks.first_here_first(build)

    @property
    def graph(self) -> PolicyGraph:
        """The policy being trained."""
        return self.learner.graph

    def new_rollout(self) -> Rollout:
        """An empty rollout of this run's sizes."""
        return empty_rollout(self.graph, self.task, self.config.segmented(), self.device)

    def train_iteration(self) -> IterationStats:
        """Collects one rollout, learns from one, and reports.

        With overlap the worlds are stepped by the policy of the last iteration while the learner improves it on the
        rollout before: both processors work, and PPO's ratio accounts for the policy being one update older.
        """
        start = time.perf_counter()
        if self.config.overlap:
            rollout = self.pending or self._collect()
            self.collector.learner.follow(self.learner)
            with ThreadPoolExecutor(max_workers=1) as pool:
                collecting = pool.submit(self._collect)
                update = self.learn(rollout)
                self.pending = collecting.result()
        else:
            self.collector.learner.follow(self.learner)
            rollout = self._collect()
            update = self.learn(rollout)
        return self.conclude(rollout, update, time.perf_counter() - start)

    def spare_rollout(self) -> Rollout:
        """A rollout to be filled: one that was learned from, or a new one."""
        return self._spare.pop() if self._spare else self.new_rollout()

    def _collect(self) -> Rollout:
        return self.collector.collect(self.spare_rollout())

    @property
    def _steps(self) -> int:
        """Environment steps of an iteration, of all ranks."""
        return self.ranks.size * self.config.num_envs * self.config.horizon

    def learn(self, rollout: Rollout) -> UpdateStats:
        """Improves the learner on a rollout."""
        peers = self.ranks.peers
        update = self.learner.ppo.update(rollout, self.gamma, *self._generators(), peers=peers)
        if self.config.advantage == "gae" or not self.graph.normaliser.count:
            self.graph.normaliser.update(rollout.raw_observation.flatten(0, 1), peers)
        self.learner.critic_normaliser.update(rollout.raw_critic.flatten(0, 1), peers)
        return update

    def _generators(self) -> list[torch.Generator]:
        """Sources of the minibatches' order, one per shard of this process."""
        shards = self.config.shards
        if self.ranks.size * shards == 1:
            return [self.generator]
        # By iteration, so that a run continues with any number of ranks.
        numbers = np.arange(self.ranks.rank * shards, (self.ranks.rank + 1) * shards)
        seeds = episode_seeds(self.config.seed + 1, numbers, np.full(shards, self.iteration)) >> np.uint64(1)
        return [seeded(int(seed), str(self.device)) for seed in seeds]

    def conclude(self, rollout: Rollout, update: UpdateStats, elapsed: float) -> IterationStats:
        """Counts an iteration that took so long [s], and reports it; its rollout is spare then."""
        self._spare.append(rollout)
        self.iteration += 1
        self.env_steps += self._steps
        diverged = self.collector.diverged
        # Equal on all ranks, which therefore agree on when to judge, save and stop.
        elapsed, reward, diverged = self.ranks.means([elapsed, float(rollout.reward.mean()), diverged])
        self.seconds += elapsed
        self.diverged_episodes = self.diverged_before + round(diverged * self.ranks.size)
        return IterationStats(
            iteration=self.iteration,
            env_steps=self.env_steps,
            seconds=self.seconds,
            steps_per_s=self._steps / elapsed,
            reward_per_s=reward / (self.task.contract.timing.control_dt * self.config.action_repeat),
            success=self.collector.success,
            learning_rate=self.learner.ppo.learning_rate,
            action_std=float(self.learner.ppo.log_std.detach().exp().mean()),
            update=update,
            reward_terms=dict(rollout.reward_terms),
            metrics=rollout.metrics,
            asynchronous=dict(rollout.asynchronous),
            diverged_episodes=self.diverged_episodes,
        )

    def evaluate(self, episodes: int = 256) -> dict[str, float]:
        """Judges the policy without exploration, in MuJoCo on the CPU; see `evaluate_graph`."""
        graph = self.graph if self.device.type == "cpu" else copy.deepcopy(self.graph).cpu()
        return evaluate_graph(graph, self.task, episodes=episodes, num_threads=self.config.num_threads)


def evaluate_graph(
    graph: PolicyGraph,
    task: Task,
    *,
    episodes: int,
    num_threads: int = 0,
    randomise: bool = True,
    progress: Callable[[float], None] | None = None,
) -> dict[str, float]:
    """Plays one episode per world (`physai.sim.policies.evaluate.play_episodes`) and reports successes and mean
    metrics.

    Returns:
        `judged` and `succeeded` (counts), `success` (share), and each of the task's metrics (mean).
    """
    played = play_episodes(
        GraphPolicy(graph), task, episodes=episodes, randomise=randomise, num_threads=num_threads, progress=progress
    )
    counts = {"judged": sum(played.judged), "succeeded": sum(played.succeeded)}
    return {**counts, "success": played.success, **played.metrics}
