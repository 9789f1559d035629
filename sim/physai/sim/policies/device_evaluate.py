"""Plays episodes with policy and worlds on one device."""

from collections.abc import Callable, Mapping

import torch

from physai.sdk.contract.contract_diff import require_same
from physai.sim.engines.protocol import Array
from physai.sim.envs.device.capacity import require_capacity
from physai.sim.envs.device.device_environment import DeviceEnvironment, DeviceStep
from physai.sim.envs.device.graph import CapturedEnvironment
from physai.sim.envs.divergence import DivergedEpisode
from physai.sim.envs.rng import Seeds
from physai.sim.policies.device_policy import DevicePolicy
from physai.sim.policies.evaluate import Episodes, evaluation_seeds
from physai.sim.policies.ramped import RampedPolicy

_LOOK_EVERY = 50
"""Control periods between two looks at whether all episodes have ended."""


class _Tally:
    """Counts of the episodes, on the device."""

    def __init__(self, environment: DeviceEnvironment, metrics: tuple[str, ...]) -> None:
        worlds = torch.zeros(environment.num_worlds, dtype=torch.int64, device=environment.device)
        self.running = torch.ones_like(worlds, dtype=torch.bool)
        self.judged, self.succeeded = worlds, worlds.clone()
        self.broken_at = worlds.clone()
        self.metrics = {name: torch.zeros((), dtype=torch.float64, device=worlds.device) for name in metrics}

    def add(self, number: int, step: DeviceStep) -> None:
        """Counts what belongs to the first episode of each world."""
        judged = step.judged & self.running
        self.judged += judged
        self.succeeded += step.succeeded & self.running
        self.broken_at.copy_(torch.where(step.diverged & self.running, number + 1, self.broken_at))
        for name, total in self.metrics.items():
            total += torch.where(judged, step.metrics[name], 0.0).double().sum()
        self.running &= ~(step.terminated | step.truncated)

    def episodes(self, seeds: Seeds) -> Episodes:
        """The counts on the host."""
        judged, succeeded, broken = (
            tuple(int(count) for count in counts.cpu()) for counts in (self.judged, self.succeeded, self.broken_at)
        )
        return Episodes(
            judged=judged,
            succeeded=succeeded,
            metrics={name: float(total) / max(1, sum(judged)) for name, total in self.metrics.items()},
            diverged=tuple(
                DivergedEpisode(world, int(seeds[world]), step, ()) for world, step in enumerate(broken) if step
            ),
        )


def play_on_device(
    policy: DevicePolicy, environment: DeviceEnvironment, *, progress: Callable[[float], None] | None = None
) -> Episodes:
    """Plays one episode per world, as `play_episodes` does, with the same seeds, on the environment's device.

    Args:
        policy: policy to evaluate, on the same device.
        environment: worlds to play in, `training` off.
        progress: called with the fraction of the time played, in (0, 1].

    Raises:
        ContractMismatchError: policy and task have different contracts.
        ModelError: a world had more contacts or constraints than memory.
    """
    task = environment.task
    require_same(policy.contract, task.contract, left="the policy", right=f"the task {task.name}")
    seeds = evaluation_seeds(environment.num_worlds)
    steps = round(task.episode_length_s / environment.step_dt)
    now = environment.reset(seeds)
    captured = CapturedEnvironment(environment)
    tally = _Tally(environment, tuple(task.metrics))
    # Its state is that of the policy itself; a policy without a ramp never has one.
    start = RampedPolicy(policy)
    start.reset(environment.num_worlds)
    for number in range(steps):
        targets = _ramped(start, now) if start.ramps else policy.act({**now.sensors, **now.commands})
        now = captured.step(targets)
        tally.add(number, now)
        policy.reset_worlds(now.terminated | now.truncated)
        looks = number % _LOOK_EVERY == _LOOK_EVERY - 1
        if progress is not None and looks:
            progress((number + 1) / steps)
        if looks and not bool(tally.running.any()):
            break
    require_capacity(environment.engine)
    if progress is not None:
        progress(1.0)
    return tally.episodes(seeds)


def _ramped(policy: RampedPolicy, now: DeviceStep) -> dict[str, torch.Tensor]:
    """Commands of a period of the ramp, which is computed on the host; later episodes of a world have none."""
    sensors, commands = _on_host(now.sensors), _on_host(now.commands)
    device = now.reward.device
    return {name: torch.as_tensor(value, device=device) for name, value in policy(sensors, commands).items()}


def _on_host(fields: Mapping[str, torch.Tensor]) -> dict[str, Array]:
    return {name: value.cpu().numpy() for name, value in fields.items()}
