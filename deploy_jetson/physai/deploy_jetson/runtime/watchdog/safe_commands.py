"""Commands of the watchdog: those of the guard in DAMP, starting from the last command sent."""

from collections.abc import Mapping

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardState
from physai.sdk.transport.protocol import Array


class SafeCommands:
    """Brakes position-commanded joints and then holds their command; damps effort-commanded joints."""

    def __init__(self, contract: PolicyContract) -> None:
        """Read the limits from the contract.

        Raises:
            GuardError: the contract defines no command for a joint.
        """
        self._guard = Guard(contract)
        self._least = GuardState.DAMP
        self.at_rest = False
        """Whether every joint was measured at rest for the required time, and its commanded position is constant."""

    @property
    def last(self) -> Array:
        """Command sent last, shape (A,)."""
        return self._guard.last[0]

    @property
    def step(self) -> Array:
        """Its change from the previous one; 0 for efforts, shape (A,)."""
        return self._guard.step[0]

    def resume_from(self, last: Array, step: Array) -> None:
        """Continue from commands sent by the loop, shape (A,); clears the history of measurements."""
        self._guard.reset()
        self._guard.resume_from(last, step)
        self._least, self.at_rest = GuardState.DAMP, False

    def next(
        self, *, stamp_s: float, age_s: float, joint_pos: Array, joint_vel: Array, sensors: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the command of the next control period by output name, shape (1, joints of the term).

        Args:
            stamp_s: of the sample [s].
            age_s: of the sample, by the sensor's own stamp [s].
            joint_pos: measured positions in the robot's joint order, shape (1, joints).
            joint_vel: measured velocities, shape (1, joints).
            sensors: measured fields by name, shape (1, size).
        """
        result = self._guard.check(
            now_s=stamp_s + age_s,
            sensor_stamp_s=stamp_s,
            joint_pos=joint_pos,
            joint_vel=joint_vel,
            sensors=sensors,
            targets=None,
            least=self._least,
        )
        # Requested once only: each request for DAMP restarts the check for rest.
        self._least = GuardState.RUN
        self.at_rest = bool(result.stopped[0])
        return result.targets
