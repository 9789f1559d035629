"""Middleware interface for serialised messages of ROS topics: Cyclone DDS here, rclpy in `physai.ros`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from physai.deploy_jetson.transport.dds.messages import type_hash

COMMANDERS = "/physai/commanders"
"""The topic on which runtimes tell each other who has a robot."""


@dataclass(frozen=True)
class Endpoint:
    """A publisher or subscriber that was discovered."""

    topic: str
    """Its name on the wire, `rt/…`."""
    kind: str
    """Name of its type on the wire."""
    reliable: bool
    type_hash: str
    """Empty if it says none."""
    lasting: bool = False
    """Whether it keeps messages for those who come later (a publisher), or wants them kept (a subscriber)."""
    seen_s: float = 0.0
    """When it was first checked, CLOCK_MONOTONIC [s]; 0 if unknown."""
    owner: str = ""
    """Whose it is: the first 12 bytes of its GUID, all that one process's have in common, in hexadecimal; empty where
    that cannot be told."""
    companion_of: str = ""
    """The owner as whose companion it speaks (`physai.sdk.transport.protocol.SupportsWatchdog`); empty for none."""
    node: str = ""
    """Full name of its node; empty where that cannot be told."""

    @property
    def speaker(self) -> str:
        """The commander, or the robot, that speaks here; a companion's is the one it speaks for."""
        return self.companion_of or self.owner


class ByteReader(Protocol):
    """One topic's incoming messages."""

    topic: str
    """As the binding has it."""
    full_name: str
    """As others see it: after namespace and remapping, where there are any."""

    def take(self) -> Sequence[tuple[bytes, Any]]:
        """All messages that wait, oldest first, each with `valid_data`, `publication_handle`, `source_timestamp`.

        Raises:
            TransportError: the topic cannot be read.
        """
        ...

    def publisher(self, handle: int) -> Endpoint | None:
        """What is known of a publisher by its handle; None if it is gone, or cannot be told."""
        ...

    def mismatch(self) -> str:
        """The QoS policy for which a publisher was turned away last; empty if none was, or that is not known."""
        ...


class ByteWriter(Protocol):
    """One topic's outgoing messages."""

    topic: str
    """As the binding has it."""
    full_name: str
    """As others see it: after namespace and remapping, where there are any."""

    def write(self, message: memoryview, stamp_ns: int) -> None:
        """Publishes a message, with its source time stamp where that can be given [ns].

        Raises:
            TransportError: it was not taken.
        """
        ...

    def reached(self) -> bool:
        """Whether it reaches a subscriber of its type, as far as that is known."""
        ...

    def mismatch(self) -> str:
        """The QoS policy for which a subscriber was turned away last; empty if none was, or that is not known."""
        ...


class Middleware(Protocol):
    """A node of ROS 2, as far as bytes are concerned."""

    domain: int

    @property
    def owner(self) -> str:
        """See `Endpoint.owner`; of what is made here."""
        ...

    def reader(self, topic: str, kind: str, *, reliable: bool) -> ByteReader:
        """A reader of a ROS topic.

        Raises:
            TransportError: it cannot be had.
        """
        ...

    def writer(self, topic: str, kind: str) -> ByteWriter:
        """A reliable writer of a ROS topic.

        Raises:
            TransportError: it cannot be had.
        """
        ...

    def exchange(self, topic: str, kind: str) -> tuple[ByteReader, ByteWriter]:
        """Both ends of a topic by its full name, on which several speak to each other; `wait` does not wait for it.

        Raises:
            TransportError: it cannot be had.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Blocks until a reader has something, or for a moment."""
        ...

    def publishers(self, topic: str | None = None) -> tuple[Endpoint, ...]:
        """Publishers in this domain, this process's own included; of one topic by its full name, or of all."""
        ...

    def subscribers(self) -> tuple[Endpoint, ...]:
        """Subscribers in this domain, this process's own included."""
        ...

    def close(self) -> None:
        """Ends its readers and writers."""
        ...


def wrong_hash(kind: str, endpoint: Endpoint) -> str:
    """Why a publisher's messages are not what their name says; empty if they are, or it does not tell."""
    expected = type_hash(kind)
    if endpoint.type_hash in ("", expected):
        return ""
    return f"its definition of {kind} has the hash {endpoint.type_hash[:12]}…, ROS 2's is {expected[:12]}…"
