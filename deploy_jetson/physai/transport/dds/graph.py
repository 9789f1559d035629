"""Announces a process in the ROS 2 graph (`ros2 node list`) with its topics.

Every participant publishes one message on `ros_discovery_info` with its nodes and the ids of their readers and
writers. Source: https://design.ros2.org/articles/Node_to_Participant_mapping.html.
"""

from typing import Any

from physai.transport.dds.codec.cdr import encode
from physai.transport.dds.codec.messages import user_data

# DDS name of the topic; the only one without the prefix `rt/`.
GRAPH_TOPIC = "ros_discovery_info"
GRAPH_KIND = "rmw_dds_common/msg/ParticipantEntitiesInfo"


class GraphEntry:
    """The graph entry of a participant with one node."""

    def __init__(self, participant: Any, struct: Any, name: str) -> None:
        """Announce the node without topics.

        Args:
            participant: of cyclonedds-python.
            struct: type of cyclonedds-python for `GRAPH_KIND`.
            name: of the node.

        Raises:
            DDSException: the topic cannot be published.
        """
        from cyclonedds._clayer import ddspy_write
        from cyclonedds.pub import DataWriter
        from cyclonedds.topic import Topic

        topic: Any = Topic(participant, GRAPH_TOPIC, struct)
        writer: Any = DataWriter(participant, topic, _qos())
        self.parts = [topic, writer]
        """To be deleted after all other parts of the participant."""
        self._ref: int = writer._ref
        self._write = ddspy_write
        self._name = name
        self._gid = _gid(participant)
        self._readers: list[dict[str, Any]] = []
        self._writers: list[dict[str, Any]] = []
        self._announce()

    def add_reader(self, entity: Any) -> None:
        """Announce a subscription of the node."""
        self._readers.append(_gid(entity))
        self._announce()

    def add_writer(self, entity: Any) -> None:
        """Announce a publisher of the node."""
        self._writers.append(_gid(entity))
        self._announce()

    def _announce(self) -> None:
        node = {
            "node_namespace": "/",
            "node_name": self._name,
            "reader_gid_seq": self._readers,
            "writer_gid_seq": self._writers,
        }
        message, _ = encode(GRAPH_KIND, {"gid": self._gid, "node_entities_info_seq": [node]})
        # Each message replaces the one before; the topic is transient local, so nodes that join later get the last one.
        self._write(self._ref, memoryview(message))


def _gid(entity: Any) -> dict[str, Any]:
    return {"data": list(entity.get_guid().bytes)}


def _qos() -> Any:
    from cyclonedds.qos import Policy, Qos

    # DDS_LENGTH_UNLIMITED.
    unlimited = -1
    return Qos(
        Policy.Reliability.Reliable(0),
        Policy.History.KeepLast(1),
        Policy.Durability.TransientLocal,
        Policy.DurabilityService(0, Policy.History.KeepLast(1), unlimited, unlimited, unlimited),
        Policy.WriterDataLifecycle(autodispose=False),
        Policy.DataRepresentation(use_cdrv0_representation=True),
        Policy.Userdata(user_data(GRAPH_KIND)),
    )
