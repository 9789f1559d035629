"""Angles of the base that some policies observe in place of a quaternion, as functions of observation terms."""

import math

import torch
from torch import Tensor

TINY = 1e-12
"""Replaces a divisor of 0."""


def roll_pitch_yaw(quaternion: Tensor) -> Tensor:
    """Return the angles about the fixed axes x, y and z, in this order [rad], shape (n, 3).

    Roll and yaw are in (-π, π], pitch in [-π/2, π/2]: as in Isaac Gym's `get_euler_xyz`, wrapped. At a pitch of ±π/2
    roll and yaw are not defined; they are finite.

    Args:
        quaternion: unit quaternions wxyz, shape (n, 4).
    """
    w, x, y, z = (quaternion[:, at : at + 1] for at in range(4))
    roll = _angle(2.0 * (w * x + y * z), w * w - x * x - y * y + z * z)
    pitch = torch.asin(torch.clamp(2.0 * (w * y - z * x), -1.0, 1.0))
    yaw = _angle(2.0 * (w * z + x * y), w * w + x * x - y * y - z * z)
    return torch.cat([roll, pitch, yaw], dim=1)


def roll_pitch(quaternion: Tensor) -> Tensor:
    """Return the first two angles of `roll_pitch_yaw`, shape (n, 2)."""
    return roll_pitch_yaw(quaternion)[:, :2]


def _angle(sine: Tensor, cosine: Tensor) -> Tensor:
    """The angle of a point; ONNX has no operator for it, and the exporter's own returns no number at (0, 0)."""
    angle = torch.atan(sine / torch.where(cosine == 0.0, torch.full_like(cosine, TINY), cosine))
    turn = torch.where(sine >= 0.0, torch.full_like(sine, math.pi), torch.full_like(sine, -math.pi))
    return torch.where(cosine < 0.0, angle + turn, angle)
