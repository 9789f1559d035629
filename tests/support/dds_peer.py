"""The other process of the DDS tests: `python dds_peer.py ROLE CONTRACT`, ended by its standard input."""

import select
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from physai.sdk.contract.io import load_contract
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Array
from physai.sdk.transport.registry import open_robot_link
from physai.transport.dds.codec import messages
from physai.transport.dds.codec.cdr import encode
from physai.transport.dds.domain import domain_id
from physai.transport.dds.node import DdsNode, message_struct

PERIOD_S = 0.005


def ended() -> bool:
    """Whether the test has closed our standard input; waits a period for it."""
    return bool(select.select([sys.stdin], [], [], PERIOD_S)[0])


def fields(contract: PolicyContract) -> dict[str, Array]:
    sensors = {sensor.name: np.arange(sensor.size) / 4.0 for sensor in contract.robot.sensors}
    return sensors | {field.name: np.full(field.size, 0.5) for field in contract.command.fields}


def robot(contract: PolicyContract, *, scale: float = 1.0) -> None:
    """Publishes all fields; adds up what is commanded, and answers with the sum as the last joint's velocity."""
    link = open_robot_link("dds", {})
    link.open(contract)
    sent = {name: scale * values for name, values in fields(contract).items()}
    while not ended():
        if link.poll():
            sent["joint_vel"][-1] = sum(float(values.sum()) for values in link.command().targets.values())
        link.publish(sent, time.time_ns())
    link.close()


def raw(kind: str, message: dict[str, Any], stamp_ns: int | None) -> None:
    """Publishes one message on /joint_states, stamped or not."""
    node = DdsNode(domain_id({}))
    writer = node.writer("/joint_states", kind)
    while not ended():
        now_ns = time.time_ns()
        seconds, nanoseconds = divmod(now_ns if stamp_ns is None else stamp_ns, 10**9)
        header = {"stamp": {"sec": seconds, "nanosec": nanoseconds}, "frame_id": ""}
        writer.write(memoryview(encode(kind, {**message, "header": header})[0]), now_ns)
    node.close()


def raw_end(topic: str, kind: str, *policies: Any, writes: bool) -> None:
    """A publisher or subscriber with a QoS of its own; a publisher sends empty messages."""
    from cyclonedds.domain import DomainParticipant
    from cyclonedds.pub import DataWriter
    from cyclonedds.qos import Qos
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic

    participant: Any = DomainParticipant(domain_id({}))
    named: Any = Topic(participant, messages.dds_topic(topic), message_struct(kind))
    end: Any = (DataWriter if writes else DataReader)(participant, named, Qos(*policies))
    while not ended():
        pass
    del end


def with_own_qos(role: str) -> None:
    """Ends whose QoS or type does not fit the runtime's."""
    from cyclonedds.qos import Policy

    command, joints = "/joint_command", "sensor_msgs/msg/JointState"
    if role == "best effort target":
        raw_end("/target_pose", "geometry_msgs/msg/PoseStamped", Policy.Reliability.BestEffort, writes=True)
    elif role == "subscriber of another type":
        raw_end(command, "std_msgs/msg/Float64MultiArray", writes=False)
    elif role == "lasting subscriber":
        policies = (Policy.Reliability.Reliable(0), Policy.Durability.TransientLocal)
        raw_end(command, joints, *policies, writes=False)
    elif role == "subscriber with a deadline":
        raw_end(command, joints, Policy.Deadline(1_000_000), writes=False)
    elif role == "robot elsewhere":
        raw_end("/other/joint_states", joints, writes=True)


def other_hash(message: str) -> str:
    """That of a message of the same name that holds something else."""
    del message
    return "ab" * 32


def joint_state(contract: PolicyContract) -> dict[str, Any]:
    zeros = [0.0] * len(contract.robot.joints)
    return {"name": list(contract.robot.joint_names), "position": zeros, "velocity": zeros}


def main(role: str, path: str) -> None:
    contract = load_contract(Path(path))
    kind = "sensor_msgs/msg/JointState"
    print("ready", flush=True)
    if role == "robot":
        robot(contract)
    elif role == "other robot":
        robot(contract, scale=100.0)
    elif role == "wrong names":
        raw(kind, {**joint_state(contract), "name": ["a", "b"]}, None)
    elif role == "no stamp":
        raw(kind, joint_state(contract), 0)
    elif role == "future":
        raw(kind, joint_state(contract), time.time_ns() + 3600 * 10**9)
    elif role == "wrong type":
        raw("sensor_msgs/msg/Imu", {}, None)
    elif role == "wrong hash":
        messages.type_hash = other_hash
        raw(kind, joint_state(contract), None)
    else:
        with_own_qos(role)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
