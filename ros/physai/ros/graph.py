"""Who else is at a topic, as rclpy's node graph has it: how many, of which type, with which QoS."""

from typing import Any

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
        count: int = self._node.count_publishers(self.topic)
        return f"{count} publishers, expected 1: stop all but one, or put a multiplexer between" if count > 1 else ""

    def only(self) -> Endpoint | None:
        """What is known of the only publisher; None if there are several or none."""
        found = self._node.get_publishers_info_by_topic(self.topic)
        return endpoint(found[0], self.topic) if len(found) == 1 else None

    def mismatch(self) -> str:
        """Why the QoS of a publisher does not fit that of the subscription; empty if all fit."""
        return mismatch(self._node.get_publishers_info_by_topic(self.topic), self.qos, offered=True)


def endpoint(info: Any, topic: str) -> Endpoint:
    """A publisher or subscriber in the words of the DDS transport.

    Args:
        info: rclpy's TopicEndpointInfo.
        topic: its full name.
    """
    from rclpy.qos import DurabilityPolicy, ReliabilityPolicy

    hashed = str(getattr(info, "topic_type_hash", ""))
    return Endpoint(
        topic=dds_topic(topic),
        kind=dds_type(info.topic_type) if info.topic_type.count("/") == 2 else str(info.topic_type),
        reliable=info.qos_profile.reliability is ReliabilityPolicy.RELIABLE,
        lasting=info.qos_profile.durability is DurabilityPolicy.TRANSIENT_LOCAL,
        type_hash=hashed.removeprefix("RIHS01_") if hashed.startswith("RIHS01_") else "",
    )


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
