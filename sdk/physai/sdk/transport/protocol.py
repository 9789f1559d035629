"""Interfaces between a policy's runtime and its robot.

The runtime uses a `Transport`; the robot's driver, or its simulation, uses a `RobotEndpoint`. Both use the names, units
and joint order of the contract. How they are connected (DDS, UDP, in process) is up to the implementation.
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
    """A transport cannot be opened, does not match the contract, or can no longer send."""


@dataclass(slots=True)
class Sample:
    """Latest measurements and commands; one object per transport, overwritten in place."""

    fields: dict[str, Array]
    """One vector per sensor and command field of the contract, in its units and joint order; NaN until first seen.

    Float64 arrays of shape (size,), which the runtime reads in place: start from `empty_sample(contract)` and overwrite
    the values of its arrays. A run refuses other types and shapes.
    """
    stamp_ns: int = 0
    """When the oldest of the required sensor fields was measured, by the sensor's own stamp; CLOCK_REALTIME [ns]."""
    received_ns: int = 0
    """When the newest message was received; CLOCK_MONOTONIC [ns]."""
    sequence: int = 0
    """Counts samples; 0 before the first."""
    stamps_ns: dict[str, int] = field(default_factory=dict[str, int])
    """Stamp of each field, CLOCK_REALTIME [ns]; 0 until first seen."""


@dataclass(slots=True)
class JointCommand:
    """Latest joint targets that reached the robot; one object per endpoint, overwritten in place."""

    targets: dict[str, Array]
    """One vector per output of the graph, in its action term's joint order [rad, m, N·m or N]."""
    stamp_ns: int = 0
    """When it was computed, by the sender's clock; CLOCK_REALTIME [ns]."""
    received_ns: int = 0
    """When it was received; CLOCK_MONOTONIC [ns]."""
    sequence: int = 0
    """Counts commands; 0 before the first."""


class Transport(Protocol):
    """The runtime's end. Only `open` and `wait` may block; `poll` and `send` are called in every tick."""

    name: str
    """Short name of the kind of connection, for instance `"udp"`, for messages, the status and latency evidence.

    `"sim"` is the twin's: evidence of a run over it counts as measured on a stand-in, not on the robot.
    """

    def open(self, contract: PolicyContract) -> None:
        """Connect, without waiting for the robot.

        Raises:
            TransportError: the transport does not match the contract or cannot be opened on this machine.
        """
        ...

    def sample(self) -> Sample:
        """Return the sample that `poll` and `wait` update."""
        ...

    def poll(self) -> bool:
        """Receive what has arrived, without blocking.

        Returns:
            Whether a new sensor measurement arrived and every required field (`required_fields`) has been seen.
            Operator commands are received too, but do not count as measurements.

        Raises:
            TransportError: the connection is lost.
        """
        ...

    def wait(self, timeout_s: float) -> bool:
        """As `poll`, but block until it returns True or the time is over; for start-up and lock-step simulation."""
        ...

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """Send joint targets by output name.

        Args:
            targets: one vector per output of the graph, shape (joints of the term,) or (1, joints of the term).
            stamp_ns: when they were computed, CLOCK_REALTIME [ns].

        Raises:
            TransportError: they could not be sent.
        """
        ...

    def missing(self) -> tuple[tuple[str, float], ...]:
        """Return what is still missing to drive the robot, and for how long it has been missing [s].

        Required fields that have not been seen, and, where the transport can know it, a receiver of the commands.
        """
        ...

    def problems(self) -> tuple[str, ...]:
        """Return what was rejected or looks wrong, one sentence each with the expected and the actual value.

        May take milliseconds: for start-up and for a reporting thread, not for the tick.
        """
        ...

    def close(self) -> None:
        """Disconnect; may be called twice."""
        ...


@runtime_checkable
class SupportsDiagnostics(Protocol):
    """A transport that can publish diagnostics of the runtime."""

    def diagnose(self, level: int, message: str, values: Mapping[str, str]) -> None:
        """Publish the state of the runtime; not for the tick.

        Args:
            level: 0 for OK, 1 for a warning, 2 for an error.
            message: short description.
            values: further values by name, for example the contract's fingerprint, the policy's version and counters.

        Raises:
            TransportError: it could not be sent.
        """
        ...


SUBSCRIBER_OF = "a subscriber of "
"""Prefix of the `Transport.missing` entry for a command topic without a subscriber."""


@dataclass(frozen=True)
class WatchdogEndpoint:
    """Access of a second process on this machine to the robot, in place of an open transport."""

    transport: str
    """Name for `physai.sdk.transport.registry.open_transport`."""
    options: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    """File descriptors that the process inherits under the same numbers; the transport keeps owning them."""


@runtime_checkable
class SupportsWatchdog(Protocol):
    """A transport whose robot the watchdog process can reach as the same commander."""

    def companion(self) -> WatchdogEndpoint:
        """Return the endpoint of an open transport; messages of the two processes must not interleave."""
        ...


@runtime_checkable
class Exclusive(Protocol):
    """A transport whose robot accepts one runtime at a time, across processes and machines.

    The lease carries a fencing number, so that commands of a runtime that has lost it can be rejected.
    """

    @property
    def lease_number(self) -> int:
        """Fencing number of the current or last lease; 0 for none."""
        ...

    def claim(self) -> str:
        """Request the robot; call it until it returns an empty string, otherwise it says what it waits for.

        Not for the tick.
        """
        ...

    def renew(self) -> None:
        """Publish the claim; call it every `RENEW_S` (`physai.sdk.transport.lease`) from a thread of its own."""
        ...

    def lost(self) -> str:
        """Return why the lease was lost; empty while it is held.

        Cheap enough for every tick. Nothing may be sent once it is not empty.
        """
        ...

    def release(self) -> None:
        """Release the robot; may be called twice."""
        ...


@runtime_checkable
class SupportsAddresses(Protocol):
    """A transport that knows where its robot takes commands."""

    def addresses(self) -> tuple[str, ...]:
        """Return names of the robot's command inputs, alike in every program that commands it through them.

        A stop binds every runtime on this computer that shares one of them. Called after `open`.
        """
        ...


@runtime_checkable
class SharesStops(Protocol):
    """A transport that tells runtimes on other computers of a stop that was not reset."""

    def share_stop(self, *, stopped: bool) -> None:
        """Set what the next renewals of the claim tell; see `Exclusive.renew`."""
        ...

    def stop_elsewhere(self) -> str:
        """Return the name of a runtime of the same robot that has a stop to be reset; empty if there is none."""
        ...

    def orphaned_stop(self) -> str:
        """Return, once, the name of such a runtime that has fallen silent without a reset; empty if there is none."""
        ...


@runtime_checkable
class SupportsReset(Protocol):
    """A transport whose `problems` can be cleared."""

    def forget(self) -> None:
        """Clear the problems so far; those that persist are reported again. Not for the tick."""
        ...


class RobotEndpoint(Protocol):
    """The robot's side of a transport: for a simulation, a test bench, or a driver written in Python."""

    name: str
    """As `Transport.name`."""

    def open(self, contract: PolicyContract) -> None:
        """Connect, without waiting for the runtime.

        Raises:
            TransportError: see `Transport.open`.
        """
        ...

    def publish(self, fields: Mapping[str, Array], stamp_ns: int) -> None:
        """Send sensor and command fields of the contract; omitted fields are not sent.

        Raises:
            TransportError: they could not be sent.
        """
        ...

    def command(self) -> JointCommand:
        """Return the command that `poll` and `wait` update."""
        ...

    def poll(self) -> bool:
        """Receive what has arrived, without blocking; return whether there is a new command."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """As `poll`, but block until it returns True or the time is over."""
        ...

    def problems(self) -> tuple[str, ...]:
        """See `Transport.problems`."""
        ...

    def close(self) -> None:
        """Disconnect; may be called twice."""
        ...


def required_fields(contract: PolicyContract) -> tuple[str, ...]:
    """Return the sensor and command fields that the graph, the guard and the start envelope read."""
    interface, start = graph_interface(contract), contract.safety.start
    needed = {*interface.sensors, "joint_pos", "joint_vel"}
    if start is not None and start.tilt is not None:
        needed.add("imu_quat")
    return (*(s.name for s in contract.robot.sensors if s.name in needed), *interface.commands)


def empty_sample(contract: PolicyContract) -> Sample:
    """Return an empty sample with the vectors of a contract, all NaN."""
    sizes = {sensor.name: sensor.size for sensor in contract.robot.sensors}
    sizes |= {command.name: command.size for command in contract.command.fields}
    return Sample(
        fields={name: np.full(size, np.nan) for name, size in sizes.items()}, stamps_ns=dict.fromkeys(sizes, 0)
    )


def require_vectors(contract: PolicyContract, sample: Sample) -> None:
    """Check the arrays of a transport's sample; fields that it lacks are not checked.

    Raises:
        TransportError: a field is no writable float64 array of the contract's shape.
    """
    for name, expected in empty_sample(contract).fields.items():
        given = sample.fields.get(name, expected)
        found = np.asanyarray(given)
        kept = found is given and found.flags.writeable
        if not (kept and found.dtype == expected.dtype and found.shape == expected.shape):
            shown = type(given).__name__ if found is not given else "a writable array" if kept else "a read-only array"
            raise TransportError(
                f"the transport's sample has {name} as {shown}, {found.dtype} of shape {found.shape}, expected a "
                f"writable array, {expected.dtype} of shape {expected.shape}; make the sample with "
                "physai.sdk.empty_sample(contract) and overwrite its arrays in place"
            )


def empty_command(contract: PolicyContract) -> JointCommand:
    """Return an empty command with the vectors of a contract."""
    return JointCommand(targets={n: np.full(size, np.nan) for n, size in graph_interface(contract).targets.items()})
