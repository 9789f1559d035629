"""The guard of one real robot, on which time passes whether the guard is asked or not."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from physai.sdk.contract import PolicyContract
from physai.sdk.guard_sample import Bools, Floats
from physai.sdk.safety import Guard, GuardResult, GuardState


class RobotGuard(Guard):
    """As `Guard`, and it can be told of control periods in which it was not called."""

    _missed: npt.NDArray[np.int64]

    def __init__(self, contract: PolicyContract) -> None:
        """A guard in RUN.

        Raises:
            GuardError: the contract leaves a joint no command.
        """
        self._sent = np.zeros((1, sum(len(term.joints) for term in contract.action.terms)))
        super().__init__(contract, 1)
        self._robot_joints = contract.robot.joints

    def reset(self, mask: Bools | None = None) -> None:
        """See `Guard`."""
        super().reset(mask)
        self._sent[...] = self._last

    def _start(self) -> None:
        """Takes the measured positions for the command before the first one."""
        super()._start()
        self._sent[...] = self._last

    def decide(
        self,
        age_s: float,
        joint_pos: Floats,
        joint_vel: Floats,
        targets: Mapping[str, Floats] | None,
        *,
        missed: bool,
        stop: bool,
    ) -> GuardResult:
        """As `check`, for a loop that has turned off numpy's floating-point warnings once and for all.

        Args:
            age_s: of the sample, by the sensor's own stamp [s].
            joint_pos: see `check`.
            joint_vel: see `check`.
            targets: see `check`.
            missed: whether they came too late.
            stop: whether an emergency stop is asked for.
        """
        self._sample.read(age_s, 0.0, joint_pos, joint_vel)
        return self._check(targets, 0.0, missed, stop)

    def sent(self) -> None:
        """The last decision has reached the robot: it is what may be repeated from now on."""
        self._sent[...] = self._last

    def not_sent(self) -> None:
        """The last decision has not left: the robot still has the one before."""
        self._last[...] = self._sent

    def skip(self, periods: int) -> None:
        """Counts periods that passed without a command; the next check must get none either, and draws the conclusion.

        After a standstill of a second the state is the one that a second of missing commands leads to.
        """
        self._missed += periods

    def press(self, state: GuardState) -> None:
        """Lets the next check without a command raise the state to at least HOLD or DAMP."""
        least = self._reused + (self._hold if state >= GuardState.DAMP else 0)
        np.maximum(self._missed, least, out=self._missed)

    def misplaced(self, joint_pos: Floats) -> str:
        """The first joint that was measured outside its range, in words; empty for none.

        Args:
            joint_pos: measured positions [rad or m], shape (1, joints).
        """
        limits = self.limits
        for number, joint in enumerate(self._robot_joints):
            at = float(joint_pos[0, number])
            lower, upper = float(limits.position_lower[number]), float(limits.position_upper[number])
            if lower <= at <= upper:
                continue
            unit = "m" if joint.kind == "prismatic" else "rad"
            text = f"{joint.name} reads {at:.4g} {unit}, its range is [{lower:.4g}, {upper:.4g}] {unit}"
            if unit == "rad" and lower <= math.radians(at) <= upper:
                text += f"; if the driver sends degrees, that is {math.radians(at):.4g} rad, and it has to send radians"
            return text
        return ""

    @property
    def state(self) -> GuardState:
        """The state after the last check."""
        return GuardState(int(self._state[0]))

    @property
    def resting(self) -> bool:
        """Whether the last sample shows every joint at rest; False where it shows nothing."""
        return bool((np.abs(self._sample.velocities) <= self.limits.still).all())
