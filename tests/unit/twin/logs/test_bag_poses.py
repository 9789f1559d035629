"""Poses of a free body in MCAP files and ROS 2 bags: which topic, which columns, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from tests.support.tossed_cube import cube

from physai.sim.robots import Robot
from physai.twin.logs import LogError, read_log
from physai.twin.logs.signals.rotation import from_vector

Array = NDArray[np.float64]
ROS: Any = get_typestore(Stores.ROS2_HUMBLE)
EPOCH_NS = 1_700_000_000_000_000_000
COUNT, PERIOD_NS = 60, 5_000_000


def kind(name: str) -> Any:
    return ROS.types[name]


def header(number: int) -> Any:
    ns = EPOCH_NS + number * PERIOD_NS
    time = kind("builtin_interfaces/msg/Time")(sec=ns // 10**9, nanosec=ns % 10**9)
    return kind("std_msgs/msg/Header")(stamp=time, frame_id="world")


def motion() -> tuple[Array, Array]:
    time: Array = np.arange(COUNT, dtype=np.float64) * PERIOD_NS * 1e-9
    position = np.stack([0.7 * time, -0.2 * time, 1.0 - 4.905 * time**2], axis=1)
    return position, from_vector(time[:, None] * np.array([1.0, 2.0, -3.0]))


def pose(number: int) -> Any:
    position, quat = motion()
    point = kind("geometry_msgs/msg/Point")(*position[number])
    w, x, y, z = quat[number]
    return kind("geometry_msgs/msg/Pose")(point, kind("geometry_msgs/msg/Quaternion")(x=x, y=y, z=z, w=w))


def stamped(number: int) -> Any:
    return kind("geometry_msgs/msg/PoseStamped")(header(number), pose(number))


def odometry(number: int) -> Any:
    still = kind("geometry_msgs/msg/Vector3")(0.0, 0.0, 0.0)
    twist = kind("geometry_msgs/msg/TwistWithCovariance")(kind("geometry_msgs/msg/Twist")(still, still), np.zeros(36))
    placed = kind("geometry_msgs/msg/PoseWithCovariance")(pose(number), np.zeros(36))
    return kind("nav_msgs/msg/Odometry")(header(number), "cube", placed, twist)


def joints(number: int) -> Any:
    none = np.zeros(0)
    return kind("sensor_msgs/msg/JointState")(header(number), ["hinge"], np.zeros(1), none, none)


def bag(path: Path, topics: dict[str, Any], storage: StoragePlugin = StoragePlugin.MCAP) -> Path:
    with Writer(path, version=9, storage_plugin=storage) as writer:
        for topic, make in topics.items():
            connection = writer.add_connection(topic, make(0).__msgtype__, typestore=ROS)
            for number in range(COUNT):
                message = make(number)
                # Recorded 3 ms after the stamp, which is what counts.
                late_ns = EPOCH_NS + number * PERIOD_NS + 3_000_000
                writer.write(connection, late_ns, ROS.serialize_cdr(message, message.__msgtype__))
    return path


@pytest.fixture
def body(tmp_path: Path) -> Robot:
    return cube(tmp_path)


@pytest.mark.parametrize("storage", list(StoragePlugin))
@pytest.mark.parametrize("make", [stamped, odometry])
def test_the_only_topic_of_poses_is_the_body(body: Robot, tmp_path: Path, make: Any, storage: StoragePlugin) -> None:
    log = read_log(bag(tmp_path / "run", {"/cube/pose": make}, storage), body.spec)
    position, quat = motion()
    assert log.base is not None
    np.testing.assert_allclose(log.base.position, position)
    np.testing.assert_allclose(log.base.quat, quat)
    np.testing.assert_allclose(np.diff(log.time), 0.005)
    assert log.origin.kind == "unknown"


def test_one_of_several_topics_is_chosen_in_the_column_map(body: Robot, tmp_path: Path) -> None:
    run = bag(tmp_path / "run", {"/cube": stamped, "/camera": odometry})
    with pytest.raises(LogError, match="2 topics may contain the pose"):
        read_log(run, body.spec)
    chosen = tmp_path / "map.yaml"
    chosen.write_text("ros: {base: /cube}\n")
    assert read_log(run, body.spec, column_map=chosen).base is not None
    chosen.write_text("ros: {base: /cup}\n")
    with pytest.raises(LogError, match="no poses on topic /cup, only on /camera, /cube"):
        read_log(run, body.spec, column_map=chosen)


def test_poses_and_joints_of_one_bag_are_refused(body: Robot, tmp_path: Path) -> None:
    run = bag(tmp_path / "run", {"/cube": stamped, "/joint_states": joints})
    chosen = tmp_path / "map.yaml"
    chosen.write_text("ros: {base: /cube}\n")
    with pytest.raises(LogError, match="not read together, as they have different times"):
        read_log(run, body.spec, column_map=chosen)
