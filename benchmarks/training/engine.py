"""Share of the physics' speed that is left in a whole environment.

Numerator: `Environment.step` in training mode (randomised models, noise, delays, pushes, rewards, terminations, resets)
and the graph's observations. Denominator: `mujoco.batch` alone, in the fastest way it can be called: the same compiled
model, thread count, controls and number of physics steps, one call per environment step, nothing read back.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.batch import Batch
from torch import nn

from benchmarks.measure import (
    BenchmarkOptions,
    BenchmarkResult,
    ProgressCallback,
    WorkloadError,
    alternate,
    rate_of,
    ratios,
)
from physai.sim.engines.protocol import Array
from physai.sim.envs.delay import actuator_columns
from physai.sim.envs.environment import Environment
from physai.sim.tasks.registry import load_task
from physai.sim.tasks.task import Task
from physai.train.models.numpy_policy import as_tensors
from physai.train.models.policy_graph import PolicyGraph
from physai.train.settings.presets import preset_for

TASKS = ("cartpole-swingup", "pendubot-swingup", "ur10e-reach")
_CYCLE = 32


@dataclass(frozen=True)
class EngineBenchSize:
    """Size of the measurement."""

    worlds: int
    steps: int
    """Environment steps per block; a block of one contender follows one of the other."""
    rounds: int


FULL, QUICK = EngineBenchSize(worlds=1024, steps=60, rounds=9), EngineBenchSize(worlds=16, steps=5, rounds=3)


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Measures each task's robot."""
    size = QUICK if options.quick else FULL
    results: list[BenchmarkResult] = []
    for name in options.chosen(TASKS):
        task = load_task(name)
        report(f"{name}: {size.worlds} worlds, {size.rounds} × {size.steps} steps each way")
        results += measure(task, size, action_repeat=preset_for(name).action_repeat)
    return results


def measure(task: Task, size: EngineBenchSize, *, action_repeat: int) -> Sequence[BenchmarkResult]:
    """Steps per second with and without what makes physics an environment, and their ratio.

    Raises:
        WorkloadError: a state, observation or reward is not finite, or time did not pass as it should.
    """
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        targets = random_targets(task, size.worlds, _CYCLE)
        whole, physics = (
            WholeEnvironment(task, size.worlds, action_repeat, targets),
            Physics(task, size, action_repeat, targets),
        )
        contenders = {
            "env": lambda: rate_of(lambda: whole.play(size.steps), size.steps * size.worlds),
            "raw": lambda: rate_of(lambda: physics.play(size.steps), size.steps * size.worlds),
        }
        whole.play(2)
        physics.play(2)
        rates = alternate(contenders, size.rounds)
        whole.check(size.rounds * size.steps + 2)
        physics.check(size.rounds * size.steps + 2)
    finally:
        torch.set_num_threads(threads_before)
    robot, peer = task.robot.name, f"mujoco.batch {mujoco.__version__}"
    return [
        BenchmarkResult(name=f"env_over_raw.{robot}", unit="1", runs=ratios(rates["env"], rates["raw"]), peer=peer),
        BenchmarkResult(name=f"env_steps_per_s.{robot}", unit="1/s", runs=rates["env"]),
        BenchmarkResult(name=f"raw_steps_per_s.{robot}", unit="1/s", runs=rates["raw"]),
    ]


def random_targets(task: Task, worlds: int, count: int) -> list[dict[str, Array]]:
    """Joint commands within the action terms' range, one per control period; played in a circle they never jump."""
    numbers = np.random.default_rng(0)
    half: list[dict[str, Array]] = []
    rest = {joint.name: joint.default_pos for joint in task.contract.robot.joints}
    last = {
        t.target_name: np.array([rest[j] if t.kind == "joint_pos_incremental" else 0.0 for j in t.joints])
        for t in task.contract.action.terms
    }
    for _ in range(count // 2):
        period: dict[str, Array] = {}
        for term in task.contract.action.terms:
            action = numbers.uniform(-1.0, 1.0, (worlds, len(term.joints)))
            start = last[term.target_name] if term.kind.endswith("incremental") else np.array(term.offset)
            period[term.target_name] = np.clip(start + np.array(term.scale) * action, term.lower, term.upper)
        last = period
        half.append({name: values.astype(np.float32) for name, values in period.items()})
    return half + half[::-1]


class WholeEnvironment:
    """The environment and the graph's observations."""

    def __init__(self, task: Task, worlds: int, action_repeat: int, targets: Sequence[dict[str, Array]]) -> None:
        """Builds and resets the worlds."""
        self._env = Environment(task, worlds, training=True, action_repeat=action_repeat)
        self._graph = PolicyGraph(task.contract, nn.Identity())
        self._memory = self._graph.initial_state(worlds)
        self._repeat, self._targets, self._steps = action_repeat, targets, 0
        self._sums = np.zeros(2)
        self._run_steps = np.zeros(worlds, np.int64)
        self._env.reset()

    @torch.no_grad()
    def play(self, steps: int) -> None:
        """That many environment steps."""
        for _ in range(steps):
            first = self._steps * self._repeat
            result = self._env.step(*(self._targets[(first + i) % len(self._targets)] for i in range(self._repeat)))
            sensors, commands = as_tensors(result.sensors), as_tensors(result.commands)
            observation = self._graph.observe(sensors, commands, self._memory)[0]
            self._steps += 1
            self._sums += float(observation.sum()), float(result.reward.sum())
            self._run_steps += 1
            self._run_steps[result.done] = 0

    def check(self, steps: int) -> None:
        """Raises WorkloadError unless that many steps were played, in finite states, with time passing in each."""
        name = self._env.task.name
        if self._env.diverged_episodes:
            raise WorkloadError(f"{name}: the physics diverged: {self._env.diverged_episodes[0]}")
        if not np.isfinite(self._sums).all():
            raise WorkloadError(f"{name}: sums of observations and rewards are {self._sums}, not finite")
        if self._steps != steps:
            raise WorkloadError(f"{name}: {self._steps} steps were played, expected {steps}")
        _check_time(name, self._env.engine.state("time"), self._run_steps * self._env.step_dt)


class Physics:
    """The same physics without anything around it."""

    def __init__(
        self, task: Task, size: EngineBenchSize, action_repeat: int, targets: Sequence[dict[str, Array]]
    ) -> None:
        """Builds the simulations in the model's own state."""
        self._task, self._steps = task, 0
        self._batch = Batch(task.model, size.worlds, len(os.sched_getaffinity(0)))
        self._batch.reset()
        self._ctrl: Any = self._batch.bind("ctrl")
        columns = actuator_columns(task, task.model)
        self._controls: list[Array] = []
        for period in targets:
            control = np.zeros_like(self._ctrl)
            control[:, columns] = np.concatenate([period[t.target_name] for t in task.contract.action.terms], axis=1)
            self._controls.append(control)
        self._repeat, self._physics_steps = action_repeat, action_repeat * task.contract.timing.decimation

    def play(self, steps: int) -> None:
        """That many environment steps' worth of physics."""
        for _ in range(steps):
            self._ctrl[...] = self._controls[self._steps * self._repeat % len(self._controls)]
            self._batch.step(nstep=self._physics_steps)
            self._steps += 1

    def check(self, steps: int) -> None:
        """Raises WorkloadError unless that many steps were played, in finite states, with time passing in each."""
        name = f"{self._task.name} without an environment"
        if self._steps != steps:
            raise WorkloadError(f"{name}: {self._steps} steps were played, expected {steps}")
        if not np.isfinite(self._batch.state).all():
            raise WorkloadError(f"{name}: the physics diverged")
        duration = steps * self._physics_steps * self._task.contract.timing.physics_dt
        _check_time(name, self._batch.bind("time"), np.full(self._batch.nsim, duration))


def _check_time(name: str, time_s: Array, expected_s: Array) -> None:
    time_s = np.asarray(time_s).reshape(-1)
    wrong = ~(np.abs(time_s - expected_s) <= 1e-6 * (1.0 + expected_s))
    if wrong.any():
        world = int(wrong.argmax())
        raise WorkloadError(
            f"{name}: {time_s[world]:.6g} s passed in world {world}, expected {expected_s[world]:.6g} s"
        )
