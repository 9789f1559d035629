"""Compiles every kernel that a task's environment launches, by launching them."""

import torch

from physai.sim.envs.device.capacity import Capacities, build_engine, require_capacity
from physai.sim.envs.device.device_environment import DeviceEnvironment
from physai.sim.tasks.task import Task

_WORLDS = 2


def warm_up(task: Task, capacities: Capacities, *, device: str = "cpu", deterministic: bool = False) -> None:
    """Plays two control periods, which leaves the kernels in Warp's folder; a first time takes minutes.

    Args:
        task: what to play; its kernels depend on its model.
        capacities: memory of each world; kernels depend on it.
        device: `cpu`, `cuda` or `cuda:N`.
        deterministic: compile what computes in an order that is the same in every run.

    Raises:
        DeviceError: there is no such device.
        ModelError: mujoco_warp cannot simulate the task.
        TaskError: the task's functions cannot run on a device.
    """
    engine = build_engine(task, _WORLDS, device=device, capacities=capacities, deterministic=deterministic)
    environment = DeviceEnvironment(task, engine)
    environment.reset()
    targets = {
        term.target_name: torch.tensor(term.offset, device=environment.device).repeat(_WORLDS, 1)
        for term in task.contract.action.terms
    }
    for _ in range(2):
        environment.step(targets)
    require_capacity(engine)
