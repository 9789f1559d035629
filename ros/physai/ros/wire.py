"""ROS 2 topics through rclpy, as bytes: what `physai.deploy_jetson.transport.dds.node` is for Cyclone DDS.

Messages are taken and published serialised, so that the layouts of the DDS transport serve here too and rclpy builds no
Python object. The control loop takes them itself, in its own thread: subscriptions are in a callback group that no
executor ever runs, so no message waits for a thread that spins, and none costs the loop Python's lock.

Topics are named relative to the node's namespace and can be remapped; their QoS can be overridden by parameters.
"""

import time
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any

from physai.deploy_jetson.transport.dds.ports import DEPTH, EXCHANGE_DEPTH
from physai.deploy_jetson.transport.dds.wire import Endpoint
from physai.ros.frames import POSE, FramedReader, Frames
from physai.ros.graph import Publishers, endpoints, mismatch, owner
from physai.ros.info import Info
from physai.sdk.transport.protocol import TransportError

LOOK_S = 0.02
"""Time between two looks at who publishes a topic, some 10 µs each [s]; a publisher takes longer to be discovered."""
MAX_TAKEN = 10_000
"""Most messages that are taken at once."""
WAIT_SLICE_NS = 100_000_000
"""Longest wait inside rclpy [ns], where no signal is seen."""


class RosMiddleware:
    """Readers and writers of bytes on an rclpy node; for one thread, which need not be the one that spins the node."""

    def __init__(self, node: Any, domain: int, *, frames: Mapping[str, str] | None = None) -> None:
        """Nothing is made yet.

        Args:
            node: rclpy node, or lifecycle node.
            domain: its ROS_DOMAIN_ID, for messages to people.
            frames: topics of poses whose messages are to be expressed in a frame; the node must be spun for them.
        """
        self.domain = domain
        self._node = node
        self._frame_of = dict(frames or {})
        self._frames = Frames(node) if self._frame_of else None
        self._framed: list[FramedReader] = []
        self._spun: list[Any] = []
        self._subscriptions: list[Any] = []
        self._publishers: list[Any] = []
        self._waiting: Any = None

    def reader(self, topic: str, kind: str, *, reliable: bool) -> "RosReader | FramedReader":
        """A subscription; best effort unless `reliable`.

        Raises:
            TransportError: the message's package is not built here, or rclpy refuses.
        """
        from rclpy.callback_groups import MutuallyExclusiveCallbackGroup

        if self._frames is not None and kind == POSE and topic in self._frame_of:
            publishers = Publishers(self._node, self._node.resolve_topic_name(relative(topic)))
            framed = FramedReader(topic, self._frame_of[topic], self._frames, publishers)
            # A transition waits for samples, so none may wait for the transition, which is in the node's own group.
            apart = MutuallyExclusiveCallbackGroup()
            spun = self._subscribe(topic, kind, framed.put, reliable=reliable, callback_group=apart)
            publishers.qos = spun.qos_profile
            self._spun.append(spun)
            self._framed.append(framed)
            return framed
        made = self._subscribe(topic, kind, _never_called, reliable=reliable, callback_group=_untouched(), raw=True)
        self._subscriptions.append(made)
        self._waiting = None
        return RosReader(self._node, made, topic)

    def _subscribe(self, topic: str, kind: str, callback: Any, *, reliable: bool, **further: Any) -> Any:
        from rclpy.qos_overriding_options import QoSOverridingOptions

        options = QoSOverridingOptions.with_default_policies()
        try:
            return self._node.create_subscription(
                _message_class(kind),
                relative(topic),
                callback,
                _qos(DEPTH, reliable=reliable),
                qos_overriding_options=options,
                **further,
            )
        except TransportError:
            raise
        except Exception as error:
            raise TransportError(f"{topic}: cannot be subscribed to: {_told(error)}") from error

    def problems(self) -> tuple[str, ...]:
        """Why poses were refused last."""
        return tuple(one.problem for one in self._framed if one.problem)

    def forget(self) -> None:
        """Clear the rejections so far."""
        for one in self._framed:
            one.problem = ""

    def writer(self, topic: str, kind: str) -> "RosWriter":
        """A reliable publisher.

        Raises:
            TransportError: the message's package is not built here, or rclpy refuses.
        """
        from rclpy.qos_overriding_options import QoSOverridingOptions

        try:
            made = self._node.create_publisher(
                _message_class(kind),
                relative(topic),
                _qos(1, reliable=True),
                qos_overriding_options=QoSOverridingOptions.with_default_policies(),
            )
        except TransportError:
            raise
        except Exception as error:
            raise TransportError(f"{topic}: cannot be published: {_told(error)}") from error
        self._publishers.append(made)
        return RosWriter(self._node, made, topic)

    def exchange(self, topic: str, kind: str) -> tuple["RosReader", "RosWriter"]:
        """See `Wire.exchange`: outside the node's namespace, as runtimes of other namespaces are on it.

        Raises:
            TransportError: the message's package is not built here, or rclpy refuses.
        """
        message = _message_class(kind)
        try:
            made = self._node.create_subscription(
                message,
                topic,
                _never_called,
                _qos(EXCHANGE_DEPTH, reliable=True),
                callback_group=_untouched(),
                raw=True,
            )
            self._spun.append(made)
            publisher = self._node.create_publisher(message, topic, _qos(1, reliable=True))
        except Exception as error:
            raise TransportError(f"{topic}: cannot be had: {_told(error)}") from error
        self._publishers.append(publisher)
        return RosReader(self._node, made, topic, several=True), RosWriter(self._node, publisher, topic)

    def wait(self, timeout_s: float) -> None:
        """Blocks until a message is there, at most `timeout_s` and never long enough to delay a signal.

        As rclpy's own `wait_for_message`: a wait set of just these subscriptions, independent of any executor.
        """
        from rclpy.impl.implementation_singleton import rclpy_implementation

        limit_ns = max(0, min(WAIT_SLICE_NS, int(timeout_s * 1e9)))
        handles = [made.handle for made in self._subscriptions]
        with ExitStack() as held:
            for handle in handles:
                held.enter_context(handle)
            if self._waiting is None:
                # Kept, because the middleware takes longer to make one than to wait with it.
                self._waiting = rclpy_implementation.WaitSet(len(handles), 0, 0, 0, 0, 0, self._node.context.handle)
            self._waiting.clear_entities()
            for handle in handles:
                self._waiting.add_subscription(handle)
            self._waiting.wait(limit_ns)

    def publishers(self, topic: str | None = None) -> tuple[Endpoint, ...]:
        """Publishers of a topic by its full name, or of every topic the node sees."""
        if topic is not None:
            return endpoints(self._node.get_publishers_info_by_topic(topic), topic)
        return self._endpoints("get_publishers_info_by_topic")

    def subscribers(self) -> tuple[Endpoint, ...]:
        """Subscribers of every topic the node sees, under their full names."""
        return self._endpoints("get_subscriptions_info_by_topic")

    def _endpoints(self, method: str) -> tuple[Endpoint, ...]:
        names: list[tuple[str, list[str]]] = self._node.get_topic_names_and_types()
        return tuple(one for name, _ in names for one in endpoints(getattr(self._node, method)(name), name))

    @property
    def owner(self) -> str:
        """See `Endpoint.owner`: that of this node's own publishers; empty as long as there are none."""
        name, namespace = self._node.get_name(), self._node.get_namespace()
        for made in self._publishers:
            for info in self._node.get_publishers_info_by_topic(made.topic_name):
                if (info.node_name, info.node_namespace) == (name, namespace):
                    return owner(info)
        return ""

    def close(self) -> None:
        """Ends its subscriptions and publishers; the node stays."""
        for made in (*self._subscriptions, *self._spun):
            self._node.destroy_subscription(made)
        if self._frames is not None:
            self._frames.close()
        for made in self._publishers:
            self._node.destroy_publisher(made)
        self._subscriptions.clear()
        self._waiting = None
        self._publishers.clear()


class RosReader:
    """The newest messages of one topic."""

    def __init__(self, node: Any, subscription: Any, topic: str, *, several: bool = False) -> None:
        """Wraps a subscription that no executor runs, and whose topic may have several publishers."""
        self.topic = topic
        self._several = several
        self.full_name = str(subscription.topic_name)
        """Where it is, after namespace and remapping."""
        self._publishers = Publishers(node, self.full_name, subscription.qos_profile)
        self._handle: Any = subscription.handle
        self._kind: Any = subscription.msg_type
        self._looked_s = 0.0
        self._alone = True

    def _only_one(self) -> bool:
        """Whether the topic has one publisher at most, or may have more."""
        if self._several:
            return True
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_S:
            self._looked_s = now_s
            self._alone = not self._publishers.problem()
        return self._alone

    def take(self) -> list[tuple[bytes, Info]]:
        """The newest messages that wait, oldest first; none as long as the topic has several publishers.

        rclpy does not tell whose a message is, and two robots on one topic make a third that does not exist. So the
        last sample grows old, and the robot holds.

        Raises:
            TransportError: rclpy failed.
        """
        # Everything is taken, however deep the queue was made by an override: what waits longest is oldest.
        found: deque[tuple[bytes, Info]] = deque(maxlen=EXCHANGE_DEPTH if self._several else DEPTH)
        try:
            with self._handle:
                for _ in range(MAX_TAKEN):
                    taken: Any = self._handle.take_message(self._kind, True)
                    if taken is None:
                        break
                    data, info = taken
                    found.append((data, Info(info["source_timestamp"])))
        except Exception as error:
            raise TransportError(f"{self.topic}: rclpy cannot be read: {_told(error)}") from error
        return list(found) if found and self._only_one() else []

    def publisher(self, handle: int) -> Endpoint | None:
        """What is known of the publisher; None if there is none, or rclpy cannot tell which it was."""
        del handle
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
        """Where it is, after namespace and remapping."""

    def write(self, message: memoryview, stamp_ns: int) -> None:
        """Publishes a message; its source stamp is the middleware's own.

        Raises:
            TransportError: it was not taken.
        """
        del stamp_ns
        try:
            self._publisher.publish(bytes(message))
        except Exception as error:
            raise TransportError(f"{self.topic}: rclpy did not take the message: {_told(error)}") from error

    def reached(self) -> bool:
        """Whether it reaches a subscriber."""
        return int(self._publisher.get_subscription_count()) > 0

    def mismatch(self) -> str:
        """See `ByteWriter.mismatch`."""
        others = self._node.get_subscriptions_info_by_topic(self.full_name)
        return mismatch(others, self._publisher.qos_profile, offered=False)


@cache
def _untouched() -> Any:
    """A callback group whose members every executor leaves alone."""
    from rclpy.callback_groups import CallbackGroup

    class Untouched(CallbackGroup):
        def can_execute(self, entity: Any) -> bool:
            del entity
            return False

        def beginning_execution(self, entity: Any) -> bool:
            del entity
            return False

        def ending_execution(self, entity: Any) -> None:
            del entity

    return Untouched()


def _never_called(data: bytes) -> None:
    del data


def relative(topic: str) -> str:
    """A binding's topic without its leading slash: below the node's namespace."""
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
    from rosidl_runtime_py.utilities import get_message

    try:
        return get_message(kind)
    except (ImportError, AttributeError, ValueError) as error:
        package = kind.partition("/")[0]
        raise TransportError(f"{kind} is not built here ({_told(error)}); install ros-$ROS_DISTRO-{package}") from error


def _told(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
