"""Motion of a recording at evenly spaced moments: positions, speeds and accelerations by local parabolas."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.drift.equations.regressor import MotionSamples
from physai.sim.robots import Robot
from physai.sim.robots.spec import joint_columns
from physai.twin.logs import RobotLog
from physai.twin.logs.signals.noise import noise_std
from physai.twin.logs.signals.rotation import from_vector, multiply, relative

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

HALF_WIDTHS_S = (0.03, 0.045, 0.065, 0.09, 0.12)
"""Half widths of the parabolas, of which a recording takes one [s]."""
NOISE_SHARE = 0.02
"""Share of noise in the accelerations with which a half width is taken."""
TRIED = 1000
"""Number of parabolas that tell the accelerations of a recording."""
MIN_SAMPLES = 7
"""Minimum number of samples of a parabola."""
PERIOD_MAX_S = 0.0125
"""Maximum sampling period [s]: parabolas over more time are too stiff for the motion between impacts and reversals."""
OFFSETS = 13
"""Number of points at which inputs are averaged over a parabola's width."""


@dataclass(frozen=True)
class Kernel:
    """Weights with which a parabola's second derivative averages the acceleration, at offsets from its centre."""

    offset_s: Array
    weight: Array
    """Shape (OFFSETS,), sum 1."""

    @classmethod
    def of(cls, half_s: float) -> "Kernel":
        """Return the kernel of a parabola of that half width."""
        # The second derivative of a least-squares parabola is the acceleration, averaged with the weight (1 - x²)².
        offset = np.linspace(-half_s, half_s, OFFSETS + 2)[1:-1]
        weight = (1.0 - (offset / half_s) ** 2) ** 2
        return cls(offset, weight / weight.sum())

    def mean(self, values: Array) -> Array:
        """Average values at the offsets, shape (T, OFFSETS, …) to (T, …)."""
        return np.einsum("o,to...->t...", self.weight, values)


def half_width(log: RobotLog) -> float | None:
    """Return the half width of parabolas for a recording [s]; None if it is sampled too slowly.

    The least one whose accelerations of the joints in motion are hardly noise: that would look like an inertia.
    """
    period_s = float(np.median(np.diff(log.time)))
    if not period_s <= PERIOD_MAX_S:
        return None
    least_s = 0.5 * (MIN_SAMPLES - 1) * period_s
    noise = np.array([noise_std(column, []) for column in log.joint_pos.T])
    for half_s in HALF_WIDTHS_S:
        if half_s < least_s:
            continue
        samples = np.searchsorted(log.time, np.arange(half_s, log.time[-1] - half_s, 4.0 * half_s))[:TRIED]
        if not len(samples):
            break
        near, fit = _neighbours(log, samples, half_s)
        moved = np.sqrt(((2.0 * np.einsum("tn,tnj->tj", fit[:, 2], log.joint_pos[near])) ** 2).mean(axis=0))
        share = noise * acceleration_noise(half_s, period_s) / np.maximum(moved, 1e-9)
        if float(np.median(share)) <= NOISE_SHARE:
            return half_s
    return max(HALF_WIDTHS_S[-1], least_s)


def acceleration_noise(half_s: float, period_s: float) -> float:
    """Return the noise of a parabola's second derivative per noise of a sample [1/s²]."""
    return float(np.sqrt(720.0 * period_s / (2.0 * half_s)) / (2.0 * half_s) ** 2)


def _neighbours(log: RobotLog, samples: Indices, half_s: float) -> tuple[Indices, Array]:
    """Return the samples around each of T samples, shape (T, N), and the parabolas through them, shape (T, 3, N)."""
    count = max(MIN_SAMPLES, 2 * int(half_s / float(np.median(np.diff(log.time)))) + 1)
    near = np.clip(samples[:, None] + np.arange(count) - count // 2, 0, len(log.time) - 1)
    return near, _parabolas(log.time[near] - log.time[samples][:, None])


def motion_at(robot: Robot, log: RobotLog, samples: Indices, half_s: float) -> MotionSamples:
    """Return the motion at samples of a recording, which must be at least `half_s` from its ends.

    Args:
        robot: the recorded robot.
        log: the recording.
        samples: shape (T,).
        half_s: half width of the parabolas [s].
    """
    model: Any = robot.model
    positions, speeds = joint_columns(model, robot.spec)
    near, fit = _neighbours(log, samples, half_s)
    joints = np.einsum("tpn,tnj->tpj", fit, log.joint_pos[near])
    qpos = np.tile(np.array(model.qpos0, np.float64), (len(samples), 1))
    qvel, qacc = np.zeros((len(samples), int(model.nv))), np.zeros((len(samples), int(model.nv)))
    qpos[:, positions], qvel[:, speeds], qacc[:, speeds] = joints[:, 0], joints[:, 1], 2.0 * joints[:, 2]
    if log.base is not None and robot.spec.base == "floating":
        place = np.einsum("tpn,tnj->tpj", fit, log.base.position[near])
        turned = relative(log.base.quat[samples][:, None], log.base.quat[near])
        turn = np.einsum("tpn,tnj->tpj", fit, turned)
        qpos[:, :3] = place[:, 0]
        qpos[:, 3:7] = multiply(log.base.quat[samples], from_vector(turn[:, 0]))
        qvel[:, :6] = np.hstack([place[:, 1], turn[:, 1]])
        qacc[:, :6] = 2.0 * np.hstack([place[:, 2], turn[:, 2]])
    return MotionSamples(qpos, qvel, qacc)


def _parabolas(time: Array) -> Array:
    """Return the matrices that map values at times (T, N) to the coefficients of parabolas, shape (T, 3, N)."""
    scale = float(np.abs(time).max())
    powers = (time / scale)[..., None] ** np.arange(3)
    gram = np.einsum("tni,tnj->tij", powers, powers)
    solved: Array = np.asarray(np.linalg.solve(gram, powers.swapaxes(1, 2)), np.float64)
    return solved / scale ** np.arange(3)[:, None]
