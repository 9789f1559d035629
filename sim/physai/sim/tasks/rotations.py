"""Unit quaternions, wxyz, as arrays of shape (n, 4); numpy or torch through `xp`."""

from typing import Any

from physai.sim.engines.protocol import Array
from physai.sim.tasks.constant import Constant

_CONJUGATE = Constant([1.0, -1.0, -1.0, -1.0])
# What each component of p is multiplied with in a product: components of q, and their signs.
_ORDER = Constant([0, 1, 2, 3, 1, 0, 3, 2, 2, 3, 0, 1, 3, 2, 1, 0])
_SIGNS = Constant([1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0, 1.0])


def multiply(p: Array, q: Array, xp: Any) -> Array:
    """Hamilton product p ⊗ q, shape (n, 4)."""
    # As few operations as there are, because each is a kernel's launch on a GPU: six instead of 29.
    rows = xp.reshape(xp.take(q, _ORDER.like(q), axis=1) * _SIGNS.like(q), (-1, 4, 4))
    terms = p[:, :, None] * rows
    return terms[:, 0] + terms[:, 1] + terms[:, 2] + terms[:, 3]


def error_vector(target: Array, actual: Array, xp: Any) -> Array:
    """Rotation from actual to target as axis · 2 sin(angle / 2), the short way, shape (n, 3)."""
    conjugate = actual * _CONJUGATE.like(actual)
    error = multiply(target, conjugate, xp)
    # q and -q are the same rotation; a positive real part is the short way round.
    return xp.where(error[:, :1] < 0.0, -2.0, 2.0) * error[:, 1:]


def from_euler_xyz(angles: Array, xp: Any) -> Array:
    """Quaternion of rotations about the fixed x, then y, then z axis [rad], shape (n, 3) to (n, 4)."""
    half = 0.5 * angles
    cx, cy, cz = (xp.cos(half[:, i]) for i in range(3))
    sx, sy, sz = (xp.sin(half[:, i]) for i in range(3))
    return xp.stack(
        [
            cx * cy * cz + sx * sy * sz,
            sx * cy * cz - cx * sy * sz,
            cx * sy * cz + sx * cy * sz,
            cx * cy * sz - sx * sy * cz,
        ],
        axis=1,
    )


def rotate_inverse(quat: Array, vector: Array, xp: Any) -> Array:
    """R(quat)ᵀ · vector: a world vector in the body's frame, shape (n, 3)."""
    # Negating the vector part inverts the rotation.
    w, axis = quat[:, :1], -quat[:, 1:]
    cross = _cross(axis, vector, xp)
    return vector + 2.0 * (w * cross + _cross(axis, cross, xp))


def _cross(a: Array, b: Array, xp: Any) -> Array:
    return xp.stack(
        [
            a[:, 1] * b[:, 2] - a[:, 2] * b[:, 1],
            a[:, 2] * b[:, 0] - a[:, 0] * b[:, 2],
            a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0],
        ],
        axis=1,
    )
