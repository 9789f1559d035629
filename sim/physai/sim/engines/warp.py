"""MuJoCo Warp on Warp's CPU device: the same model stepped by other code, in single precision.

A thin adapter that steps and resets; the engine gate needs no more. Arrays are views of Warp's own memory.
"""

import contextlib
import importlib
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from types import ModuleType
from typing import Any

import array_api_compat.numpy
import mujoco
import numpy as np

from physai.sdk.base.errors import MissingExtraError, ModelError
from physai.sim.engines.protocol import Array, Snapshot, Stage

PIP_LINE = "pip install warp-lang mujoco-warp"
"""What installs it."""


def modules() -> tuple[Any, Any]:
    """The packages warp and mujoco_warp.

    Raises:
        MissingExtraError: one is not installed.
    """
    try:
        warp: Any = importlib.import_module("warp")
        # Else it prints a line for each kernel it loads, into whatever is shown; `quiet` is for versions before 1.11.
        warp.config.quiet, warp.config.log_level = True, getattr(warp, "LOG_ERROR", 40)
        with _muted():
            warp.init()
            return warp, importlib.import_module("mujoco_warp")
    except ImportError as error:
        raise MissingExtraError(f"the second engine needs {error.name}: {PIP_LINE}") from error


@contextlib.contextmanager
def _muted() -> Generator[None]:
    """Drops what native code prints: on a machine without a GPU Warp warns that there is none."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class WarpEngine:
    """`Engine` on `mujoco_warp`, as far as playing episodes needs it."""

    xp: ModuleType = array_api_compat.numpy

    def __init__(
        self,
        model: Any,
        num_worlds: int,
        *,
        fields: Mapping[str, Array],
        stage: int = Stage.NONE,
        derived: Sequence[str] = (),
    ) -> None:
        """Builds the worlds.

        Args:
            model: compiled MjModel.
            num_worlds: number of simulations.
            fields: model fields that differ between worlds, constants derived from them included, shape (n, …).
            stage: how far the derived fields follow the state after a step.
            derived: derived fields that will be read.

        Raises:
            MissingExtraError: warp or mujoco_warp is not installed.
            ModelError: mujoco_warp cannot simulate this model.
        """
        self._warp, self._mjw = modules()
        self.model, self.num_worlds, self._stage = model, num_worlds, stage
        with self._warp.ScopedDevice("cpu"):
            try:
                self._build(model, num_worlds, fields)
            except (NotImplementedError, ValueError) as error:
                raise ModelError(f"mujoco_warp cannot simulate this model: {error}") from error
            self._graph = self._captured()
        data = self._data
        self._arrays: dict[str, Array] = {
            name: getattr(data, name).numpy() for name in ("qpos", "qvel", "ctrl", "time", "xfrc_applied")
        }
        self._derived: dict[str, Array] = {name: getattr(data, name).numpy() for name in derived}
        self._warmstart: Array = data.qacc_warmstart.numpy()
        self.last_qpos, self.last_qvel = self._arrays["qpos"].copy(), self._arrays["qvel"].copy()

    def _build(self, model: Any, num_worlds: int, fields: Mapping[str, Array]) -> None:
        described = self._mjw.Model.__dataclass_fields__
        # A first axis "*" is that of the worlds. The others are constants the stepping does not read.
        known = {
            name for name in fields if name in described and getattr(described[name].type, "shape", ())[:1] == ("*",)
        }
        self._model: Any = self._mjw.put_model(model, batch_sizes=dict.fromkeys(sorted(known), num_worlds))
        for name in known:
            target: Array = getattr(self._model, name).numpy()
            target[...] = np.asarray(fields[name], target.dtype).reshape(target.shape)
        for name in fields:
            if name.startswith("opt."):
                raise ModelError(f"the second engine cannot vary {name} between worlds")
        self._data: Any = self._mjw.make_data(model, nworld=num_worlds)

    def _captured(self) -> Any:
        """One step as a recorded sequence of kernels, which spares most of its time; None where Warp cannot."""
        self._mjw.step(self._model, self._data)  # compiles what is needed, which a recording cannot
        try:
            with self._warp.ScopedCapture(device="cpu") as capture:
                self._mjw.step(self._model, self._data)
        except Exception:  # older versions of Warp record on CUDA devices only, and raise types of their own
            return None
        return capture.graph

    def state(self, name: str) -> Array:
        """A state field, live."""
        return self._arrays[name]

    def derived(self, name: str) -> Array:
        """A derived field, as current as `stage` makes it."""
        return self._derived[name]

    def parameter(self, name: str) -> Array:
        """Parameters are given once, at the beginning.

        Raises:
            ModelError: always.
        """
        raise ModelError(f"the second engine takes its parameters when it is made; {name} cannot be changed")

    def parameters_changed(self, mask: Array) -> None:
        """Nothing can have changed."""

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        """Puts the masked worlds into a fresh state at time 0; see `Engine.reset`."""
        if not mask.any():
            return
        self.last_qpos, self.last_qvel = self._arrays["qpos"].copy(), self._arrays["qvel"].copy()
        self._arrays["qpos"][mask], self._arrays["qvel"][mask] = qpos, qvel
        self._arrays["time"][mask] = 0.0
        self._warmstart[mask] = 0.0
        self._forward()

    def step(self, num_steps: int) -> None:
        """Advances every world with the controls in `state("ctrl")`."""
        with self._warp.ScopedDevice("cpu"):
            for _ in range(num_steps):
                self._step()
        self._forward()

    def drive(self, controls: Array) -> None:
        """Advances every world by one physics step per control vector; see `Engine.drive`."""
        with self._warp.ScopedDevice("cpu"):
            for step in range(controls.shape[1]):
                self._arrays["ctrl"][...] = controls[:, step]
                self._step()
        self._forward()

    def _step(self) -> None:
        if self._graph is not None:
            self._warp.capture_launch(self._graph)
        else:
            self._mjw.step(self._model, self._data)

    def _forward(self) -> None:
        if not self._stage:
            return
        warmstart = self._warmstart.copy()
        with self._warp.ScopedDevice("cpu"):
            self._mjw.forward(self._model, self._data)
        self._warmstart[...] = warmstart

    def diverged(self) -> Array:
        """Worlds that diverged, bool, shape (num_worlds,)."""
        state = np.concatenate([self._arrays["qpos"], self._arrays["qvel"]], axis=1)
        return ~(np.abs(state) <= mujoco.mjMAXVAL).all(axis=1)

    def snapshot(self, *, parameters: bool = True) -> Snapshot:
        """Not needed by the engine gate.

        Raises:
            ModelError: always.
        """
        raise ModelError("the second engine keeps no snapshots")

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Not needed by the engine gate.

        Raises:
            ModelError: always.
        """
        raise ModelError("the second engine keeps no snapshots")
