"""MuJoCo's own engine behind the device environment: the same physics as the CPU environment, in torch tensors."""

from collections.abc import Mapping
from typing import Any

import torch

from physai.sim.engines.mujoco import MujocoEngine
from physai.sim.engines.protocol import Array, Snapshot
from physai.sim.envs.domain_randomization import ParameterDraws
from physai.sim.tasks.task import Task


class TorchMujoco:
    """A `DeviceEngine` whose tensors share the memory of a `MujocoEngine`; it may look at values, as no device may."""

    def __init__(self, task: Task, num_worlds: int) -> None:
        self._engine = MujocoEngine(
            task.model,
            num_worlds,
            num_threads=1,
            stage=task.stage,
            parameters=ParameterDraws.fields(task),
            derived=task.derived,
        )
        self.model: Any = self._engine.model
        self.num_worlds = num_worlds

    def state(self, name: str) -> Array:
        return torch.as_tensor(self._engine.state(name))

    def derived(self, name: str) -> Array:
        return torch.as_tensor(self._engine.derived(name))

    def parameter(self, name: str) -> Array:
        return torch.as_tensor(self._engine.parameter(name))

    def parameters_changed(self, mask: Array) -> None:
        self._engine.parameters_changed(mask.numpy())

    def reset_where(self, mask: Array, qpos: Array, qvel: Array) -> None:
        rows = mask.numpy()
        self._engine.reset(rows, qpos.numpy()[rows], qvel.numpy()[rows])

    def drive(self, controls: Array) -> None:
        self._engine.drive(controls.numpy())

    def diverged(self) -> Array:
        return torch.as_tensor(self._engine.diverged())

    def require_capacity(self) -> None:
        """MuJoCo allocates as it needs."""

    def snapshot(self) -> Snapshot:
        return {name: torch.tensor(value) for name, value in self._engine.snapshot().items()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        self._engine.restore({name: value.numpy() for name, value in snapshot.items()})
