"""MuJoCo's C engine on a thread pool (`mujoco.batch`): the default on machines without a GPU."""

import copy
import os
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import array_api_compat.numpy
import mujoco
import numpy as np
from mujoco.batch import MODEL_FIELDS, Batch

from physai.sdk.base.errors import ModelError
from physai.sim import friction
from physai.sim.engines.protocol import Array, Snapshot, Stage, put
from physai.sim.solver import use_right_solver

_PARAMETER_PREFIX = "parameter."
_COULOMB, _LOAD = "dof_frictionloss", "friction.load"

_FULL = [int(mujoco.mjtWarning.mjWARN_CONTACTFULL), int(mujoco.mjtWarning.mjWARN_CNSTRFULL)]


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
            model: compiled model; the engine works on a copy of it.
            num_worlds: number of simulations.
            num_threads: threads of the pool, 0 for one per processor this process may use.
            stage: how far the derived fields follow the state after `step` (see `Stage`).
            parameters: model fields that may differ between worlds.
            derived: derived fields that will be read.

        Raises:
            ModelError: `num_worlds` is below 1 or too large for the memory, or MuJoCo has no such parameter or derived
                field.
        """
        if num_worlds < 1:
            raise ModelError(f"an engine needs at least one world, got {num_worlds}")
        self.model = quiet_model(copy.copy(model))
        threads = num_threads or len(os.sched_getaffinity(0))
        try:
            self._batch = Batch(self.model, num_worlds, min(threads, num_worlds))
        except (ValueError, MemoryError) as error:
            raise ModelError(f"MuJoCo cannot make {num_worlds} worlds of this model: {error}; use fewer") from error
        self.num_worlds = num_worlds
        self._stage = stage
        try:
            self._parameters: dict[str, Array] = {name: self._batch.expand(name) for name in parameters}
            self._derived: dict[str, Array] = {name: self._batch.bind(name) for name in derived}
        except ValueError as error:
            raise ModelError(str(error)) from error
        self._friction = batch_friction(self.model, self._batch, varied=friction.FIELD in self._parameters)
        if self._friction is not None and _COULOMB in self._parameters:
            self._parameters[_COULOMB] = self._friction.coulomb
        self._qpos: Array = self._batch.bind("qpos")
        self._qvel: Array = self._batch.bind("qvel")
        self._ctrl: Array = self._batch.bind("ctrl")
        self._batch.reset()
        self._start: Array = self._batch.state[0].copy()

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
        # `_start` is the state after MuJoCo's own reset; it also clears `ctrl`, which belongs to the caller.
        ctrl = self._ctrl[mask]
        # State rows and warnings fully describe a world; writing them directly avoids waking the thread pool.
        self._batch.state[mask] = self._start
        self._batch.warning[mask] = 0
        self._qpos[mask] = qpos
        self._qvel[mask] = qvel
        self._ctrl[mask] = ctrl
        if self._friction is not None:
            self._friction.load[mask] = 0.0
        if self._stage or self._derived:
            self._batch.forward(mask, stage=max(self._stage, Stage.POSITION))

    def step(self, num_steps: int) -> None:
        if self._friction is None:
            self._batch.step(nstep=num_steps, stage=self._stage)
        else:
            self.drive(np.repeat(self._ctrl[:, None], num_steps, axis=1))

    def drive(self, controls: Array) -> None:
        if self._friction is None:
            self._batch.rollout(controls.shape[1], controls, record=())
        else:
            for step in range(controls.shape[1]):
                self._friction.apply()
                self._batch.rollout(1, controls[:, step : step + 1], record=())
                self._friction.measure()
        if self._stage:
            self._batch.forward(stage=self._stage)

    def diverged(self) -> Array:
        warnings = self._batch.warning[:, :, 1]
        if warnings.any():
            self._require_memory(warnings)
        # Fast path: a small sum of squares proves that no world exceeds mjMAXVAL.
        elif np.vdot(self._qvel, self._qvel) + np.vdot(self._qpos, self._qpos) <= mujoco.mjMAXVAL:
            return np.zeros(self.num_worlds, bool)
        state = np.concatenate([self._qpos, self._qvel], axis=1)
        # `drive` stops a world at its first warning, so any warning means divergence.
        return warnings.any(axis=1) | ~(np.abs(state) <= mujoco.mjMAXVAL).all(axis=1)

    def _require_memory(self, warnings: Array) -> None:
        full = warnings[:, _FULL].any(axis=1)
        if full.any():
            raise ModelError(
                f"world {int(full.argmax())} has more contacts or constraints than its memory holds "
                f"({self.model.narena} bytes), so MuJoCo dropped some; enlarge it in the model: "
                f'<size memory="{2 * self.model.narena // 1024 + 1}K"/>'
            )

    def snapshot(self, *, parameters: bool = True) -> Snapshot:
        arrays = {"state": self._batch.state.copy()}
        # Save every expanded field, not just `parameters`: mj_setConst also changes constants derived from them.
        for name in sorted(MODEL_FIELDS) if parameters else ():
            values = self._batch.expanded(name)
            if values is not None:
                arrays[_PARAMETER_PREFIX + name] = values.copy()
        if self._friction is not None:
            arrays[_LOAD] = self._friction.load.copy()
            if parameters:
                arrays[_PARAMETER_PREFIX + _COULOMB] = self._friction.coulomb.copy()
        return arrays

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        for key in snapshot:
            if key.startswith(_PARAMETER_PREFIX):
                name = key.removeprefix(_PARAMETER_PREFIX)
                # What a batch holds for it is the friction of one step.
                if self._friction is not None and name == _COULOMB:
                    put(self._friction.coulomb, snapshot, key)
                else:
                    put(self._batch.expand(name), snapshot, key)
        if self._friction is not None:
            put(self._friction.load, snapshot, _LOAD)
        put(self._batch.state, snapshot, "state")
        if self._stage or self._derived:
            self._batch.forward(stage=max(self._stage, Stage.POSITION))
        # `forward` may overwrite the warm start; put the saved rows back.
        put(self._batch.state, snapshot, "state")
        self._batch.warning[...] = 0


def batch_friction(model: Any, batch: Batch, *, varied: bool) -> friction.JointFriction | None:
    """The friction of a batch's worlds beyond Coulomb and viscous friction; None if its model has none.

    Args:
        model: compiled model.
        batch: its worlds.
        varied: whether worlds may have other friction than the model.

    Raises:
        ModelError: worlds may have other friction, but the model has no room for it.
    """
    if not varied and not friction.has_friction(model):
        return None
    if not len(friction.friction_joints(model)):
        raise ModelError(f"the model has no {friction.FIELD} with room for friction; load it with load_robot")
    applied = batch.expand(_COULOMB)
    state = {name: batch.bind(name) for name in ("qvel", *friction.JointFriction.FORCES)}
    terms = batch.expand(friction.FIELD)
    return friction.JointFriction(model, terms=terms, coulomb=applied.copy(), applied=applied, state=state)


def roll_out(model: Any, batch: Batch, controls: Array) -> Array:
    """Step the worlds of a batch open loop, with their friction; return qpos after each step, shape (n, steps, nq).

    Args:
        model: compiled model.
        batch: n worlds of it, in their start states.
        controls: inputs of the actuators, shape (n, steps, nu).
    """
    rubbing = batch_friction(model, batch, varied=batch.expanded(friction.FIELD) is not None)
    steps = controls.shape[1]
    if rubbing is None:
        return np.asarray(batch.rollout(steps, controls, record=("qpos",))["qpos"])
    record = np.empty((len(controls), steps, model.nq))
    qpos = batch.bind("qpos")
    for step in range(steps):
        rubbing.apply()
        batch.rollout(1, controls[:, step : step + 1], record=())
        rubbing.measure()
        record[:, step] = qpos
    return record


def quiet_model(model: Any) -> Any:
    """Prepare a model for many worlds and return it; see `use_right_solver`.

    MuJoCo's automatic reset and its warnings are disabled, so that diverged worlds can be detected.
    """
    use_right_solver(model)
    # By default, MuJoCo resets a diverged world to its initial state, which would look like a valid one.
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    # `diverged` reports warnings per world; keep MuJoCo from printing them and writing MUJOCO_LOG.TXT.
    log = mujoco.MjLogConfig.get()
    log.logto_console = log.logto_file = False
    log.set()
    return model


class LastStateEngine(MujocoEngine):
    """An engine that keeps the state before the last reset, which is the final state of the episode."""

    last_qpos: Array = np.zeros(0)
    last_qvel: Array = np.zeros(0)

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        """Resets the masked worlds; see `Engine.reset`."""
        self.last_qpos, self.last_qvel = self.state("qpos").copy(), self.state("qvel").copy()
        super().reset(mask, qpos, qvel)


def make_engine(
    model: mujoco.MjModel,
    num_worlds: int,
    *,
    fields: Mapping[str, Array],
    stage: int = Stage.NONE,
    derived: Sequence[str] = (),
    room: tuple[int, int] | None = None,
) -> LastStateEngine:
    """Build worlds on one thread; MuJoCo has no fixed memory for contacts, so `room` changes nothing.

    Raises:
        ModelError: MuJoCo has no such parameter or derived field.
    """
    del room
    engine = LastStateEngine(model, num_worlds, num_threads=1, stage=stage, parameters=tuple(fields), derived=derived)
    for name, rows in fields.items():
        engine.parameter(name)[...] = rows
    # Writing the fields leaves MuJoCo's derived constants as they were; this computes them again.
    engine.parameters_changed(np.full(num_worlds, bool(fields)))
    return engine
