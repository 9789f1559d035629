"""Collects rollouts on a device: worlds, policy and storage advance without a value crossing to the host."""

import copy
from typing import Any

import torch
from torch import Tensor

from physai.sim.engines.protocol import DeviceEngine
from physai.sim.envs.device.capacity import require_capacity
from physai.sim.envs.device.device_environment import DeviceEnvironment, DeviceStep
from physai.sim.envs.device.device_rng import base_of, episode_seeds, normal
from physai.sim.envs.device.graph import Captured
from physai.sim.envs.rng import Stream
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout
from physai.train.collectors.collector import Learner
from physai.train.collectors.distributed import Ranks
from physai.train.collectors.repeatable import require_repeatable
from physai.train.models.policy_graph import State
from physai.train.settings.config import TrainConfig


class DeviceCollector:
    """`Collector` on a device. The host reads the statistics of a rollout once, after its last step."""

    def __init__(
        self, task: Task, config: TrainConfig, learner: Learner, engine: DeviceEngine, *, ranks: Ranks | None = None
    ) -> None:
        """Resets the engine's worlds, which are where the learner is.

        Raises:
            DeviceError: the run is to be deterministic, and the worlds' steps are not.
            TaskError: the task cannot run on a device; see `DeviceEnvironment`.
        """
        self.config = config
        self.learner = copy.deepcopy(learner)
        self.ranks = ranks or Ranks()
        self._first = self.ranks.rank * config.num_envs
        self.env = DeviceEnvironment(
            task,
            engine,
            seed=config.seed,
            training=True,
            first_world=self._first,
            action_repeat=config.action_repeat,
        )
        self._now = self.env.reset()
        if config.deterministic:
            require_repeatable(self.env)
        self._memory: State = self.learner.graph.initial_state(config.num_envs)
        self._rollout: Rollout | None = None
        self._advance: Captured[None] = Captured(self.step, self.env.device)
        self._curriculum = 0.0 if config.curriculum_iterations else 1.0
        self.env.set_curriculum(self._curriculum)
        self.success = 0.0
        """Share of the latest judged commands or episodes that succeeded, with exploration on; each rank's latest."""
        self.begun = 0
        """Episodes that worlds have begun which are no longer stepped; no other world begins them again."""
        self.diverged = 0
        """Episodes that ended because the physics diverged, since the collector was built."""
        self._allocate(task, self.env.device)

    def _allocate(self, task: Task, device: torch.device) -> None:
        worlds = torch.arange(self._first, self._first + self.config.num_envs, device=device)
        # The worlds' own episodes are counted from 1, so episode 0 is free for the exploration noise.
        self._noise_seeds = episode_seeds(base_of(self.config.seed), worlds, torch.zeros_like(worlds))
        self._row = torch.zeros(1, dtype=torch.int64, device=device)
        self._steps = torch.zeros((), dtype=torch.int64, device=device)
        self._terms, self._metrics = tuple(task.rewards), tuple(task.metrics)
        # Reward terms, metrics, how many were judged, how many diverged: sums over a rollout.
        self._sums = torch.zeros(len(self._terms) + len(self._metrics) + 2, dtype=torch.float64, device=device)
        # The latest outcomes as a ring; the last element takes those of worlds that were not judged.
        self._outcomes = torch.zeros(self.config.num_envs + 1, device=device)
        self._judged = torch.zeros((), dtype=torch.int64, device=device)

    @torch.no_grad()
    def collect(self, rollout: Rollout) -> Rollout:
        """Fills the rollout with the next steps of every world, and its summary of them.

        Raises:
            ModelError: a world had more contacts than memory.
        """
        if rollout is not self._rollout:
            # A graph keeps the addresses it was recorded with.
            self._rollout, self._advance = rollout, Captured(self.step, self.env.device)
        self._row.zero_()
        self._sums.zero_()
        if "hidden" in self._memory:
            rollout.hidden.copy_(self._memory["hidden"])
        for _ in range(self.config.horizon):
            self._advance()
        rollout.log_std.copy_(self.learner.ppo.log_std)
        rollout.critic.copy_(self.learner.critic_normaliser(rollout.raw_critic))
        rollout.value.copy_(self.learner.ppo.value(rollout.critic))
        rollout.last_value.copy_(self.learner.value(self._now.critic))
        require_capacity(self.env.engine)
        self._read(rollout)
        return rollout

    @torch.no_grad()
    def step(self) -> None:
        """One step of every world with exploration; fills a row and advances the graph's memory."""
        rollout, graph, now = self._rollout, self.learner.graph, self._now
        assert rollout is not None
        observation, histories = graph.observe(now.sensors, now.commands, self._memory)
        normalised = graph.normaliser(observation)
        hidden = self._memory.get("hidden", observation[:, :0])
        noise = normal(self._noise_seeds, Stream.EXPLORATION, rollout.action.shape[2], steps=self._steps)
        action, mean, log_prob, hidden = self.learner.ppo.act(normalised, hidden, noise)
        periods: list[dict[str, Tensor]] = []
        after: State = self._memory
        for _ in range(self.config.action_repeat):
            targets, changed = graph.command(action, now.sensors, after)
            periods.append(targets)
            after = {**after, **changed}
        after = {**after, **histories, **({"hidden": hidden} if "hidden" in self._memory else {})}
        row = {"raw_observation": observation, "observation": normalised, "raw_critic": now.critic}
        row |= {"action": action, "mean": mean, "log_prob": log_prob}
        step = self.env.step(*periods)
        done = step.terminated | step.truncated
        cut_off = torch.where(step.truncated, self.learner.value(step.final_critic), 0.0)
        row |= {"reward": step.reward, "done": done.float(), "bootstrap": cut_off}
        for name, value in row.items():
            getattr(rollout, name).index_copy_(0, self._row, value[None])
        for name, memory in self._memory.items():
            memory.copy_(torch.where(done[:, None], 0.0, after[name]))
        self._keep(step)
        self._count(step)
        self._row += 1
        self._steps += 1

    def _keep(self, step: DeviceStep) -> None:
        """Takes over what the next step starts from, in place."""
        for kept, fresh in ((self._now.sensors, step.sensors), (self._now.commands, step.commands)):
            for name, value in kept.items():
                value.copy_(fresh[name])
        self._now.critic.copy_(step.critic)

    def _count(self, step: DeviceStep) -> None:
        judged = step.judged
        metrics = [torch.where(judged, step.metrics[name], 0.0).sum().double()[None] for name in self._metrics]
        counts = torch.stack([judged.sum(), step.diverged.sum()]).double()
        self._sums += torch.cat([step.reward_terms.double() / self.config.horizon, *metrics, counts])
        size = self.config.num_envs
        place = torch.where(judged, (self._judged + torch.cumsum(judged, 0) - 1) % size, size)
        self._outcomes.scatter_(0, place, step.succeeded.float())
        self._judged += judged.sum()

    def _read(self, rollout: Rollout) -> None:
        size = self.config.num_envs
        latest = torch.stack([self._outcomes[:size].sum(), self._judged.clamp(max=size)]).double()
        shared = torch.cat([self._sums[:-1], latest])
        self.ranks.average(shared)
        *sums, judged, succeeded, kept, diverged = (float(x) for x in torch.cat([shared, self._sums[-1:]]).cpu())
        rollout.reward_terms = dict(zip(self._terms, sums, strict=False))
        metrics = dict(zip(self._metrics, sums[len(self._terms) :], strict=True))
        rollout.metrics = {name: value / judged for name, value in metrics.items()} if judged else {}
        self.success = succeeded / kept if kept else 0.0
        self.diverged += int(diverged)
        progress = self.config.curriculum(self._curriculum, self.success)
        if progress != self._curriculum:
            self._curriculum = progress
            self.env.set_curriculum(progress)

    def state_dict(self) -> dict[str, Any]:
        """State of the worlds and of their policy's memory; tensors only."""
        return {
            "environment": self.env.snapshot(),
            "memory": self._memory,
            "now": self._now_by_name(),
            "counters": {"steps": self._steps, "outcomes": self._outcomes, "judged": self._judged},
            "curriculum": torch.tensor(self._curriculum, dtype=torch.float64),
            "success": torch.tensor(self.success, dtype=torch.float64),
            "begun": torch.tensor(max(self.begun, self.env.begun)),
        }

    def _now_by_name(self) -> dict[str, Tensor]:
        """Inputs of the next step; a sensor field and a command field may have the same name."""
        sensors = {f"sensors/{name}": value for name, value in self._now.sensors.items()}
        commands = {f"commands/{name}": value for name, value in self._now.commands.items()}
        return {"critic": self._now.critic, **sensors, **commands}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state_dict` left off."""
        self.env.restore(state["environment"])
        mine = self.state_dict()
        for part in ("memory", "now", "counters"):
            for name, value in mine[part].items():
                value.copy_(state[part][name])
        self._load_shared(state)

    def begin_beside(self, state: dict[str, Any]) -> None:
        """Begins episodes that nobody played yet, as one rank more than those that saved the state."""
        self._load_shared(state)
        self._steps.copy_(state["counters"]["steps"])
        self.env.leave_out(self.begun)
        self._now = self.env.reset()

    def _load_shared(self, state: dict[str, Any]) -> None:
        """Loads the part that is equal on all ranks."""
        self._curriculum, self.success = float(state["curriculum"]), float(state["success"])
        self.begun = int(state["begun"])
        self.env.set_curriculum(self._curriculum)
