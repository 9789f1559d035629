"""Mass, centre of mass and inertia of a body as ten numbers of which every choice is a body that can exist.

A body's mass distribution has a second moment about its centre of mass, Sigma = integral of (p - c)(p - c)' dm, and an
inertia I = tr(Sigma)·1 - Sigma. It can be made of matter if and only if m > 0 and Sigma is positive semidefinite, which
is more than the triangle inequalities of I. With Sigma = m·U·U', U upper triangular with a positive diagonal, every
(m, c, U) is physical: this is the log-Cholesky form of the pseudo-inertia (Rucker and Wensing, IEEE Robotics and
Automation Letters 7(2), 2022), its exponentials left out, so that all ten numbers keep units one can read:

- mass [kg]; com_x, com_y, com_z [m] in the body's frame,
- spread_x, spread_y, spread_z [m]: diagonal of U, how far the mass reaches from its centre (root mean square),
- shear_xy, shear_xz, shear_yz [m]: the rest of U.
"""

from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

MASS, COM, SPREAD, SHEAR = 0, slice(1, 4), slice(4, 7), slice(7, 10)
NAMES = (
    "mass",
    *(f"com_{axis}" for axis in "xyz"),
    *(f"spread_{axis}" for axis in "xyz"),
    "shear_xy",
    "shear_xz",
    "shear_yz",
)
SPREAD_MIN = 1e-6
"""Least spread of a body that is written into a model as a point [m]."""


def numbers(model: Any, body: int) -> Array:
    """The ten numbers of a body of a compiled model, in the order of `NAMES`."""
    mass = float(model.body_mass[body])
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.body_iquat[body])
    rotation = rotation.reshape(3, 3)
    principal = np.array(model.body_inertia[body], dtype=np.float64)
    moments = np.maximum((0.5 * principal.sum() - principal) / mass, SPREAD_MIN**2)
    upper = _upper_factor(rotation @ np.diag(moments) @ rotation.T)
    return np.array([mass, *model.body_ipos[body], *np.diag(upper), upper[0, 1], upper[0, 2], upper[1, 2]])


def _upper_factor(matrix: Array) -> Array:
    """U, upper triangular with a positive diagonal, of matrix = U·U'."""
    return np.asarray(np.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1], dtype=np.float64)


def fields(values: Array) -> tuple[Array, Array, Array, Array]:
    """MuJoCo's description of bodies with the given numbers.

    Args:
        values: shape (n, 10).

    Returns:
        Mass (n,), centre of mass (n, 3), principal inertia (n, 3) and its orientation (n, 4), wxyz.
    """
    mass = values[:, MASS]
    upper = np.zeros((len(values), 3, 3))
    upper[:, [0, 1, 2], [0, 1, 2]] = values[:, SPREAD]
    upper[:, [0, 0, 1], [1, 2, 2]] = values[:, SHEAR]
    second = mass[:, None, None] * (upper @ upper.transpose(0, 2, 1))
    trace = np.trace(second, axis1=1, axis2=2)
    principal, axes = np.linalg.eigh(trace[:, None, None] * np.eye(3) - second)
    axes[:, :, 2] *= np.where(np.linalg.det(axes) < 0.0, -1.0, 1.0)[:, None]
    quats = np.zeros((len(values), 4))
    for quat, matrix in zip(quats, axes.reshape(-1, 9), strict=True):
        mujoco.mju_mat2Quat(quat, matrix)
    return mass, values[:, COM], principal, quats
