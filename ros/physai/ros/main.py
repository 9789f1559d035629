"""Runs the policy node: `ros2 run physai_ros policy_node`."""

import signal
import sys
from collections.abc import Sequence

import rclpy
from rclpy.executors import MultiThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from physai.ros.node import PolicyNode

THREADS = 3
"""One for transitions, which may wait for seconds; the others for operators."""

SPIN_S = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    """Until SIGINT or SIGTERM, which ramp the robot to a safe state first.

    Args:
        arguments: of the process, ROS's own included.
    """
    # rclpy's own handlers would close the publishers before the last command has left.
    rclpy.init(args=sys.argv if arguments is None else list(arguments), signal_handler_options=SignalHandlerOptions.NO)
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: asked.append(received))
    node = PolicyNode()
    executor = MultiThreadedExecutor(THREADS)
    executor.add_node(node)
    try:
        while not asked:
            executor.spin_once(SPIN_S)
        node.trigger_shutdown()
    finally:
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
