"""Targets in another frame, through real tf2."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from ros_world import eventually

from physai.deploy_jetson.transport.dds.cdr import decode
from physai.ros.frames import POSE
from physai.ros.wire import RosWire

pytestmark = pytest.mark.ros


@pytest.fixture
def node() -> Iterator[Any]:
    pytest.importorskip("tf2_ros")
    import rclpy
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor

    context = Context()
    rclpy.init(context=context, domain_id=1 + os.getpid() % 100)
    made: Any = rclpy.create_node("targets", context=context)
    executor: Any = SingleThreadedExecutor(context=context)
    executor.add_node(made)
    spinner = threading.Thread(target=executor.spin, daemon=True)
    spinner.start()
    yield made
    executor.shutdown()
    made.destroy_node()
    context.try_shutdown()
    spinner.join(10.0)


def test_a_target_on_the_table_reaches_the_loop_in_the_robots_frame(node: Any) -> None:
    from geometry_msgs.msg import PoseStamped, TransformStamped
    from tf2_ros import StaticTransformBroadcaster

    wire = RosWire(node, 0, frames={"/target_pose": "base_link"})
    reader = wire.reader("/target_pose", POSE, reliable=True)
    publisher = node.create_publisher(PoseStamped, "target_pose", 1)

    def said(frame: str, x: float) -> Any:
        message = PoseStamped()
        message.header.frame_id = frame
        message.header.stamp = node.get_clock().now().to_msg()
        message.pose.position.x, message.pose.orientation.w = x, 1.0
        publisher.publish(message)
        return reader.take()

    eventually(lambda: said("moon", 1.0) or wire.problems(), "a refusal")
    assert wire.problems()[0].startswith("/target_pose: refused: frame_id is 'moon', expected 'base_link'")
    data, _ = eventually(lambda: said("base_link", 3.0), "a pose in the robot's own frame")[-1]
    assert decode(POSE, data)[0]["pose"]["position"]["x"] == 3.0

    table = TransformStamped()
    table.header.frame_id, table.child_frame_id = "base_link", "table"
    table.transform.translation.x = 2.0
    table.transform.rotation.z = table.transform.rotation.w = 0.5**0.5
    broadcaster = StaticTransformBroadcaster(node)
    broadcaster.sendTransform(table)
    data, info = eventually(lambda: said("table", 1.0), "a pose on the table")[-1]
    message = decode(POSE, data)[0]
    assert message["header"]["frame_id"] == "base_link"
    place = message["pose"]["position"]
    assert (place["x"], place["y"]) == pytest.approx((2.0, 1.0))
    assert info.source_timestamp > 0
    assert wire.problems() == ()
    wire.close()
