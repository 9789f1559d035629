"""Runs the policy node: `ros2 run physai_ros policy_node`."""

import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence

import rclpy
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor
from rclpy.signals import SignalHandlerOptions

from physai.ros.arguments import require_effect, require_ros_arguments
from physai.ros.node import NODE_NAME, PolicyNode
from physai.sdk.base.errors import PhysaiError
from physai.transport.dds.domain import one_line

# Executor threads: one for a transition and one for each concurrent service call, which may block for seconds.
THREADS = 8
# Unexpected callback errors after which the process shuts down.
MAX_ERRORS = 100

SPIN_S = 0.1
# Timeout until all threads of the executor have begun [s].
TOGETHER_S = 10.0
# Pause after each callback that is handed to a thread [s].
PAUSE_S = 0.0005
# Exit code for an invalid parameter or name.
REFUSED = 2


def spin_gently(executor: MultiThreadedExecutor) -> None:
    """Hands one callback to a thread of the executor, and leaves that thread time to begin it.

    Until it begins, rclpy hands out the same callback again at once. Without a pause this thread, which has a real-time
    priority while a policy is loaded, then keeps the others from beginning it: no service answers any more.
    """
    executor.spin_once(SPIN_S)
    time.sleep(PAUSE_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until SIGINT or SIGTERM, then ramps the robot to a safe state; invalid arguments give a one-line error.

    Args:
        arguments: command line, ROS arguments included.
    """
    stop_signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, frame: stop_signals.append(received))
    words = list(arguments or sys.argv)
    try:
        require_ros_arguments(words[1:])
        # rclpy's own handlers would close the publishers before the last command is sent.
        rclpy.init(args=words, signal_handler_options=SignalHandlerOptions.NO)
        node = PolicyNode()
        require_effect(words, node.get_fully_qualified_name())
    except (PhysaiError, ParameterException, NameValidationException, RuntimeError) as error:
        # From a parameter file or the command line, before there is a node to log it.
        print(f"{NODE_NAME}: {one_line(error)}", file=sys.stderr)
        rclpy.try_shutdown()
        return REFUSED
    executor = MultiThreadedExecutor(THREADS)
    executor.add_node(node)
    # All threads exist before a control loop makes them its helpers. Later ones would have the default priority, and
    # starve behind this one, which hands them their work.
    together = threading.Barrier(THREADS)
    for _ in range(THREADS):
        executor.create_task(together.wait, TOGETHER_S)
    errors: list[Exception] = []

    def spin() -> None:
        """Runs callbacks; an error in one is logged and stops neither the others nor the control loop."""
        try:
            spin_gently(executor)
        except ExternalShutdownException:
            stop_signals.append(0)
        except Exception as error:
            node.get_logger().error(f"a callback failed: {type(error).__name__}: {error}\n{traceback.format_exc()}")
            errors.append(error)
            # A callback that fails every time would fill the log.
            if len(errors) == MAX_ERRORS:
                node.get_logger().error(f"{MAX_ERRORS} callbacks have failed; the node shuts down")
                stop_signals.append(0)

    try:
        # Signal handlers only append, as they may interrupt anything.
        while not stop_signals:
            spin()
        node.finish(spin)
    finally:
        # A second signal, as from a terminal and ros2 launch together, must not interrupt the shutdown.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
