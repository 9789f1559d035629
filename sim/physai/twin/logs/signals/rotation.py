"""Unit quaternions, wxyz, as arrays of shape (…, 4), and rotation vectors [rad], shape (…, 3).

The rotation vector of a rotation is its axis times its angle, at most pi. As in MuJoCo, R(q) maps vectors of the body's
frame to the world's, so that `relative(a, b)` turns a into b about axes of a's own frame.
"""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_SMALL = 1e-8
"""Sine of the half angle below which the axis comes from the limit for small angles."""


def multiply(p: Array, q: Array) -> Array:
    """Return the Hamilton product p·q."""
    w, x, y, z = np.moveaxis(p, -1, 0)
    a, b, c, d = np.moveaxis(q, -1, 0)
    return np.stack(
        [
            w * a - x * b - y * c - z * d,
            w * b + x * a + y * d - z * c,
            w * c - x * d + y * a + z * b,
            w * d + x * c - y * b + z * a,
        ],
        axis=-1,
    )


def conjugate(q: Array) -> Array:
    """Return the inverse rotation."""
    return q * np.array([1.0, -1.0, -1.0, -1.0])


def from_vector(vector: Array) -> Array:
    """Return the quaternion of a rotation vector."""
    half = 0.5 * np.linalg.norm(vector, axis=-1, keepdims=True)
    # numpy's sinc(x) is sin(pi·x)/(pi·x), which is 1 at 0.
    return np.concatenate([np.cos(half), 0.5 * np.sinc(half / np.pi) * vector], axis=-1)


def to_vector(q: Array) -> Array:
    """Return the rotation vector, the short way round: q and -q give the same one."""
    q = np.where(q[..., :1] < 0.0, -q, q)
    sine = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(sine, q[..., :1])
    return q[..., 1:] * np.where(sine > _SMALL, angle / np.maximum(sine, _SMALL), 2.0)


def relative(start: Array, end: Array) -> Array:
    """Return the rotation vector from one orientation to another, in the first one's frame."""
    return to_vector(multiply(conjugate(start), end))


def rotate(q: Array, vector: Array) -> Array:
    """Return a vector of the body's frame in the world's."""
    axis = q[..., 1:]
    twice = 2.0 * np.cross(axis, vector)
    return vector + q[..., :1] * twice + np.cross(axis, twice)
