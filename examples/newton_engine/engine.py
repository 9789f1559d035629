"""Newton (newton-physics) as an engine on a device: its import of the model, and its MuJoCo solver."""

import io
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

import array_api_compat
import mujoco

from newton_engine.model_import import mjcf_of, newton_module, require_same
from physai.sim import Array, CapacityError, ModelError, friction
from physai.sim.engines.protocol import Snapshot, Stage
from physai.sim.engines.warp import modules, on_torch_stream
from physai.sim.engines.warp_device import WarpDeviceEngine, array_maker

_OPTIONS = (
    *("integrator", "solver", "cone", "iterations", "ls_iterations", "tolerance", "ls_tolerance", "impratio"),
    *("density", "viscosity"),
)
_SHOWN = ("site_", "cam_", "light_")
"""What derived fields depend on, but no step."""
_STATE = ("qpos", "qvel", "act", "time", "qacc_warmstart", "xfrc_applied", "qfrc_applied")


class NewtonEngine:
    """`DeviceEngine` on Newton's `SolverMuJoCo`, in single precision.

    Newton builds its own model from the bodies, joints, shapes and actuators of the compiled one, and compiles that
    for its solver. The solver steps with MuJoCo Warp, so this engine is a second opinion on how the model is read,
    not on the physics. Sites, sensors and other derived fields follow from Newton's positions and velocities by
    MuJoCo Warp's kinematics.
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
        as_numpy: bool = False,
    ) -> None:
        """Builds the worlds; the arguments are those of `WarpDeviceEngine`.

        Raises:
            MissingExtraError: newton, warp or mujoco_warp is not installed.
            ModelError: Newton cannot represent the model or vary a parameter; the message names the element.
            DeviceError: there is no such device.
        """
        self._newton = newton_module()
        if stage >= Stage.ACCELERATION:
            raise ModelError(
                "the engine newton does not compute sensors of acceleration; use the engine warp, or a task whose "
                "stage is at most VELOCITY"
            )
        if friction.has_friction(model) or friction.FIELD in parameters:
            raise ModelError(
                "the engine newton has no friction beyond Coulomb and viscous friction, which this model has; use the "
                "engine warp"
            )
        self._shown = WarpDeviceEngine(
            model,
            num_worlds,
            device=device,
            stage=stage,
            parameters=parameters,
            derived=derived,
            as_numpy=as_numpy,
        )
        self.model, self.num_worlds, self._device = self._shown.model, num_worlds, device
        xp: Any = array_api_compat.array_namespace(self._shown.state("qpos"))
        self._nobody = xp.zeros(num_worlds, dtype=xp.bool, device=self._shown.state("qpos").device)
        with on_torch_stream(device):
            self._solver = self._built(max_contacts, max_constraints)
            self._array_of = array_maker(modules()[0], as_numpy)
            data = self._solver.mjw_data
            self._inner = {name: self._array_of(getattr(data, name)) for name in _STATE}
            # Newton has no such array for a model without actuators.
            control = self._array_of(self._controls.mujoco.ctrl) if self.model.nu else xp.zeros(0)
            self._control = control.reshape(num_worlds, self.model.nu)
            self._overflow = self._array_of(data.overflow)
        self._lost = xp.zeros_like(self._overflow)
        self._follow = self._followed()

    def _built(self, max_contacts: int | None, max_constraints: int | None) -> Any:
        """A solver of all worlds, after comparing the model it compiled with ours."""
        newton, solver = self._newton, self._newton.solvers.SolverMuJoCo
        world, worlds = newton.ModelBuilder(), newton.ModelBuilder()
        # Newton warns that it was released for an older MuJoCo; what it compiles is compared below.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            for builder in (world, worlds):
                # For shapes that state none, as MuJoCo has it.
                builder.rigid_gap = builder.default_shape_cfg.gap = 0.0
                solver.register_custom_attributes(builder)
            try:
                world.add_mjcf(mjcf_of(self.model), ctrl_direct=True)
                worlds.replicate(world, self.num_worlds)
                self._model = worlds.finalize(device=self._device)
                # The builder of the worlds has a gravity of its own.
                self._model.set_gravity(tuple(map(float, self.model.opt.gravity)))
                self._states, self._controls = self._model.state(), self._model.control()
                built = solver(
                    self._model,
                    nconmax=max_contacts,
                    njmax=max_constraints,
                    update_data_interval=0,
                    skip_visual_only_geoms=False,
                    kinematic_switchable_roots=False,
                    # It has defaults of its own for what MJCF leaves out, as that does for MuJoCo's defaults.
                    **{name: getattr(self.model.opt, name) for name in _OPTIONS},
                )
            except (NotImplementedError, ValueError, KeyError) as error:
                raise ModelError(f"Newton cannot represent this model: {error}") from error
        require_same(self.model, built.mj_model)
        built.mjw_model.opt.warn_overflow = 0
        return built

    def _followed(self) -> list[tuple[Array, Array]]:
        """Pairs of a parameter of the solver and ours, which it follows."""
        pairs: list[tuple[Array, Array]] = []
        model = self._solver.mjw_model
        for key in self._shown.snapshot():
            kind, _, name = key.partition("/")
            if kind != "parameter" or name.startswith(_SHOWN):
                continue
            ours, theirs = self._shown.parameter(name), self._array_of(getattr(model, name))
            if theirs.shape != ours.shape:
                raise ModelError(
                    f"Newton cannot vary {name} between worlds: it has shape {tuple(ours.shape)} here and "
                    f"{tuple(theirs.shape)} in Newton; use the engine warp"
                )
            pairs.append((theirs, ours))
        return pairs

    def state(self, name: str) -> Array:
        return self._shown.state(name)

    def derived(self, name: str) -> Array:
        return self._shown.derived(name)

    def parameter(self, name: str) -> Array:
        return self._shown.parameter(name)

    def parameters_changed(self, mask: Array) -> None:
        self._shown.parameters_changed(mask)

    def reset_where(self, mask: Array, qpos: Array, qvel: Array) -> None:
        self._shown.reset_where(mask, qpos, qvel)

    def drive(self, controls: Array) -> None:
        for theirs, ours in self._follow:
            theirs[...] = ours
        for name, values in self._inner.items():
            values[...] = self.state(name)
        timestep = float(self.model.opt.timestep)
        for step in range(controls.shape[1]):
            self.state("ctrl")[...] = controls[:, step]
            self._control[...] = self.state("ctrl")
            with on_torch_stream(self._device):
                self._solver.step(self._states, self._states, self._controls, None, timestep)
            self._lost |= self._overflow
        for name, values in self._inner.items():
            self.state(name)[...] = values
        # Resets nobody, but brings the derived fields up to the new state.
        self._shown.reset_where(self._nobody, self.state("qpos"), self.state("qvel"))

    def diverged(self) -> Array:
        return self._shown.diverged()

    def require_capacity(self) -> None:
        """Checks that no step needed more memory for contacts or constraints than there is; waits for the device.

        Raises:
            CapacityError: one did; Newton does not tell what it needed, so the message has twice what there is.
        """
        kinds = ("NEFC", "NJMAX_NNZ", "BROADPHASE", "NARROWPHASE", "CCD")
        bits = sum(int(modules()[1].OverflowType[kind]) for kind in kinds)
        lost = int(((self._lost & bits) != 0).sum())
        if lost:
            data = self._solver.mjw_data
            raise CapacityError.of(
                f"{lost} of {self.num_worlds} worlds may have lost contacts or constraints in Newton, which has "
                f"memory for {data.naconmax} contacts of all worlds and {data.njmax} constraints of each",
                -(-2 * data.naconmax // self.num_worlds),
                2 * data.njmax,
            )

    def snapshot(self) -> Snapshot:
        """State and parameters of all worlds; arrays on the device."""
        return self._shown.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Returns to a snapshot.

        Raises:
            TaskError: it is of an engine with another model, other parameters or another number of worlds.
        """
        self._shown.restore(snapshot)
