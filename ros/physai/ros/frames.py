"""Targets in other frames: a PoseStamped that names another frame than the binding's is transformed by tf2.

Targets come seldom, so this is done where ROS usually does things, in a callback of the executor that spins the node;
the loop takes the result as bytes, like any other message. Where tf2 is not installed, or there is no publisher of the
transform, the target is refused with both frames.
"""

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.deploy_jetson.transport.dds.ports import DEPTH
from physai.deploy_jetson.transport.dds.wire import Endpoint
from physai.ros.graph import Publishers
from physai.ros.info import Info

POSE = "geometry_msgs/msg/PoseStamped"
OLDEST_S = 0.5
"""Greatest time between a pose and the transform it is expressed by, where tf2 has none of the same time [s]."""
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
        self._missing = tf2_ros.TransformException
        self._buffer = tf2_ros.Buffer()
        self._listener: Any = tf2_ros.TransformListener(self._buffer, node)

    def close(self) -> None:
        """Hears nothing more."""
        if self._buffer is not None:
            self._listener.unregister()
            self._buffer = None

    def express(self, message: Any, frame: str) -> str:
        """Expresses a PoseStamped in a frame, in place, if it is known how; otherwise why not, and it stays."""
        found = message.header.frame_id
        if found == frame or self._buffer is None:
            return ""
        try:
            transform = self._transform(frame, message.header)
        except self._missing as error:
            return f"frame_id is {found!r}, expected {frame!r}, and tf2 knows no way: {' '.join(str(error).split())}"
        if isinstance(transform, str):
            return f"frame_id is {found!r}, expected {frame!r}: {transform}"
        moved(message.pose, transform.transform)
        message.header.frame_id = frame
        return ""

    def _transform(self, frame: str, header: Any) -> Any:
        """The transform at the time of a header, or the latest if that is not long ago; otherwise why not."""
        import tf2_ros
        from rclpy.time import Time

        at = Time.from_msg(header.stamp)
        try:
            return self._buffer.lookup_transform(frame, header.frame_id, at)
        except tf2_ros.ExtrapolationException:
            # A pose usually overtakes the transform of the same time.
            latest = self._buffer.lookup_transform(frame, header.frame_id, Time())
        age_s = (at.nanoseconds - Time.from_msg(latest.header.stamp).nanoseconds) * 1e-9
        if -OLDEST_S <= age_s <= OLDEST_S:
            return latest
        return f"the pose and tf2's latest transform lie {abs(age_s):.3g} s apart, at most {OLDEST_S:g} s are allowed"


class FramedReader:
    """A topic of poses, expressed in one frame as they come in."""

    def __init__(self, topic: str, frame: str, frames: Frames, publishers: Publishers) -> None:
        """Nothing heard yet; `put` is the callback of the subscription."""
        self.topic = topic
        self.full_name = publishers.topic
        """Where it is, after namespace and remapping."""
        self._publishers = publishers
        self.problem = ""
        """Why the last message was refused; empty if it was not."""
        self._frame, self._frames = frame, frames
        self._waiting: deque[tuple[bytes, Info]] = deque(maxlen=DEPTH)

    def put(self, message: Any, info: Any) -> None:
        """Takes a message of the subscription in."""
        from rclpy.serialization import serialize_message

        why = self._publishers.problem() or self._frames.express(message, self._frame)
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
        """What is known of the only publisher."""
        del handle
        return self._publishers.only()

    def mismatch(self) -> str:
        """See `ByteReader.mismatch`."""
        return self._publishers.mismatch()
