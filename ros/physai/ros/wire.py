"""Serialised ROS 2 messages through rclpy; the counterpart of `physai.transport.dds.node`.

Messages are taken and published serialised, so that the layouts of the DDS transport apply and rclpy creates no Python
objects. The control loop takes them itself, in its own thread: subscriptions are in a callback group that no executor
runs, so messages do not wait for a spinning thread, and such a thread does not compete with the loop for the GIL.

Topics are relative to the node's namespace and can be remapped; parameters can override their QoS.
"""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from typing import Any

from physai.ros.frames import POSE, FramedReader, Frames
from physai.ros.graph import Info, Publishers, endpoints, mismatch, owner
from physai.sdk.transport.protocol import TransportError
from physai.transport.dds.domain import one_line
from physai.transport.dds.ports import DEPTH, EXCHANGE_DEPTH
from physai.transport.dds.wire import Endpoint

# Period of the check for several publishers of a topic, about 10 µs each [s]; discovery takes longer.
LOOK_S = 0.02
# Maximum number of messages taken at once.
MAX_TAKEN = 10_000
# Maximum wait inside rclpy [ns], during which signals are not handled.
WAIT_SLICE_NS = 100_000_000


class RosMiddleware:
    """Readers and writers of bytes on an rclpy node, for use by one thread, not necessarily the one that spins it."""

    def __init__(self, node: Any, domain: int, *, frames: Mapping[str, str] | None = None) -> None:
        """Creates no endpoints yet.

        Args:
            node: rclpy node, or lifecycle node.
            domain: its ROS_DOMAIN_ID, for messages.
            frames: target frame of pose topics, by topic; transforming them requires that the node is spun.
        """
        self.domain = domain
        self._node = node
        self._frame_of = dict(frames or {})
        self._frames = Frames(node) if self._frame_of else None
        self._framed: list[FramedReader] = []
        self._spun: list[Any] = []
        self._subscriptions: list[Any] = []
        self._publishers: list[Any] = []
        self._wait_set: Any = None

    def reader(self, topic: str, kind: str, *, reliable: bool) -> "RosReader | FramedReader":
        """A subscription; best effort unless `reliable`.

        Raises:
            TransportError: the message type is not installed, or rclpy fails.
        """
        from rclpy.callback_groups import MutuallyExclusiveCallbackGroup

        if self._frames is not None and kind == POSE and topic in self._frame_of:
            publishers = Publishers(self._node, self._node.resolve_topic_name(relative(topic)))
            framed = FramedReader(topic, self._frame_of[topic], self._frames, publishers)
            # Not the node's default group: there, the callback would wait for a transition that waits for samples.
            separate = MutuallyExclusiveCallbackGroup()
            spun = self._subscribe(topic, kind, framed.put, reliable=reliable, callback_group=separate)
            publishers.qos = spun.qos_profile
            # Not among the subscriptions that `wait` waits for: these are taken by an executor.
            self._spun.append(spun)
            self._framed.append(framed)
            return framed
        subscription = self._subscribe(
            topic, kind, _never_called, reliable=reliable, callback_group=_never_executed(), raw=True
        )
        self._subscriptions.append(subscription)
        self._wait_set = None
        return RosReader(self._node, subscription, topic)

    def _subscribe(self, topic: str, kind: str, callback: Any, *, reliable: bool, **options: Any) -> Any:
        from rclpy.qos_overriding_options import QoSOverridingOptions

        message, qos = _message_class(kind), _qos(DEPTH, reliable=reliable)
        overriding = QoSOverridingOptions.with_default_policies()
        try:
            return self._node.create_subscription(
                message, relative(topic), callback, qos, qos_overriding_options=overriding, **options
            )
        except Exception as error:
            raise TransportError(f"{topic}: cannot subscribe: {one_line(error)}") from error

    def problems(self) -> tuple[str, ...]:
        """Why the latest poses were rejected."""
        return tuple(one.problem for one in self._framed if one.problem)

    def forget(self) -> None:
        """Clear the rejections so far."""
        for one in self._framed:
            one.problem = ""

    def writer(self, topic: str, kind: str) -> "RosWriter":
        """A reliable publisher.

        Raises:
            TransportError: the message type is not installed, or rclpy fails.
        """
        from rclpy.qos_overriding_options import QoSOverridingOptions

        message, qos = _message_class(kind), _qos(1, reliable=True)
        overriding = QoSOverridingOptions.with_default_policies()
        try:
            publisher = self._node.create_publisher(message, relative(topic), qos, qos_overriding_options=overriding)
        except Exception as error:
            raise TransportError(f"{topic}: cannot publish: {one_line(error)}") from error
        self._publishers.append(publisher)
        return RosWriter(self._node, publisher, topic)

    def exchange(self, topic: str, kind: str) -> tuple["RosReader", "RosWriter"]:
        """See `Middleware.exchange`; not in the node's namespace, because runtimes of all namespaces share the topic.

        Raises:
            TransportError: the message type is not installed, or rclpy fails.
        """
        message, qos = _message_class(kind), _qos(EXCHANGE_DEPTH, reliable=True)
        try:
            subscription = self._node.create_subscription(
                message, topic, _never_called, qos, callback_group=_never_executed(), raw=True
            )
            self._spun.append(subscription)
            publisher = self._node.create_publisher(message, topic, _qos(1, reliable=True))
        except Exception as error:
            raise TransportError(f"{topic}: cannot be created: {one_line(error)}") from error
        self._publishers.append(publisher)
        return RosReader(self._node, subscription, topic, several=True), RosWriter(self._node, publisher, topic)

    def wait(self, timeout_s: float) -> None:
        """Blocks until a message arrives, for at most `timeout_s` and a slice short enough for signals.

        Uses a wait set of these subscriptions alone, independent of any executor, like rclpy's `wait_for_message`.
        """
        from rclpy.impl.implementation_singleton import rclpy_implementation

        limit_ns = max(0, min(WAIT_SLICE_NS, int(timeout_s * 1e9)))
        handles = [subscription.handle for subscription in self._subscriptions]
        with ExitStack() as stack:
            for handle in handles:
                stack.enter_context(handle)
            if self._wait_set is None:
                # Reused, because creating a wait set takes longer than waiting with it.
                self._wait_set = rclpy_implementation.WaitSet(len(handles), 0, 0, 0, 0, 0, self._node.context.handle)
            self._wait_set.clear_entities()
            for handle in handles:
                self._wait_set.add_subscription(handle)
            self._wait_set.wait(limit_ns)

    def publishers(self, topic: str | None = None) -> tuple[Endpoint, ...]:
        """Publishers of a topic by its full name, or of every topic the node sees."""
        if topic is not None:
            return endpoints(self._node.get_publishers_info_by_topic(topic), topic)
        return self._endpoints("get_publishers_info_by_topic")

    def subscribers(self) -> tuple[Endpoint, ...]:
        """Subscribers of every topic the node sees, under their full names."""
        return self._endpoints("get_subscriptions_info_by_topic")

    def _endpoints(self, method: str) -> tuple[Endpoint, ...]:
        # rclpy has no query for all endpoints, so each topic is asked for.
        names: list[tuple[str, list[str]]] = self._node.get_topic_names_and_types()
        return tuple(one for name, _ in names for one in endpoints(getattr(self._node, method)(name), name))

    @property
    def owner(self) -> str:
        """`Endpoint.owner` of this node's publishers; empty while there are none."""
        name, namespace = self._node.get_name(), self._node.get_namespace()
        for publisher in self._publishers:
            for info in self._node.get_publishers_info_by_topic(publisher.topic_name):
                # Another node may publish on the same topic.
                if (info.node_name, info.node_namespace) == (name, namespace):
                    return owner(info)
        return ""

    def close(self) -> None:
        """Destroys its subscriptions and publishers, but not the node."""
        for subscription in (*self._subscriptions, *self._spun):
            self._node.destroy_subscription(subscription)
        if self._frames is not None:
            self._frames.close()
        for publisher in self._publishers:
            self._node.destroy_publisher(publisher)
        self._subscriptions.clear()
        self._wait_set = None
        self._publishers.clear()


class RosReader:
    """Takes the newest messages of one topic."""

    def __init__(self, node: Any, subscription: Any, topic: str, *, several: bool = False) -> None:
        """Wraps a subscription that no executor runs; `several` allows more than one publisher."""
        self.topic = topic
        self._several = several
        self.full_name = str(subscription.topic_name)
        """Name after namespace and remapping."""
        self._publishers = Publishers(node, self.full_name, subscription.qos_profile)
        self._handle: Any = subscription.handle
        self._kind: Any = subscription.msg_type
        self._checked_s = 0.0
        self._accepted = True

    def _publishers_accepted(self) -> bool:
        """Whether the topic has at most one publisher, or may have several."""
        if self._several:
            return True
        now_s = time.monotonic()
        if now_s - self._checked_s > LOOK_S:
            self._checked_s = now_s
            self._accepted = not self._publishers.problem()
        return self._accepted

    def take(self) -> list[tuple[bytes, Info]]:
        """Takes the newest queued messages, oldest first; none while the topic has several publishers.

        rclpy does not identify the sender, and messages of two robots would be mixed into the state of one. Without new
        messages the last sample expires and the robot holds.

        Raises:
            TransportError: rclpy failed.
        """
        # Drain the whole queue, whose depth an override may have changed, and keep the newest messages.
        newest: deque[tuple[bytes, Info]] = deque(maxlen=EXCHANGE_DEPTH if self._several else DEPTH)
        try:
            with self._handle:
                for _ in range(MAX_TAKEN):
                    taken: Any = self._handle.take_message(self._kind, True)
                    if taken is None:
                        break
                    data, info = taken
                    newest.append((data, Info(info["source_timestamp"])))
        except Exception as error:
            raise TransportError(f"{self.topic}: rclpy cannot take messages: {one_line(error)}") from error
        return list(newest) if newest and self._publishers_accepted() else []

    def publisher(self, handle: int) -> Endpoint | None:
        """The publisher; None if there is none, or several."""
        return self._publishers.only()

    def mismatch(self) -> str:
        """See `ByteReader.mismatch`."""
        return self._publishers.mismatch()


class RosWriter:
    """Publishes bytes."""

    def __init__(self, node: Any, publisher: Any, topic: str) -> None:
        """Wraps an rclpy publisher."""
        self._node = node
        self._publisher = publisher
        self.topic = topic
        self.full_name = str(publisher.topic_name)
        """Name after namespace and remapping."""

    def write(self, message: memoryview, stamp_ns: int) -> None:
        """Publishes a message; the middleware sets its source timestamp.

        Raises:
            TransportError: rclpy failed.
        """
        try:
            self._publisher.publish(bytes(message))
        except Exception as error:
            raise TransportError(f"{self.topic}: rclpy cannot publish the message: {one_line(error)}") from error

    def reached(self) -> bool:
        """Whether there is a subscriber."""
        return int(self._publisher.get_subscription_count()) > 0

    def mismatch(self) -> str:
        """See `ByteWriter.mismatch`."""
        others = self._node.get_subscriptions_info_by_topic(self.full_name)
        return mismatch(others, self._publisher.qos_profile, offered=False)


@cache
def _never_executed() -> Any:
    """A callback group that no executor executes."""
    from rclpy.callback_groups import CallbackGroup

    # An executor asks the group first; it takes no message that the control loop is to take itself.
    class NeverExecuted(CallbackGroup):
        def can_execute(self, entity: Any) -> bool:
            return False

        def beginning_execution(self, entity: Any) -> bool:
            return False

        def ending_execution(self, entity: Any) -> None:
            """Do nothing."""

    return NeverExecuted()


def _never_called(data: bytes) -> None:
    """The callback of a subscription that no executor runs."""


def relative(topic: str) -> str:
    """A binding's topic without its leading slash, which makes it relative to the node's namespace."""
    return topic.removeprefix("/")


def _qos(depth: int, *, reliable: bool) -> Any:
    from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.VOLATILE,
    )


def _message_class(kind: str) -> Any:
    package, part, name = kind.split("/")
    try:
        return getattr(import_module(f"{package}.{part}"), name)
    except (ImportError, AttributeError) as error:
        raise TransportError(
            f"{kind} is not installed ({one_line(error)}); install ros-$ROS_DISTRO-{package.replace('_', '-')}"
        ) from error
