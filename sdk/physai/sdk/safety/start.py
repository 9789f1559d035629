"""Whether a policy may take over now, and how its commands grow out of those of the robot at rest."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.limits import Array

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Commands = Mapping[str, npt.NDArray[np.floating]]
"""Commands by output name, shape (robots, joints of the term)."""

_UNITS = {True: ("m", "m/s"), False: ("rad", "rad/s")}


class StartGate:
    """The start envelope of a contract (`StartEnvelope`) for robots with the same contract; not thread-safe."""

    def __init__(self, contract: PolicyContract, num_worlds: int = 1) -> None:
        """Prepare the envelope; one without any lets every state pass and has no ramp.

        Args:
            contract: of the policy.
            num_worlds: number of robots; 1 on a robot.
        """
        start = contract.safety.start
        names = contract.robot.joint_names
        self._ranges = [] if start is None else [(names.index(one.joint), one) for one in start.joints]
        self._prismatic = [joint.kind == "prismatic" for joint in contract.robot.joints]
        self._tilt = None if start is None else start.tilt
        self._periods = 0 if start is None else math.ceil(start.ramp_s / contract.timing.control_dt - 1e-9)
        self._done = np.full(num_worlds, self._periods)
        self._done_before = self._done.copy()
        terms = contract.action.terms
        self._rest = {term.target_name: list(contract.robot.joint_index(term.joints)) for term in terms}
        self._holds = {term.target_name: term.kind.startswith("joint_pos") for term in terms}
        self._from = {name: np.zeros((num_worlds, len(columns))) for name, columns in self._rest.items()}

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

    def begin(self, commands: Commands, worlds: Bools | None = None) -> None:
        """Start the ramp from the commands that the robots have.

        Args:
            commands: by output name, shape (num_worlds, joints of the term).
            worlds: robots that start, shape (num_worlds,); None for all.
        """
        if not self._periods:
            return
        rows = slice(None) if worlds is None else worlds
        self._done[rows] = 0
        for name, values in commands.items():
            self._from[name][rows] = values[rows]

    def at_rest(self, joint_pos: npt.NDArray[np.floating]) -> dict[str, Array]:
        """Return the commands of robots at rest: the measured positions, and no effort.

        Args:
            joint_pos: measured positions [rad or m], shape (num_worlds, joints).
        """
        return {
            name: joint_pos[:, columns].astype(np.float64) * self._holds[name] for name, columns in self._rest.items()
        }

    @property
    def has_ramp(self) -> bool:
        """Whether the envelope has a ramp."""
        return self._periods > 0

    @property
    def ramps(self) -> bool:
        """Whether the next commands of any robot are still between those at its start and the policy's."""
        return self._periods > 0 and bool((self._done < self._periods).any())

    @property
    def ramping(self) -> Bools:
        """Robots of which that holds, shape (num_worlds,)."""
        return self._done < self._periods

    def blend(self, targets: Commands) -> dict[str, Floats]:
        """Return the commands of the next period of the ramp; after the ramp, those of the policy.

        In period k of n they are start + (k / n) · (policy - start), so the last one is the policy's.
        """
        np.copyto(self._done_before, self._done)
        ramping = self.ramping[:, None]
        self._done += ramping[:, 0]
        share = self._done[:, None] / max(self._periods, 1)
        return {
            name: np.where(ramping, self._from[name] + share * (values - self._from[name]), values).astype(np.float32)
            for name, values in targets.items()
        }

    def undo(self, worlds: Bools) -> None:
        """Take back the last period of robots, shape (num_worlds,), whose policy was not asked in it."""
        self._done[worlds] = self._done_before[worlds]


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
