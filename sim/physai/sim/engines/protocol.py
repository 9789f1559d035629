"""The interface between physai and a physics engine."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from physai.sdk.base.errors import ModelError, TaskError

Array: TypeAlias = Any
"""A numpy array or a torch tensor, depending on the engine's `xp`; the first axis is the world."""

Snapshot: TypeAlias = dict[str, Array]
"""Named arrays that restore a component exactly; copies, never views."""


class CapacityError(ModelError):
    """Worlds needed more memory for contacts or constraints than an engine on a device was built with."""

    # Set after construction, so that pickle, which calls the class with its message, carries them to other processes.
    max_contacts = max_constraints = 0
    """What may suffice, per world."""

    @classmethod
    def of(cls, lack: str, max_contacts: int, max_constraints: int) -> "CapacityError":
        """An error that says what lacked, and ends with what may suffice."""
        error = cls(f"{lack}; give max_contacts={max_contacts} and max_constraints={max_constraints}")
        error.max_contacts, error.max_constraints = max_contacts, max_constraints
        return error


class Stage(IntEnum):
    """Derived states that are current after `step`; later stages cost more."""

    NONE = 0
    POSITION = 1
    VELOCITY = 2
    ACCELERATION = 3


class AnyEngine(Protocol):
    """Many worlds of one MuJoCo model, advanced together; their arrays are numpy's or torch's.

    Arrays returned by `state` and `parameter` are live: writing to them changes the worlds at their next step.
    """

    model: Any
    """The compiled MjModel all worlds start from."""
    num_worlds: int

    def state(self, name: str) -> Array:
        """A state field (`qpos`, `qvel`, `ctrl`, `xfrc_applied`, `time`), shape (num_worlds, …)."""
        ...

    def derived(self, name: str) -> Array:
        """A derived field (`site_xpos`, `sensordata`, …), shape (num_worlds, …), as current as `stage` makes it."""
        ...

    def parameter(self, name: str) -> Array:
        """A model field with one value per world (`body_mass`, `dof_damping`, …), shape (num_worlds, …)."""
        ...

    def parameters_changed(self, mask: Array) -> None:
        """Recomputes the constants that depend on parameters written in the masked worlds, shape (num_worlds,)."""
        ...

    def drive(self, controls: Array) -> None:
        """Advances every world by one physics step per control vector, in one call.

        Args:
            controls: actuator inputs, shape (num_worlds, steps, nu); the last ones stay in `state("ctrl")`.
        """
        ...

    def diverged(self) -> Array:
        """Worlds whose state is not finite or exceeds 1e10, bool, shape (num_worlds,).

        A world remains diverged until it is reset. An engine on the host counts accelerations and controls, too.

        Raises:
            ModelError: an engine on the host has a world with more contacts or constraints than it has memory for.
        """
        ...

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Restores a snapshot taken from an engine with the same model, parameters and number of worlds, bit for bit.

        Raises:
            TaskError: the snapshot does not match.
        """
        ...


class Engine(AnyEngine, Protocol):
    """An engine on the host.

    Arrays returned by `derived` are refreshed by `reset` and `step` and are read-only.
    """

    xp: ModuleType
    """Array namespace of every array of this engine (array-api-compat's numpy or torch)."""

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        """Puts the masked worlds into a fresh state at time 0; their controls stay as they are.

        Args:
            mask: worlds to reset, bool, shape (num_worlds,).
            qpos: positions of the masked worlds only, shape (mask.sum(), nq).
            qvel: velocities of the masked worlds only, shape (mask.sum(), nv).
        """
        ...

    def step(self, num_steps: int) -> None:
        """Advances every world by `num_steps` physics steps with the controls in `state("ctrl")`."""
        ...

    def snapshot(self, *, parameters: bool = True) -> Snapshot:
        """Everything `restore` needs to continue bit for bit; the first axis is the world.

        Args:
            parameters: include the model fields that differ between worlds.
        """
        ...


class RolloutEngine(Engine, Protocol):
    """An `Engine` for rollouts that are judged: it also keeps the state before the last reset."""

    @property
    def last_qpos(self) -> Array:
        """Positions of all worlds before the last `reset`, shape (num_worlds, nq)."""
        ...

    @property
    def last_qvel(self) -> Array:
        """Velocities of all worlds before the last `reset`, shape (num_worlds, nv)."""
        ...


class EngineMaker(Protocol):
    """Function or class that an entry point of the group `physai.engines` names."""

    def __call__(
        self,
        model: Any,
        num_worlds: int,
        *,
        fields: Mapping[str, Array],
        stage: int = Stage.NONE,
        derived: Sequence[str] = (),
        room: tuple[int, int] | None = None,
    ) -> RolloutEngine:
        """Build worlds whose arrays are numpy arrays.

        Args:
            model: compiled MjModel.
            num_worlds: number of simulations.
            fields: model fields that differ between worlds, with their values, shape (num_worlds, …).
            stage: how far the derived fields follow the state after a step (see `Stage`).
            derived: derived fields that will be read.
            room: contacts and constraints per world that memory is kept for; None for the engine's estimate.

        Raises:
            MissingExtraError: a package that the engine needs is not installed.
            ModelError: the engine cannot simulate this model, or cannot vary one of the fields.
        """
        ...


class DeviceEngine(AnyEngine, Protocol):
    """An engine whose arrays are torch tensors (or numpy arrays) on one device.

    No method synchronises with the host, allocates by data or depends on values in Python, so that a whole step of an
    environment can be captured in a CUDA graph. Derived fields are refreshed by `reset_where` and `drive`.
    """

    def reset_where(self, mask: Array, qpos: Array, qvel: Array) -> None:
        """Puts the masked worlds into a fresh state at time 0; their controls stay as they are.

        Args:
            mask: worlds to reset, bool, shape (num_worlds,).
            qpos: positions of all worlds, shape (num_worlds, nq); those of other worlds are not read.
            qvel: velocities of all worlds, shape (num_worlds, nv).
        """
        ...

    def require_capacity(self) -> None:
        """Waits for the device and checks that no world had more contacts or constraints than memory.

        Raises:
            ModelError: one had, so that some were dropped.
        """
        ...

    def snapshot(self) -> Snapshot:
        """State and parameters of all worlds, on the device."""
        ...


def put(array: Array, snapshot: Mapping[str, Array], name: str) -> None:
    """Writes one array of a snapshot back in place.

    Raises:
        TaskError: the snapshot lacks the array, or was taken with another task or number of worlds.
    """
    if name not in snapshot:
        raise TaskError(f"the snapshot has no {name!r}, only {', '.join(snapshot)}; it is from another task or version")
    if snapshot[name].shape != array.shape:
        raise TaskError(
            f"{name!r} has shape {tuple(snapshot[name].shape)} in the snapshot and {tuple(array.shape)} here; "
            "restore it with the same task, options and number of worlds"
        )
    array[...] = snapshot[name]
