"""Serialised messages on a node of rclpy's."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.ros_calls import eventually
from tests.support.ros_world import RosWorld

from physai.ros.wire import RosMiddleware
from physai.sdk.transport.protocol import TransportError
from physai.transport.dds.codec.cdr import decode
from physai.transport.dds.codec.messages import dds_type
from physai.transport.dds.domain import LOOPBACK
from physai.transport.dds.node import message_struct
from physai.transport.dds.ports import DEPTH

JOINT_STATE, STRING = "sensor_msgs/msg/JointState", "std_msgs/msg/String"

pytestmark = pytest.mark.ros


def test_the_newest_message_is_taken_however_deep_the_queue(world: RosWorld) -> None:
    import rclpy
    from rclpy.context import Context
    from rclpy.parameter import Parameter
    from sensor_msgs.msg import JointState

    context: Any = Context()
    rclpy.init(context=context, domain_id=int(world.environment["ROS_DOMAIN_ID"]))
    depth = Parameter("qos_overrides./joint_states.subscription.depth", value=50)
    node: Any = rclpy.create_node("deep", context=context, parameter_overrides=[depth])
    wire = RosMiddleware(node, 0)
    reader = wire.reader("/joint_states", JOINT_STATE, reliable=True)
    publisher = node.create_publisher(JointState, "joint_states", 100)
    eventually(lambda: publisher.get_subscription_count() > 0, "a subscriber")
    for number in range(40):
        publisher.publish(JointState(position=[float(number)]))
    time.sleep(0.5)
    # One look finds the last message, and not the oldest that waited.
    found = reader.take()
    assert len(found) == DEPTH
    assert decode(JOINT_STATE, found[-1][0])[0]["position"] == [39.0]
    wire.close()
    node.destroy_node()
    context.try_shutdown()


@pytest.mark.parametrize("kind", ["absent_msgs/msg/String", "std_msgs/msg/Absent"])
def test_a_message_type_that_is_not_installed(node: Any, kind: str) -> None:
    package = kind.partition("/")[0].replace("_", "-")
    told, wire = rf"^{kind} is not installed .*; install ros-\$ROS_DISTRO-{package}$", RosMiddleware(node, 0)
    with pytest.raises(TransportError, match=told):
        wire.reader("/topic", kind, reliable=True)
    with pytest.raises(TransportError, match=told):
        wire.writer("/topic", kind)


@pytest.fixture
def bare(world: RosWorld) -> Iterator[Any]:
    """A participant of Cyclone DDS's that is not of ROS."""
    from cyclonedds.domain import Domain, DomainParticipant

    domain = int(world.environment["ROS_DOMAIN_ID"])
    configured: Any = Domain(domain, LOOPBACK)
    participant = DomainParticipant(domain)
    yield participant
    del participant
    configured.__del__()


@pytest.mark.ros("cyclonedds")
def test_a_publisher_without_ros_is_of_no_node(bare: Any, node: Any) -> None:
    from cyclonedds.pub import DataWriter
    from cyclonedds.topic import Topic

    writer = DataWriter(bare, Topic(bare, "rt/words", message_struct(STRING)))
    wire = RosMiddleware(node, 0)
    (found,) = eventually(lambda: wire.publishers("/words"), "a publisher")
    assert (found.node, found.kind) == ("no ROS node", dds_type(STRING))
    del writer
