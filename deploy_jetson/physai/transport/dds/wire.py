"""Middleware interface for serialised messages of ROS topics: Cyclone DDS here, rclpy in `physai.ros`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from physai.transport.dds.codec.messages import type_hash

# Topic on which runtimes publish their claims to a robot.
COMMANDERS = "/physai/commanders"


@dataclass(frozen=True)
class Endpoint:
    """A discovered publisher or subscriber."""

    topic: str
    """DDS name of the topic, `rt/…`."""
    kind: str
    """DDS name of the type."""
    reliable: bool
    type_hash: str
    """Empty if not announced."""
    lasting: bool = False
    """Whether its durability is transient local or stronger."""
    seen_s: float = 0.0
    """CLOCK_MONOTONIC at which it was first seen [s]; 0 if unknown."""
    owner: str = ""
    """Its participant: the first 12 bytes of its GUID in hexadecimal; empty if unknown."""
    companion_of: str = ""
    """Owner of the runtime whose watchdog it is (`physai.sdk.transport.protocol.SupportsWatchdog`); empty for none."""
    node: str = ""
    """Full name of its node; empty if unknown."""

    @property
    def speaker(self) -> str:
        """The owner, or for a watchdog the owner of its runtime."""
        return self.companion_of or self.owner


class ByteReader(Protocol):
    """A subscription of serialised messages."""

    topic: str
    """Name in the binding."""
    full_name: str
    """Name after namespace and remapping."""

    def take(self) -> Sequence[tuple[bytes, Any]]:
        """Take all waiting messages, oldest first, with `valid_data`, `publication_handle` and `source_timestamp`.

        Raises:
            TransportError: the topic cannot be read.
        """
        ...

    def publisher(self, handle: int) -> Endpoint | None:
        """Return a publisher by its handle; None if it is gone or unknown."""
        ...

    def mismatch(self) -> str:
        """Return the QoS policy that last prevented a match with a publisher; empty if none or unknown."""
        ...


class ByteWriter(Protocol):
    """A publisher of serialised messages."""

    topic: str
    """Name in the binding."""
    full_name: str
    """Name after namespace and remapping."""

    def write(self, message: memoryview, stamp_ns: int) -> None:
        """Publish a message with its source time stamp [ns], if the middleware supports one.

        Raises:
            TransportError: the message was rejected.
        """
        ...

    def reached(self) -> bool:
        """Whether a subscriber of its type is matched, as far as known."""
        ...

    def mismatch(self) -> str:
        """Return the QoS policy that last prevented a match with a subscriber; empty if none or unknown."""
        ...


class Middleware(Protocol):
    """A ROS 2 node that exchanges serialised messages."""

    domain: int

    @property
    def owner(self) -> str:
        """`Endpoint.owner` of its readers and writers."""
        ...

    def reader(self, topic: str, kind: str, *, reliable: bool) -> ByteReader:
        """Create a reader of a ROS topic.

        Raises:
            TransportError: the topic cannot be subscribed to.
        """
        ...

    def writer(self, topic: str, kind: str) -> ByteWriter:
        """Create a reliable writer of a ROS topic.

        Raises:
            TransportError: the topic cannot be published.
        """
        ...

    def exchange(self, topic: str, kind: str) -> tuple[ByteReader, ByteWriter]:
        """Create reader and writer of a topic with several publishers, by its full name; `wait` ignores this reader.

        Raises:
            TransportError: the topic cannot be published or subscribed to.
        """
        ...

    def wait(self, timeout_s: float) -> None:
        """Block until a message arrives, for at most `timeout_s`."""
        ...

    def publishers(self, topic: str | None = None) -> tuple[Endpoint, ...]:
        """Return the publishers in this domain, including its own; of one topic by its full name, or all."""
        ...

    def subscribers(self) -> tuple[Endpoint, ...]:
        """Return the subscribers in this domain, including its own."""
        ...

    def close(self) -> None:
        """Close its readers and writers."""
        ...


def wrong_hash(kind: str, endpoint: Endpoint) -> str:
    """Describe a mismatch of a publisher's type hash; empty if it matches or is not announced."""
    expected = type_hash(kind)
    # ROS 2 Humble and plain DDS announce no hash.
    if endpoint.type_hash in ("", expected):
        return ""
    return f"its definition of {kind} has the hash {endpoint.type_hash[:12]}…, ROS 2's is {expected[:12]}…"
