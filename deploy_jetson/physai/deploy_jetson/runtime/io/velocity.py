"""Joint velocities of a robot that measures only positions."""

import math
from collections.abc import Sequence

import numpy as np

from physai.sdk.contract.robot import JointSpec
from physai.sdk.transport.protocol import Array

_HALF_TURN_SQUARE = math.pi**2


class VelocityEstimate:
    """Finite differences of the last two positions; continuous joints wrap at half a turn."""

    def __init__(self, joints: Sequence[JointSpec]) -> None:
        """Initialize without a position."""
        self._continuous = np.array([joint.kind == "continuous" for joint in joints])
        self._turns = bool(self._continuous.any())
        self.joint_vel: Array = np.zeros((1, len(joints)))
        """Velocities at the newest sample, shape (1, joints); 0 at the first one, NaN if the sample is not finite or
        its stamp decreases."""
        self._before, self._moved = np.full((2, 1, len(joints)), math.nan)
        self._before_ns = 0

    def update(self, joint_pos: Array, stamp_ns: int) -> None:
        """Update from a sample; a repeated stamp changes nothing.

        Args:
            joint_pos: measured positions, shape (1, joints).
            stamp_ns: when they were measured [ns].
        """
        if stamp_ns == self._before_ns:
            return
        elapsed_s = (stamp_ns - self._before_ns) * 1e-9
        moved = np.subtract(joint_pos, self._before, out=self._moved)
        # The first sample has no predecessor; the joints are taken to be at rest.
        if self._before_ns <= 0:
            self.joint_vel[:] = np.where(np.isfinite(joint_pos), 0.0, math.nan)
        # A stamp that goes back gives no velocity; the guard takes NaN for an invalid sample.
        elif not elapsed_s > 0.0:
            self.joint_vel[:] = math.nan
        else:
            # Rarely true, so the remainder is rarely computed; NaN takes the slow way, too.
            if self._turns and not np.vdot(moved, moved) <= _HALF_TURN_SQUARE:
                # The shorter way around: from 179° to -179° is 2°, not -358°.
                short = np.remainder(moved + math.pi, 2.0 * math.pi) - math.pi
                np.copyto(moved, short, where=self._continuous)
            np.divide(moved, elapsed_s, out=self.joint_vel)
        self._before[:] = joint_pos
        self._before_ns = stamp_ns
