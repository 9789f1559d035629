"""The one seam between physai and a physics engine."""

from collections.abc import Mapping
from enum import IntEnum
from types import ModuleType
from typing import Any, Protocol, TypeAlias

Array: TypeAlias = Any
"""A numpy array or a torch tensor, whichever the engine's `xp` makes; first axis is the world."""

Snapshot: TypeAlias = dict[str, Array]
"""Named arrays that restore a component exactly; copies, never views."""


class Stage(IntEnum):
    """How much of the derived state `step` leaves current; later stages cost more."""

    NONE = 0
    POSITION = 1
    VELOCITY = 2
    ACCELERATION = 3


class Engine(Protocol):
    """Many worlds of one MuJoCo model, advanced together.

    Arrays returned by `state` and `parameter` are live: writing to them changes the worlds at their next step.
    Arrays returned by `derived` are refreshed by `reset` and `step` and are read-only.
    """

    xp: ModuleType
    """Array namespace of every array of this engine (array-api-compat's numpy or torch)."""
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

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        """Puts the masked worlds into a fresh state at time 0.

        Args:
            mask: worlds to reset, bool, shape (num_worlds,).
            qpos: positions of the masked worlds only, shape (mask.sum(), nq).
            qvel: velocities of the masked worlds only, shape (mask.sum(), nv).
        """
        ...

    def step(self, num_steps: int) -> None:
        """Advances every world by `num_steps` physics steps with the controls in `state("ctrl")`."""
        ...

    def broken(self) -> Array:
        """Worlds whose state is not finite, bool, shape (num_worlds,); they stay so until they are reset."""
        ...

    def snapshot(self) -> Snapshot:
        """Everything `restore` needs to continue bit for bit."""
        ...

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Returns to a snapshot of an engine of the same model and number of worlds."""
        ...
