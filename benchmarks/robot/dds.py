"""Round-trip time of a JointState over DDS: our fixed layout compared with plain cyclonedds-python.

Three processes on loopback in a separate domain: a client, and one echo process per implementation. Blocks of both
alternate, so that they are measured under the same conditions.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from tests.harness.programs import program

from physai.sdk.base.errors import PhysaiError
from physai.sdk.transport.protocol import Array
from physai.transport.binding import TopicBinding
from physai.transport.dds.codec.field_layout import MessageReader, MessageWriter, Vector, topic_layout
from physai.transport.dds.codec.messages import dds_topic
from physai.transport.dds.domain import LOOPBACK, import_cyclonedds
from physai.transport.dds.feed import Subscription
from physai.transport.dds.node import DdsNode, message_struct
from physai.transport.dds.wire import Middleware
from physai.transport.notices import Notices

JOINTS = 30
RATE_HZ = 500.0
BLOCKS = 20
BLOCK = 250
"""Round trips per block."""
WARM_UP = 100
KIND = "sensor_msgs/msg/JointState"
ANSWER_S = 1.0
"""Timeout of a round trip, after which it counts as lost [s]."""
START_S = 30.0
MAX_LOST = 50

Way = Literal["fixed", "typed"]


class DdsBenchError(PhysaiError):
    """The round trips could not be measured."""


@dataclass(frozen=True)
class RoundTrips:
    """Durations of round trips of a JointState of 30 joints at 500 Hz [s], in alternating blocks."""

    fixed_s: list[list[float]]
    """Fixed layout in one preallocated buffer, as the transport `dds` sends it; one list per block."""
    typed_s: list[list[float]]
    """Typed DataWriter and DataReader of cyclonedds-python."""
    lost: int
    """Lost round trips of both implementations."""

    def quantile(self, way: Way, q: float) -> float:
        """Quantile of all round trips of one implementation [s]."""
        return float(np.quantile(np.concatenate(self.fixed_s if way == "fixed" else self.typed_s), q))

    @property
    def over_typed_p50(self) -> float:
        """`dds_rtt_over_typed.p50`: median ratio of the medians of neighbouring blocks."""
        pairs = zip(self.fixed_s, self.typed_s, strict=True)
        return statistics.median(statistics.median(fixed) / statistics.median(typed) for fixed, typed in pairs)


def measure_round_trips(*, blocks: int = BLOCKS) -> RoundTrips:
    """Measures both implementations in alternating blocks, in separate processes.

    Args:
        blocks: blocks per implementation; 20 take about 20 seconds.

    Raises:
        MissingExtraError: Cyclone DDS is not installed.
        DdsBenchError: DDS does not work on this machine, or replies are missing.
    """
    import_cyclonedds()
    # Domains above 100 are not a default of any tool; the process id separates concurrent benchmarks.
    environment = {**os.environ, "CYCLONEDDS_URI": LOOPBACK, "ROS_DOMAIN_ID": str(101 + os.getpid() % 100)}
    answers = [_start([way], environment) for way in ("fixed", "typed")]
    try:
        asking = _start([str(blocks)], environment)
        output, errors = asking.communicate(timeout=START_S + 20.0 * blocks * BLOCK / RATE_HZ)
    except subprocess.TimeoutExpired:
        raise DdsBenchError("the round trips over DDS timed out") from None
    finally:
        for process in answers:
            process.kill()
            process.communicate()
    if asking.returncode != 0:
        raise DdsBenchError(f"the round trips over DDS failed: {errors.strip() or asking.returncode}")
    return RoundTrips(**json.loads(output))


def _start(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    command = program("benchmarks.robot.dds", *arguments)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class FixedEnd:
    """One end with the fixed layout of the transport `dds`."""

    def __init__(self, node: Middleware, *, reads: str, writes: str) -> None:
        """Connects the two topics."""
        self._node = node
        names = {"joint_pos": "position", "joint_vel": "velocity", "joint_effort": "effort"}
        joints = tuple(f"joint_{number:02d}" for number in range(JOINTS))
        vectors = {name: Vector(name, JOINTS, joints) for name in names}
        incoming, outgoing = (
            topic_layout(TopicBinding(topic=topic, type=KIND, fields=dict(names)), vectors) for topic in (reads, writes)
        )
        if incoming is None or outgoing is None:
            raise DdsBenchError("the layout of a JointState is empty")
        self._outlet = MessageWriter(outgoing, period_s=1.0 / RATE_HZ)
        self._writer = node.writer(writes, KIND)
        inlet = MessageReader(incoming, tuple(vectors))
        self._feed = Subscription(node.reader(reads, KIND, reliable=True), inlet, Notices(), ahead_s=1.0, silence_s=1.0)
        self.vectors: dict[str, Array] = dict(self._feed.parts)

    def send(self) -> None:
        stamp_ns = time.time_ns()
        self._outlet.write(self.vectors, stamp_ns)
        self._writer.write(self._outlet.data, stamp_ns)

    def receive(self, timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        while not self._feed.poll():
            left = end - time.monotonic()
            if not left > 0.0:
                return False
            self._node.wait(left)
        return True


class TypedEnd:
    """One end with cyclonedds-python's typed reader and writer."""

    def __init__(self, node: DdsNode, *, reads: str, writes: str) -> None:
        """Connects the two topics."""
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState, WaitSet
        from cyclonedds.pub import DataWriter
        from cyclonedds.qos import Policy, Qos
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic
        from cyclonedds.util import duration

        participant, struct = node.participant, message_struct(KIND)
        qos = Qos(Policy.Reliability.Reliable(duration(seconds=1)), Policy.History.KeepLast(1))
        self._writer: Any = DataWriter(participant, Topic(participant, dds_topic(writes), struct), qos)
        self._reader: Any = DataReader(participant, Topic(participant, dds_topic(reads), struct), qos)
        self._waitset: Any = WaitSet(participant)
        self._waitset.attach(ReadCondition(self._reader, ViewState.Any | SampleState.NotRead | InstanceState.Any))
        time_struct, header_struct = (
            message_struct("builtin_interfaces/msg/Time"),
            message_struct("std_msgs/msg/Header"),
        )
        self._stamp: Any = time_struct(sec=0, nanosec=0)
        zeros = [0.0] * JOINTS
        self._message: Any = struct(
            header=header_struct(stamp=self._stamp, frame_id=""),
            name=[f"joint_{number:02d}" for number in range(JOINTS)],
            position=zeros,
            velocity=zeros,
            effort=zeros,
        )
        self.vectors = {name: np.zeros(JOINTS) for name in ("position", "velocity", "effort")}

    def send(self) -> None:
        self._stamp.sec, self._stamp.nanosec = divmod(time.time_ns(), 1_000_000_000)
        for name, values in self.vectors.items():
            setattr(self._message, name, values.tolist())
        self._writer.write(self._message)

    def receive(self, timeout_s: float) -> bool:
        end = time.monotonic() + timeout_s
        while True:
            for message in self._reader.take(1):
                if message.sample_info.valid_data:
                    for name, values in self.vectors.items():
                        values[:] = getattr(message, name)
                    return True
            left = end - time.monotonic()
            if not left > 0.0:
                return False
            self._waitset.wait(int(left * 1e9))


def _end(way: Way, node: DdsNode, *, asks: bool) -> FixedEnd | TypedEnd:
    there, back = f"/physai_bench/{way}_there", f"/physai_bench/{way}_back"
    make = FixedEnd if way == "fixed" else TypedEnd
    return make(node, reads=back, writes=there) if asks else make(node, reads=there, writes=back)


def _answer(way: Way) -> None:
    """Echoes messages until the parent process ends."""
    end = _end(way, DdsNode(int(os.environ["ROS_DOMAIN_ID"])), asks=False)
    parent = os.getppid()
    while os.getppid() == parent:
        if end.receive(ANSWER_S):
            end.send()


def _ask(blocks: int) -> RoundTrips:
    """Measures both in alternating blocks at RATE_HZ."""
    node = DdsNode(int(os.environ["ROS_DOMAIN_ID"]))
    ends = {way: _end(way, node, asks=True) for way in ("fixed", "typed")}
    for end in ends.values():
        meet(end)
    durations: dict[str, list[list[float]]] = {way: [] for way in ends}
    lost = 0
    for _ in range(blocks):
        for way, end in ends.items():
            block, missed = block_of_round_trips(end)
            durations[way].append(block)
            lost += missed
            if not lost <= MAX_LOST:
                raise DdsBenchError(f"{lost} replies took longer than {ANSWER_S:g} s, allowed {MAX_LOST}")
    return RoundTrips(durations["fixed"], durations["typed"], lost)


def meet(end: FixedEnd | TypedEnd) -> None:
    """Waits until the other process is discovered, then warms both up."""
    start = time.monotonic()
    met = 0
    while met < WARM_UP:
        if not time.monotonic() - start < START_S:
            raise DdsBenchError(f"the echo process was not discovered within {START_S:g} s")
        end.send()
        met += end.receive(0.05)


def block_of_round_trips(end: FixedEnd | TypedEnd) -> tuple[list[float], int]:
    """Durations of the round trips of one block [s], and the number lost."""
    durations: list[float] = []
    lost = 0
    due = time.perf_counter()
    for number in range(BLOCK):
        due = max(due + 1.0 / RATE_HZ, time.perf_counter())
        time.sleep(max(0.0, due - time.perf_counter()))
        for values in end.vectors.values():
            values[0] = number
        start = time.perf_counter()
        end.send()
        if end.receive(ANSWER_S):
            durations.append(time.perf_counter() - start)
        else:
            lost += 1
    return durations, lost


def _main(argument: str) -> None:
    if argument in ("fixed", "typed"):
        _answer(argument)
    else:
        trips = _ask(int(argument))
        print(json.dumps(asdict(trips)))


if __name__ == "__main__":
    _main(sys.argv[1])
