"""MuJoCo Warp on Warp's CPU device: an independent implementation of the same physics, in single precision.

Implements only what the engine gate needs: step and reset. Arrays are views of Warp's memory.
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


def modules() -> tuple[Any, Any]:
    """The packages warp and mujoco_warp.

    Raises:
        MissingExtraError: one is not installed.
    """
    try:
        warp: Any = importlib.import_module("warp")
        # Warp otherwise prints a line per loaded kernel; `quiet` is the name before version 1.11.
        warp.config.quiet, warp.config.log_level = True, getattr(warp, "LOG_ERROR", 40)
        with _muted():
            warp.init()
            return warp, importlib.import_module("mujoco_warp")
    except ImportError as error:
        raise MissingExtraError(f"the second engine needs {error.name}: {PIP_LINE}") from error


@contextlib.contextmanager
def _muted() -> Generator[None]:
    """Discards stderr, including that of native code."""
    # Warp's native library warns on every machine without a GPU.
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


class WarpEngine:
    """The part of `Engine` that playing episodes needs, on `mujoco_warp`."""

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
            fields: model fields that differ between worlds, including constants derived from them, shape (n, …).
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
            self._graph = self._capture_step()
        data = self._data
        self._arrays: dict[str, Array] = {
            name: getattr(data, name).numpy() for name in ("qpos", "qvel", "ctrl", "time", "xfrc_applied")
        }
        self._derived: dict[str, Array] = {name: getattr(data, name).numpy() for name in derived}
        self._warmstart: Array = data.qacc_warmstart.numpy()
        self.last_qpos, self.last_qvel = self._arrays["qpos"].copy(), self._arrays["qvel"].copy()

    def _build(self, model: Any, num_worlds: int, fields: Mapping[str, Array]) -> None:
        declared = self._mjw.Model.__dataclass_fields__
        # A first axis "*" means one value per world; stepping does not read the other fields.
        known = {
            name for name in fields if name in declared and getattr(declared[name].type, "shape", ())[:1] == ("*",)
        }
        self._model: Any = self._mjw.put_model(model, batch_sizes=dict.fromkeys(sorted(known), num_worlds))
        for name in known:
            target: Array = getattr(self._model, name).numpy()
            # On the CPU device `numpy()` shares Warp's memory, so this writes the model.
            target[...] = np.asarray(fields[name], target.dtype).reshape(target.shape)
        for name in fields:
            if name.startswith("opt."):
                raise ModelError(f"the second engine cannot vary {name} between worlds")
        self._data: Any = self._mjw.make_data(model, nworld=num_worlds)

    def _capture_step(self) -> Any:
        """One step as a captured kernel graph, which avoids most launch overhead; None if Warp cannot capture."""
        self._mjw.step(self._model, self._data)  # compile first: kernels cannot be compiled during a capture
        try:
            with self._warp.ScopedCapture(device="cpu") as capture:
                self._mjw.step(self._model, self._data)
        except Exception:  # older versions of Warp capture on CUDA devices only and raise their own error types
            return None
        return capture.graph

    def state(self, name: str) -> Array:
        return self._arrays[name]

    def derived(self, name: str) -> Array:
        return self._derived[name]

    def parameter(self, name: str) -> Array:
        """Not supported: parameters are fixed at construction.

        Raises:
            ModelError: always.
        """
        raise ModelError(f"the second engine's parameters are fixed at construction; {name} cannot be changed")

    def parameters_changed(self, mask: Array) -> None:
        """Does nothing: parameters are fixed at construction."""

    def reset(self, mask: Array, qpos: Array, qvel: Array) -> None:
        if not mask.any():
            return
        self.last_qpos, self.last_qvel = self._arrays["qpos"].copy(), self._arrays["qvel"].copy()
        self._arrays["qpos"][mask], self._arrays["qvel"][mask] = qpos, qvel
        self._arrays["time"][mask] = 0.0
        # The solver's start values belong to the old episode; results would depend on it.
        self._warmstart[mask] = 0.0
        self._forward()

    def step(self, num_steps: int) -> None:
        with self._warp.ScopedDevice("cpu"):
            for _ in range(num_steps):
                self._step()
        self._forward()

    def drive(self, controls: Array) -> None:
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
        # `forward` overwrites the warm start; restore it so that the next step does not depend on `stage`.
        warmstart = self._warmstart.copy()
        with self._warp.ScopedDevice("cpu"):
            self._mjw.forward(self._model, self._data)
        self._warmstart[...] = warmstart

    def diverged(self) -> Array:
        state = np.concatenate([self._arrays["qpos"], self._arrays["qvel"]], axis=1)
        return ~(np.abs(state) <= mujoco.mjMAXVAL).all(axis=1)

    def snapshot(self, *, parameters: bool = True) -> Snapshot:
        """Not supported.

        Raises:
            ModelError: always.
        """
        raise ModelError("the second engine does not support snapshots")

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Not supported.

        Raises:
            ModelError: always.
        """
        raise ModelError("the second engine does not support snapshots")
