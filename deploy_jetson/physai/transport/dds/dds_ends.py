"""Both ends of a robot's ROS 2 topics, without ROS: the runtime's `DdsTransport`, the robot's `DdsRobotEndpoint`."""

import threading
import time
from collections.abc import Mapping

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import (
    SUBSCRIBER_OF,
    Array,
    JointCommand,
    Sample,
    TransportError,
    WatchdogEndpoint,
    empty_command,
    empty_sample,
    required_fields,
)
from physai.transport.binding import Binding, TopicBinding, find_binding
from physai.transport.dds.codec.field_layout import (
    MessageReader,
    MessageWriter,
    TopicLayout,
    Vector,
    read_vectors,
    topic_layout,
    written_vectors,
)
from physai.transport.dds.command_timeout import CommandTimeout
from physai.transport.dds.commanders import Commanders
from physai.transport.dds.diagnostics import DIAGNOSTIC_KIND, DIAGNOSTICS, Level, diagnostic_array
from physai.transport.dds.discovery_diagnostics import DISCOVERY_S, describe
from physai.transport.dds.domain import discovery_range, domain_id
from physai.transport.dds.feed import Subscription
from physai.transport.dds.node import DdsNode
from physai.transport.dds.wire import ByteWriter, Middleware
from physai.transport.notices import Notices
from physai.transport.options import only_known

OPTIONS = {
    "domain": "DDS domain, 0 … 232 (default: ROS_DOMAIN_ID, else 0)",
    "range": "SUBNET, LOCALHOST or OFF, as ROS_AUTOMATIC_DISCOVERY_RANGE, which is the default",
    "binding": "built-in name or YAML file of topics (default: that of the robot)",
}

# Silence after which another publisher of a command is accepted [s]: twice the cmd_vel_timeout (0.5 s) of mobile bases
# in ros2_control.
COMMAND_SILENCE_S = 1.0


# Options of a watchdog only: see `Endpoint.companion_of`, and the name of its node.
COMPANION_OF, NODE = "companion_of", "node"
# Suffix of the node name of a runtime's watchdog.
WATCHDOG_SUFFIX = "_watchdog"


class _End:
    """Base of both ends: a node with subscriptions and publishers."""

    name: str = "dds"
    _node_name = "physai_runtime"

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options without connecting.

        Raises:
            UnknownNameError: there is no such option.
            TransportError: the domain or the range is invalid.
        """
        only_known(self.name, options, {**OPTIONS, COMPANION_OF: "", NODE: ""})
        self._options = dict(options)
        self._domain = domain_id(options)
        self._range = discovery_range(options)
        self._node: Middleware | None = None
        self._feeds: list[Subscription] = []
        self._outlets: list[tuple[MessageWriter, ByteWriter]] = []
        self._notices = Notices()
        self._opened_s = 0.0
        self._closing = threading.Lock()

    def _connect(
        self,
        contract: PolicyContract,
        *,
        incoming: tuple[TopicLayout, ...],
        outgoing: tuple[TopicLayout, ...],
        required: tuple[str, ...],
    ) -> None:
        if self._node is not None:
            raise TransportError(f"the transport {self.name} is open already")
        # Before joining, because it may refuse the binding.
        outlets = [MessageWriter(layout, period_s=contract.timing.control_dt) for layout in outgoing]
        node = self._join()
        try:
            self._feeds = [
                Subscription(
                    node.reader(layout.binding.topic, layout.binding.type, reliable=layout.binding.qos == "default"),
                    MessageReader(layout, required),
                    self._notices,
                    ahead_s=contract.timing.max_observation_age_s,
                    silence_s=_silence_s(layout, contract),
                )
                for layout in incoming
            ]
            self._outlets = [
                (outlet, node.writer(outlet.layout.binding.topic, outlet.layout.binding.type)) for outlet in outlets
            ]
        except TransportError:
            node.close()
            raise
        self._node = node
        self._opened_s = time.monotonic()

    def _join(self) -> Middleware:
        """Create the middleware: Cyclone DDS, or another ROS 2 node in a subclass."""
        name, companion_of = self._options.get(NODE, self._node_name), self._options.get(COMPANION_OF, "")
        return DdsNode(self._domain, name, self._range, companion_of=companion_of)

    def _opened(self) -> Middleware:
        if self._node is None:
            raise TransportError(f"the transport {self.name} is not open")
        return self._node

    def poll(self) -> bool:
        """See `Transport.poll` and `RobotEndpoint.poll`."""
        raise NotImplementedError

    def wait(self, timeout_s: float) -> bool:
        """Block until `poll` returns True or the timeout."""
        node = self._opened()
        end = time.monotonic() + timeout_s
        while True:
            # Polled before the timeout is checked, so that a wait of 0 s still receives.
            if self.poll():
                return True
            left = end - time.monotonic()
            if not left > 0.0:
                return False
            node.wait(left)

    def _publish(self, vectors: Mapping[str, Array], stamp_ns: int) -> None:
        self._opened()
        for outlet, writer in self._outlets:
            # A topic none of whose fields were given is not published.
            if outlet.write(vectors, stamp_ns):
                writer.write(outlet.data, stamp_ns)

    def problems(self) -> tuple[str, ...]:
        """See `Transport.problems`."""
        # Locked, because the loop's thread may close the node while a reporting thread is in here.
        with self._closing:
            if self._node is None:
                return self._notices.told()
            settled = time.monotonic() - self._opened_s > DISCOVERY_S
            return (*self._notices.told(), *describe(self._node, self._feeds, self._outlets, settled=settled))

    def forget(self) -> None:
        """See `SupportsReset`."""
        self._notices.forget()
        for feed in self._feeds:
            feed.forget()

    def close(self) -> None:
        """Leave the domain; may be called twice."""
        with self._closing:
            node, self._node = self._node, None
            self._feeds, self._outlets = [], []
            if node is not None:
                node.close()


class DdsTransport(_End):
    """The runtime's end: subscribes to sensors and commands, publishes joint targets."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """See `_End`."""
        super().__init__(options)
        self._commanders: Commanders | None = None

    def open(self, contract: PolicyContract) -> None:
        """See `Transport.open`."""
        binding = find_binding(contract, self._options.get("binding"))
        incoming, outgoing = _layouts(binding, contract)
        self._contract = contract
        self._diagnostics: ByteWriter | None = None
        self._sample = empty_sample(contract)
        self._required = required_fields(contract)
        sensors = {sensor.name for sensor in contract.robot.sensors}
        self._connect(contract, incoming=incoming, outgoing=outgoing, required=self._required)
        self._sensors = [any(one.vector.name in sensors for one in feed.inlet.layout.placed) for feed in self._feeds]
        self._views = [[(name, self._sample.fields[name], part) for name, part in feed.parts] for feed in self._feeds]
        self._lapses = [
            CommandTimeout(feed, self._sample.fields, sensors, self._notices)
            for feed in self._feeds
            if feed.inlet.layout.binding.timeout_s is not None
        ]
        # A command that times out to zero is valid before its first message, so nothing has to arrive.
        never = {name for lapse in self._lapses if lapse.is_zero for name in lapse.names}
        self._required = tuple(name for name in self._required if name not in never)
        # Commands have no part in the age of a sample: an operator may be silent for long.
        self._stamped = [name for name in self._required if name in sensors]
        self._unseen = set(self._required)
        # A watchdog publishes under its runtime's lease.
        if COMPANION_OF not in self._options:
            self._commanders = Commanders(self._opened(), [writer.full_name for _, writer in self._outlets])

    def sample(self) -> Sample:
        """See `Transport.sample`."""
        return self._sample

    def poll(self) -> bool:
        """See `Transport.poll`."""
        measured = False
        sample = self._sample
        for feed, views, is_sensor in zip(self._feeds, self._views, self._sensors, strict=True):
            if feed.poll():
                measured |= is_sensor
                for name, field, part in views:
                    field[:] = part
                    sample.stamps_ns[name] = feed.stamp_ns
        for lapse in self._lapses:
            lapse.look()
        if not measured:
            return False
        sample.received_ns = time.monotonic_ns()
        if self._unseen:
            self._unseen = {name for name in self._unseen if not sample.stamps_ns[name]}
            if self._unseen:
                return False
        # The sample is as old as its oldest field.
        sample.stamp_ns = min([sample.stamps_ns[name] for name in self._stamped])
        sample.sequence += 1
        return True

    def send(self, targets: Mapping[str, Array], stamp_ns: int) -> None:
        """See `Transport.send`."""
        self._publish(targets, stamp_ns)

    def claim(self) -> str:
        """See `Exclusive`."""
        return self._arbiter().claim()

    def renew(self) -> None:
        """See `Exclusive`."""
        self._arbiter().renew()

    def lost(self) -> str:
        """See `Exclusive`."""
        return self._arbiter().lost()

    def release(self) -> None:
        """See `Exclusive`."""
        if self._commanders is not None:
            self._commanders.release()

    def addresses(self) -> tuple[str, ...]:
        """See `SupportsAddresses`; alike for the transports dds and ros."""
        return tuple(f"dds:{self._domain}:{writer.full_name}" for _, writer in self._outlets)

    def share_stop(self, *, stopped: bool) -> None:
        """See `SharesStops`."""
        if self._commanders is not None:
            self._commanders.stopped = stopped

    def stop_elsewhere(self) -> str:
        """See `SharesStops`."""
        return "" if self._commanders is None else self._commanders.stop_elsewhere()

    def orphaned_stop(self) -> str:
        """See `SharesStops`."""
        return "" if self._commanders is None else self._commanders.orphaned_stop()

    @property
    def lease_number(self) -> int:
        """See `Exclusive`."""
        return 0 if self._commanders is None else self._commanders.number

    def _arbiter(self) -> Commanders:
        if self._commanders is None:
            raise TransportError(f"the transport {self.name} is not open")
        return self._commanders

    def close(self) -> None:
        """Leave the domain; may be called twice."""
        self.release()
        self._commanders = None
        super().close()

    def companion(self) -> WatchdogEndpoint:
        """See `SupportsWatchdog`; the watchdog joins at the start, so that its publishers are discovered before use."""
        own = {name: self._options[name] for name in ("range", "binding") if name in self._options}
        node = {"domain": str(self._domain), NODE: self._node_name + WATCHDOG_SUFFIX}
        return WatchdogEndpoint("dds", {**own, **node, COMPANION_OF: self._opened().owner})

    def forget(self) -> None:
        """See `SupportsReset`."""
        super().forget()
        for lapse in self._lapses:
            lapse.forget()

    def diagnose(self, level: int, message: str, values: Mapping[str, str]) -> None:
        """See `SupportsDiagnostics`; publishes to `/diagnostics` for ROS 2 tools."""
        node = self._opened()
        if self._diagnostics is None:
            self._diagnostics = node.writer(DIAGNOSTICS, DIAGNOSTIC_KIND)
        now_ns = time.time_ns()
        data = diagnostic_array(self._contract.robot.name, Level(level), message, values, now_ns)
        self._diagnostics.write(memoryview(data), now_ns)

    def missing(self) -> tuple[tuple[str, float], ...]:
        """See `Transport.missing`."""
        waited_s = time.monotonic() - self._opened_s
        unseen = [name for name in self._required if not self._sample.stamps_ns[name]]
        unreached = [writer.full_name for _, writer in self._outlets if not writer.reached()]
        return tuple((name, waited_s) for name in (*unseen, *(SUBSCRIBER_OF + name for name in unreached)))


class DdsRobotEndpoint(_End):
    """The robot's end: publishes sensors and commands, subscribes to joint targets."""

    _node_name = "physai_robot"

    def open(self, contract: PolicyContract) -> None:
        """See `RobotEndpoint.open`."""
        binding = find_binding(contract, self._options.get("binding"))
        outgoing, incoming = _layouts(binding, contract)
        self._command = empty_command(contract)
        self._connect(contract, incoming=incoming, outgoing=outgoing, required=tuple(self._command.targets))
        self._stamps = [0] * len(self._feeds)

    def publish(self, fields: Mapping[str, Array], stamp_ns: int) -> None:
        """See `RobotEndpoint.publish`."""
        self._publish(fields, stamp_ns)

    def command(self) -> JointCommand:
        """See `RobotEndpoint.command`."""
        return self._command

    def poll(self) -> bool:
        """See `RobotEndpoint.poll`; targets in several topics count once all have arrived, with the oldest stamp."""
        found = False
        for index, feed in enumerate(self._feeds):
            if feed.poll():
                found = True
                self._stamps[index] = feed.stamp_ns
                for name, part in feed.parts:
                    self._command.targets[name][:] = part
        oldest_ns = min(self._stamps)
        # Not "newer than": a clock that was set back must not block reception.
        if not found or not oldest_ns or oldest_ns == self._command.stamp_ns:
            return False
        self._command.stamp_ns = oldest_ns
        self._command.received_ns = time.monotonic_ns()
        self._command.sequence += 1
        return True


def _silence_s(layout: TopicLayout, contract: PolicyContract) -> float:
    """Return the silence of a publisher after which another is accepted [s]; shorter for sensors."""
    sensors = {sensor.name for sensor in contract.robot.sensors}
    streamed = any(one.vector.name in sensors for one in layout.placed)
    return contract.timing.max_observation_age_s if streamed else COMMAND_SILENCE_S


def _layouts(binding: Binding, contract: PolicyContract) -> tuple[tuple[TopicLayout, ...], tuple[TopicLayout, ...]]:
    """Return the topics that the runtime reads, and those it writes.

    Raises:
        TransportError: a required field has no topic, or does not fit its part.
    """
    written = written_vectors(contract)
    reads = _resolved(binding.reads, read_vectors(contract), required_fields(contract), contract)
    return reads, _resolved(binding.writes, written, tuple(written), contract)


def _resolved(
    topics: tuple[TopicBinding, ...],
    vectors: Mapping[str, Vector],
    needed: tuple[str, ...],
    contract: PolicyContract,
) -> tuple[TopicLayout, ...]:
    bound = [name for topic in topics for name in topic.fields]
    unbound = [name for name in needed if name not in bound]
    if unbound:
        raise TransportError(
            f"no topic for {', '.join(unbound)} of {contract.robot.name}; the binding has {', '.join(bound)}: "
            "add them to a binding file"
        )
    found = (topic_layout(topic, vectors) for topic in topics)
    return tuple(layout for layout in found if layout is not None)
