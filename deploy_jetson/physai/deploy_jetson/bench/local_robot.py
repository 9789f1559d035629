"""A robot in this process, for benchmarks and tests: the transport and what stands behind it in one object."""

import time
from collections.abc import Callable, Mapping

import numpy as np

from physai.sdk.contract import PolicyContract
from physai.sdk.wire import Array, Sample, TransportError, empty_sample

FOLLOW_S = 0.05
"""Time constant with which its joints follow [s]."""

REACH = 0.1
"""How far from its default position full effort brings a joint [rad or m]."""


class LocalRobot:
    """Joints that follow position targets and lean where effort pushes them; a fresh sample at every poll."""

    name = "local"

    def __init__(
        self, *, now_ns: Callable[[], int] = time.monotonic_ns, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self.sent = 0
        """Commands it got."""
        self.targets: dict[str, Array] = {}
        """The last ones."""
        self._now, self._wall = now_ns, wall_ns
        self._sample: Sample | None = None

    def open(self, contract: PolicyContract) -> None:
        """See `Transport`; the joints start at rest in their default positions."""
        robot = contract.robot
        self._sample = sample = empty_sample(contract)
        for values in sample.fields.values():
            values[:] = 0.0
        for field in contract.command.fields:
            sample.fields[field.name][:] = field.lower
        if "imu_quat" in sample.fields:
            sample.fields["imu_quat"][0] = 1.0
        self.position: Array = np.array([joint.default_pos for joint in robot.joints])
        self.velocity: Array = np.zeros(len(robot.joints))
        self._default = self.position.copy()
        self._drives = [
            (
                term.target_name,
                np.array(robot.joint_index(term.joints), np.intp),
                None if term.target_name == "joint_pos_target" else REACH / np.array(term.upper),
            )
            for term in contract.action.terms
        ]
        self._dt = contract.timing.control_dt
        self._share = 1.0 - float(np.exp(-self._dt / FOLLOW_S))

    def sample(self) -> Sample:
        """See `Transport`."""
        if self._sample is None:
            raise TransportError("the local robot is not open")
        return self._sample

    def poll(self) -> bool:
        """See `Transport`; one period passes."""
        sample = self.sample()
        sample.fields["joint_pos"][:] = self.position
        if "joint_vel" in sample.fields:
            sample.fields["joint_vel"][:] = self.velocity
        sample.stamp_ns, sample.received_ns = self._wall(), self._now()
        sample.sequence += 1
        return True

    def wait(self, timeout_s: float) -> bool:
        """See `Transport`."""
        del timeout_s
        return self.poll()

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `Transport`."""
        del stamp_ns
        self.sent += 1
        for name, joints, lean in self._drives:
            values = targets[name][0]
            goal = values if lean is None else self._default[joints] + lean * values
            step = self._share * (goal - self.position[joints])
            self.position[joints] += step
            self.velocity[joints] = step / self._dt

    def missing(self) -> tuple[tuple[str, float], ...]:
        """See `Transport`: nothing ever is."""
        return ()

    def problems(self) -> tuple[str, ...]:
        """See `Transport`: there are none."""
        return ()

    def close(self) -> None:
        """See `Transport`."""
