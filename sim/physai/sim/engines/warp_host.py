"""MuJoCo Warp for environments written in numpy: an independent implementation of MuJoCo's physics."""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import array_api_compat.numpy
import numpy as np

from physai.sdk.base.errors import ModelError
from physai.sim.engines.protocol import Array, DeviceEngine, Snapshot, Stage
from physai.sim.engines.warp_device import WarpDeviceEngine

_FOLLOWING = frozenset(
    {"actuator_length0", "body_margin", "bvh_aabb", "dof_M0", "dof_length", "flexedge_invweight0", "flexedge_length0"}
)
"""Constants that MuJoCo derives from other fields and that MuJoCo Warp does without."""


class HostWarpEngine:
    """`Engine` on an engine of the CPU device; its arrays are numpy views of the same memory."""

    xp: ModuleType = array_api_compat.numpy

    def __init__(
        self,
        model: Any,
        num_worlds: int,
        *,
        fields: Mapping[str, Array],
        stage: int = Stage.NONE,
        derived: Sequence[str] = (),
        room: tuple[int, int] | None = None,
        device_engine: Callable[..., DeviceEngine] = WarpDeviceEngine,
    ) -> None:
        """Builds the worlds.

        Args:
            model: compiled MjModel.
            num_worlds: number of simulations.
            fields: model fields that differ between worlds, including constants derived from them, shape (n, …).
            stage: how far the derived fields follow the state after a step.
            derived: derived fields that will be read.
            room: contacts and constraints per world that memory is kept for; None for the engine's estimate.
            device_engine: makes the engine; takes the arguments of `WarpDeviceEngine`.

        Raises:
            MissingExtraError: warp or mujoco_warp is not installed.
            ModelError: the engine cannot simulate this model, or cannot vary one of the fields.
        """
        varied = {name: rows for name, rows in fields.items() if name not in _FOLLOWING}
        options = [name for name in varied if name.startswith("opt.")]
        if options:
            raise ModelError(f"the second engine cannot vary {', '.join(options)} between worlds")
        contacts, constraints = room or (None, None)
        self._engine = device_engine(
            model,
            num_worlds,
            stage=stage,
            parameters=tuple(varied),
            derived=derived,
            max_contacts=contacts,
            max_constraints=constraints,
            as_numpy=True,
        )
        self.model, self.num_worlds = self._engine.model, num_worlds
        for name, rows in varied.items():
            if np.size(rows):
                self.parameter(name)[...] = rows
        self.last_qpos, self.last_qvel = self.state("qpos").copy(), self.state("qvel").copy()

    def state(self, name: str) -> Array:
        return self._engine.state(name)

    def derived(self, name: str) -> Array:
        return self._engine.derived(name)

    def parameter(self, name: str) -> Array:
        return self._engine.parameter(name)

    def parameters_changed(self, mask: Array) -> None:
        if mask.any():
            self._engine.parameters_changed(mask)

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        if not mask.any():
            return
        self.last_qpos, self.last_qvel = self.state("qpos").copy(), self.state("qvel").copy()
        rows = self.last_qpos.copy(), self.last_qvel.copy()
        rows[0][mask], rows[1][mask] = qpos, qvel
        self._engine.reset_where(mask, *rows)

    def step(self, num_steps: int) -> None:
        self.drive(np.repeat(self.state("ctrl")[:, None], num_steps, axis=1))

    def drive(self, controls: Array) -> None:
        self._engine.drive(controls)

    def diverged(self) -> Array:
        self._engine.require_capacity()
        return self._engine.diverged()

    def snapshot(self, *, parameters: bool = True) -> Snapshot:
        kept = self._engine.snapshot()
        return {name: value for name, value in kept.items() if parameters or not name.startswith("parameter/")}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        known = {name: value for name, value in self._engine.snapshot().items() if name.startswith("parameter/")}
        self._engine.restore(known | dict(snapshot))
