"""Runs the policy node: `ros2 run physai_ros policy_node`."""

import signal
import sys
import traceback
from collections.abc import Sequence

import rclpy
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from physai.ros.node import NODE_NAME, PolicyNode
from physai.sdk.base.errors import PhysaiError

THREADS = 8
"""One for a transition and one for each call of an operator, which may wait for seconds."""
MAX_ERRORS = 100
"""Unforeseen errors of callbacks, after which the process ends in order."""

SPIN_S = 0.1
REFUSED = 2
"""Exit code for what was said wrongly: a parameter, a name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Until SIGINT or SIGTERM, which ramp the robot to a safe state first; what was said wrongly is one line.

    Args:
        arguments: of the process, ROS's own included.
    """
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: asked.append(received))
    try:
        # rclpy's own handlers would close the publishers before the last command has left.
        rclpy.init(args=list(arguments or sys.argv), signal_handler_options=SignalHandlerOptions.NO)
        node = PolicyNode()
    except (PhysaiError, ParameterException, NameValidationException, RuntimeError) as error:
        # Said in a parameter file or on the command line, before there is a node to log it.
        print(f"{NODE_NAME}: {' '.join(str(error).split())}", file=sys.stderr)
        rclpy.try_shutdown()
        return REFUSED
    executor = MultiThreadedExecutor(THREADS)
    executor.add_node(node)
    failed: list[Exception] = []

    def spin() -> None:
        """Lets callbacks run; one that fails is told, and takes neither the others nor the robot with it."""
        try:
            executor.spin_once(SPIN_S)
        except ExternalShutdownException:
            asked.append(0)
        except Exception as error:
            node.get_logger().error(f"a callback failed: {type(error).__name__}: {error}\n{traceback.format_exc()}")
            failed.append(error)
            if len(failed) == MAX_ERRORS:
                node.get_logger().error(f"{MAX_ERRORS} callbacks have failed; the node ends")
                asked.append(0)

    try:
        while not asked:
            spin()
        node.finish(spin)
    finally:
        # A second signal, as from a terminal and ros2 launch together, must not kill an orderly shutdown.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
