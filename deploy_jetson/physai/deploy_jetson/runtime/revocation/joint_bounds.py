"""Ranges of joints to which a verdict was narrowed, compared with the measurements of every tick."""

from collections.abc import Sequence

import numpy as np

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety.guard import TOLERATED_SAMPLES
from physai.sdk.safety.limits import UNLIMITED, Array
from physai.sdk.signing.status.status_document import NarrowedConditions


def contradiction_of(contract: PolicyContract, conditions: Sequence[NarrowedConditions]) -> str:
    """Describe the first condition whose subject the contract lacks; empty if there is none."""
    joints = {joint.name for joint in contract.robot.joints}
    fields = {field.name: field for field in contract.command.fields}
    for one in conditions:
        for name in one.joints:
            if name not in joints:
                return f"the joint {name}, which its contract does not have"
        for name, command in one.commands.items():
            field = fields.get(name)
            if field is None or field.size != len(command.lower):
                size = "none" if field is None else field.size
                return f"{len(command.lower)} values of the command {name}, its contract has {size}"
            pairs = zip(map(max, field.lower, command.lower), map(min, field.upper, command.upper), strict=True)
            if any(low > high for low, high in pairs):
                return f"a range of the command {name} that its contract excludes"
    return ""


class JointBounds:
    """Bounds of all joints; the checks are for the control loop."""

    def __init__(self, contract: PolicyContract, conditions: Sequence[NarrowedConditions]) -> None:
        """Intersect the conditions.

        Args:
            contract: of the policy; has every joint that the conditions name.
            conditions: all of them apply.
        """
        self._names = [joint.name for joint in contract.robot.joints]
        count = len(self._names)
        self.lower: Array = np.full((1, count), -UNLIMITED)
        """Least positions, shape (1, J)."""
        self.upper: Array = np.full((1, count), UNLIMITED)
        """Greatest positions, shape (1, J)."""
        self.speed: Array = np.full((1, count), UNLIMITED)
        """Greatest speeds, shape (1, J)."""
        for one in conditions:
            for name, joint in one.joints.items():
                at = (0, self._names.index(name))
                self.lower[at] = max(self.lower[at], -UNLIMITED if joint.lower is None else joint.lower)
                self.upper[at] = min(self.upper[at], UNLIMITED if joint.upper is None else joint.upper)
                self.speed[at] = min(self.speed[at], UNLIMITED if joint.speed is None else joint.speed)
        self._beyond = 0
        self._moves = bool((self.speed < UNLIMITED).any())
        self._cut, self._speed = np.empty((1, count)), np.empty((1, count))

    def left(self, joint_pos: Array, joint_vel: Array) -> bool:
        """Return whether the joints have been outside for longer than a spike of a sensor; call it once per tick.

        Args:
            joint_pos: measured positions, shape (1, J).
            joint_vel: measured velocities, shape (1, J).
        """
        cut, speed = self._cut, self._speed
        np.maximum(joint_pos, self.lower, out=cut)
        np.minimum(cut, self.upper, out=cut)
        # Equal bytes are the quickest comparison: values that no bound has cut, and NaN, which the guard answers.
        suspect = cut.tobytes() != joint_pos.tobytes()
        if self._moves and not suspect:
            np.abs(joint_vel, out=speed)
            suspect = np.minimum(speed, self.speed, out=cut).tobytes() != speed.tobytes()
        self._beyond = self._beyond + 1 if suspect and self.describe(joint_pos, joint_vel) else 0
        return self._beyond > TOLERATED_SAMPLES

    def describe(self, joint_pos: Array, joint_vel: Array) -> str:
        """Describe the first joint that is outside, with both values; empty if none is."""
        for i, name in enumerate(self._names):
            position, speed = float(joint_pos[0, i]), abs(float(joint_vel[0, i]))
            if not self.lower[0, i] <= position <= self.upper[0, i]:
                return f"joint {name} is at {position:.4g}, outside [{self.lower[0, i]:.4g}, {self.upper[0, i]:.4g}]"
            if not speed <= self.speed[0, i]:
                return f"joint {name} moves at {speed:.4g}, at most {self.speed[0, i]:.4g} is allowed"
        return ""
