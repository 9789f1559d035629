"""Targets in another frame, through real tf2."""

from typing import Any

import pytest
from tests.support.ros_calls import eventually

from physai.ros.frames import POSE
from physai.ros.wire import RosMiddleware
from physai.transport.dds.codec.cdr import decode

pytestmark = pytest.mark.ros("tf2_ros")


def test_a_target_on_the_table_reaches_the_loop_in_the_robots_frame(node: Any) -> None:
    from geometry_msgs.msg import PoseStamped, TransformStamped
    from tf2_ros import StaticTransformBroadcaster, TransformBroadcaster

    wire = RosMiddleware(node, 0, frames={"/target_pose": "base_link"})
    reader = wire.reader("/target_pose", POSE, reliable=True)
    publisher = node.create_publisher(PoseStamped, "target_pose", 1)

    def said(frame: str, x: float) -> Any:
        message = PoseStamped()
        message.header.frame_id = frame
        message.header.stamp = node.get_clock().now().to_msg()
        message.pose.position.x, message.pose.orientation.w = x, 1.0
        publisher.publish(message)
        return reader.take()

    eventually(lambda: not said("moon", 1.0) and wire.problems(), "a refusal")
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

    # Names that tf2 itself refuses, now that it knows frames at all.
    for name in ("", "/table"):
        refusal = f"frame_id is {name!r}, expected 'base_link'"
        eventually(
            lambda name=name, refusal=refusal: not said(name, 1.0) and refusal in "".join(wire.problems()), refusal
        )
    assert eventually(lambda: said("base_link", 4.0), "a pose after refusals")

    wrist = TransformStamped()
    wrist.header.frame_id, wrist.child_frame_id = "base_link", "wrist"
    wrist.header.stamp.sec = node.get_clock().now().to_msg().sec - 10
    wrist.transform.rotation.w = 1.0
    moving = TransformBroadcaster(node)
    moving.sendTransform(wrist)
    eventually(
        lambda: not said("wrist", 1.0) and "latest transform are" in "".join(wire.problems()), "a refusal of old news"
    )
    wrist.header.stamp = node.get_clock().now().to_msg()
    moving.sendTransform(wrist)
    assert eventually(lambda: said("wrist", 1.0), "a pose by a transform of just now")

    second = node.create_publisher(PoseStamped, "target_pose", 1)
    eventually(lambda: not said("base_link", 5.0) and wire.problems(), "a refusal of two")
    assert wire.problems()[0].startswith("/target_pose: refused: 2 publishers, expected 1")
    node.destroy_publisher(second)
    assert eventually(lambda: said("base_link", 6.0), "a pose of the only one")
    wire.close()
