"""ROS 2 bags, written with the libraries that robots use."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

Array = NDArray[np.float64]
Sent = list[tuple[str, int, Any]]
"""Topic, time of recording [ns], message."""

ROS: Any = get_typestore(Stores.ROS2_HUMBLE)
EPOCH_NS = 1_700_000_000_000_000_000


def kind(name: str) -> Any:
    return ROS.types[name]


def stamp(ns: int) -> Any:
    time = kind("builtin_interfaces/msg/Time")(sec=ns // 10**9, nanosec=ns % 10**9)
    return kind("std_msgs/msg/Header")(stamp=time, frame_id="")


def joint_state(ns: int, names: list[str], position: Any = (), velocity: Any = (), effort: Any = ()) -> Any:
    arrays = [np.array(values, np.float64) for values in (position, velocity, effort)]
    return kind("sensor_msgs/msg/JointState")(stamp(ns), names, *arrays)


def numbers(values: list[float]) -> Any:
    layout = kind("std_msgs/msg/MultiArrayLayout")(dim=[], data_offset=0)
    return kind("std_msgs/msg/Float64MultiArray")(layout, np.array(values, np.float64))


def trajectory(ns: int, names: list[str], points: list[tuple[float, list[float]]]) -> Any:
    duration, point = kind("builtin_interfaces/msg/Duration"), kind("trajectory_msgs/msg/JointTrajectoryPoint")
    none = np.zeros(0)
    made = [
        point(np.array(values, np.float64), none, none, none, duration(int(after), int(after % 1 * 1e9)))
        for after, values in points
    ]
    return kind("trajectory_msgs/msg/JointTrajectory")(stamp(ns), names, made)


def bag(path: Path, sent: Sent, storage: StoragePlugin = StoragePlugin.MCAP) -> Path:
    with Writer(path, version=9, storage_plugin=storage) as writer:
        topics: dict[str, Any] = {}
        for topic, ns, message in sent:
            if topic not in topics:
                topics[topic] = writer.add_connection(topic, message.__msgtype__, typestore=ROS)
            writer.write(topics[topic], ns, ROS.serialize_cdr(message, message.__msgtype__))
    return path


def swing(count: int = 60) -> tuple[Array, Array, Array]:
    """Time [s], positions and speeds of two joints, shape (n, 2)."""
    time = np.linspace(0.0, (count - 1) * 0.01, count)
    size = np.array([1.0, 0.5])
    return time, size * np.sin(5 * time)[:, None], 5 * size * np.cos(5 * time)[:, None]


def states(names: list[str], *, jitter_ns: int = 0) -> Sent:
    time, pos, vel = swing()
    sent: Sent = []
    for i, t in enumerate(time):
        ns = EPOCH_NS + round(t * 1e9)
        sent.append(("/joint_states", ns + jitter_ns, joint_state(ns, names, pos[i], vel[i], pos[i] * 0.1)))
    return sent


def commands(late_ns: int = 0) -> Sent:
    return [("/effort/commands", EPOCH_NS + i * 10**7 + late_ns, numbers([0.1 * i, -0.1 * i])) for i in range(60)]


def by_time(*parts: Sent) -> Sent:
    return sorted((message for part in parts for message in part), key=lambda message: message[1])
