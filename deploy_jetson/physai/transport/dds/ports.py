"""Readers and writers of serialised messages in Cyclone DDS, with QoS compatible with ROS 2.

`ddspy_write` and `ddspy_take` are the functions below the typed writer and reader of cyclonedds-python.
"""

import re
import time
from typing import Any

from physai.sdk.transport.protocol import TransportError
from physai.transport.dds.codec.messages import user_data
from physai.transport.dds.wire import Endpoint

# History depth of a reader; more than 1, as the newest sample may be of a second publisher, which is rejected.
DEPTH = 4

# History depth of a reader of a topic with several publishers.
EXCHANGE_DEPTH = 128

# QoS policy ids: DDS 1.4, 2.2.3, and DDS-XTypes 1.3, 7.6.3.1, as in dds_public_qosdefs.h of Cyclone DDS.
POLICIES = {
    2: "durability",
    3: "presentation",
    4: "deadline",
    5: "latency budget",
    6: "ownership",
    8: "liveliness",
    10: "partition",
    11: "reliability",
    12: "destination order",
    23: "data representation",
}


# Key of `Endpoint.companion_of` in the user data of a writer. Letters only: if a key contains anything but letters and
# digits, ROS 2 ignores all user data including the type hash (`parse_key_value` of rmw).
COMPANION_KEY = "physaicompanionof"


def writer_qos(kind: str, companion_of: str = "") -> Any:
    """Return the QoS of a writer: reliable as in ROS 2, but with a history of one message."""
    from cyclonedds.qos import Policy, Qos

    # A blocking time of 0: a write to a full queue must fail at once rather than delay the tick.
    return Qos(Policy.Reliability.Reliable(0), Policy.History.KeepLast(1), *_common_qos(kind, companion_of))


def reader_qos(kind: str, *, reliable: bool, depth: int) -> Any:
    """Return the QoS of a reader: reliable or best effort, with a short history."""
    from cyclonedds.qos import Policy, Qos

    reliability = Policy.Reliability.Reliable(0) if reliable else Policy.Reliability.BestEffort
    return Qos(reliability, Policy.History.KeepLast(depth), *_common_qos(kind))


def _common_qos(kind: str, companion_of: str = "") -> tuple[Any, ...]:
    from cyclonedds.qos import Policy

    return (
        Policy.Durability.Volatile,
        # In the order of arrival, so that a publisher whose clock is ahead does not silence the others.
        Policy.DestinationOrder.ByReceptionTimestamp,
        # XCDR1, the only encoding that ROS 2 reads.
        Policy.DataRepresentation(use_cdrv0_representation=True),
        Policy.Userdata(user_data(kind) + (f"{COMPANION_KEY}={companion_of};".encode() if companion_of else b"")),
    )


def endpoint_of(found: Any, seen_s: float) -> Endpoint:
    """Convert discovery data of cyclonedds-python."""
    # The policy classes are generated, and the names of some contain their qualified path.
    policies = {type(policy).__name__.rpartition(".")[2]: policy for policy in found.qos}
    data: bytes = getattr(policies.get("Userdata"), "data", b"")
    # As ROS 2 writes it; older releases announce none.
    hashed = re.search(rb"typehash=RIHS01_([0-9a-f]{64})", data)
    companion = re.search(COMPANION_KEY.encode() + rb"=([0-9a-f]{24})", data)
    return Endpoint(
        topic=str(found.topic_name),
        kind=str(found.type_name),
        reliable="Reliable" in policies,
        lasting=not policies.keys().isdisjoint(("TransientLocal", "Transient", "Persistent")),
        type_hash=hashed[1].decode() if hashed else "",
        seen_s=seen_s,
        owner=owner_of(found.key),
        companion_of=companion[1].decode() if companion else "",
    )


def owner_of(guid: Any) -> str:
    """See `Endpoint.owner`."""
    return guid.bytes[:12].hex()


class Writer:
    """Publishes bytes."""

    def __init__(self, entity: Any, topic: str) -> None:
        """Wrap a DataWriter of cyclonedds-python."""
        from cyclonedds._clayer import ddspy_write_ts

        self._entity = entity
        self._ref: int = entity._ref
        self._write = ddspy_write_ts
        self.topic = self.full_name = topic

    def write(self, message: memoryview, stamp_ns: int) -> None:
        """Publish a message with its source time stamp [ns].

        Raises:
            TransportError: DDS rejected it.
        """
        status: int = self._write(self._ref, message, stamp_ns)
        if status < 0:
            raise TransportError(f"{self.topic}: DDS did not take the message (return code {status})")

    def reached(self) -> bool:
        """Whether a subscriber is matched."""
        return bool(self._entity.get_publication_matched_status().current_count)

    def mismatch(self) -> str:
        """Return the QoS policy that last prevented a match with a subscriber; empty if none did."""
        return _policy(self._entity.get_offered_incompatible_qos_status())


class Reader:
    """Takes bytes."""

    def __init__(self, entity: Any, topic: str, depth: int) -> None:
        """Wrap a DataReader of cyclonedds-python with a history of `depth`."""
        from cyclonedds._clayer import ddspy_take
        from cyclonedds.core import InstanceState, SampleState, ViewState

        self._entity = entity
        self._take = ddspy_take
        mask = int(SampleState.Any | ViewState.Any | InstanceState.Any)
        self._arguments: tuple[int, ...] = (entity._ref, mask, depth)
        self.topic = self.full_name = topic
        try:
            ddspy_take(*self._arguments)
        except TypeError:
            # cyclonedds-python 0.10 takes no mask.
            self._arguments = (entity._ref, depth)

    def take(self) -> Any:
        """Take all waiting messages, oldest first, as pairs of bytes and SampleInfo.

        Raises:
            TransportError: DDS failed.
        """
        found = self._take(*self._arguments)
        # The C layer returns a number where there is nothing to take, or an error code.
        if isinstance(found, int):
            if found < 0:
                raise TransportError(f"{self.topic}: DDS cannot be read (return code {found})")
            return ()
        return found

    def publisher(self, handle: int) -> Endpoint | None:
        """See `ByteReader.publisher`."""
        try:
            found = self._entity.get_matched_publication_data(handle)
        except AttributeError:
            # cyclonedds-python 0.10 cannot tell who sent a message.
            return Endpoint(self.topic, "", True, "")
        return None if found is None else endpoint_of(found, time.monotonic())

    def mismatch(self) -> str:
        """Return the QoS policy that last prevented a match with a publisher; empty if none did."""
        return _policy(self._entity.get_requested_incompatible_qos_status())


def _policy(status: Any) -> str:
    if not status.total_count:
        return ""
    number: int = status.last_policy_id
    return POLICIES.get(number, f"policy {number}")
