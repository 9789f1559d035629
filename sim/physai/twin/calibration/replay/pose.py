"""Windows of recorded poses: their start states, and errors of simulated poses.

A floating base has six coordinates: its position [m], then a rotation vector [rad]. Orientations have no coordinates
without a singularity, so a measured one is written as the rotation from the start of its window, and a simulated one as
the coordinates of the measured one plus the rotation from there: their difference is the rotation between the two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.twin.logs import RobotLog
from physai.twin.logs.checks.base import jump_samples, pose_noise
from physai.twin.logs.robot_log import BasePose
from physai.twin.logs.signals.rotation import from_vector, multiply, relative
from physai.twin.model.twin_file import BASE_ERRORS

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

COORDINATES = 6
"""Number of coordinates, and of velocities, of a floating base."""
POSITION, ROTATION = slice(0, 3), slice(3, 6)

HALF_WIDTHS_S = (0.06, 0.045, 0.03, 0.02, 0.014)
"""Half widths of the smoothing window, widest first: the first one without an impact in it is used."""
DEGREE = 2
MIN_SAMPLES = 5
"""Minimum number of samples in the smoothing window."""
SMOOTH = 2.0
"""Maximum deviation of the samples from the parabola, root mean square, in standard deviations of the noise: an impact
within the window, or a tumbling that no parabola follows, exceeds it."""
NOISE_FLOOR = (5e-5, 5e-4)
"""Minimum noise [m, rad]: recordings without noise still have rounding, and parabolas a bias."""
REST_M, REST_RAD = 0.01, 0.1
"""A window whose pose changes by less than both is of a body at rest, which says nothing."""


@dataclass(frozen=True)
class BasePath:
    """Measured orientations of a base in W windows with M compared samples."""

    start: Array
    """At the windows' starts, shape (W, 4)."""
    quat: Array
    """At the compared samples, shape (W, M, 4)."""

    def subset(self, chosen: Indices) -> "BasePath":
        """Return the windows with these indices."""
        return BasePath(self.start[chosen], self.quat[chosen])

    def sampled(self, samples: Indices) -> "BasePath":
        """Return the windows with these of their samples."""
        return BasePath(self.start, self.quat[:, samples])


@dataclass(frozen=True)
class PoseStarts:
    """Start states of V windows of a recording, and what the windows compare."""

    samples: Indices
    """Sample at which each window starts, shape (V,)."""
    coordinates: Array
    """Coordinates at the start, shape (V, 6)."""
    velocity: Array
    """Velocity in the world [m/s], then angular velocity in the base's frame [rad/s], shape (V, 6)."""
    std: Array
    """Standard deviations of coordinates, then velocities, shape (V, 12)."""
    quat: Array
    """Orientation at the start, shape (V, 4)."""


def impossible_poses(base: BasePose | None) -> Indices:
    """Return samples at which the pose of a base jumps."""
    return np.zeros(0, dtype=np.int64) if base is None else jump_samples(base)


def pose_starts(log: RobotLog, base: BasePose, starts: Indices) -> PoseStarts:
    """Estimate the states at which windows of a recording start; starts in or next to an impact are left out.

    A parabola is fitted to the positions, and to the rotations from the start's own orientation, whose slope there is
    the angular velocity in the base's frame.
    """
    noise = np.repeat(np.maximum(pose_noise(base), NOISE_FLOOR), 3)
    found = [(start, _smoothed(log.time, base, start, noise)) for start in starts.tolist()]
    usable = [(start, state) for start, state in found if state is not None]
    samples = np.array([start for start, _ in usable], dtype=np.int64)
    if not usable:
        return PoseStarts(samples, *(np.zeros((0, width)) for width in (6, 6, 12, 4)))
    fitted, slope, std = (np.array([state[part] for _, state in usable]) for part in range(3))
    coordinates = fitted.copy()
    coordinates[:, ROTATION] = 0.0
    quat = multiply(base.quat[samples], from_vector(fitted[:, ROTATION]))
    return PoseStarts(samples, coordinates, slope, std, quat)


def _smoothed(time: Array, base: BasePose, start: int, noise: Array) -> tuple[Array, Array, Array] | None:
    """Return coordinates, velocities and their standard deviations at a sample; None if nothing smooth surrounds it."""
    for half_s in HALF_WIDTHS_S:
        near = np.flatnonzero(np.abs(time - time[start]) <= half_s)
        if len(near) < MIN_SAMPLES or near[0] == start or near[-1] == start:
            continue
        values = np.hstack([base.position[near], relative(base.quat[start], base.quat[near])])
        powers = np.vander(np.asarray(time[near] - time[start]), DEGREE + 1, increasing=True)
        solution = np.linalg.lstsq(powers, values, rcond=None)[0]
        left = ((values - powers @ solution) / noise).reshape(len(near), 2, 3)
        spent = len(near) / max(1, len(near) - DEGREE - 1)
        if (np.sqrt((left**2).mean(axis=(0, 2)) * spent) <= SMOOTH).all():
            spread = np.sqrt(np.diag(np.linalg.inv(powers.T @ powers)))
            return solution[0], solution[1], np.concatenate([spread[0] * noise, spread[1] * noise])
    return None


def in_motion(base: BasePose, samples: Indices) -> bool:
    """Whether the pose changes during a window with these samples."""
    travel = np.linalg.norm(base.position[samples] - base.position[samples[0]], axis=1)
    turn = np.linalg.norm(relative(base.quat[samples[:1]], base.quat[samples]), axis=1)
    return bool(travel.max() >= REST_M or turn.max() >= REST_RAD)


def measured_coordinates(base: BasePose, start: Array, samples: Indices) -> Array:
    """Return the measured coordinates of windows: start orientations (V, 4) and samples (V, M) to (V, M, 6)."""
    return np.concatenate([base.position[samples], relative(start[:, None], base.quat[samples])], axis=-1)


def start_pose(path: BasePath, coordinates: Array) -> Array:
    """Return the poses with these coordinates at the windows' starts, (…, W, 6) to (…, W, 7)."""
    quat = multiply(path.start, from_vector(coordinates[..., ROTATION]))
    return np.concatenate([coordinates[..., POSITION], quat], axis=-1)


def simulated_coordinates(path: BasePath, target: Array, poses: Array) -> Array:
    """Return the coordinates of simulated poses at the compared samples.

    Args:
        path: measured orientations.
        target: measured coordinates, shape (W, M, 6).
        poses: position and quaternion, of any length, shape (K, W, M, 7).
    """
    quat = poses[..., 3:]
    quat = quat / np.linalg.norm(quat, axis=-1, keepdims=True)
    turn = target[..., ROTATION] + relative(np.broadcast_to(path.quat, quat.shape), quat)
    return np.concatenate([poses[..., POSITION], turn], axis=-1)


def by_channel(squared: Array, floating: bool) -> Array:
    """Sum squares of coordinates to squares of the scored errors, (…, C) to (…, C - 4) of a floating base."""
    if not floating:
        return squared
    parts = (squared[..., POSITION], squared[..., ROTATION])
    return np.concatenate([*(part.sum(axis=-1, keepdims=True) for part in parts), squared[..., COORDINATES:]], axis=-1)


def channel_names(joints: Sequence[str], floating: bool) -> tuple[str, ...]:
    """Return the names of the scored errors: those of the base, then the joints."""
    return (*(BASE_ERRORS if floating else ()), *joints)


def pose_columns(model: Any, floating: bool) -> list[int]:
    """Return the columns of a base's pose in `qpos`, of which the free joint has the first."""
    return list(range(7)) if floating else []
