"""Whether an environment's steps are the same in every run, found by playing some twice."""

import torch

from physai.sdk.base.errors import DeviceError
from physai.sim.envs.device.device_environment import DeviceEnvironment

STEPS = 12
"""Steps that are played twice. On an H200, 32 worlds of a robot on the ground differed after four."""


def require_repeatable(environment: DeviceEnvironment) -> None:
    """Plays some steps twice from where the environment is, and returns there.

    Kernels that add in whatever order they come to make steps differ by rounding; whether a model needs such kernels,
    only a trial tells.

    Args:
        environment: has been reset.

    Raises:
        DeviceError: the two differ.
    """
    start, task = environment.snapshot(), environment.task
    generator = torch.Generator(environment.device).manual_seed(0)

    def targets() -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for term in task.contract.action.terms:
            share = torch.rand(environment.num_worlds, len(term.joints), generator=generator, device=environment.device)
            found[term.target_name] = torch.tensor(term.offset, device=environment.device) + 0.4 * (share - 0.5)
        return found

    played = [[targets() for _ in range(environment.action_repeat)] for _ in range(STEPS)]
    ends: list[dict[str, torch.Tensor]] = []
    for _ in range(2):
        environment.restore(start)
        for step in played:
            environment.step(*step)
        ends.append(dict(environment.snapshot()))
    environment.restore(start)
    left, right = ({name: torch.nan_to_num(value.double()) for name, value in end.items()} for end in ends)
    most = {name: float((value - right[name]).abs().max()) for name, value in left.items() if value.numel()}
    worst = max(most, key=lambda name: most[name])
    if most[worst] > 0.0:
        raise DeviceError(
            f"`deterministic`: {task.name} does not repeat itself on {environment.device}: {STEPS} steps, played "
            f"twice, differ by up to {most[worst]:.1e} in {worst}; leave out `deterministic`, or step the worlds on "
            "the CPU with `engine` mujoco `device` cpu"
        )
