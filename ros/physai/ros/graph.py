"""Who else is at a topic, as rclpy's node graph has it: how many, of which type, with which QoS."""

from collections.abc import Sequence
from typing import Any

from physai.deploy_jetson.transport.dds.ends import WATCHDOG_SUFFIX
from physai.deploy_jetson.transport.dds.messages import dds_topic, dds_type
from physai.deploy_jetson.transport.dds.wire import Endpoint


class Publishers:
    """The publishers of a topic that a node reads."""

    def __init__(self, node: Any, topic: str, qos: Any = None) -> None:
        """Looks at nothing yet.

        Args:
            node: rclpy node.
            topic: its full name, after namespace and remapping.
            qos: of the subscription, overrides included; None where it is not known yet.
        """
        self.topic = topic
        self.qos = qos
        self._node = node

    def problem(self) -> str:
        """That there are several, whose messages rclpy does not tell apart; empty for one or none. Takes some 10 µs."""
        if self._node.count_publishers(self.topic) <= 1:
            return ""
        count = len(self._speakers())
        return f"{count} publishers, expected 1: stop all but one, or put a multiplexer between" if count > 1 else ""

    def only(self) -> Endpoint | None:
        """What is known of the only publisher; None if there are several or none."""
        found = self._speakers()
        return endpoint(found[0], self.topic) if len(found) == 1 else None

    def _speakers(self) -> list[Any]:
        """The publishers, but for the watchdogs of others among them: rclpy does not tell what else they say."""
        found: list[Any] = self._node.get_publishers_info_by_topic(self.topic)
        watched = _by_watchdog(found)
        return [info for info in found if info.node_name not in watched]

    def mismatch(self) -> str:
        """Why the QoS of a publisher does not fit that of the subscription; empty if all fit."""
        return mismatch(self._node.get_publishers_info_by_topic(self.topic), self.qos, offered=True)


def _by_watchdog(infos: Sequence[Any]) -> dict[str, Any]:
    """Endpoints by the name that the node of their watchdog would have."""
    return {info.node_name + WATCHDOG_SUFFIX: info for info in infos}


def endpoints(infos: Sequence[Any], topic: str) -> tuple[Endpoint, ...]:
    """The publishers, or the subscribers, of a topic in the words of the DDS transport."""
    companions = {name: owner(info) for name, info in _by_watchdog(infos).items()}
    return tuple(endpoint(info, topic, companions.get(info.node_name, "")) for info in infos)


def endpoint(info: Any, topic: str, companion_of: str = "") -> Endpoint:
    """A publisher or subscriber in the words of the DDS transport.

    Args:
        info: rclpy's TopicEndpointInfo.
        topic: its full name.
        companion_of: see `Endpoint.companion_of`.
    """
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    hashed = str(getattr(info, "topic_type_hash", ""))
    return Endpoint(
        topic=dds_topic(topic),
        kind=dds_type(info.topic_type) if info.topic_type.count("/") == 2 else str(info.topic_type),
        reliable=info.qos_profile.reliability is ReliabilityPolicy.RELIABLE,
        lasting=info.qos_profile.durability is DurabilityPolicy.TRANSIENT_LOCAL,
        type_hash=hashed.removeprefix("RIHS01_") if hashed.startswith("RIHS01_") else "",
        owner=owner(info),
        companion_of=companion_of,
        node=f"{str(info.node_namespace).rstrip('/')}/{info.node_name}",
    )


def owner(info: Any) -> str:
    """See `Endpoint.owner`; of a TopicEndpointInfo."""
    return bytes(info.endpoint_gid[:12]).hex()


def mismatch(infos: Any, own: Any, *, offered: bool) -> str:
    """Why the QoS of one of the others cannot meet ours, in rclpy's words; empty if all fit.

    Args:
        infos: the others, as rclpy's TopicEndpointInfo.
        own: our QoS profile.
        offered: whether the others publish.
    """
    from rclpy.qos import QoSCompatibility, qos_check_compatible

    for info in infos:
        pair = (info.qos_profile, own) if offered else (own, info.qos_profile)
        compatible, reason = qos_check_compatible(*pair)
        if compatible == QoSCompatibility.ERROR:
            return " ".join(str(reason).split()).removeprefix("ERROR: ").rstrip(".;")
    return ""
