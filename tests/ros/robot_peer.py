"""A robot's driver as anybody would write one, with rclpy and typed messages: `python robot_peer.py JSON`.

It publishes JointState on /joint_states and writes every message of /joint_command to a file, a JSON line each.
"""

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState

DEFAULTS: dict[str, Any] = {
    "name": "driver",
    "joints": ["pivot"],
    "positions": [0.3],
    "rate_hz": 200.0,
    "stamp": "now",
    "best_effort": False,
    "publish": True,
    "log": "",
}


class Driver(Node):
    """One robot."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options["name"])
        self._options = options
        self._log = Path(options["log"])
        reliability = ReliabilityPolicy.BEST_EFFORT if options["best_effort"] else ReliabilityPolicy.RELIABLE
        if options["publish"]:
            self._publisher = self.create_publisher(
                JointState, "joint_states", QoSProfile(depth=1, reliability=reliability)
            )
            self.create_timer(1.0 / options["rate_hz"], self._tick)
        if options["log"]:
            self.create_subscription(JointState, "joint_command", self._command, 10)

    def _tick(self) -> None:
        message = JointState()
        if self._options["stamp"] == "now":
            message.header.stamp = self.get_clock().now().to_msg()
        elif self._options["stamp"] == "old":
            message.header.stamp.sec = int(time.time()) - 3600
        message.name = self._options["joints"]
        message.position = self._options["positions"]
        self._publisher.publish(message)

    def _command(self, message: JointState) -> None:
        stamp_ns = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        line = {
            "time_ns": time.time_ns(),
            "stamp_ns": stamp_ns,
            "name": list(message.name),
            "effort": list(message.effort),
        }
        with self._log.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    rclpy.init()
    node = Driver({**DEFAULTS, **json.loads(sys.argv[1])})
    print("ready", flush=True)
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(node)


if __name__ == "__main__":
    main()
