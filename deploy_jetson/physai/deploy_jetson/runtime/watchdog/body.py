"""The watchdog's own connection to the robot, and its safe commands."""

import time
from collections.abc import Mapping
from contextlib import suppress

import numpy as np

from physai.deploy_jetson.runtime.io.velocity import VelocityEstimate
from physai.deploy_jetson.runtime.watchdog.shared import Array, SentCommand
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.safety import Guard, GuardState
from physai.sdk.transport.protocol import SUBSCRIBER_OF, WatchdogEndpoint
from physai.sdk.transport.registry import open_transport

WARM_UPS = 20


class Body:
    """A robot and the commands of the guard in DAMP for it, continued from the last command sent.

    Brakes position-commanded joints and then holds their command; damps effort-commanded joints.
    """

    def __init__(self, contract: PolicyContract, companion: WatchdogEndpoint) -> None:
        """Open the transport.

        Raises:
            PhysaiError: it cannot be opened.
            GuardError: the contract defines no command for a joint.
        """
        self._guard = Guard(contract)
        self._least = GuardState.DAMP
        self.at_rest = False
        """Whether every joint was measured at rest for the required time, and its commanded position is constant."""
        self._transport = open_transport(companion.transport, companion.options)
        self._transport.open(contract)
        self._sample = sample = self._transport.sample()
        self._joint_pos = sample.fields["joint_pos"][None]
        self._estimate = None if "joint_vel" in sample.fields else VelocityEstimate(contract.robot.joints)
        self._joint_vel = self._estimate.joint_vel if self._estimate else sample.fields["joint_vel"][None]
        self._needed = ("joint_pos",) if self._estimate else ("joint_pos", "joint_vel")
        self._sensors = {one.name: sample.fields[one.name][None] for one in contract.robot.sensors}
        self._first_stamp_ns = 0
        self._referenced = True

    @property
    def last(self) -> Array:
        """Command sent last, shape (A,)."""
        return self._guard.last[0]

    @property
    def step(self) -> Array:
        """Its change from the previous one; 0 for efforts, shape (A,)."""
        return self._guard.step[0]

    @property
    def silence(self) -> int:
        """See `Guard.silence`."""
        return self._guard.silence

    def reaches(self) -> bool:
        """Whether commands would reach the robot, as far as the transport knows."""
        return not any(name.startswith(SUBSCRIBER_OF) for name, _ in self._transport.missing())

    def warm_up(self) -> None:
        """Compute a few commands without sending them, so that the first real one is not slow."""
        self._resume_from(np.zeros_like(self.last), np.zeros_like(self.step), 0)
        for number in range(WARM_UPS):
            self._next(number, 0)

    def resume_from(self, record: SentCommand) -> None:
        """Continue from the loop's last command; clears the history of measurements."""
        self._first_stamp_ns = 0
        self._resume_from(record.last, record.step, record.silence)

    def _resume_from(self, last: Array, step: Array, silence: int) -> None:
        self._guard.reset()
        self._guard.resume_from(last, step, silence)
        self._least, self.at_rest = GuardState.DAMP, False

    def decide(self) -> dict[str, Array]:
        """Return the command of this control period by output name, from the newest sample."""
        # A driver may raise anything; the last sample is then reused and its age grows.
        with suppress(Exception):
            self._transport.poll()
        stamp_ns = min(self._sample.stamps_ns[name] for name in self._needed)
        if self._estimate:
            self._estimate.update(self._joint_pos, stamp_ns)
        age_ns = time.time_ns() - stamp_ns
        # A stamp in the future stays negative, for the guard to judge.
        if age_ns >= 0:
            age_ns = max(age_ns, time.monotonic_ns() - self._sample.received_ns)
        return self._next(stamp_ns, age_ns)

    def _next(self, stamp_ns: int, age_ns: int) -> dict[str, Array]:
        # Relative to the first stamp, because a float64 resolves the time of day to 0.25 µs only.
        self._first_stamp_ns = self._first_stamp_ns or stamp_ns
        stamp_s = (stamp_ns - self._first_stamp_ns) * 1e-9
        result = self._guard.check(
            now_s=stamp_s + age_ns * 1e-9,
            sensor_stamp_s=stamp_s,
            joint_pos=self._joint_pos,
            joint_vel=self._joint_vel,
            sensors=self._sensors,
            targets=None,
            least=self._least,
        )
        # Requested once only: each request for DAMP restarts the check for rest.
        self._least = GuardState.RUN
        self.at_rest = bool(result.stopped[0])
        self._referenced = bool(result.referenced[0])
        return result.targets

    def send(self, targets: Mapping[str, Array]) -> bool:
        """Send commands; return whether it did. A robot whose samples broke off gets none; see `Guard.broken`."""
        if not self._referenced:
            return False
        try:
            self._transport.send(targets, time.time_ns())
        except Exception:
            # As in `decide`.
            return False
        return True

    def close(self) -> None:
        """Disconnect."""
        self._transport.close()
