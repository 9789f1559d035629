"""Publishers and subscribers of a topic in rclpy's node graph: number, type and QoS."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from physai.transport.dds.codec.messages import dds_topic, dds_type
from physai.transport.dds.dds_ends import WATCHDOG_SUFFIX
from physai.transport.dds.wire import Endpoint

# Publication handle of all messages of a topic: rclpy does not provide the sender.
ONLY_PUBLISHER = 1
# What rmw says in place of the node's name.
NAMELESS = {"_NODE_NAME_UNKNOWN_": "node not discovered yet", "_CREATED_BY_BARE_DDS_APP_": "no ROS node"}


@dataclass(frozen=True, slots=True)
class Info:
    """Message information, with the attributes of Cyclone DDS's sample info."""

    source_timestamp: int
    """Time of publication, CLOCK_REALTIME of the sender [ns]."""
    valid_data: bool = True
    publication_handle: int = ONLY_PUBLISHER


class Publishers:
    """The publishers of a topic that a node subscribes to."""

    def __init__(self, node: Any, topic: str, qos: Any = None) -> None:
        """Does not query the graph yet.

        Args:
            node: rclpy node.
            topic: full name, after namespace and remapping.
            qos: QoS of the subscription, overrides included; None if not known yet.
        """
        self.topic = topic
        self.qos = qos
        self._node = node

    def problem(self) -> str:
        """Error text if there are several publishers, which rclpy cannot tell apart; else empty. Takes about 10 µs."""
        # The fast check: this runs in the control loop.
        if self._node.count_publishers(self.topic) <= 1:
            return ""
        count = len(self._primary())
        return f"{count} publishers, expected 1: stop all but one, or put a multiplexer between" if count > 1 else ""

    def only(self) -> Endpoint | None:
        """The publisher, if there is exactly one."""
        infos = self._primary()
        return endpoint(infos[0], self.topic) if len(infos) == 1 else None

    def _primary(self) -> list[Any]:
        """The publishers without the watchdogs of other publishers among them."""
        infos: list[Any] = self._node.get_publishers_info_by_topic(self.topic)
        # By node name, the only way to recognise a watchdog in rclpy's graph.
        watched = _by_watchdog(infos)
        return [info for info in infos if info.node_name not in watched]

    def mismatch(self) -> str:
        """Why a publisher's QoS is incompatible with the subscription's; empty if all are compatible."""
        return mismatch(self._node.get_publishers_info_by_topic(self.topic), self.qos, offered=True)


def _by_watchdog(infos: Sequence[Any]) -> dict[str, Any]:
    """Endpoints by the node name of their watchdog."""
    return {info.node_name + WATCHDOG_SUFFIX: info for info in infos}


def endpoints(infos: Sequence[Any], topic: str) -> tuple[Endpoint, ...]:
    """Converts rclpy's publishers or subscribers of a topic to endpoints of the DDS transport."""
    companions = {name: owner(info) for name, info in _by_watchdog(infos).items()}
    return tuple(endpoint(info, topic, companions.get(info.node_name, "")) for info in infos)


def endpoint(info: Any, topic: str, companion_of: str = "") -> Endpoint:
    """Converts one of rclpy's publishers or subscribers to an endpoint of the DDS transport.

    Args:
        info: rclpy's TopicEndpointInfo.
        topic: full name of the topic.
        companion_of: see `Endpoint.companion_of`.
    """
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    # Since ROS 2 Iron.
    hashed = str(getattr(info, "topic_type_hash", ""))
    return Endpoint(
        topic=dds_topic(topic),
        # A type that is not of ROS is shown as it is.
        kind=dds_type(info.topic_type) if info.topic_type.count("/") == 2 else str(info.topic_type),
        reliable=info.qos_profile.reliability is ReliabilityPolicy.RELIABLE,
        lasting=info.qos_profile.durability is DurabilityPolicy.TRANSIENT_LOCAL,
        type_hash=hashed.removeprefix("RIHS01_") if hashed.startswith("RIHS01_") else "",
        owner=owner(info),
        companion_of=companion_of,
        node=_node(info),
    )


def _node(info: Any) -> str:
    name = str(info.node_name)
    return NAMELESS.get(name) or f"{str(info.node_namespace).rstrip('/')}/{name}"


def owner(info: Any) -> str:
    """`Endpoint.owner` of a TopicEndpointInfo: the GUID prefix of its DDS participant."""
    return bytes(info.endpoint_gid[:12]).hex()


def mismatch(infos: Any, own: Any, *, offered: bool) -> str:
    """The first QoS incompatibility, as reported by rclpy; empty if there is none.

    Args:
        infos: remote endpoints, as rclpy's TopicEndpointInfo.
        own: local QoS profile.
        offered: whether the remote endpoints are publishers.
    """
    from rclpy.qos import QoSCompatibility, qos_check_compatible

    for info in infos:
        pair = (info.qos_profile, own) if offered else (own, info.qos_profile)
        compatible, reason = qos_check_compatible(*pair)
        # A warning means that some policy is unknown, and the endpoints may match.
        if compatible == QoSCompatibility.ERROR:
            return " ".join(str(reason).split()).removeprefix("ERROR: ").rstrip(".;")
    return ""
