"""Speed of the device environment beside its physics and beside mjlab."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.gpu.gpu_peer import Peer
from benchmarks.measure import BenchmarkResult, WorkloadError, alternate, rate_of, ratios
from benchmarks.training.engine import random_targets
from physai.sim.engines.warp import modules, on_torch_stream
from physai.sim.engines.warp_device import supported
from physai.sim.envs.delay import actuator_columns
from physai.sim.envs.device.capacity import PROBE_WORLDS, capacities_of
from physai.sim.envs.device.device_environment import DeviceEnvironment
from physai.sim.envs.device.graph import Captured, CapturedEnvironment
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph
from physai.train.runners.runner import device_engine
from physai.train.settings.presets import preset_for

_CYCLE = 32
_WARM = 4
"""Steps before timing: the third is recorded, the fourth replayed."""


@dataclass(frozen=True)
class SpeedSize:
    """Size of the measurement."""

    worlds: tuple[int, ...]
    """Of `env_over_raw`; mjlab and learning take the first."""
    steps: int
    """Environment steps per block; a block of one contender follows one of the other."""
    rounds: int
    iterations: int
    """Of learning, per block."""


FULL = SpeedSize(worlds=(4096, 8192), steps=100, rounds=5, iterations=5)
QUICK = SpeedSize(worlds=(16,), steps=3, rounds=2, iterations=1)


class WholeEnvironment:
    """Environment and the graph's observations, replayed as one CUDA graph where there is one."""

    def __init__(self, task: Task, worlds: int, device: str) -> None:
        """Builds and resets the worlds, in training mode."""
        self.config = replace(preset_for(task.name), num_envs=worlds, engine="warp")
        engine = device_engine(task, self.config, torch.device(device))
        self.env = DeviceEnvironment(task, engine, training=True, action_repeat=self.config.action_repeat)
        self._graph = PolicyGraph(task.contract, nn.Identity()).to(device)
        self._memory = self._graph.initial_state(worlds)
        self._cycle = device_targets(task, worlds, device)
        first, repeat = self._cycle[0], self.config.action_repeat
        self._targets = [{name: value.clone() for name, value in first.items()} for _ in range(repeat)]
        self._values = torch.zeros((), dtype=torch.float64, device=device)
        self._diverged = torch.zeros((), dtype=torch.int64, device=device)
        self.ended = torch.zeros_like(self._diverged)
        """Episodes that ended."""
        self._advance: Captured[None] = Captured(self._step, self.env.device)
        self._played = 0
        self.env.reset()

    @torch.no_grad()
    def _step(self) -> None:
        step = self.env.step(*self._targets)
        observation = self._graph.observe(step.sensors, step.commands, self._memory)[0]
        self._values += observation.sum() + step.reward.sum()
        self._diverged += step.diverged.sum()
        self.ended += (step.terminated | step.truncated).sum()

    def play(self, steps: int) -> None:
        """That many environment steps, to their end."""
        for _ in range(steps):
            for index, kept in enumerate(self._targets):
                place = (self._played * self.config.action_repeat + index) % _CYCLE
                for name, value in kept.items():
                    value.copy_(self._cycle[place][name])
            self._advance()
            self._played += 1
        finish(self.env.device)

    def check(self, steps: int) -> None:
        """Raises WorkloadError unless that many steps were played as one graph each, finite, with ends of episodes."""
        task = self.env.task
        if self._played != steps:
            raise WorkloadError(f"{task.name}: {self._played} steps were played, expected {steps}")
        if self.env.device.type == "cuda" and not self._advance.replayed:
            raise WorkloadError(f"{task.name}: steps were not replayed: {self._advance.why_not}")
        values, ended, diverged = float(self._values), int(self.ended), int(self._diverged)
        if not math.isfinite(values):
            raise WorkloadError(f"{task.name}: observations and rewards sum to {values}")
        worlds, length = self.env.num_worlds, round(task.episode_length_s / self.env.step_dt)
        # First episodes are staggered over a whole length.
        if ended < worlds * steps // (2 * length) or diverged > 0.001 * worlds * steps:
            raise WorkloadError(
                f"{task.name}: {ended} episodes of {length} steps ended in {steps} steps of {worlds} worlds, "
                f"{diverged} diverged"
            )
        self.env.engine.require_capacity()


class RawPhysics:
    """The physics alone: `mujoco_warp.step` for every physics step of a control period, in one CUDA graph."""

    def __init__(self, task: Task, worlds: int, device: str, action_repeat: int) -> None:
        """Builds the worlds with as much memory as the environment's; nothing is randomised or read."""
        self._warp, self._mjw = modules()
        capacities = capacities_of(task, device=device)
        contacts = math.ceil(capacities.max_contacts * max(1.0, PROBE_WORLDS / worlds))
        model = supported(task.model)
        with on_torch_stream(device):
            self._model: Any = self._mjw.put_model(model)
            # Kernels would print them.
            self._model.opt.warn_overflow = 0
            self._data: Any = self._mjw.make_data(
                model, nworld=worlds, nconmax=contacts, njmax=capacities.max_constraints
            )
        self.state: dict[str, Tensor] = {
            name: self._warp.to_torch(getattr(self._data, name))
            for name in ("qpos", "qvel", "act", "qacc_warmstart", "time", "ctrl")
        }
        """State and controls of the worlds, live."""
        self._physics_steps = task.contract.timing.decimation * action_repeat
        self._period_s = self._physics_steps * task.contract.timing.physics_dt
        self._columns = torch.tensor(actuator_columns(task, task.model), device=device)
        names = [term.target_name for term in task.contract.action.terms]
        self._cycle = [torch.cat([period[n] for n in names], dim=1) for period in device_targets(task, worlds, device)]
        self._advance: Captured[None] = Captured(self._step, torch.device(device))
        self._repeat, self._played, self._device = action_repeat, 0, torch.device(device)
        self.name = task.name

    def _step(self) -> None:
        with on_torch_stream(str(self._device)):
            for _ in range(self._physics_steps):
                self._mjw.step(self._model, self._data)

    def begin(self, whole: WholeEnvironment) -> None:
        """Takes over the environment's state, so that both have as many contacts."""
        for name in ("qpos", "qvel", "act", "qacc_warmstart"):
            self.state[name].copy_(whole.env.engine.state(name))
        self.state["time"].zero_()
        self._played = 0
        finish(self._device)

    def play(self, steps: int) -> None:
        """That many environment steps' worth of physics, to their end."""
        for _ in range(steps):
            period = self._cycle[self._played * self._repeat % _CYCLE]
            self.state["ctrl"][:, self._columns] = period
            self._advance()
            self._played += 1
        finish(self._device)

    def check(self) -> None:
        """Raises WorkloadError unless all steps since `begin` moved time as they should, replayed, to finite states."""
        time_s = self.state["time"]
        expected_s = self._played * self._period_s
        if not bool(((time_s - expected_s).abs() <= 1e-4 * (1.0 + expected_s)).all()):
            raise WorkloadError(f"{self.name}, physics alone: {float(time_s[0]):g} s passed, expected {expected_s:g} s")
        infinite = int((~torch.isfinite(self.state["qpos"]).all(dim=1)).sum())
        if infinite > 0.001 * len(time_s) * self._played:
            raise WorkloadError(f"{self.name}, physics alone: {infinite} worlds diverged")
        if self._device.type == "cuda" and not self._advance.replayed:
            raise WorkloadError(f"{self.name}, physics alone: not replayed: {self._advance.why_not}")


def device_targets(task: Task, worlds: int, device: str) -> list[dict[str, Tensor]]:
    """The commands of `python -m benchmarks engine` on a device."""
    cycle = random_targets(task, worlds, _CYCLE)
    return [{name: torch.tensor(value, device=device) for name, value in period.items()} for period in cycle]


def finish(device: torch.device) -> None:
    """Waits until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def env_over_raw(task: Task, worlds: int, size: SpeedSize, device: str) -> list[BenchmarkResult]:
    """Steps per second with and without what makes physics an environment, and their ratio.

    Raises:
        WorkloadError: a step was not replayed, states or rewards are not finite, or no episode ended.
    """
    whole = WholeEnvironment(task, worlds, device)
    raw = RawPhysics(task, worlds, device, whole.config.action_repeat)
    whole.play(_WARM)
    raw.begin(whole)
    raw.play(_WARM)

    def physics() -> float:
        raw.begin(whole)
        rate = rate_of(lambda: raw.play(size.steps), size.steps * worlds)
        raw.check()
        return rate

    contenders = {"env": lambda: rate_of(lambda: whole.play(size.steps), size.steps * worlds), "raw": physics}
    rates = alternate(contenders, size.rounds)
    whole.check(_WARM + size.steps * size.rounds)
    name = f"{task.robot.name}.{worlds}"
    return [
        BenchmarkResult(
            name=f"env_over_raw.{name}", unit="1", runs=ratios(rates["env"], rates["raw"]), peer="mujoco_warp.step"
        ),
        BenchmarkResult(name=f"env_steps_per_s.{name}", unit="1/s", runs=rates["env"]),
        BenchmarkResult(name=f"raw_steps_per_s.{name}", unit="1/s", runs=rates["raw"]),
    ]


def env_over_mjlab(task: Task, peer: Peer, size: SpeedSize, device: str) -> list[BenchmarkResult]:
    """Our environment steps per second over mjlab's, each with its own robot.

    Raises:
        WorkloadError: the two do not simulate the same time per step, or one's work went wrong.
    """
    worlds = same_work(task, peer)
    whole = WholeEnvironment(task, worlds, device)
    whole.play(_WARM)
    peer.ask("step", steps=_WARM)
    ended = 0

    def theirs() -> float:
        nonlocal ended
        answer = peer.ask("step", steps=size.steps)
        ended += answer["ended"]
        return size.steps * worlds / answer["seconds"]

    contenders = {"ours": lambda: rate_of(lambda: whole.play(size.steps), size.steps * worlds), "mjlab": theirs}
    rates = alternate(contenders, size.rounds)
    whole.check(_WARM + size.steps * size.rounds)
    # mjlab's episodes have 1000 steps and are staggered, too.
    if ended < worlds * size.steps * size.rounds // 2000:
        raise WorkloadError(f"mjlab: {ended} episodes ended in {size.steps * size.rounds} steps of {worlds} worlds")
    return against(peer, "env", rates)


def same_work(task: Task, peer: Peer) -> int:
    """The number of worlds to compare with.

    Raises:
        WorkloadError: the two do not simulate the same time per step.
    """
    timing, theirs = task.contract.timing, peer.described
    if (timing.decimation, timing.physics_dt) != (theirs["decimation"], theirs["physics_dt"]):
        raise WorkloadError(
            f"a step of {task.name} is {timing.decimation} × {timing.physics_dt:g} s, one of mjlab is "
            f"{theirs['decimation']} × {theirs['physics_dt']:g} s"
        )
    return int(theirs["worlds"])


def against(peer: Peer, what: str, rates: dict[str, tuple[float, ...]]) -> list[BenchmarkResult]:
    """Our rate over mjlab's, and both."""
    over = ratios(rates["ours"], rates["mjlab"])
    return [
        BenchmarkResult(name=f"{what}_over_mjlab", unit="1", runs=over, peer=peer.name),
        BenchmarkResult(name=f"{what}_over_mjlab.ours", unit="1/s", runs=rates["ours"]),
        BenchmarkResult(name=f"{what}_over_mjlab.mjlab", unit="1/s", runs=rates["mjlab"], peer=peer.name),
    ]


def allocations(task: Task, worlds: int, steps: int, device: str) -> list[BenchmarkResult]:
    """Memory that torch hands out per replayed step; needs a CUDA device.

    Raises:
        WorkloadError: the step was not replayed.
    """
    config = replace(preset_for(task.name), num_envs=worlds, engine="warp")
    env = CapturedEnvironment(DeviceEnvironment(task, device_engine(task, config, torch.device(device)), training=True))
    env.reset()
    targets = device_targets(task, worlds, device)[0]
    for _ in range(_WARM):
        env.step(targets)
    if env.why_not is not None:
        raise WorkloadError(f"{task.name}: steps were not replayed: {env.why_not}")

    def handed_out() -> int:
        return int(torch.cuda.memory_stats(device)["allocation.all.allocated"])

    before = handed_out()
    for _ in range(steps):
        env.step(targets)
    count = (handed_out() - before) / steps
    return [BenchmarkResult(name=f"allocs_per_step.{task.name}", unit="allocations", runs=(count,))]
