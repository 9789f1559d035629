"""A Cyclone DDS participant compatible with ROS 2: readers and writers of serialised messages, and discovery.

Names, types, hashes and QoS are those of rmw_cyclonedds. Messages are not encoded or decoded here.
"""

import os
import threading
import time
from functools import cache
from typing import Any

from physai.sdk.transport.protocol import TransportError
from physai.transport.dds.codec.messages import MessageField, dds_topic, dds_type, fields_of
from physai.transport.dds.domain import import_cyclonedds, join_domain, leave_domain, one_line
from physai.transport.dds.graph import GRAPH_KIND, GraphEntry
from physai.transport.dds.ports import (
    DEPTH,
    EXCHANGE_DEPTH,
    Reader,
    Writer,
    endpoint_of,
    owner_of,
    reader_qos,
    writer_qos,
)
from physai.transport.dds.wire import Endpoint

NODE_NAME = "physai"
# Longest wait inside the library, during which Python handles no signals [ns].
WAIT_SLICE_NS = 100_000_000


@cache
def message_struct(kind: str) -> Any:
    """Return the type of cyclonedds-python for a message; only used to announce it."""
    from cyclonedds.idl import make_idl_struct

    fields = {field.name: _idl_type(field) for field in fields_of(kind)}
    return make_idl_struct(kind.rpartition("/")[2] + "_", dds_type(kind), fields)


def _idl_type(field: MessageField) -> Any:
    from cyclonedds.idl import types

    known = {
        "int32": types.int32,
        "uint32": types.uint32,
        "uint8": types.uint8,
        "byte": types.byte,
        "float64": types.float64,
        "string": types.bounded_str[field.most] if field.most else str,
    }
    base = known[field.base] if field.base in known else message_struct(field.base)
    if field.length is None:
        return base
    return types.sequence[base] if field.length == 0 else types.array[base, field.length]


class DdsNode:
    """A DDS participant, which owns its readers and writers."""

    def __init__(self, domain: int, name: str = NODE_NAME, reach: str | None = None, *, companion_of: str = "") -> None:
        """Join a domain.

        Args:
            domain: DDS domain id.
            name: node name in the ROS 2 graph.
            reach: discovery range; see `configuration`.
            companion_of: `Endpoint.companion_of` of its writers.

        Raises:
            MissingExtraError: Cyclone DDS is missing.
            TransportError: the domain cannot be joined.
        """
        import_cyclonedds()
        from cyclonedds.core import WaitSet
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.qos import Policy, Qos

        joined = False
        try:
            join_domain(domain, reach)
            joined = True
            # As rmw announces it: the default security enclave.
            self.participant: Any = DomainParticipant(domain, Qos(Policy.Userdata(b"enclave=/;")))
            self._waitset: Any = WaitSet(self.participant)
            self._graph = GraphEntry(self.participant, message_struct(GRAPH_KIND), name)
        except TransportError:
            raise
        except Exception as error:
            if joined:
                leave_domain(domain)
            raise TransportError(
                f"DDS domain {domain} cannot be joined: {one_line(error)}; CYCLONEDDS_URI is "
                f"{os.environ.get('CYCLONEDDS_URI') or 'not set'}"
            ) from error
        self.domain = domain
        self.owner = owner_of(self.participant.get_guid())
        """See `Endpoint.owner`."""
        self._companion_of = companion_of
        self._topics: dict[str, Any] = {}
        self._builtin: dict[str, Any] = {}
        self._seen: dict[str, dict[Any, Endpoint]] = {"publishers": {}, "subscribers": {}}
        self._looking = threading.Lock()
        self._parts: list[Any] = []

    def writer(self, topic: str, kind: str) -> Writer:
        """Create a writer of a ROS topic; see `writer_qos`.

        Raises:
            TransportError: the topic cannot be published.
        """
        from cyclonedds.pub import DataWriter

        try:
            writer: Any = DataWriter(self.participant, self._topic(topic, kind), writer_qos(kind, self._companion_of))
        except Exception as error:
            raise TransportError(f"{topic}: cannot be published: {one_line(error)}") from error
        self._parts.append(writer)
        self._graph.add_writer(writer)
        return Writer(writer, topic)

    def reader(self, topic: str, kind: str, *, reliable: bool) -> Reader:
        """Create a reader of a ROS topic.

        Raises:
            TransportError: the topic cannot be subscribed to.
        """
        return self._reader(topic, kind, reliable=reliable, depth=DEPTH, wakes=True)

    def exchange(self, topic: str, kind: str) -> tuple[Reader, Writer]:
        """See `Middleware.exchange`.

        Raises:
            TransportError: the topic cannot be published or subscribed to.
        """
        reader = self._reader(topic, kind, reliable=True, depth=EXCHANGE_DEPTH, wakes=False)
        return reader, self.writer(topic, kind)

    def _reader(self, topic: str, kind: str, *, reliable: bool, depth: int, wakes: bool) -> Reader:
        """Create a reader; a message for one that `wakes` ends `wait`."""
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState
        from cyclonedds.sub import DataReader

        qos = reader_qos(kind, reliable=reliable, depth=depth)
        try:
            reader: Any = DataReader(self.participant, self._topic(topic, kind), qos)
            self._parts.append(reader)
            if wakes:
                condition: Any = ReadCondition(reader, ViewState.Any | SampleState.NotRead | InstanceState.Any)
                self._parts.append(condition)
                self._waitset.attach(condition)
        except Exception as error:
            raise TransportError(f"{topic}: cannot be subscribed to: {one_line(error)}") from error
        self._graph.add_reader(reader)
        return Reader(reader, topic, depth)

    def wait(self, timeout_s: float) -> None:
        """Block until a message arrives, for at most `timeout_s` and `WAIT_SLICE_NS`."""
        self._waitset.wait(max(0, min(WAIT_SLICE_NS, int(timeout_s * 1e9))))

    def publishers(self, topic: str | None = None) -> tuple[Endpoint, ...]:
        """See `Middleware.publishers`."""
        publishers = self._discovered("publishers")
        return publishers if topic is None else tuple(one for one in publishers if one.topic == dds_topic(topic))

    def subscribers(self) -> tuple[Endpoint, ...]:
        """See `Middleware.subscribers`."""
        return self._discovered("subscribers")

    def _discovered(self, which: str) -> tuple[Endpoint, ...]:
        from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication, BuiltinTopicDcpsSubscription
        from cyclonedds.core import InstanceState

        seen = self._seen[which]
        with self._looking:
            if which not in self._builtin:
                topic = BuiltinTopicDcpsPublication if which == "publishers" else BuiltinTopicDcpsSubscription
                self._builtin[which] = BuiltinDataReader(self.participant, topic)
            # More than discovery ever has waiting between two looks.
            found: list[Any] = self._builtin[which].take(1000)
            for endpoint in found:
                if endpoint.sample_info.instance_state == InstanceState.Alive:
                    known = seen.get(endpoint.key)
                    seen[endpoint.key] = endpoint_of(endpoint, time.monotonic() if known is None else known.seen_s)
                else:
                    # Disposed or without its writer: the endpoint is gone.
                    seen.pop(endpoint.key, None)
            return tuple(seen.values())

    def _topic(self, topic: str, kind: str) -> Any:
        from cyclonedds.topic import Topic

        if topic not in self._topics:
            # One per name, shared by its readers and writers.
            self._topics[topic] = Topic(self.participant, dds_topic(topic), message_struct(kind))
        return self._topics[topic]

    def close(self) -> None:
        """Leave the domain."""
        # cyclonedds-python has no other way to delete an entity at a given time.
        own = [self.participant, *self._graph.parts, *self._topics.values(), *self._parts]
        # Children before their parents: a deleted participant has deleted its parts already.
        for part in reversed([*own, *self._builtin.values(), self._waitset]):
            part.__del__()
        self._parts.clear()
        leave_domain(self.domain)
