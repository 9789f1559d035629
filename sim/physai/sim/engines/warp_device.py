"""MuJoCo Warp as an engine: torch tensors or, on the CPU device, numpy arrays that share Warp's memory, made once."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import array_api_compat
import mujoco
import numpy as np

from physai.sdk.base.errors import ModelError
from physai.sdk.base.extras import missing_extra
from physai.sim import friction
from physai.sim.engines.protocol import Array, CapacityError, Snapshot, Stage, put
from physai.sim.engines.warp import modules, on_torch_stream, require_device

_COULOMB, _LOAD = "dof_frictionloss", "friction/load"
_STATE = ("qpos", "qvel", "ctrl", "act", "time", "qacc_warmstart", "xfrc_applied", "qfrc_applied")
_CONSTANTS = (
    "body_subtreemass",
    "body_invweight0",
    "dof_invweight0",
    "tendon_invweight0",
    "tendon_length0",
    "actuator_acc0",
    "eq_data",
    "geom_aabb",
    "geom_rbound",
    "cam_pos0",
    "cam_poscom0",
    "cam_mat0",
    "light_pos0",
    "light_poscom0",
    "light_dir0",
)
"""What `mujoco_warp.set_const` computes."""

MARGIN = 2.0
"""Factor of safety on the contacts and constraints that a simulation was seen to need."""


class WarpDeviceEngine:
    """`DeviceEngine` on `mujoco_warp`, in single precision, on a CUDA device or on Warp's CPU device.

    Its arrays are torch tensors, or numpy arrays of the CPU device, for which torch need not be installed.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        num_worlds: int,
        *,
        device: str = "cpu",
        stage: int = Stage.NONE,
        parameters: Sequence[str] = (),
        derived: Sequence[str] = (),
        max_contacts: int | None = None,
        max_constraints: int | None = None,
        deterministic: bool = False,
        record: bool = True,
        as_numpy: bool = False,
    ) -> None:
        """Builds the worlds.

        Args:
            model: compiled model. The PGS solver, which mujoco_warp does not have, is replaced by Newton.
            num_worlds: number of simulations.
            device: `cpu`, `cuda` or `cuda:N`.
            stage: how far the derived fields follow the state (see `Stage`).
            parameters: model fields that may differ between worlds.
            derived: derived fields that will be read.
            max_contacts: contacts per world that memory is kept for; None for mujoco_warp's estimate.
            max_constraints: constraints per world that memory is kept for; None for mujoco_warp's estimate.
            deterministic: compute in an order that is the same in every run, which is slower on a GPU.
            record: on the CPU device, record the kernels of a step once and replay them, which spares Python's part of
                each launch. On a GPU whole steps of the environment are recorded instead.
            as_numpy: give and take numpy arrays instead of tensors; on the CPU device only.

        Raises:
            MissingExtraError: warp or mujoco_warp is not installed, or torch without `as_numpy`.
            ModelError: mujoco_warp cannot simulate this model or vary a parameter, or the device has too little memory.
            DeviceError: there is no such device.
        """
        self._warp, self._mjw = modules()
        require_device(device)
        self.model, self.num_worlds, self._stage = supported(model), num_worlds, stage
        self._device = device
        self._records = record and device == "cpu"
        self._recorded: dict[Any, Any] = {}
        rubs = friction.FIELD in parameters or friction.has_friction(model)
        parameters = [name for name in parameters if name != friction.FIELD]
        if rubs:
            parameters = [*dict.fromkeys([*parameters, _COULOMB])]
        with on_torch_stream(self._device):
            try:
                built = _with_friction(self.model) if rubs else self.model
                self._put(built, parameters, max_contacts, max_constraints)
                self._model.opt.deterministic = deterministic
            except (NotImplementedError, ValueError, RuntimeError) as error:
                # Warp has no type of its own for a lack of memory.
                if isinstance(error, RuntimeError) and "allocate" not in str(error):
                    raise
                kept = f" with {max_contacts} contacts and {max_constraints} constraints" if max_contacts else ""
                raise ModelError(
                    f"mujoco_warp cannot simulate {num_worlds} worlds of this model{kept} on {device}: {error}"
                ) from error
            array_of = array_maker(self._warp, as_numpy)
            self._state = {name: array_of(getattr(self._data, name)) for name in _STATE}
            self._derived = {name: array_of(getattr(self._data, name)) for name in derived}
            self._parameters = {name: array_of(getattr(self._model, name)) for name in self._per_world}
            self._friction = self._joint_friction(array_of) if rubs else None
            self._overflow: Array = array_of(self._data.overflow)
            # What the last step needed, also beyond what there is memory for; pairs of the broad phase take the memory
            # of a contact each.
            self._needed = {name: array_of(getattr(self._data, name)) for name in ("ncollision", "nacon", "nefc")}
            self._contact_worlds = array_of(self._data.contact.worldid)
        self._xp: Any = array_api_compat.array_namespace(self._overflow)
        self._most = {name: self._xp.zeros_like(needed) for name, needed in self._needed.items()}
        self._refresh()

    def _put(
        self, model: Any, parameters: Sequence[str], max_contacts: int | None, max_constraints: int | None
    ) -> None:
        declared = self._mjw.Model.__dataclass_fields__
        varying = {name for name, field in declared.items() if getattr(field.type, "shape", ())[:1] == ("*",)}
        unknown = sorted(set(parameters) - varying)
        if unknown:
            raise ModelError(f"mujoco_warp cannot vary {', '.join(unknown)} between worlds")
        constants = [name for name in _CONSTANTS if name in varying] if parameters else []
        # A field without elements has no axis to expand.
        self._per_world = [
            name for name in dict.fromkeys([*parameters, *constants]) if np.size(getattr(model, name, 0))
        ]
        self._model: Any = self._mjw.put_model(model, batch_sizes=dict.fromkeys(self._per_world, self.num_worlds))
        # Overflows are read by `require_capacity`, not printed by kernels.
        self._model.opt.warn_overflow = 0
        self._data: Any = self._mjw.make_data(
            model, nworld=self.num_worlds, nconmax=max_contacts, njmax=max_constraints
        )

    def _joint_friction(self, array_of: Any) -> friction.JointFriction:
        """The friction of all worlds; its parameters take the place of what a step applies."""
        applied = self._parameters[_COULOMB]
        xp: Any = array_api_compat.array_namespace(applied)
        for field, nominal in ((friction.FIELD, self.model.jnt_user), (_COULOMB, self.model.dof_frictionloss)):
            rows = np.repeat(np.asarray(nominal)[None], self.num_worlds, axis=0)
            self._parameters[field] = xp.asarray(rows, dtype=applied.dtype, device=applied.device)
        forces = {name: array_of(getattr(self._data, name)) for name in friction.JointFriction.FORCES}
        return friction.JointFriction(
            self.model,
            terms=self._parameters[friction.FIELD],
            coulomb=self._parameters[_COULOMB],
            applied=applied,
            state={"qvel": self._state["qvel"], **forces},
        )

    def state(self, name: str) -> Array:
        return self._state[name]

    def derived(self, name: str) -> Array:
        return self._derived[name]

    def parameter(self, name: str) -> Array:
        return self._parameters[name]

    def parameters_changed(self, mask: Array) -> None:
        constants = [self._parameters[name] for name in _CONSTANTS if name in self._parameters]
        kept = [self._copy(values) for values in constants]
        with on_torch_stream(self._device):
            self._mjw.set_const(self._model, self._data, restore=False)
        # It computes those of all worlds, on a GPU with sums in any order, and in single precision where the model's
        # own were computed in double precision.
        for values, before in zip(constants, kept, strict=True):
            set_where(values, ~mask, before)

    def reset_where(self, mask: Array, qpos: Array, qvel: Array) -> None:
        for name, fresh in (("qpos", qpos), ("qvel", qvel)):
            set_where(self._state[name], mask, fresh)
        for name in ("time", "act", "qacc_warmstart", "xfrc_applied", "qfrc_applied"):
            set_where(self._state[name], mask, 0.0)
        if self._friction is not None:
            set_where(self._friction.load, mask, 0.0)
        self._refresh()

    def drive(self, controls: Array) -> None:
        control = self._state["ctrl"]
        for step in range(controls.shape[1]):
            control[...] = controls[:, step]
            if self._friction is not None:
                self._friction.apply()
            self._run(self._mjw.step)
            if self._friction is not None:
                self._friction.measure()
            for name, most in self._most.items():
                self._xp.maximum(most, self._needed[name], out=most)
        self._refresh()

    def _refresh(self) -> None:
        """Brings the derived fields up to the state, as far as `stage` says."""
        if self._stage == Stage.NONE:
            return
        self._run(self._kinematics)
        if self._stage >= Stage.ACCELERATION:
            # The solver overwrites the warm start, and the next step must not depend on `stage`.
            warmstart = self._copy(self._state["qacc_warmstart"])
            self._run(self._mjw.forward)
            self._state["qacc_warmstart"][...] = warmstart

    def _kinematics(self, model: Any, data: Any) -> None:
        self._mjw.fwd_position(model, data)
        self._mjw.sensor_pos(model, data)
        if self._stage >= Stage.VELOCITY:
            self._mjw.fwd_velocity(model, data)
            self._mjw.sensor_vel(model, data)

    def _run(self, function: Callable[[Any, Any], None]) -> None:
        """Launches the kernels of a function of model and data, from its second call on from their record."""
        with on_torch_stream(self._device):
            if self._recorded.get(function) is not None:
                self._warp.capture_launch(self._recorded[function])
            elif not self._records or function not in self._recorded:
                # Kernels cannot be compiled while they are recorded.
                function(self._model, self._data)
                self._recorded[function] = None
            else:
                with self._warp.ScopedCapture(device="cpu") as capture:
                    function(self._model, self._data)
                self._recorded[function] = capture.graph
                self._warp.capture_launch(capture.graph)

    def diverged(self) -> Array:
        state = self._xp.concat([self._state["qpos"], self._state["qvel"]], axis=1)
        return ~self._xp.all(self._xp.abs(state) <= mujoco.mjMAXVAL, axis=1)

    def overflowed(self) -> Array:
        """Worlds that may have lost contacts or constraints in any step since construction, bool, (num_worlds,).

        All worlds share the memory for contacts, so where it ran out, all of them are marked. A reset keeps the mark.
        """
        return self._lost("NEFC", "NJMAX_NNZ", "BROADPHASE", "NARROWPHASE", "CCD")

    def _lost(self, *kinds: str) -> Array:
        bits = sum(int(self._mjw.OverflowType[kind]) for kind in kinds)
        return (self._overflow & bits) != 0

    def contacts(self) -> Array:
        """Contacts of each world, int64, shape (num_worlds,)."""
        xp, worlds = self._xp, self._contact_worlds
        used = xp.arange(len(worlds), device=worlds.device) < self._needed["nacon"]
        # Those of unused memory are counted in a row of their own.
        return xp.bincount(xp.where(used, worlds, self.num_worlds), minlength=self.num_worlds + 1)[:-1]

    def most(self) -> tuple[int, int]:
        """Most contacts of all worlds together, and constraints of one world, of any step; waits for the device."""
        contacts = max(int(self._most[name].item()) for name in ("ncollision", "nacon"))
        return contacts, int(self._most["nefc"].max())

    def enough(self) -> tuple[int, int]:
        """`max_contacts` and `max_constraints` that suffice as far as is known; waits for the device.

        A capacity that sufficed is returned as it is. One that did not is an estimate with `MARGIN`, since nobody knows
        how a world that lost contacts would have gone on.
        """
        contacts, constraints = self.most()
        room, rows = int(self._data.naconmax), int(self._data.njmax)
        few_contacts = bool(self._lost("BROADPHASE", "NARROWPHASE", "CCD").any())
        few_rows = bool(self._lost("NEFC", "NJMAX_NNZ").any())
        if few_contacts:
            # The constraints of contacts that were dropped are not in the count.
            constraints = math.ceil(constraints * max(1.0, contacts / max(1, room)))
            room = math.ceil(MARGIN * max(contacts, room, 1))
        if few_rows or constraints > rows:
            rows = math.ceil(MARGIN * max(constraints, rows, 1))
        return -(-room // self.num_worlds), rows

    def require_capacity(self) -> None:
        """Checks that no step since construction needed more memory than there is; waits for the device.

        Raises:
            CapacityError: one did, so that some were dropped; the message has what was needed and what to give.
            ModelError: a geom covered more cells of a height field than can be collided.
        """
        if bool(self._lost("HFIELD").any()):
            raise ModelError(
                f"{int(self._lost('HFIELD').sum())} of {self.num_worlds} worlds lost contacts with a height field: a "
                "geom covers more of its cells than MuJoCo Warp collides; use smaller geoms or a coarser field"
            )
        overflowed = int(self.overflowed().sum())
        if not overflowed:
            return
        contacts, constraints = self.most()
        raise CapacityError.of(
            f"{overflowed} of {self.num_worlds} worlds may have lost contacts or constraints for lack of memory: all "
            f"worlds needed {contacts} contacts and have {self._data.naconmax}, one world needed {constraints} "
            f"constraints and has {self._data.njmax}",
            *self.enough(),
        )

    def snapshot(self) -> Snapshot:
        """State and parameters of all worlds; arrays on the device."""
        arrays = {f"state/{name}": self._copy(value) for name, value in self._state.items()}
        if self._friction is not None:
            arrays[_LOAD] = self._copy(self._friction.load)
        return arrays | {f"parameter/{name}": self._copy(value) for name, value in self._parameters.items()}

    def _copy(self, values: Array) -> Array:
        return self._xp.asarray(values, copy=True)

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Returns to a snapshot, bit for bit.

        Raises:
            TaskError: it is of an engine with another model, other parameters or another number of worlds.
        """
        for prefix, arrays in (("state", self._state), ("parameter", self._parameters)):
            for name, value in arrays.items():
                put(value, snapshot, f"{prefix}/{name}")
        if self._friction is not None:
            put(self._friction.load, snapshot, _LOAD)
        self._refresh()


def set_where(out: Array, mask: Array, values: Array | float) -> None:
    """Write values into the masked rows of an array in place, with a single kernel if they are tensors.

    Args:
        out: shape (n, …).
        mask: rows to write, bool, shape (n,).
        values: of the shape of `out`, or one number.
    """
    target: Any = out
    given: Any = values
    rows = mask.reshape(-1, *[1] * (target.ndim - 1))
    if array_api_compat.is_numpy_array(target):
        np.copyto(out, given, where=rows, casting="same_kind")
    elif isinstance(given, float):
        target.masked_fill_(rows, given)
    else:
        import torch

        torch.where(rows, given.to(target.dtype), target, out=target)


def array_maker(warp: Any, as_numpy: bool) -> Callable[[Any], Array]:
    """Return the function that makes a tensor or, `as_numpy`, a numpy array share a Warp array's memory."""
    if as_numpy:
        return lambda array: array.numpy()
    try:
        importlib.import_module("torch")
    except ModuleNotFoundError as error:
        raise missing_extra("a simulation on tensors", error) from error
    return warp.to_torch


def _with_friction(model: mujoco.MjModel) -> mujoco.MjModel:
    """A model whose joints with friction terms have a friction constraint, for which memory is kept by the model."""
    if not len(friction.friction_joints(model)):
        raise ModelError(f"the model has no {friction.FIELD} with room for friction; load it with load_robot")
    import copy

    model = copy.copy(model)
    dofs = model.jnt_dofadr[friction.friction_joints(model)]
    model.dof_frictionloss[dofs] = np.maximum(model.dof_frictionloss[dofs], mujoco.mjMINVAL)
    return model


def supported(model: mujoco.MjModel) -> mujoco.MjModel:
    """The model with a solver that mujoco_warp has: Newton in place of PGS."""
    if model.opt.solver != mujoco.mjtSolver.mjSOL_PGS:
        return model
    import copy

    model = copy.copy(model)
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model
