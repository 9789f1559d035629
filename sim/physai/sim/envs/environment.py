"""The twin as a learner and a policy see it: joint commands in, raw sensor fields and rewards out.

Observation and action terms are not here: they belong to the policy graph, which runs on the robot too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import TaskError
from physai.sdk.policy.command_shaping import command_shapes, shaped_command
from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array, Engine, Snapshot, put
from physai.sim.envs.delay import ActionDelay, SensorPipeline
from physai.sim.envs.divergence import DivergedEpisode, DivergenceRecorder
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.envs.rng import Seeds, Stream, episode_seeds, uniform
from physai.sim.envs.start_states import start_states
from physai.sim.envs.step_result import Bools, StepResult
from physai.sim.robots.spec import joint_columns
from physai.sim.tasks.task import Task, WorldView


class Environment:
    """Many worlds of one task, reset one by one as their episodes end."""

    def __init__(
        self,
        task: Task,
        num_worlds: int,
        *,
        seed: int = 0,
        training: bool = False,
        randomise: bool = True,
        first_world: int = 0,
        action_repeat: int = 1,
        num_threads: int = 0,
        engine: Engine | None = None,
        keep_final: bool = False,
        dump_folder: Path | None = None,
        joint_pos_offset: Array | None = None,
    ) -> None:
        """Builds the worlds; call `reset` before `step`.

        Args:
            task: what the worlds play.
            num_worlds: how many.
            seed: fixes every random number of every episode.
            training: start from the task's training states, first episodes staggered in time.
            randomise: draw model parameters, sensor noise, bias, delay and pushes; else the nominal twin.
            first_world: number of the first world, for environments that share a seed with those of other processes.
            action_repeat: control periods one call of `step` lasts; a learner may look at every n-th only.
            num_threads: threads of the engine, 0 for one per processor.
            engine: the engine to use; a `MujocoEngine` if None.
            keep_final: also measure what the policy would have seen after the last step of an episode.
            dump_folder: where to write the states that `physai.sim.envs.divergence_replay` needs of diverged worlds;
                costs a copy of the state per step.
            joint_pos_offset: constant offsets of the positions' readings of each world [rad or m], shape (num_worlds,
                joints), if `randomise`; drawn for each episode if None.

        Raises:
            TaskError: the task asks for what its model does not have.
        """
        self.task = task
        self.num_worlds = num_worlds
        self.seed = seed
        self.training = training
        self.randomise = randomise
        parameters = ParameterDraws.fields(task) if randomise else ()
        self.engine = engine or MujocoEngine(
            task.model,
            num_worlds,
            num_threads=num_threads,
            stage=task.stage,
            parameters=parameters,
            derived=task.derived,
        )
        self._control_repeat = action_repeat
        self._keep_final = keep_final
        self.step_dt = task.contract.timing.control_dt * action_repeat
        self._episode_steps = self._steps(task.episode_length_s)
        interval_s = task.episode_length_s if task.command_interval_s is None else task.command_interval_s
        self._command_steps = min(self._steps(interval_s), self._episode_steps)
        self._push_steps = self._steps(task.push.interval_s) if task.push and randomise else 0
        if task.push and len(task.push.velocity) != self.engine.model.nv:
            given, needed = len(task.push.velocity), self.engine.model.nv
            raise TaskError(f"task {task.name}: push.velocity has {given} values, the model {needed} velocities")
        self._hold_steps = max(1, self._steps(task.success.hold_s))
        window_s = task.success.window_s
        self._window_start = self._command_steps - self._steps(window_s) if window_s else 0
        # Training keeps to the task's own states, which may be easier or wider.
        self._start = (task.reset, task.reset_draws) if training else start_states(task)
        self._parameters = ParameterDraws(task, self.engine) if randomise else None
        self._sensors = SensorPipeline(
            task, self.engine, step_dt=self.step_dt, active=randomise, joint_pos_offset=joint_pos_offset
        )
        self._delay = ActionDelay(task, self.engine, active=randomise, periods=action_repeat)
        self._worlds = np.arange(first_world, first_world + num_worlds)
        self._allocate()
        self._recorder = DivergenceRecorder(dump_folder, self._about()) if dump_folder else None

    def _about(self) -> dict[str, str | int | bool]:
        return {
            "task": self.task.name,
            "fingerprint": self.task.contract.fingerprint,
            "seed": self.seed,
            "training": self.training,
            "randomise": self.randomise,
            "action_repeat": self._control_repeat,
        }

    def _steps(self, duration_s: float) -> int:
        return round(duration_s / self.step_dt)

    def _allocate(self) -> None:
        n, contract = self.num_worlds, self.task.contract
        self._seeds: Seeds = np.zeros(n, np.uint64)
        self._episode = np.zeros(n, np.int64)
        self._step_in_episode = np.zeros(n, np.int64)
        self._command_age = np.zeros(n, np.int64)
        self._held = np.zeros(n, np.int64)
        self.curriculum = 1.0
        """Share of the way from easy to final rewards' weights and starts; set by the learner."""
        joints = [joint for term in contract.action.terms for joint in term.joints]
        self._target: Array = np.zeros((n, len(joints)))
        self._previous_target: Array = np.zeros_like(self._target)
        first = joint_columns(self.engine.model, contract.robot)[0].start
        self._rest_columns = [first + column for column in contract.robot.joint_index(tuple(joints))]
        self._holds_position = np.array(
            [term.kind.startswith("joint_pos") for term in contract.action.terms for _ in term.joints]
        )
        self.diverged_episodes: list[DivergedEpisode] = []
        self._periods: list[Array] = []
        """Commands of the step, one array per control period."""
        self._sound: tuple[Array, Array] = np.empty((n, 0)), np.empty((n, 0))
        """Generalised positions and velocities before the step."""
        self._view = WorldView.of(
            self.engine, self.task, control_dt=self.step_dt, target=self._target, previous_target=self._previous_target
        )
        self._commands = self._view.commands
        # Of the commands that the policy sees otherwise than they are asked for, as a robot's runtime shapes them.
        self._shapes = command_shapes(contract.command.fields, self.step_dt)
        self._seen: dict[str, Array] = {name: np.zeros_like(self._commands[name]) for name in self._shapes}

    @property
    def view(self) -> WorldView:
        """True state of the worlds, live."""
        return self._view

    @property
    def episode_seeds(self) -> Seeds:
        """Seed of each world's running episode, shape (num_worlds,)."""
        return self._seeds.copy()

    @property
    def steps_in_episode(self) -> npt.NDArray[np.int64]:
        """Steps taken in each world's running episode, shape (num_worlds,); live, for a learner that staggers ends."""
        return self._step_in_episode

    @property
    def episode_steps(self) -> int:
        """Steps of an episode that nothing ends early."""
        return self._episode_steps

    @property
    def begun(self) -> int:
        """Most episodes that a world has begun."""
        return int(self._episode.max())

    def reseed(self, seed: int, *, begun: int = 0) -> None:
        """Makes the next reset begin the same episodes as in a new environment with this seed.

        Args:
            seed: see `Environment`.
            begun: episodes to leave out, because they were played elsewhere.
        """
        self.seed = seed
        self._episode[:] = begun

    def reset(self, seeds: Seeds | None = None) -> StepResult:
        """Starts a new episode everywhere.

        Args:
            seeds: episode seeds, uint64, shape (num_worlds,); drawn from the environment's seed if None.

        Raises:
            TaskError: not one seed per world.
        """
        self.begin_episodes(seeds)
        return self.first_look()

    def begin_episodes(self, seeds: Seeds | None = None) -> None:
        """The first half of `reset`, for one of several robots in the same worlds; `first_look` is the other."""
        if seeds is not None and seeds.shape != (self.num_worlds,):
            raise TaskError(f"{self.num_worlds} worlds need one seed each, got seeds of shape {seeds.shape}")
        self._reset_worlds(np.ones(self.num_worlds, bool), seeds)
        self._stagger(np.ones(self.num_worlds, bool))

    def first_look(self) -> StepResult:
        """Observations before a policy's first command."""
        nothing = np.zeros(self.num_worlds, bool)
        critic = self._critic()
        return StepResult(
            sensors=self._sensors.measure(self._seeds, self._step_in_episode),
            commands=self._shown(),
            critic=critic,
            final_critic=critic,
            reward=np.zeros(self.num_worlds, np.float32),
            terminated=nothing,
            truncated=nothing,
            judged=nothing,
            succeeded=nothing,
        )

    def step(self, *targets: Mapping[str, Array]) -> StepResult:
        """Applies joint commands for one control period, or for `action_repeat` of them.

        Args:
            targets: for each control period the graph's outputs by name [rad, m, N·m or N], shape (num_worlds,
                joints of the term).

        Returns:
            Sensors and rewards after the last period; worlds whose episode ended are already in their next one.

        Raises:
            TaskError: the number of commands is not `action_repeat`, or no episode was started.
        """
        self.command(targets)
        diverged = self.diverged()
        self.contain(diverged)
        result = self.conclude(self.failed() | diverged, diverged)
        return self.look(result)

    def command(self, targets: Sequence[Mapping[str, Array]]) -> None:
        """The first part of `step`: hands the commands to the engine; for one of several robots in the same worlds."""
        # Too few commands would silently play shorter control periods.
        if len(targets) != self._control_repeat:
            raise TaskError(f"step takes {self._control_repeat} control periods of commands, got {len(targets)}")
        # Zero is no episode seed in practice, so all zeros mean that no episode has begun.
        if not self._seeds.any():
            raise TaskError("call reset before the first step")
        terms = self.task.contract.action.terms
        self._periods = [np.concatenate([target[t.target_name] for t in terms], axis=1) for target in targets]
        if self._recorder is not None:
            self._recorder.note(self.snapshot(parameters=False), self._periods)
        view = self._view
        # What diverged worlds show to the terms of the task until their reset.
        self._sound = view.qpos.copy(), view.qvel.copy()
        self._previous_target[...] = self._target
        self._step_in_episode += 1
        self._command_age += 1
        self._push()
        # Rewards see the newest command; `_delay` decides when the actuators do.
        self._target[...] = self._periods[-1]
        self._delay.advance(self._periods)
        view.shared.clear()
        self._tell_time()

    def conclude(self, terminated: Bools, diverged: Bools) -> StepResult:
        """The part of `step` that judges the step and begins new episodes where one ended.

        Args:
            terminated: worlds whose episode failed in this step, shape (num_worlds,).
            diverged: those of them that diverged.

        Returns:
            A result without sensors, and whose critic input is that before the reset; `look` adds both.
        """
        view = self._view
        reward, reward_terms = self._reward(diverged)
        truncated = (self._step_in_episode >= self._episode_steps) & ~terminated
        judged, succeeded = self._judge(terminated)
        metrics = {name: term(view)[judged] for name, term in self.task.metrics.items()} if judged.any() else {}
        # Before any reset: the value of a time-out is bootstrapped from the state in which the episode was cut off.
        final_critic = self._critic()
        done = terminated | truncated
        finals = self._finals(done) if self._keep_final and done.any() else (None, None)
        if judged.any() or done.any():
            self._draw_commands(judged & ~done)
            self._reset_worlds(done, None)
            self._stagger(terminated)
        return StepResult(
            sensors={},
            commands=self._shown(),
            critic=final_critic,
            final_critic=final_critic,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            judged=judged,
            succeeded=succeeded,
            metrics=metrics,
            reward_terms=reward_terms,
            final_sensors=finals[0],
            final_commands=finals[1],
        )

    def look(self, result: StepResult) -> StepResult:
        """The last part of `step`: adds what is seen after it, in worlds that are in their next episode already."""
        changed = result.judged | result.done
        if changed.any():
            result.critic = result.final_critic.copy()
            result.critic[changed] = self.task.critic(self._view.rows(changed)).astype(np.float32)
        result.sensors = self._sensors.measure(self._seeds, self._step_in_episode)
        return result

    def _finals(self, done: Bools) -> tuple[dict[str, Array], dict[str, Array]]:
        sensors = self._sensors.look(done, self._seeds, self._step_in_episode)
        commands = {name: value[done] for name, value in self._commands.items()}
        shaped = {
            name: shaped_command(commands[name], self._seen[name][done], shape) for name, shape in self._shapes.items()
        }
        return sensors, commands | shaped

    def _shown(self) -> dict[str, Array]:
        """Commands that the policy sees in the next control period; call it once per step."""
        for name, shape in self._shapes.items():
            self._seen[name] = shaped_command(self._commands[name], self._seen[name], shape)
        return {name: value.copy() for name, value in {**self._commands, **self._seen}.items()}

    def _reward(self, diverged: Bools) -> tuple[Array, dict[str, float]]:
        entries = self.task.rewards
        values = np.empty((len(entries), self.num_worlds))
        for row, entry in zip(values, entries.values(), strict=True):
            np.multiply(entry.term(self._view), entry.weight_at(self.curriculum), out=row)
        # A diverged world shows the state before the step, which is no result of the command to be rewarded.
        values[:, diverged] = 0.0
        means = dict(zip(entries, values.mean(axis=1).tolist(), strict=True))
        return (values.sum(axis=0) * self._view.control_dt).astype(np.float32), means

    def failed(self) -> Bools:
        """Worlds in a state that ends their episode, shape (num_worlds,)."""
        ended = np.zeros(self.num_worlds, bool)
        for term in self.task.terminations.values():
            ended |= term(self._view)
        return ended

    def _judge(self, terminated: Bools) -> tuple[Bools, Bools]:
        """Worlds whose command or episode ends now, and those of them that met the criterion."""
        if self._window_start:
            begins = self._command_age == self._window_start
            self._view.window_qpos[begins] = self._view.qpos[begins]
        held = self.task.success.condition(self._view)
        self._held = np.where(held, self._held + 1, 0)
        judged = terminated | (self._command_age >= self._command_steps)
        if self.training:
            # A command or an episode that is entered late is not judged, whether it fails or not: what survives it
            # could not have met the criterion, and to count the failures alone would show too few successes.
            entered = self._step_in_episode - self._command_age
            judged &= entered + self._command_steps <= self._episode_steps
        return judged, judged & ~terminated & (self._held >= self._hold_steps)

    def _critic(self) -> Array:
        return self.task.critic(self._view).astype(np.float32)

    def diverged(self) -> Bools:
        """Worlds that diverged in this step, or whose commands are not finite, shape (num_worlds,)."""
        return self.engine.diverged() | ~np.isfinite(self._periods).all(axis=(0, 2))

    def contain(self, diverged: Bools) -> None:
        """Records worlds that diverged with their seed, and shows the state before the step until they are reset."""
        if not diverged.any():
            return
        for world in np.flatnonzero(diverged):
            episode = DivergedEpisode(
                world=int(world),
                episode_seed=int(self._seeds[world]),
                step=int(self._step_in_episode[world]),
                target=tuple(float(x) for x in self._target[world]),
            )
            if self._recorder is not None:
                parameters = {f"engine/{name}": array for name, array in self.engine.snapshot().items()}
                episode = self._recorder.dump(episode, parameters)
            self.diverged_episodes.append(episode)
        # The terms must not see NaN: until their reset, later in this step, these worlds show the state before it.
        qpos, qvel = (before[diverged] for before in self._sound)
        unsound = ~np.isfinite(np.concatenate([qpos, qvel], axis=1)).all(axis=1)
        qpos[unsound], qvel[unsound] = self.engine.model.qpos0, 0.0
        self._target[diverged] = self._previous_target[diverged]
        self.engine.reset(diverged, qpos, qvel)

    def _stagger(self, mask: Bools) -> None:
        """In training, lets the masked worlds' new episodes be as far as if begun at some earlier time."""
        # Else the first episodes would all end in the same step; and so would those after failures, because a policy
        # learns within seconds not to fail. The learner would see now all beginnings, now all ends.
        if self.training and mask.any():
            share = uniform(self._seeds[mask], Stream.STAGGER, 1)[:, 0]
            left = self._episode_steps - self._step_in_episode[mask]
            self._step_in_episode[mask] += (share * left).astype(np.int64)
            self._tell_time()

    def keep_time_of(self, other: "Environment") -> None:
        """Takes over how far the other's episodes are: robots in the same worlds have one clock."""
        self._step_in_episode[:] = other._step_in_episode
        self._tell_time()

    def _tell_time(self) -> None:
        self._view.episode_time = self._step_in_episode * self._view.control_dt

    @property
    def _size(self) -> float:
        """Factor of commands and pushes."""
        return self.task.growth(self.curriculum) if self.training else 1.0

    def _push(self) -> None:
        if not self._push_steps or self.task.push is None:
            return
        due = self._step_in_episode % self._push_steps == 0
        if due.any():
            draw = (
                2.0 * uniform(self._seeds[due], Stream.PUSH, self._view.qvel.shape[1], steps=self._step_in_episode[due])
                - 1.0
            )
            self._view.qvel[due] += self._size * draw * np.asarray(self.task.push.velocity)

    def _draw_commands(self, mask: Bools) -> None:
        if self.task.command is None or not mask.any():
            return
        steps = self._step_in_episode[mask]
        draw = uniform(self._seeds[mask], Stream.COMMAND, self.task.command_draws, steps=steps)
        for name, values in self.task.command(draw).items():
            self._commands[name][mask] = self._size * values
        self._view.shared.clear()
        self._command_age[mask] = 0
        self._held[mask] = 0

    def _reset_worlds(self, mask: Bools, seeds: Seeds | None) -> None:
        if not mask.any():
            return
        if seeds is None:
            self._episode[mask] += 1
            self._seeds[mask] = episode_seeds(self.seed, self._worlds[mask], self._episode[mask])
        else:
            self._seeds[mask] = seeds[mask]
        fresh = self._seeds[mask]
        self._step_in_episode[mask] = 0
        self._held[mask] = 0
        if self._parameters is not None:
            self._parameters.draw(mask, fresh)
        start, count = self._start
        if self.training and self.task.training_reset:
            start = self.task.training_reset
        draws = uniform(fresh, Stream.STATE, count)
        if self.training and self.task.harder:
            draws[:, -1] *= self.curriculum
        qpos, qvel = start(draws)
        if self.training and self.task.training_age:
            self._step_in_episode[mask] = np.rint(self.task.training_age(draws) / self.step_dt)
        # Until the first command a position servo holds the starting pose, and a motor gives no effort.
        rest = np.where(self._holds_position, qpos[:, self._rest_columns], 0.0)
        self._target[mask] = rest
        self._previous_target[mask] = rest
        self._delay.reset(mask, fresh, rest)
        self.engine.reset(mask, qpos, qvel)
        self._command_age[mask] = 0
        for seen in self._seen.values():
            seen[mask] = 0.0
        self._draw_commands(mask)
        self._sensors.reset(mask, fresh)
        self._view.shared.clear()
        self._tell_time()

    _OWN_STATE = ("_seeds", "_episode", "_step_in_episode", "_command_age", "_held", "_target", "_previous_target")

    def snapshot(self, *, parameters: bool = True) -> Snapshot:
        """Everything a restarted environment needs to continue bit for bit; arrays only, first axis the world.

        Args:
            parameters: include the model fields that differ between worlds.
        """
        parts: dict[str, Snapshot] = {
            "engine": self.engine.snapshot(parameters=parameters),
            "sensors": self._sensors.snapshot(),
            "delay": self._delay.snapshot(),
            "own": {name: getattr(self, name).copy() for name in self._OWN_STATE},
            "commands": {name: value.copy() for name, value in self._commands.items()},
            "seen": {name: value.copy() for name, value in self._seen.items()},
            "window": {"qpos": self._view.window_qpos.copy()} if self._window_start else {},
        }
        return {f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Returns to a snapshot of an environment of the same task, options and size.

        Raises:
            TaskError: it is of another one.
        """
        parts: dict[str, Snapshot] = {
            part: {} for part in ("engine", "sensors", "delay", "own", "commands", "seen", "window")
        }
        for key, array in snapshot.items():
            part, _, name = key.partition("/")
            parts.setdefault(part, {})[name] = array
        self.engine.restore(parts["engine"])
        self._sensors.restore(parts["sensors"])
        self._delay.restore(parts["delay"])
        for name in self._OWN_STATE:
            put(getattr(self, name), parts["own"], name)
        for name, values in self._commands.items():
            put(values, parts["commands"], name)
        for name, values in self._seen.items():
            put(values, parts["seen"], name)
        if self._window_start:
            put(self._view.window_qpos, parts["window"], "qpos")
        self._view.shared.clear()
        self._tell_time()
