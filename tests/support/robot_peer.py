"""A robot's driver as anybody would write one, with rclpy and typed messages: `python robot_peer.py JSON`.

It publishes JointState on /joint_states and writes every message of /joint_command to a file, a JSON line each; or, as
an arm, what comes on /forward_position_controller/commands, and says where /target_pose is.
"""

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import rclpy
from geometry_msgs.msg import PoseStamped
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray

PRIORITY = 70
DEFAULTS: dict[str, Any] = {
    "name": "driver",
    "joints": ["pivot"],
    "positions": [0.3],
    "rate_hz": 200.0,
    "stamp": "now",
    "best_effort": False,
    "velocities": [],
    "publish": True,
    "target": False,
    "commands": "joints",
    "log": "",
}


class Driver(Node):
    """One robot."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options["name"])
        self._options = options
        self._log = Path(options["log"]) if options["log"] else None
        reliability = ReliabilityPolicy.BEST_EFFORT if options["best_effort"] else ReliabilityPolicy.RELIABLE
        if options["publish"]:
            self._publisher = self.create_publisher(
                JointState, "joint_states", QoSProfile(depth=1, reliability=reliability)
            )
            self.create_timer(1.0 / options["rate_hz"], self._tick)
        if options["target"]:
            self._target = self.create_publisher(PoseStamped, "target_pose", 1)
        if options["commands"] == "floats":
            self.create_subscription(Float64MultiArray, "forward_position_controller/commands", self._floats, 10)
        elif options["commands"] == "joints":
            self.create_subscription(JointState, "joint_command", self._command, 10)
        elif options["commands"] == "mistyped":
            self.create_subscription(Float64MultiArray, "joint_command", self._floats, 10)

    def _tick(self) -> None:
        message = JointState()
        if self._options["stamp"] == "now":
            message.header.stamp = self.get_clock().now().to_msg()
        elif self._options["stamp"] == "old":
            message.header.stamp.sec = int(time.time()) - 3600
        message.name = self._options["joints"]
        message.position = self._options["positions"]
        message.velocity = self._options["velocities"]
        self._publisher.publish(message)
        if self._options["target"]:
            self._aim()

    def _aim(self) -> None:
        message = PoseStamped()
        message.header.stamp = self.get_clock().now().to_msg()
        message.header.frame_id = "base_link"
        message.pose.position.x, message.pose.position.y, message.pose.position.z = 0.6, 0.2, 0.5
        message.pose.orientation.x, message.pose.orientation.w = 1.0, 0.0
        self._target.publish(message)

    def _command(self, message: JointState) -> None:
        stamp_ns = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        self._write({"stamp_ns": stamp_ns, "name": list(message.name), "effort": list(message.effort)})

    def _floats(self, message: Float64MultiArray) -> None:
        self._write({"data": list(message.data)})

    def _write(self, told: dict[str, Any]) -> None:
        if self._log is None:
            return
        line = {"time_ns": time.time_ns(), **told}
        with self._log.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    # A driver that comes late is a robot that holds; where this user may not, it has to do without.
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    rclpy.init()
    node = Driver({**DEFAULTS, **json.loads(sys.argv[1])})
    print("ready", flush=True)
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(node)


if __name__ == "__main__":
    main()
