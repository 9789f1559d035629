"""The robot's end of a transport for tests: a joint that does what it is told, and writes down what that was."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import JointCommand
from physai.sdk.transport.registry import open_robot_link
from physai.transport.dds.domain import LOOPBACK
from physai.twin.virtual_robot.transport import free_port


@dataclass(frozen=True)
class Command:
    """One that arrived."""

    received_ns: int
    """CLOCK_MONOTONIC [ns]."""
    stamp_ns: int
    value: float


class RobotEnd:
    """Publishes every control period, in a thread of its own."""

    def __init__(self, contract: PolicyContract, transport: str, options: Mapping[str, str]) -> None:
        self.trigger = 0.0
        self.speed: float | None = None
        """What it says of its joint's speed [rad/s]; None for what follows from its commands."""
        self.silent = False
        """Whether it has gone: it sends nothing, and obeys nothing."""
        self.moved_by = 0.0
        """How far somebody has turned its joint from where it was commanded last [rad]."""
        self.log: list[Command] = []
        self.greatest = contract.safety.joints[0].velocity_limit or np.inf
        self._dt = contract.timing.control_dt
        self._follows = contract.action.terms[0].target_name == "joint_pos_target"
        self._link = open_robot_link(transport, options)
        self._link.open(contract)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        due, position = time.monotonic(), 0.0
        while not self._over.is_set():
            due = max(due + self._dt, time.monotonic())
            before = position
            while (left := due - time.monotonic()) > 0.0:
                if self._link.wait(left):
                    self._take(self._link.command())
            if self._follows and self.log:
                position = self.log[-1].value + self.moved_by
            # When this thread was late, it may have moved by several commands.
            moved = float(np.clip((position - before) / self._dt, -self.greatest, self.greatest))
            fields = {
                "joint_pos": np.array([position]),
                "joint_vel": np.array([moved if self.speed is None else self.speed]),
                "trigger": np.array([self.trigger]),
            }
            if not self.silent:
                self._link.publish(fields, time.time_ns())

    def _take(self, command: JointCommand) -> None:
        (values,) = command.targets.values()
        self.log.append(Command(command.received_ns, command.stamp_ns, float(values[0])))

    def since(self, moment_ns: int) -> list[Command]:
        """What arrived after a moment of CLOCK_MONOTONIC."""
        return [one for one in list(self.log) if one.received_ns > moment_ns]

    def values(self) -> npt.NDArray[np.float64]:
        """All commands, in the order in which they came."""
        return np.array([one.value for one in list(self.log)])

    @property
    def problems(self) -> tuple[str, ...]:
        return self._link.problems()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._link.close()


def robot_over(
    transport: str, contract: PolicyContract, domain: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[RobotEnd, dict[str, str]]:
    """A robot on this computer over UDP or DDS, and the options of the transport of its runtimes."""
    if transport == "udp":
        port = f"127.0.0.1:{free_port()}"
        return RobotEnd(contract, "udp", {"bind": port}), {"robot": port}
    pytest.importorskip("cyclonedds")
    monkeypatch.setenv("CYCLONEDDS_URI", LOOPBACK)
    options = {"domain": str(domain)}
    return RobotEnd(contract, "dds", options), options
