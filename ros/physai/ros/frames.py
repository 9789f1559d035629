"""Pose targets in other frames: tf2 transforms a PoseStamped into the frame of the binding.

Targets are rare, so they are transformed in a callback of the node's executor; the control loop takes the result as
bytes, like any other message. Without tf2 or a publisher of the transform, the target is rejected with both frames.
"""

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.ros.graph import Info, Publishers
from physai.transport.dds.domain import one_line
from physai.transport.dds.ports import DEPTH
from physai.transport.dds.wire import Endpoint

POSE = "geometry_msgs/msg/PoseStamped"
# Maximum time between a pose and the transform used for it, if tf2 has none for the time of the pose [s].
OLDEST_S = 0.5
Vector = npt.NDArray[np.float64]


def rotated(quaternion: Vector, vector: Vector) -> Vector:
    """Rotates a vector by a unit quaternion (w, x, y, z): v + 2·w·(u × v) + 2·u × (u × v)."""
    w, u = quaternion[0], quaternion[1:]
    # Two cross products instead of a rotation matrix.
    cross = np.cross(u, vector)
    return vector + 2.0 * (w * cross + np.cross(u, cross))


def product(first: Vector, second: Vector) -> Vector:
    """Hamilton product of two quaternions (w, x, y, z)."""
    w1, u1, w2, u2 = first[0], first[1:], second[0], second[1:]
    return np.concatenate([[w1 * w2 - u1 @ u2], w1 * u2 + w2 * u1 + np.cross(u1, u2)])


def moved(pose: Any, transform: Any) -> None:
    """Expresses a geometry_msgs/Pose in the parent frame of a geometry_msgs/Transform, in place."""
    r, t = transform.rotation, transform.translation
    p, q = pose.position, pose.orientation
    rotation = np.array([r.w, r.x, r.y, r.z])
    position = np.array([t.x, t.y, t.z]) + rotated(rotation, np.array([p.x, p.y, p.z]))
    orientation = product(rotation, np.array([q.w, q.x, q.y, q.z]))
    p.x, p.y, p.z = position.tolist()
    q.w, q.x, q.y, q.z = orientation.tolist()


class Frames:
    """A tf2 buffer and listener; without tf2 it transforms nothing."""

    def __init__(self, node: Any) -> None:
        """Subscribes to /tf and /tf_static if tf2 is installed."""
        self._buffer: Any = None
        self._missing: Any = ()
        try:
            import tf2_ros
        except ImportError:
            return
        # The exceptions of tf2; none without tf2.
        self._missing = tf2_ros.TransformException
        self._buffer = tf2_ros.Buffer()
        self._listener: Any = tf2_ros.TransformListener(self._buffer, node)

    def close(self) -> None:
        """Ends the subscriptions."""
        if self._buffer is not None:
            self._listener.unregister()
            self._buffer = None

    def express(self, message: Any, frame: str) -> str:
        """Transforms a PoseStamped in place; returns an empty string, or the reason if it cannot be transformed."""
        source = message.header.frame_id
        if source == frame or self._buffer is None:
            return ""
        try:
            transform = self._transform(frame, message.header)
        except self._missing as error:
            return f"frame_id is {source!r}, expected {frame!r}, and tf2 has no transform: {one_line(error)}"
        if isinstance(transform, str):
            return f"frame_id is {source!r}, expected {frame!r}: {transform}"
        moved(message.pose, transform.transform)
        message.header.frame_id = frame
        return ""

    def _transform(self, frame: str, header: Any) -> Any:
        """The transform at the time of a header, or the latest one if recent enough; otherwise the reason."""
        import tf2_ros
        from rclpy.time import Time

        at = Time.from_msg(header.stamp)
        try:
            return self._buffer.lookup_transform(frame, header.frame_id, at)
        except tf2_ros.ExtrapolationException:
            # A pose usually arrives before the transform of the same time.
            latest = self._buffer.lookup_transform(frame, header.frame_id, Time())
        age_s = (at.nanoseconds - Time.from_msg(latest.header.stamp).nanoseconds) * 1e-9
        if -OLDEST_S <= age_s <= OLDEST_S:
            return latest
        return f"the pose and tf2's latest transform are {abs(age_s):.3g} s apart, at most {OLDEST_S:g} s are allowed"


class FramedReader:
    """Reader of a pose topic that transforms messages into one frame on arrival."""

    def __init__(self, topic: str, frame: str, frames: Frames, publishers: Publishers) -> None:
        """Creates an empty reader; `put` is the callback of the subscription."""
        self.topic = topic
        self.full_name = publishers.topic
        """Name after namespace and remapping."""
        self._publishers = publishers
        self.problem = ""
        """Why the last message was rejected; empty if it was accepted."""
        self._frame, self._frames = frame, frames
        self._waiting: deque[tuple[bytes, Info]] = deque(maxlen=DEPTH)

    def put(self, message: Any, info: Any) -> None:
        """Transforms and queues a message."""
        from rclpy.serialization import serialize_message

        # Several publishers first: then it is unknown whose pose this is.
        reason = self._publishers.problem() or self._frames.express(message, self._frame)
        self.problem = f"{self.topic}: refused: {reason}" if reason else ""
        if not reason:
            self._waiting.append((serialize_message(message), Info(info["source_timestamp"])))

    def take(self) -> list[tuple[bytes, Info]]:
        """All queued messages, oldest first."""
        messages: list[tuple[bytes, Info]] = []
        # One by one: the executor's thread may append meanwhile.
        while self._waiting:
            messages.append(self._waiting.popleft())
        return messages

    def publisher(self, handle: int) -> Endpoint | None:
        """The only publisher."""
        return self._publishers.only()

    def mismatch(self) -> str:
        """See `ByteReader.mismatch`."""
        return self._publishers.mismatch()
