"""Uncertainty of the equations of motion by the twin's posterior."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from physai.drift.equations.regressor import InverseDynamics, inertial_numbers
from physai.twin.model.twin import Twin
from physai.twin.parameters import inertia
from physai.twin.parameters.models import covariance_root
from physai.twin.parameters.parameters import AGE, AGE_PERIODS, DELAY, DELAY_PERIODS

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

STEP = 1e-3
"""Step of derivatives by inertial parameters, in standard deviations."""


@dataclass(frozen=True)
class Parts:
    """Efforts of T moments that do not depend on inertial numbers."""

    passive: Array
    """Armature, damping and springs, shape (T, nv)."""
    friction: Array
    """Coulomb friction and its like, shape (T, nv)."""
    turning: Array
    """Mean sign of each joint's speed, shape (T, J)."""
    speed: Array
    """Speed at which damping acts, shape (T, J)."""
    acceleration: Array
    """Shape (T, J)."""
    moving: npt.NDArray[np.bool_]
    """Whether a joint keeps its direction, or has no friction, shape (T, J)."""


class Posterior:
    """Derivatives of the residual by standard deviations of the twin's posterior."""

    def __init__(
        self,
        twin: Twin,
        inverse: InverseDynamics,
        joints: Sequence[str],
        dofs: Indices,
        *,
        gain: Array,
        highest: Array,
    ) -> None:
        """Prepare.

        Args:
            twin: the twin.
            inverse: inverse dynamics of its model.
            joints: names of the joints.
            dofs: their degrees of freedom, shape (J,).
            gain: gain of each actuator, shape (J,).
            highest: highest effort of each actuator [N·m or N], shape (J,).
        """
        self._twin, self._joints, self._dofs = twin, tuple(joints), dofs
        self._gain, self._highest, model = gain, highest, inverse.model
        self._root = covariance_root(twin.covariance) if len(twin.parameters) else np.zeros((0, 0))
        self._inertial = np.zeros((len(inverse.bodies), 10, len(twin.parameters)))
        """Inertial numbers by parameters, shape (B, 10, P)."""
        for column, parameter in enumerate(twin.parameters):
            owner, what = parameter.name.rsplit(".", 1)
            if what in inertia.NAMES:
                body = int(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, owner))
                ten = inertia.numbers(model, body)
                step = STEP * parameter.prior_std
                moved = ten.copy()
                moved[inertia.NAMES.index(what)] += step
                change = inertial_numbers(np.stack([ten, moved]))
                self._inertial[inverse.row(owner), :, column] = (change[1] - change[0]) / step

    def columns(self, efforts: Array, parts: Parts, error: Array, applied: Array, slope: Array) -> Array:
        """Return the derivatives, shape (T, nv, P).

        Args:
            efforts: of `Dynamics`.
            parts: friction and passive efforts.
            error: position errors of servos, shape (T, J).
            applied: efforts of the actuators, shape (T, J).
            slope: their derivative by the lag, shape (T, J).
        """
        result = -np.einsum("tdbn,bnp->tdp", efforts, self._inertial, optimize=True)
        for column, parameter in enumerate(self._twin.parameters):
            owner, what = parameter.name.rsplit(".", 1)
            if parameter.name in (DELAY, AGE):
                result[:, self._dofs, column] = slope
            elif parameter.name not in (DELAY_PERIODS, AGE_PERIODS) and owner in self._joints:
                joint = self._joints.index(owner)
                by = self._by_joint(what, joint, parts, error, applied)
                if by is not None:
                    result[:, self._dofs[joint], column] = by
        return result @ self._root

    def _by_joint(self, what: str, joint: int, parts: Parts, error: Array, applied: Array) -> Any:
        gain = float(self._gain[joint])
        known: dict[str, Any] = {
            "friction": -parts.turning[:, joint],
            "damping": -parts.speed[:, joint],
            "armature": -parts.acceleration[:, joint],
            "kd": -parts.speed[:, joint],
            "kp": error[:, joint],
            "effort_gain": applied[:, joint] / (gain or 1.0),
            "effort_bias": 1.0,
            "saturation_error": -error[:, joint] * gain**2 / max(float(self._highest[joint]), 1e-9),
        }
        return known.get(what)
