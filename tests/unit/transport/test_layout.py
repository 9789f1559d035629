"""A contract's fields in the messages of topics: numbers by hand, and rosbags at the other end."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rosbags.typesys import Stores, get_typestore

from physai.sdk.transport.protocol import TransportError
from physai.transport.binding import TopicBinding
from physai.transport.dds.codec.cdr import encode
from physai.transport.dds.codec.field_layout import (
    MessageReader,
    MessageWriter,
    TopicLayout,
    Vector,
    topic_layout,
)

JAZZY = get_typestore(Stores.ROS2_JAZZY)
JOINT_STATE, IMU = "sensor_msgs/msg/JointState", "sensor_msgs/msg/Imu"
JOINTS = ("hip", "knee", "foot")
VECTORS = {
    "joint_pos": Vector("joint_pos", 3, JOINTS),
    "joint_vel": Vector("joint_vel", 3, JOINTS),
    "imu_quat": Vector("imu_quat", 4, None),
    "imu_lin_acc_b": Vector("imu_lin_acc_b", 3, None),
    "velocity_command": Vector("velocity_command", 3, None),
    "pose": Vector("pose", 7, None),
    "target": Vector("target", 3, JOINTS),
}
HEADER = {"stamp": {"sec": 5, "nanosec": 7}, "frame_id": "base"}


def layout(kind: Any, fields: dict[str, Any], **more: Any) -> TopicLayout:
    found = topic_layout(TopicBinding(topic="/here", type=kind, fields=fields, **more), VECTORS)
    assert found is not None
    return found


def by_rosbags(outlet: MessageWriter) -> Any:
    return JAZZY.deserialize_cdr(bytes(outlet.data), outlet.layout.binding.type)


def joint_state(names: list[str], position: list[float], velocity: list[float], frame: str = "base") -> bytes:
    header = {**HEADER, "frame_id": frame}
    message = {"header": header, "name": names, "position": position, "velocity": velocity}
    return bytes(encode(JOINT_STATE, message)[0])


def joints_inlet(*required: str, **more: Any) -> MessageReader:
    fields = {"joint_pos": "position", "joint_vel": "velocity"}
    return MessageReader(layout(JOINT_STATE, fields, **more), required)


def test_joints_are_matched_by_name() -> None:
    inlet = joints_inlet("joint_pos", "joint_vel")
    inlet.read(joint_state(["gripper", "foot", "hip", "knee"], [9.0, 3.0, 1.0, 2.0], [90.0, 30.0, 10.0, 20.0]))
    assert inlet.values.tolist() == [1.0, 2.0, 3.0, 10.0, 20.0, 30.0]
    assert inlet.stamp_ns == 5_000_000_007


def test_another_order_of_the_same_length_is_noticed() -> None:
    inlet = joints_inlet("joint_pos")
    inlet.read(joint_state(["hip", "knee", "foot"], [1.0, 2.0, 3.0], [0.0] * 3))
    inlet.read(joint_state(["knee", "hip", "foot"], [2.5, 1.5, 3.5], [0.0] * 3))
    assert inlet.values[:3].tolist() == [1.5, 2.5, 3.5]


def test_the_robots_own_names() -> None:
    inlet = joints_inlet("joint_pos", joints={"hip": "joint_a1"})
    inlet.read(joint_state(["foot", "joint_a1", "knee"], [3.0, 1.0, 2.0], [0.0] * 3))
    assert inlet.values[:3].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (joint_state(["hip", "knee"], [1.0, 2.0], [0.0] * 2), "names the joints hip, knee; expected hip, knee, foot"),
        (joint_state([], [1.0], [1.0]), r"names the joints \(none\); expected"),
        (joint_state(["hip", "knee", "foot", "hip"], [0.0] * 4, [0.0] * 4), "names joint 'hip' twice"),
        (joint_state(["hip", "knee", "foot"], [0.0] * 2, [0.0] * 3), "position has 2 values, expected 3"),
        (joint_state(["hip", "knee", "foot"], [], [0.0] * 3), "position has 0 values, expected 3"),
        (joint_state(["hip", "knee", "foot"], [0.0] * 3, [0.0] * 3, "odom"), "frame_id is 'odom', expected 'base'"),
        (bytes(20_000), "20000 bytes, at most 16384"),
    ],
)
def test_wrong_messages_are_refused_and_leave_no_trace(message: bytes, problem: str) -> None:
    inlet = joints_inlet("joint_pos", "joint_vel", frame="base")
    good = joint_state(list(JOINTS), [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    inlet.read(good)
    with pytest.raises(TransportError, match=problem):
        inlet.read(message)
    assert inlet.values.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    inlet.read(good)


def test_what_a_driver_leaves_out_is_nan_where_it_is_not_needed() -> None:
    inlet = joints_inlet("joint_pos")
    inlet.read(joint_state(list(JOINTS), [1.0, 2.0, 3.0], []))
    assert inlet.values[:3].tolist() == [1.0, 2.0, 3.0]
    assert np.isnan(inlet.values[3:]).all()


def imu(covariance: float) -> bytes:
    quat = {"x": 0.1, "y": 0.2, "z": 0.3, "w": 0.9}
    message = {
        "header": HEADER,
        "orientation": quat,
        "linear_acceleration": {"x": 1.0, "y": 2.0, "z": 3.0},
        "linear_acceleration_covariance": [covariance] + [0.0] * 8,
    }
    return bytes(encode(IMU, message)[0])


def test_quaternions_become_wxyz_and_covariance_tells_what_is_not_measured() -> None:
    fields = {"imu_quat": "orientation", "imu_lin_acc_b": "linear_acceleration"}
    inlet = MessageReader(layout(IMU, fields), ("imu_quat",))
    inlet.read(imu(0.5))
    assert inlet.values.tolist() == [0.9, 0.1, 0.2, 0.3, 1.0, 2.0, 3.0]
    blind = MessageReader(layout(IMU, fields), ("imu_quat",))
    blind.read(imu(-1.0))
    assert np.isnan(blind.values[4:]).all()
    needy = MessageReader(layout(IMU, fields), ("imu_quat", "imu_lin_acc_b"))
    with pytest.raises(TransportError, match="linear_acceleration is marked as not measured; imu_lin_acc_b is needed"):
        needy.read(imu(-1.0))


def test_parts_are_put_together() -> None:
    inlet = MessageReader(
        layout("geometry_msgs/msg/Twist", {"velocity_command": ("linear.x", "linear.y", "angular.z")}),
        ("velocity_command",),
    )
    message = {"linear": {"x": 1.0, "y": 2.0, "z": 8.0}, "angular": {"x": 8.0, "y": 8.0, "z": 3.0}}
    inlet.read(bytes(encode("geometry_msgs/msg/Twist", message)[0]))
    assert inlet.values.tolist() == [1.0, 2.0, 3.0]
    assert inlet.stamp_ns == 0


def test_an_array_has_the_order_of_its_binding() -> None:
    binding = {"joints": {"knee": "knee", "foot": "foot", "hip": "hip"}}
    there = layout("std_msgs/msg/Float64MultiArray", {"target": "data"}, **binding)
    outlet = MessageWriter(there, period_s=0.01)
    assert outlet.write({"target": np.array([[1.0, 2.0, 3.0]])}, 0)
    read = by_rosbags(outlet)
    assert read.data.tolist() == [2.0, 3.0, 1.0]
    assert (read.layout.dim[0].label, read.layout.dim[0].size) == ("joints", 3)
    inlet = MessageReader(there, ("target",))
    inlet.read(bytes(outlet.data))
    assert inlet.values.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(TransportError, match="data has 2 values, expected 3"):
        inlet.read(bytes(encode("std_msgs/msg/Float64MultiArray", {"data": [1.0, 2.0]})[0]))


def test_a_trajectory_has_one_point_a_period_ahead() -> None:
    outlet = MessageWriter(layout("trajectory_msgs/msg/JointTrajectory", {"target": "positions"}), period_s=0.032)
    outlet.write({"target": np.array([1.0, 2.0, 3.0])}, 7_000_000_009)
    read = by_rosbags(outlet)
    assert read.joint_names == list(JOINTS)
    # At once: a time of this clock may have passed by the controller's.
    assert (read.header.stamp.sec, read.header.stamp.nanosec) == (0, 0)
    assert read.points[0].positions.tolist() == [1.0, 2.0, 3.0]
    assert read.points[0].velocities.size == 0
    assert (read.points[0].time_from_start.sec, read.points[0].time_from_start.nanosec) == (0, 32_000_000)
    inlet = MessageReader(layout("trajectory_msgs/msg/JointTrajectory", {"target": "positions"}), ("target",))
    inlet.read(bytes(outlet.data))
    assert inlet.values.tolist() == [1.0, 2.0, 3.0]
    two = {"header": HEADER, "joint_names": list(JOINTS), "points": [{"positions": [0.0] * 3}] * 2}
    with pytest.raises(TransportError, match="a trajectory of 2 points, expected 1"):
        inlet.read(bytes(encode("trajectory_msgs/msg/JointTrajectory", two)[0]))


def test_what_nobody_gave_is_nan_on_the_wire() -> None:
    outlet = MessageWriter(
        layout(IMU, {"imu_quat": "orientation", "imu_lin_acc_b": "linear_acceleration"}), period_s=0.01
    )
    assert outlet.write({"imu_quat": np.array([0.9, 0.1, 0.2, 0.3])}, 1)
    assert not outlet.write({"joint_pos": np.zeros(3)}, 2)
    read = by_rosbags(outlet)
    assert (read.orientation.w, read.orientation.x, read.orientation.y, read.orientation.z) == (0.9, 0.1, 0.2, 0.3)
    assert np.isnan(read.linear_acceleration.x)
    assert read.angular_velocity_covariance[0] == -1.0
    assert read.orientation_covariance[0] == 0.0


def test_vectors_of_another_size_do_not_leave() -> None:
    outlet = MessageWriter(layout(JOINT_STATE, {"target": "effort"}), period_s=0.01)
    with pytest.raises(TransportError, match="target has 2 elements, expected 3"):
        outlet.write({"target": np.zeros(2)}, 1)


@settings(max_examples=50, deadline=None)
@given(st.permutations(JOINTS), st.lists(st.floats(width=64), min_size=6, max_size=6), st.integers(0, 2**32 * 10**9))
def test_there_and_back_for_any_order_of_joints(order: list[str], numbers: list[float], stamp_ns: int) -> None:
    stamp_ns %= 2**31 * 10**9
    vectors = {"joint_pos": Vector("joint_pos", 3, tuple(order)), "joint_vel": Vector("joint_vel", 3, tuple(order))}
    binding = TopicBinding(topic="/here", type=JOINT_STATE, fields={"joint_pos": "position", "joint_vel": "velocity"})
    sender, receiver = topic_layout(binding, vectors), topic_layout(binding, VECTORS)
    assert sender is not None
    assert receiver is not None
    outlet, inlet = MessageWriter(sender, period_s=0.01), MessageReader(receiver, ("joint_pos",))
    for scale in (1.0, -1.0):
        sent = {"joint_pos": scale * np.array(numbers[:3]), "joint_vel": scale * np.array(numbers[3:])}
        outlet.write(sent, stamp_ns)
        inlet.read(bytes(outlet.data))
        position = dict(zip(order, sent["joint_pos"], strict=True))
        velocity = dict(zip(order, sent["joint_vel"], strict=True))
        expected = [position[joint] for joint in JOINTS] + [velocity[joint] for joint in JOINTS]
        np.testing.assert_array_equal(inlet.values, expected)
        assert inlet.stamp_ns == stamp_ns


@pytest.mark.parametrize(
    ("kind", "fields", "problem"),
    [
        (JOINT_STATE, {"imu_quat": "position"}, "imu_quat has no joints"),
        ("geometry_msgs/msg/PoseStamped", {"pose": "position"}, "pose has 7 elements, position has 3"),
    ],
)
def test_a_vector_that_does_not_fit_its_part(kind: Any, fields: dict[str, str], problem: str) -> None:
    with pytest.raises(TransportError, match=problem):
        layout(kind, fields)


def test_fields_of_different_joints_need_a_topic_each() -> None:
    vectors = {"a": Vector("a", 1, ("hip",)), "b": Vector("b", 2, ("knee", "foot"))}
    binding = TopicBinding(topic="/here", type=JOINT_STATE, fields={"a": "position", "b": "effort"})
    found = topic_layout(binding, vectors)
    assert found is not None
    with pytest.raises(TransportError, match="a has 1 of the 3 joints in the topic"):
        MessageWriter(found, period_s=0.01)
