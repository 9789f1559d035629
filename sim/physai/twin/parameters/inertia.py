"""Ten parameters for mass, centre of mass and inertia of a body; every choice of values is physically consistent.

A body's mass distribution has the second moment Sigma = integral of (p - c)(p - c)' dm about its centre of mass and
the inertia I = tr(Sigma)·1 - Sigma. It is physical if and only if m > 0 and Sigma is positive semidefinite, which is
stricter than the triangle inequalities of I. With Sigma = m·U·U', U upper triangular with a positive diagonal, every
(m, c, U) is physical. This is the log-Cholesky form of the pseudo-inertia (Rucker and Wensing, IEEE Robotics and
Automation Letters 7(2), 2022) without its exponentials, so that all ten parameters keep readable units:

- mass [kg]; com_x, com_y, com_z [m] in the body's frame,
- spread_x, spread_y, spread_z [m]: diagonal of U, the root mean square extent of the mass about its centre,
- shear_xy, shear_xz, shear_yz [m]: off-diagonal entries of U.
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
"""Minimum spread, for bodies that a model declares as point masses [m]."""


def numbers(model: Any, body: int) -> Array:
    """Return the ten parameters of a body of a compiled model, in the order of `NAMES`."""
    mass = float(model.body_mass[body])
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.body_iquat[body])
    rotation = rotation.reshape(3, 3)
    principal = np.array(model.body_inertia[body], dtype=np.float64)
    # Second moments along the principal axes, from I = tr(Sigma)·1 - Sigma; the minimum keeps Sigma invertible.
    moments = np.maximum((0.5 * principal.sum() - principal) / mass, SPREAD_MIN**2)
    upper = _upper_factor(rotation @ np.diag(moments) @ rotation.T)
    return np.array([mass, *model.body_ipos[body], *np.diag(upper), upper[0, 1], upper[0, 2], upper[1, 2]])


def extent(model: Any, body: int) -> tuple[Array, Array] | None:
    """Return the corners of the box around a body's geoms, its origin and its children's [m], in the body's frame.

    None if the model has no geoms of it.
    """
    corners = [np.zeros(3), *(model.body_pos[child] for child in np.flatnonzero(model.body_parentid == body))]
    geoms = range(int(model.body_geomadr[body]), int(model.body_geomadr[body] + model.body_geomnum[body]))
    for geom in geoms:
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
        centre, half = np.array(model.geom_aabb[geom], dtype=np.float64).reshape(2, 3)
        middle = model.geom_pos[geom] + rotation.reshape(3, 3) @ centre
        reach = np.abs(rotation.reshape(3, 3)) @ half
        corners += [middle - reach, middle + reach]
    if not len(geoms):
        return None
    return np.min(corners, axis=0), np.max(corners, axis=0)


def _upper_factor(matrix: Array) -> Array:
    """Return U, upper triangular with a positive diagonal, of matrix = U·U'."""
    # numpy factors into L·L'; reversing rows and columns turns lower into upper triangles.
    return np.asarray(np.linalg.cholesky(matrix[::-1, ::-1])[::-1, ::-1], dtype=np.float64)


def fields(values: Array) -> tuple[Array, Array, Array, Array]:
    """Convert parameters to MuJoCo's description of a body.

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
    # A rotation has determinant +1; eigenvectors may form a reflection.
    axes[:, :, 2] *= np.where(np.linalg.det(axes) < 0.0, -1.0, 1.0)[:, None]
    quats = np.zeros((len(values), 4))
    for quat, matrix in zip(quats, axes.reshape(-1, 9), strict=True):
        mujoco.mju_mat2Quat(quat, matrix)
    return mass, values[:, COM], principal, quats
