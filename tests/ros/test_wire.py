"""Serialised messages on a node of rclpy's."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.pub import DataWriter
from cyclonedds.topic import Topic
from tests.support.ros_calls import eventually
from tests.support.ros_world import RosWorld

from physai.deploy_jetson.transport.dds.cdr import decode
from physai.deploy_jetson.transport.dds.domain import LOOPBACK
from physai.deploy_jetson.transport.dds.ports import DEPTH
from physai.ros.wire import RosMiddleware
from physai.sdk.transport.protocol import TransportError

JOINT_STATE = "sensor_msgs/msg/JointState"

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
    for open_end in (lambda wire: wire.writer("/topic", kind), lambda wire: wire.reader("/topic", kind, reliable=True)):
        with pytest.raises(TransportError, match=rf"^{kind} is not installed .*; install ros-\$ROS_DISTRO-{package}$"):
            open_end(RosMiddleware(node, 0))


@dataclass
class Number(IdlStruct, typename="std_msgs::msg::dds_::Float64_"):
    """Laid out as std_msgs/msg/Float64."""

    data: float


@pytest.fixture
def bare(world: RosWorld) -> Iterator[Any]:
    """A participant of Cyclone DDS's that is not of ROS."""
    domain = int(world.environment["ROS_DOMAIN_ID"])
    configured: Any = Domain(domain, LOOPBACK)
    participant = DomainParticipant(domain)
    yield participant
    del participant
    configured.__del__()


def test_a_publisher_without_ros_is_of_no_node(bare: Any, node: Any) -> None:
    writer = DataWriter(bare, Topic(bare, "rt/number", Number))
    wire = RosMiddleware(node, 0)
    (found,) = eventually(lambda: wire.publishers("/number"), "a publisher")
    assert (found.node, found.kind) == ("no ROS node", "std_msgs::msg::dds_::Float64_")
    del writer
