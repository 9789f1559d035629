"""Round-trip time of a JointState to a ROS node: serialised, as `physai.ros` reads it, and with a plain rclpy node.

Three processes: a client, and one echo node per implementation; blocks of both alternate. The plain node is that of
rclpy's tutorials: a typed subscription whose callback computes with numpy and publishes a typed message.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from tests.harness.programs import program

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from benchmarks.robot.dds import (
    ANSWER_S,
    BLOCKS,
    MAX_LOST,
    FixedEnd,
    block_of_round_trips,
    meet,
)
from physai.ros.transport import OwnNode, require_rclpy
from physai.ros.wire import RosMiddleware

WAYS = ("physai", "plain")
QUICK_BLOCKS = 2


def _topics(way: str) -> tuple[str, str]:
    return f"/physai_bench/{way}_there", f"/physai_bench/{way}_back"


def _answer_ours() -> None:
    """Echoes serialised messages, as the policy node handles them, until the parent process ends."""
    there, back = _topics("physai")
    own = OwnNode("physai_answer", _domain())
    end = FixedEnd(RosMiddleware(own.node, _domain()), reads=there, writes=back)
    parent = os.getppid()
    # A killed benchmark must leave no process behind.
    while os.getppid() == parent:
        if end.receive(ANSWER_S):
            end.send()


def _answer_plain() -> None:
    """Echoes typed messages from a subscription callback."""
    import rclpy
    from rclpy.executors import ExternalShutdownException
    from rclpy.qos import QoSProfile
    from sensor_msgs.msg import JointState

    there, back = _topics("plain")
    rclpy.init(domain_id=_domain())
    node: Any = rclpy.create_node("plain_answer")
    publisher: Any = node.create_publisher(JointState, back, QoSProfile(depth=1))

    def answer(message: Any) -> None:
        reply = JointState()
        reply.header.stamp = node.get_clock().now().to_msg()
        reply.name = message.name
        for part in ("position", "velocity", "effort"):
            setattr(reply, part, np.array(getattr(message, part)).tolist())
        publisher.publish(reply)

    node.create_subscription(JointState, there, answer, QoSProfile(depth=1))
    with suppress(KeyboardInterrupt, ExternalShutdownException):
        rclpy.spin(node)


def _domain() -> int:
    return int(os.environ["ROS_DOMAIN_ID"])


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Measures both implementations in alternating blocks.

    Raises:
        MissingExtraError: ROS 2 is not installed.
        DdsBenchError, WorkloadError: replies are missing.
    """
    require_rclpy()
    # A domain of its own, so that other nodes of this machine do not disturb the measurement.
    os.environ["ROS_DOMAIN_ID"] = str(1 + os.getpid() % 100)
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    blocks = QUICK_BLOCKS if options.quick else BLOCKS
    answers = [subprocess.Popen(program("benchmarks.ros", way)) for way in WAYS]
    own = OwnNode("physai_ask", _domain())
    try:
        ends: dict[str, FixedEnd] = {}
        for way in WAYS:
            there, back = _topics(way)
            # Separate middleware objects, so that waiting for one reply is not interrupted by the other's.
            ends[way] = FixedEnd(RosMiddleware(own.node, _domain()), reads=back, writes=there)
            meet(ends[way])
        durations: dict[str, list[list[float]]] = {way: [] for way in WAYS}
        lost = 0
        for number in range(blocks):
            for way, end in ends.items():
                block, missed = block_of_round_trips(end)
                durations[way].append(block)
                lost += missed
            report(f"block {number + 1} of {blocks}")
            if not lost <= MAX_LOST:
                raise WorkloadError(f"{lost} replies are missing, allowed {MAX_LOST}")
    finally:
        own.close()
        for process in answers:
            process.kill()
            process.wait()
    return _results(durations, lost)


def _results(durations: dict[str, list[list[float]]], lost: int) -> list[BenchmarkResult]:
    pairs = list(zip(durations["physai"], durations["plain"], strict=True))
    results: list[BenchmarkResult] = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        # Of blocks that ran next to each other, so that a change of load affects both.
        ratios = [float(np.quantile(ours, share) / np.quantile(plain, share)) for ours, plain in pairs]
        results.append(
            BenchmarkResult(name=f"ros_rtt_over_plain.{name}", unit="", runs=tuple(ratios), peer="a plain rclpy node")
        )
        for way in WAYS:
            whole = np.concatenate(durations[way])
            results.append(
                BenchmarkResult(
                    name=f"ros_rtt_us.{way}.{name}", unit="us", runs=(float(np.quantile(whole, share)) * 1e6,)
                )
            )
    results.append(BenchmarkResult(name="ros_lost", unit="", runs=(float(lost),)))
    return results


if __name__ == "__main__":
    (_answer_ours if sys.argv[1] == "physai" else _answer_plain)()
