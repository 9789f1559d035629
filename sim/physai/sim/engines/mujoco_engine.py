"""MuJoCo's C engine on a thread pool (`mujoco.batch`): the default where no GPU is."""

import os
from collections.abc import Mapping, Sequence
from types import ModuleType

import array_api_compat.numpy
import mujoco
import numpy as np
from mujoco.batch import Batch

from physai.sdk.errors import ModelError
from physai.sim.engines.protocol import Array, Snapshot, Stage

_PARAMETER_PREFIX = "parameter."


class MujocoEngine:
    """`Engine` on `mujoco.batch.Batch`; results do not depend on the number of threads."""

    xp: ModuleType = array_api_compat.numpy

    def __init__(
        self,
        model: mujoco.MjModel,
        num_worlds: int,
        *,
        num_threads: int = 0,
        stage: int = Stage.NONE,
        parameters: Sequence[str] = (),
        derived: Sequence[str] = (),
    ) -> None:
        """Builds the worlds.

        Args:
            model: compiled model; the engine keeps a copy of its own.
            num_worlds: number of simulations.
            num_threads: threads of the pool, 0 for one per processor this process may use.
            stage: how far the derived fields follow the state after `step` (see `Stage`).
            parameters: model fields that shall differ between worlds.
            derived: derived fields that will be read.
        """
        if num_worlds < 1:
            raise ModelError(f"an engine needs at least one world, got {num_worlds}")
        # A diverging world must be seen and reported, so MuJoCo may not quietly reset it.
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        threads = num_threads or len(os.sched_getaffinity(0))
        self._batch = Batch(model, num_worlds, min(threads, num_worlds))
        self.model = self._batch.model
        self.num_worlds = num_worlds
        self._stage = stage
        self._parameters: dict[str, Array] = {name: self._batch.expand(name) for name in parameters}
        self._derived: dict[str, Array] = {name: self._batch.bind(name) for name in derived}
        self._qpos: Array = self._batch.bind("qpos")
        self._qvel: Array = self._batch.bind("qvel")
        self._batch.reset()

    def state(self, name: str) -> Array:
        return self._batch.bind(name)

    def derived(self, name: str) -> Array:
        return self._derived[name]

    def parameter(self, name: str) -> Array:
        return self._parameters[name]

    def parameters_changed(self, mask: Array) -> None:
        if mask.any():
            self._batch.set_const(mask)

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        if not mask.any():
            return
        self._batch.reset(mask, stage=Stage.NONE)
        self._qpos[mask] = qpos
        self._qvel[mask] = qvel
        self._batch.forward(mask, stage=max(self._stage, Stage.POSITION))

    def step(self, num_steps: int) -> None:
        self._batch.step(nstep=num_steps, stage=self._stage)

    def broken(self) -> Array:
        # One sum is finite exactly when every term is, but for overflow; only then look at each world.
        if np.isfinite(self._qvel.sum() + self._qpos.sum()):
            return np.zeros(self.num_worlds, bool)
        return ~(np.isfinite(self._qpos).all(axis=1) & np.isfinite(self._qvel).all(axis=1))

    def snapshot(self) -> Snapshot:
        arrays = {"state": self._batch.state.copy()}
        for name in self._stored_parameters():
            values = self._batch.expanded(name)
            if values is not None:
                arrays[_PARAMETER_PREFIX + name] = values.copy()
        return arrays

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        state = snapshot["state"]
        if state.shape != self._batch.state.shape:
            raise ModelError(f"snapshot holds states {state.shape}, this engine {self._batch.state.shape}")
        for key, values in snapshot.items():
            if key.startswith(_PARAMETER_PREFIX):
                self._batch.expand(key.removeprefix(_PARAMETER_PREFIX))[...] = values
        self._batch.state[...] = state
        if self._stage or self._derived:
            self._batch.forward(stage=max(self._stage, Stage.POSITION))
        # Forward kinematics may touch the warm start; the saved rows are the truth.
        self._batch.state[...] = state

    def _stored_parameters(self) -> tuple[str, ...]:
        """Fields that differ per world: those asked for and those mj_setConst derives from them."""
        derived = ("dof_invweight0", "body_invweight0", "body_subtreemass", "actuator_acc0", "dof_M0")
        return (*self._parameters, *(d for d in derived if d not in self._parameters))
