"""Targets in other frames: a PoseStamped that names another frame than the binding's is transformed by tf2.

Targets come seldom, so this is done where ROS usually does things, in a callback of the executor that spins the node;
the loop takes the result as bytes, like every other message. Where tf2 is not installed, or nobody publishes the
transform, the target is refused with both frames.
"""

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.deploy_jetson.transport.dds.ports import DEPTH
from physai.deploy_jetson.transport.dds.wire import Endpoint
from physai.ros.info import Info

POSE = "geometry_msgs/msg/PoseStamped"
Vector = npt.NDArray[np.float64]


def rotated(quaternion: Vector, vector: Vector) -> Vector:
    """A vector turned by a unit quaternion (w, x, y, z): v + 2·w·(u × v) + 2·u × (u × v)."""
    w, u = quaternion[0], quaternion[1:]
    across = np.cross(u, vector)
    return vector + 2.0 * (w * across + np.cross(u, across))


def product(first: Vector, second: Vector) -> Vector:
    """Hamilton product of two quaternions (w, x, y, z)."""
    w1, u1, w2, u2 = first[0], first[1:], second[0], second[1:]
    return np.concatenate([[w1 * w2 - u1 @ u2], w1 * u2 + w2 * u1 + np.cross(u1, u2)])


def moved(pose: Any, transform: Any) -> None:
    """Expresses a geometry_msgs/Pose in the parent frame of a geometry_msgs/Transform, in place."""
    turn, shift = transform.rotation, transform.translation
    rotation = np.array([turn.w, turn.x, turn.y, turn.z])
    place, facing = pose.position, pose.orientation
    position = np.array([shift.x, shift.y, shift.z]) + rotated(rotation, np.array([place.x, place.y, place.z]))
    orientation = product(rotation, np.array([facing.w, facing.x, facing.y, facing.z]))
    place.x, place.y, place.z = position.tolist()
    facing.w, facing.x, facing.y, facing.z = orientation.tolist()


class Frames:
    """The transforms a node hears; nothing where tf2 is not installed."""

    def __init__(self, node: Any) -> None:
        """Listens to /tf and /tf_static, if it can."""
        self._buffer: Any = None
        self._missing: Any = ()
        try:
            import tf2_ros
        except ImportError:
            return
        self._missing = (tf2_ros.LookupException, tf2_ros.ConnectivityException, tf2_ros.ExtrapolationException)
        self._buffer = tf2_ros.Buffer()
        self._listener: Any = tf2_ros.TransformListener(self._buffer, node)

    def close(self) -> None:
        """Hears nothing more."""
        if self._buffer is not None:
            self._listener.unregister()
            self._buffer = None

    def express(self, message: Any, frame: str) -> str:
        """Expresses a PoseStamped in a frame, in place, if it is known how; otherwise why not, and it stays."""
        from rclpy.time import Time

        found = message.header.frame_id
        if found == frame or self._buffer is None:
            return ""
        try:
            transform = self._buffer.lookup_transform(frame, found, Time())
        except self._missing as error:
            return f"frame_id is {found!r}, expected {frame!r}, and tf2 knows no way: {' '.join(str(error).split())}"
        moved(message.pose, transform.transform)
        message.header.frame_id = frame
        return ""


class FramedReader:
    """A topic of poses, expressed in one frame as they come in."""

    def __init__(self, topic: str, frame: str, frames: Frames) -> None:
        """Nothing heard yet; `put` is the callback of the subscription."""
        self.topic = topic
        self.problem = ""
        """Why the last message was refused; empty if it was not."""
        self._frame, self._frames = frame, frames
        self._waiting: deque[tuple[bytes, Info]] = deque(maxlen=DEPTH)

    def put(self, message: Any, info: Any) -> None:
        """Takes a message of the subscription in."""
        from rclpy.serialization import serialize_message

        why = self._frames.express(message, self._frame)
        self.problem = f"{self.topic}: refused: {why}" if why else ""
        if not why:
            self._waiting.append((serialize_message(message), Info(info["source_timestamp"])))

    def take(self) -> list[tuple[bytes, Info]]:
        """All messages that wait, oldest first."""
        found: list[tuple[bytes, Info]] = []
        while self._waiting:
            found.append(self._waiting.popleft())
        return found

    def publisher(self, handle: int) -> Endpoint | None:
        """Nothing is known of the publisher: the subscription is rclpy's own."""
        del handle
        return None

    def mismatch(self) -> str:
        """Nothing: rclpy logs it."""
        return ""
