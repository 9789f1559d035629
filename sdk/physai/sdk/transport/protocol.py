"""What crosses the wire between a policy's runtime and its robot, seen from both ends.

The runtime holds a `Transport`, whatever stands for the robot holds a `RobotEndpoint`. Both speak in the contract's own
names, units and joint order; what lies between (DDS, UDP, a twin in the same process) is their own business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.policy_contract import PolicyContract

Array = npt.NDArray[np.float64]


class TransportError(PhysaiError):
    """A transport cannot be opened, does not fit the contract, or can no longer send."""


@dataclass(slots=True)
class Sample:
    """The newest measurements and commands; one object per transport, overwritten in place."""

    fields: dict[str, Array]
    """One vector per sensor and command field of the contract, in its units and joint order; NaN until first seen."""
    stamp_ns: int = 0
    """When the oldest of the required sensor fields was measured, by the sensor's own stamp; CLOCK_REALTIME [ns]."""
    received_ns: int = 0
    """When the newest message in it was taken in; CLOCK_MONOTONIC [ns]."""
    sequence: int = 0
    """Counts samples; 0 before the first."""
    stamps_ns: dict[str, int] = field(default_factory=dict[str, int])
    """Stamp of each field, CLOCK_REALTIME [ns]; 0 until first seen."""


@dataclass(slots=True)
class JointCommand:
    """The newest joint targets that reached the robot; one object per link, overwritten in place."""

    targets: dict[str, Array]
    """One vector per output of the graph, in its action term's joint order [rad, m, N·m or N]."""
    stamp_ns: int = 0
    """When it was computed, as the sender says; CLOCK_REALTIME [ns]."""
    received_ns: int = 0
    """When it was taken in; CLOCK_MONOTONIC [ns]."""
    sequence: int = 0
    """Counts commands; 0 before the first."""


class Transport(Protocol):
    """The runtime's end. Only `open` and `wait` may block; `poll` and `send` are called in every tick."""

    name: str

    def open(self, contract: PolicyContract) -> None:
        """Connects, without waiting for the robot.

        Raises:
            TransportError: it does not fit the contract, or the machine refuses; says what is there instead.
        """
        ...

    def sample(self) -> Sample:
        """The one sample that `poll` and `wait` write into."""
        ...

    def poll(self) -> bool:
        """Takes in what has arrived; whether a newer measurement of a sensor was among it. Never blocks.

        True also needs every required field (`required_fields`) to have been seen. Commands of an operator are
        taken in as they come and do not count as a new measurement.

        Raises:
            TransportError: the connection is gone.
        """
        ...

    def wait(self, timeout_s: float) -> bool:
        """As `poll`, but blocks until it is true or the time is over; for start-up and lock-step."""
        ...

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """Sends joint targets by output name.

        Args:
            targets: one vector per output of the graph, shape (joints of the term,) or (1, joints of the term).
            stamp_ns: when they were computed, CLOCK_REALTIME [ns].

        Raises:
            TransportError: they did not leave this process.
        """
        ...

    def missing(self) -> tuple[tuple[str, float], ...]:
        """What the robot cannot be driven without, and for how long it has been waited for [s].

        Required fields that have not been seen yet, and where it can be known, somebody who takes the commands.
        """
        ...

    def problems(self) -> tuple[str, ...]:
        """What was refused or looks wrong, one sentence each with what was expected and what was seen.

        May take milliseconds: for start-up and for a thread that reports, not for the tick.
        """
        ...

    def close(self) -> None:
        """Disconnects; may be called twice."""
        ...


@runtime_checkable
class SupportsDiagnostics(Protocol):
    """A transport that can tell the robot's other programs how the runtime is."""

    def diagnose(self, level: int, message: str, values: Mapping[str, str]) -> None:
        """Publishes the state of the runtime; not for the tick.

        Args:
            level: 0 for all right, 1 for a warning, 2 for an error.
            message: in a few words.
            values: further facts by name: the contract's fingerprint, the policy's version, counters.

        Raises:
            TransportError: it did not leave this process.
        """
        ...


SUBSCRIBER_OF = "a subscriber of "
"""What `Transport.missing` says first where nobody takes the commands of a topic."""


@dataclass(frozen=True)
class WatchdogEndpoint:
    """How another process of this machine speaks to the robot in the place of a transport that is open."""

    transport: str
    """Name for `physai.sdk.transport.registry.open_transport`."""
    options: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    """Files that the process inherits under the same numbers; they stay the transport's."""


@runtime_checkable
class SupportsWatchdog(Protocol):
    """A transport whose robot can be reached by a second process, the watchdog: as the same commander, not another."""

    def companion(self) -> WatchdogEndpoint:
        """For a transport that is open; what both send must never mix."""
        ...


@runtime_checkable
class Exclusive(Protocol):
    """A transport whose robot is driven by one runtime at a time, across processes and machines.

    The lease has a fencing number, so that a runtime that has lost it is told from the one that has it.
    """

    @property
    def lease_number(self) -> int:
        """Of the lease that is held, or was held last; 0 for none."""
        ...

    def claim(self) -> str:
        """Asks for the robot, and goes on asking with each call; empty once it is had, else what it waits for.

        Not for the tick.
        """
        ...

    def renew(self) -> None:
        """Tells others that the robot is asked for, or had; to be called every `RENEW_S`
        (`physai.sdk.transport.lease`).

        From a thread of its own, and not for the tick.
        """
        ...

    def lost(self) -> str:
        """Why the robot is no longer this runtime's, as it was when `claim` returned; empty while it is.

        Cheap, for every tick; nothing may be sent once it is not empty.
        """
        ...

    def release(self) -> None:
        """Gives the robot up; may be called twice."""
        ...


@runtime_checkable
class SupportsReset(Protocol):
    """A transport whose `problems` remember what once was, and can be told to forget it."""

    def forget(self) -> None:
        """What was refused or looked wrong until now counts no more; what goes on is told again. Not for the tick."""
        ...


class RobotEndpoint(Protocol):
    """The robot's end of the same wire: for a stand-in, a test bench, or a driver written in Python."""

    name: str

    def open(self, contract: PolicyContract) -> None:
        """Connects, without waiting for the runtime.

        Raises:
            TransportError: see `Transport.open`.
        """
        ...

    def publish(self, fields: Mapping[str, Array], stamp_ns: int) -> None:
        """Sends sensor and command fields of the contract; those that are left out are not sent.

        Raises:
            TransportError: they did not leave this process.
        """
        ...

    def command(self) -> JointCommand:
        """The one command that `poll` and `wait` write into."""
        ...

    def poll(self) -> bool:
        """Takes in what has arrived; whether a newer command was among it. Never blocks."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """As `poll`, but blocks until it is true or the time is over."""
        ...

    def problems(self) -> tuple[str, ...]:
        """See `Transport.problems`."""
        ...

    def close(self) -> None:
        """Disconnects; may be called twice."""
        ...


def required_fields(contract: PolicyContract) -> tuple[str, ...]:
    """Sensor fields that a tick cannot do without, and the command fields: what the graph and the guard read."""
    interface = graph_interface(contract)
    needed = {*interface.sensors, "joint_pos", "joint_vel"}
    return (*(s.name for s in contract.robot.sensors if s.name in needed), *interface.commands)


def empty_sample(contract: PolicyContract) -> Sample:
    """A sample of a contract's size in which nothing has been seen."""
    sizes = {sensor.name: sensor.size for sensor in contract.robot.sensors}
    sizes |= {command.name: command.size for command in contract.command.fields}
    return Sample(
        fields={name: np.full(size, np.nan) for name, size in sizes.items()}, stamps_ns=dict.fromkeys(sizes, 0)
    )


def empty_command(contract: PolicyContract) -> JointCommand:
    """A command of a contract's size that nobody has sent."""
    return JointCommand(targets={n: np.full(size, np.nan) for n, size in graph_interface(contract).targets.items()})
