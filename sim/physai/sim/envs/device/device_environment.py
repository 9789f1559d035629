"""The environment of `physai.sim.envs.environment` as torch operations of fixed shape on one device.

Both execute the same task. Where that one selects the worlds that begin an episode, this one computes for all and keeps
with a mask, so that nothing depends on data in Python, no step waits for the device, and the whole step can be captured
in a CUDA graph. The draws of an episode's seed are the same bit for bit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from physai.sdk.base.errors import TaskError
from physai.sdk.policy.command_shaping import command_shapes, shaped_command
from physai.sim.engines.protocol import DeviceEngine, Snapshot, put
from physai.sim.envs import rng as host_rng
from physai.sim.envs.device.capturable import require_capturable
from physai.sim.envs.device.device_delay import DeviceDelay, DeviceSensors
from physai.sim.envs.device.device_rng import base_of, episode_seeds, seeds_from, uniform
from physai.sim.envs.device.randomization import DeviceParameters
from physai.sim.envs.rng import Stream
from physai.sim.envs.start_states import start_states
from physai.sim.robots.spec import joint_columns
from physai.sim.tasks.task import Task, WorldView

Tensor = torch.Tensor

_OWN_STATE = ("_seeds", "_episode", "_step", "_command_age", "_held", "_target", "_previous_target")


@dataclass(kw_only=True)
class DeviceStep:
    """Results of one control period; first axis the world. No later step overwrites them."""

    sensors: dict[str, Tensor]
    """Sensor fields after noise, bias and delay, float32, shape (num_worlds, size); of the new episode where done."""
    commands: dict[str, Tensor]
    """Command fields as the policy sees them, float32, shape (num_worlds, size)."""
    critic: Tensor
    """Critic's input, float32, shape (num_worlds, critic_size); of the new episode where done."""
    final_critic: Tensor
    """Critic's input before a reset; what a time-out bootstraps from."""
    reward: Tensor
    """Reward of the step, float32, shape (num_worlds,)."""
    terminated: Tensor
    """Episodes that ended by failure, bool."""
    truncated: Tensor
    """Episodes that ended by time, bool."""
    judged: Tensor
    """Worlds whose command or episode ended in this step, bool; see `StepResult`."""
    succeeded: Tensor
    """Judged worlds that met the success criterion, bool."""
    diverged: Tensor
    """Worlds whose physics diverged in this step, or that got a command that is not finite, bool."""
    metrics: dict[str, Tensor]
    """The task's metrics of all worlds; those of the judged ones count."""
    reward_terms: Tensor
    """Mean of each weighted reward term over the worlds, per second, in the task's order, shape (terms,)."""


class DeviceEnvironment:
    """Many worlds of one task on one device, reset one by one as their episodes end."""

    def __init__(
        self,
        task: Task,
        engine: DeviceEngine,
        *,
        seed: int = 0,
        training: bool = False,
        randomise: bool = True,
        first_world: int = 0,
        action_repeat: int = 1,
    ) -> None:
        """Builds the environment; call `reset` before `step`.

        Args:
            task: what the worlds play.
            engine: simulates them; its `parameter`s include the fields that the task randomises.
            seed: fixes every random number of every episode.
            training: start from the task's training states, first episodes staggered in time.
            randomise: draw model parameters, sensor noise, bias, delay and pushes; else the nominal twin.
            first_world: number of the first world, for environments that share a seed with those of other devices.
            action_repeat: control periods one call of `step` lasts.

        Raises:
            TaskError: the task asks for what its model does not have, or its functions look at values on the host.
        """
        self.task, self.engine, self.training = task, engine, training
        self.num_worlds = engine.num_worlds
        qpos = engine.state("qpos")
        self.device: torch.device = qpos.device
        self.action_repeat = action_repeat
        self.step_dt = task.contract.timing.control_dt * action_repeat
        self._base = base_of(seed)
        self._episode_steps = self._steps(task.episode_length_s)
        interval_s = task.episode_length_s if task.command_interval_s is None else task.command_interval_s
        self._command_steps = min(self._steps(interval_s), self._episode_steps)
        self._push_steps = self._steps(task.push.interval_s) if task.push and randomise else 0
        self._hold_steps = max(1, self._steps(task.success.hold_s))
        window_s = task.success.window_s
        self._window_start = self._command_steps - self._steps(window_s) if window_s else 0
        # As in `Environment`.
        self._start = (task.reset, task.reset_draws) if training else start_states(task)
        self._parameters = DeviceParameters(task, engine, self.device) if randomise else None
        self._sensors = DeviceSensors(task, engine, step_dt=self.step_dt, active=randomise, device=self.device)
        self._delay = DeviceDelay(task, engine, active=randomise, device=self.device, periods=action_repeat)
        self._worlds = torch.arange(first_world, first_world + self.num_worlds, device=self.device)
        self._allocate(qpos)
        require_capturable(task, self._view, self.device)

    def _steps(self, duration_s: float) -> int:
        return round(duration_s / self.step_dt)

    def _allocate(self, qpos: Tensor) -> None:
        n, contract = self.num_worlds, self.task.contract

        def counters() -> Tensor:
            return torch.zeros(n, dtype=torch.int64, device=self.device)

        self._seeds, self._episode, self._step, self._command_age, self._held = (counters() for _ in range(5))
        joints = tuple(joint for term in contract.action.terms for joint in term.joints)
        self._target = torch.zeros(n, len(joints), dtype=qpos.dtype, device=self.device)
        self._previous_target = torch.zeros_like(self._target)
        position, _ = joint_columns(self.engine.model, contract.robot)
        self._rest_columns = torch.tensor(
            [position.start + column for column in contract.robot.joint_index(joints)], device=self.device
        )
        self._holds_position = torch.tensor(
            [term.kind.startswith("joint_pos") for term in contract.action.terms for _ in term.joints],
            device=self.device,
        )
        weights = [entry.weight_at(1.0) for entry in self.task.rewards.values()]
        self._weights = torch.tensor(weights, dtype=qpos.dtype, device=self.device)
        self._progress = torch.ones((), dtype=torch.float64, device=self.device)
        push = self.task.push.velocity if self.task.push else ()
        self._push_velocity = torch.tensor(push, dtype=torch.float64, device=self.device)
        self._view = WorldView.of(
            self.engine, self.task, control_dt=self.step_dt, target=self._target, previous_target=self._previous_target
        )
        self._shapes = command_shapes(contract.command.fields, self.step_dt, lambda v: torch.tensor(v).to(self.device))
        self._seen = {name: torch.zeros_like(self._view.commands[name]) for name in self._shapes}

    @property
    def view(self) -> WorldView:
        """True state of the worlds, live."""
        return self._view

    @property
    def episode_seeds(self) -> Tensor:
        """Seed of each world's running episode, int64 with the bits of uint64, shape (num_worlds,)."""
        return self._seeds

    @property
    def steps_in_episode(self) -> Tensor:
        """Steps taken in each world's running episode, int64, shape (num_worlds,); live."""
        return self._step

    @property
    def begun(self) -> int:
        """Most episodes that a world has begun; waits for the device."""
        return int(self._episode.max())

    def leave_out(self, begun: int) -> None:
        """Makes the next reset begin the episode after this many, which were played elsewhere."""
        self._episode.fill_(begun)

    def set_curriculum(self, progress: float) -> None:
        """Sets how far weights and starts are from easy (0) to final (1); the only call that copies to the device."""
        self._progress.fill_(progress)
        weights = [entry.weight_at(progress) for entry in self.task.rewards.values()]
        self._weights.copy_(torch.tensor(weights, dtype=self._weights.dtype))

    def reset(self, seeds: host_rng.Seeds | None = None) -> DeviceStep:
        """Starts a new episode everywhere.

        Args:
            seeds: episode seeds, uint64, shape (num_worlds,); drawn from the environment's seed if None.

        Raises:
            TaskError: not one seed per world.
        """
        if seeds is not None and seeds.shape != (self.num_worlds,):
            raise TaskError(f"{self.num_worlds} worlds need one seed each, got seeds of shape {seeds.shape}")
        everywhere = torch.ones(self.num_worlds, dtype=torch.bool, device=self.device)
        nowhere = torch.zeros_like(everywhere)
        given = None if seeds is None else seeds_from(seeds, self.device)
        self._begin(everywhere, commands=everywhere, seeds=given)
        self._stagger(everywhere)
        critic = self._critic()
        return DeviceStep(
            sensors=self._sensors.measure(self._seeds, self._step),
            commands=self._commands(),
            critic=critic,
            final_critic=critic,
            reward=torch.zeros(self.num_worlds, device=self.device),
            terminated=nowhere,
            truncated=nowhere,
            judged=nowhere,
            succeeded=nowhere,
            diverged=nowhere,
            metrics={},
            reward_terms=torch.zeros_like(self._weights),
        )

    def step(self, *targets: Mapping[str, Tensor]) -> DeviceStep:
        """Applies joint commands for one control period, or for `action_repeat` of them; see `Environment.step`.

        Args:
            targets: for each control period the graph's outputs by name [rad, m, N·m or N], shape (num_worlds,
                joints of the term).

        Returns:
            Sensors and rewards after the last period; worlds whose episode ended are already in their next one.

        Raises:
            TaskError: the number of commands is not `action_repeat`.
        """
        if len(targets) != self.action_repeat:
            raise TaskError(f"step takes {self.action_repeat} control periods of commands, got {len(targets)}")
        view, task = self._view, self.task
        terms = task.contract.action.terms
        periods = [torch.cat([target[term.target_name] for term in terms], dim=1) for target in targets]
        self._previous_target.copy_(self._target)
        self._step += 1
        self._command_age += 1
        self._push()
        # Rewards see the newest command; `_delay` decides when the actuators do.
        self._target.copy_(periods[-1])
        self._delay.advance(periods)
        view.shared.clear()
        self._tell_time()
        diverged = self.engine.diverged() | ~torch.isfinite(torch.cat(periods, dim=1)).all(dim=1)
        reward, reward_terms = self._reward(diverged)
        terminated = diverged
        for term in task.terminations.values():
            terminated = terminated | term(view)
        truncated = (self._step >= self._episode_steps) & ~terminated
        judged, succeeded = self._judge(terminated)
        # Copies, as a metric may return a part of the state, which the reset below overwrites.
        metrics = {name: term(view).clone() for name, term in task.metrics.items()}
        # Nothing is bootstrapped from a diverged state, but NaN times zero would be NaN.
        final_critic = torch.where(diverged[:, None], 0.0, self._critic())
        done = terminated | truncated
        self._begin(done, commands=judged | done, seeds=None)
        self._stagger(terminated)
        return DeviceStep(
            sensors=self._sensors.measure(self._seeds, self._step),
            commands=self._commands(),
            critic=torch.where((judged | done)[:, None], self._critic(), final_critic),
            final_critic=final_critic,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            judged=judged,
            succeeded=succeeded,
            diverged=diverged,
            metrics=metrics,
            reward_terms=reward_terms,
        )

    def snapshot(self) -> Snapshot:
        """Everything a restarted environment needs to continue bit for bit; tensors only, first axis the world."""
        live = {name: value.clone() for name, value in self._live().items()}
        return live | {f"engine/{name}": value for name, value in self.engine.snapshot().items()}

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to a snapshot of an environment of the same task, options and size.

        Raises:
            TaskError: it is of another one.
        """
        prefix = "engine/"
        engine = {name.removeprefix(prefix): value for name, value in snapshot.items() if name.startswith(prefix)}
        self.engine.restore(engine)
        for name, value in self._live().items():
            put(value, snapshot, name)
        self._view.shared.clear()
        self._tell_time()

    def _live(self) -> dict[str, Tensor]:
        """The environment's own state."""
        parts = {
            "own": {name: getattr(self, name) for name in _OWN_STATE},
            "sensors": self._sensors.live(),
            "delay": self._delay.live(),
            "commands": self._view.commands,
            "seen": self._seen,
            "window": {"qpos": self._view.window_qpos} if self._window_start else {},
        }
        return {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}

    def _critic(self) -> Tensor:
        return self.task.critic(self._view).float()

    def _commands(self) -> dict[str, Tensor]:
        """Commands that the policy sees in the next control period; call it once per step."""
        for name, shape in self._shapes.items():
            self._seen[name].copy_(shaped_command(self._view.commands[name], self._seen[name], shape))
        return {name: value.clone() for name, value in {**self._view.commands, **self._seen}.items()}

    def _reward(self, diverged: Tensor) -> tuple[Tensor, Tensor]:
        terms = torch.stack([entry.term(self._view) for entry in self.task.rewards.values()])
        values = torch.where(diverged, 0.0, terms * self._weights[:, None])
        return (values.sum(dim=0) * self.step_dt).float(), values.mean(dim=1)

    def _judge(self, terminated: Tensor) -> tuple[Tensor, Tensor]:
        if self._window_start:
            begins = (self._command_age == self._window_start)[:, None]
            self._view.window_qpos.copy_(torch.where(begins, self._view.qpos, self._view.window_qpos))
        held = self.task.success.condition(self._view)
        self._held.copy_(torch.where(held, self._held + 1, 0))
        judged = terminated | (self._command_age >= self._command_steps)
        if self.training:
            # A command or an episode that is entered late is not judged; see `Environment`.
            judged = judged & (self._step - self._command_age + self._command_steps <= self._episode_steps)
        return judged, judged & ~terminated & (self._held >= self._hold_steps)

    @property
    def _size(self) -> Tensor | float:
        """Factor of commands and pushes; see `Environment`."""
        return self.task.growth(self._progress) if self.training else 1.0

    def _push(self) -> None:
        if not self._push_steps:
            return
        qvel = self._view.qvel
        draw = 2.0 * uniform(self._seeds, Stream.PUSH, qvel.shape[1], steps=self._step) - 1.0
        due = (self._step % self._push_steps == 0)[:, None]
        qvel.add_(torch.where(due, self._size * draw * self._push_velocity, 0.0).to(qvel.dtype))

    def _begin(self, mask: Tensor, *, commands: Tensor, seeds: Tensor | None) -> None:
        """Begins episodes in the masked worlds, and draws commands in those of `commands`, which include them."""
        task = self.task
        self._episode += mask
        fresh = episode_seeds(self._base, self._worlds, self._episode) if seeds is None else seeds
        self._seeds.copy_(torch.where(mask, fresh, self._seeds))
        if self._parameters is not None:
            self._parameters.draw(mask, self._seeds)
        start, count = self._start
        if self.training and task.training_reset:
            start = task.training_reset
        draws = uniform(self._seeds, Stream.STATE, count)
        if self.training and task.harder:
            draws[:, -1] *= self._progress
        qpos, qvel = start(draws)
        age = torch.zeros_like(self._step)
        if self.training and task.training_age:
            age = torch.round(task.training_age(draws) / self.step_dt).long()
        self._step.copy_(torch.where(mask, age, self._step))
        # Until the first command a position servo holds the starting pose, and a motor gives no effort.
        rest = torch.where(self._holds_position, qpos[:, self._rest_columns], 0.0).to(self._target.dtype)
        for target in (self._target, self._previous_target):
            target.copy_(torch.where(mask[:, None], rest, target))
        self._delay.reset(mask, self._seeds, rest)
        self.engine.reset_where(mask, qpos, qvel)
        for seen in self._seen.values():
            seen.mul_(~mask[:, None])
        self._draw_commands(commands)
        self._sensors.reset(mask, self._seeds)
        self._view.shared.clear()
        self._tell_time()

    def _draw_commands(self, mask: Tensor) -> None:
        for counter in (self._command_age, self._held):
            counter.mul_(~mask)
        if self.task.command is None:
            return
        draw = uniform(self._seeds, Stream.COMMAND, self.task.command_draws, steps=self._step)
        for name, values in self.task.command(draw).items():
            known = self._view.commands[name]
            known.copy_(torch.where(mask[:, None], (self._size * values).float(), known))

    def _stagger(self, mask: Tensor) -> None:
        if not self.training:
            return
        share = uniform(self._seeds, Stream.STAGGER, 1)[:, 0]
        ahead = (share * (self._episode_steps - self._step)).long()
        self._step.add_(torch.where(mask, ahead, 0))
        self._tell_time()

    def _tell_time(self) -> None:
        self._view.episode_time = self._step * self.step_dt


def seeds_of(environment: DeviceEnvironment) -> host_rng.Seeds:
    """The running episodes' seeds as numpy's uint64, shape (num_worlds,); waits for the device."""
    return environment.episode_seeds.cpu().numpy().view(np.uint64)
