"""Whether a policy may take over now, and how its commands grow out of those of the robot at rest."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.limits import Array

Floats = npt.NDArray[np.float32]
Commands = Mapping[str, npt.NDArray[np.floating]]
"""Commands by output name, shape (1, joints of the term)."""

_UNITS = {True: ("m", "m/s"), False: ("rad", "rad/s")}


class StartGate:
    """The start envelope of a contract (`StartEnvelope`), for one robot; not thread-safe."""

    def __init__(self, contract: PolicyContract) -> None:
        """Prepare the envelope; one without any lets every state pass and has no ramp."""
        start = contract.safety.start
        names = contract.robot.joint_names
        self._ranges = [] if start is None else [(names.index(one.joint), one) for one in start.joints]
        self._prismatic = [joint.kind == "prismatic" for joint in contract.robot.joints]
        self._tilt = None if start is None else start.tilt
        periods = 0 if start is None else math.ceil(start.ramp_s / contract.timing.control_dt)
        self._periods = periods
        self._done = periods
        self._from: dict[str, Array] = {}

    def obstacle(self, joint_pos: Array, joint_vel: Array, fields: Mapping[str, Array]) -> str:
        """Describe the first value outside the envelope, with its bounds; empty if there is none.

        Args:
            joint_pos: measured positions [rad or m], shape (1, joints).
            joint_vel: measured velocities [rad/s or m/s], shape (1, joints).
            fields: measured fields by name, shape (1, size) each.
        """
        for number, one in self._ranges:
            at, speed = float(joint_pos[0, number]), abs(float(joint_vel[0, number]))
            length, rate = _UNITS[self._prismatic[number]]
            # Written so that NaN is outside.
            if not one.lower <= at <= one.upper:
                return (
                    f"{one.joint} reads {at:.4g} {length}, the policy starts in [{one.lower:.4g}, {one.upper:.4g}] "
                    f"{length}"
                )
            if one.speed is not None and not speed <= one.speed:
                return f"{one.joint} moves at {speed:.3g} {rate}, the policy starts below {one.speed:.3g} {rate}"
        if self._tilt is None:
            return ""
        angle = tilt(fields["imu_quat"][0])
        if angle <= self._tilt:
            return ""
        return f"the base is tilted by {angle:.3g} rad, the policy starts below {self._tilt:.3g} rad"

    def begin(self, commands: Commands) -> None:
        """Start the ramp from the commands that the robot has."""
        self._done = 0
        if self._periods:
            self._from = {name: np.array(values, np.float64) for name, values in commands.items()}

    @property
    def ramps(self) -> bool:
        """Whether the next commands are still between those at the start and the policy's."""
        return self._done < self._periods

    def blend(self, targets: Commands) -> dict[str, Floats]:
        """Return the commands of the next period of the ramp.

        In period k of n they are start + (k / n) · (policy - start), so the last one is the policy's.
        """
        self._done += 1
        share = min(1.0, self._done / self._periods)
        return {
            name: (self._from[name] + share * (values - self._from[name])).astype(np.float32)
            for name, values in targets.items()
        }


def tilt(quaternion: Array) -> float:
    """Return the angle between the vertical of a base and that of the world [rad].

    Args:
        quaternion: orientation of the base in the world, wxyz, shape (4,).
    """
    w, x, y, z = quaternion.tolist()
    norm = w * w + x * x + y * y + z * z
    if not (math.isfinite(norm) and norm > 0.0):
        return math.inf
    # The element (2, 2) of the rotation matrix: the cosine of the angle between both vertical axes.
    return math.acos(max(-1.0, min(1.0, 1.0 - 2.0 * (x * x + y * y) / norm)))
