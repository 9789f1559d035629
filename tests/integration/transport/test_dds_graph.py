"""What other processes of ROS 2 see of this one, and what it says of them: nodes, types, QoS, over real DDS."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rosbags.typesys import Stores, get_typestore
from tests.support.dds_ends import peer, runtime, told
from tests.support.patience import PATIENCE_S, until

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import TransportError
from physai.transport.dds import domain
from physai.transport.dds.codec.cdr import decode
from physai.transport.dds.dds_ends import DdsTransport
from physai.transport.dds.domain import RANGES, configuration
from physai.transport.dds.graph import GRAPH_KIND
from physai.transport.dds.node import DdsNode, message_struct
from physai.transport.dds.ports import writer_qos

pytest.importorskip("cyclonedds")

ContractOf = Callable[[str], PolicyContract]


class Listener:
    """Somebody else in the domain who reads ROS 2's announcements, as `ros2 node list` does."""

    def __init__(self, domain: int) -> None:
        from cyclonedds.core import InstanceState, SampleState, ViewState
        from cyclonedds.domain import DomainParticipant
        from cyclonedds.qos import Policy, Qos
        from cyclonedds.sub import DataReader
        from cyclonedds.topic import Topic

        self.participant: Any = DomainParticipant(domain)
        topic: Any = Topic(self.participant, "ros_discovery_info", message_struct(GRAPH_KIND))
        qos = Qos(Policy.Reliability.Reliable(0), Policy.Durability.TransientLocal, Policy.History.KeepLast(10))
        self.reader: Any = DataReader(self.participant, topic, qos)
        self.mask = int(SampleState.Any | ViewState.Any | InstanceState.Any)

    def nodes(self, name: str, endpoints: int) -> tuple[bytes, dict[str, Any]]:
        """The last announcement of a node of a name, once it has so many topics."""
        from cyclonedds._clayer import ddspy_take

        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for data, info in ddspy_take(self.reader._ref, self.mask, 100) or ():
                if not info.valid_data:
                    continue
                message, _, _ = decode(GRAPH_KIND, data)
                for node in message["node_entities_info_seq"]:
                    if node["node_name"] == name and len(node["writer_gid_seq"]) >= endpoints:
                        return bytes(data), message
            time.sleep(0.02)
        pytest.fail(f"no node {name}")

    def keys(self, topic: str, *, writers: bool) -> set[bytes]:
        """Ids of the publishers or subscribers of a topic, as DDS itself announces them."""
        from cyclonedds.builtin import (
            BuiltinDataReader,
            BuiltinTopicDcpsPublication,
            BuiltinTopicDcpsSubscription,
        )

        kind = BuiltinTopicDcpsPublication if writers else BuiltinTopicDcpsSubscription
        found: Any = BuiltinDataReader(self.participant, kind).read(1000)
        return {one.key.bytes for one in found if one.topic_name == topic}


def gids(found: list[dict[str, Any]]) -> set[bytes]:
    return {bytes(gid["data"]) for gid in found}


def test_the_process_is_a_node_with_its_topics(domain: int, contract_of: ContractOf) -> None:
    with runtime(contract_of("go2-velocity")):
        listener = Listener(domain)
        data, message = listener.nodes("physai_runtime", 2)
        (node,) = message["node_entities_info_seq"]
        assert node["node_namespace"] == "/"
        written = ("rt/joint_command", "rt/physai/commanders")
        assert gids(node["writer_gid_seq"]) == set().union(*(listener.keys(t, writers=True) for t in written))
        topics = ("rt/joint_states", "rt/imu/data", "rt/cmd_vel", "rt/physai/commanders")
        assert gids(node["reader_gid_seq"]) == set().union(*(listener.keys(t, writers=False) for t in topics))
        read_by_rosbags: Any = get_typestore(Stores.ROS2_JAZZY).deserialize_cdr(data, GRAPH_KIND)
        assert read_by_rosbags.node_entities_info_seq[0].node_name == "physai_runtime"


def test_two_nodes_of_one_process_leave_one_by_one(domain: int) -> None:
    first, second = DdsNode(domain, "first"), DdsNode(domain, "second")
    first.writer("/here", "geometry_msgs/msg/Twist")
    first.close()
    second.writer("/there", "geometry_msgs/msg/Twist")
    left = {"rt/there", "ros_discovery_info"}
    until(lambda: {one.topic for one in second.publishers()} == left)
    second.close()
    again = DdsNode(domain)
    again.close()


@pytest.mark.usefixtures("domain")
@pytest.mark.parametrize(
    ("role", "task", "problem"),
    [
        (
            "best effort target",
            "ur10e-reach",
            "/target_pose: published best effort, read as reliable; bind it with `qos: sensor_data`",
        ),
        (
            "wrong hash",
            "pendubot-swingup",
            "/joint_states: refused: its definition of sensor_msgs/msg/JointState has the hash abababababab…, ROS 2's",
        ),
        (
            "subscriber of another type",
            "pendubot-swingup",
            "/joint_command: subscribed to as std_msgs::msg::dds_::Float64MultiArray_, expected sensor_msgs::msg",
        ),
        (
            "lasting subscriber",
            "pendubot-swingup",
            "/joint_command: subscribed to as transient local, published volatile; let it take volatile",
        ),
        (
            "subscriber with a deadline",
            "pendubot-swingup",
            "/joint_command: its subscriber's QoS does not fit: deadline",
        ),
        (
            "robot elsewhere",
            "pendubot-swingup",
            "/joint_states: no publisher in domain {domain}; published topics: /other/joint_states",
        ),
    ],
)
def test_what_does_not_fit_is_told(
    role: str, task: str, problem: str, domain: int, contract_of: ContractOf, tmp_path: Path
) -> None:
    contract = contract_of(task)
    with runtime(contract) as transport, peer(role, contract, tmp_path):
        assert told(transport, problem.format(domain=domain))
        assert not transport.poll()


def test_ranges_are_those_of_ros(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CYCLONEDDS_URI", "ROS_AUTOMATIC_DISCOVERY_RANGE", "ROS_LOCALHOST_ONLY", "ROS_STATIC_PEERS"):
        monkeypatch.delenv(name, raising=False)
    index = "<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>32</MaxAutoParticipantIndex>"
    assert configuration() == f"<CycloneDDS><Domain><Discovery>{index}</Discovery></Domain></CycloneDDS>,"
    monkeypatch.setenv("ROS_STATIC_PEERS", "robot.local;10.0.0.7")
    assert f"{index}<Peers><Peer address='robot.local'/><Peer address='10.0.0.7'/></Peers>" in configuration()
    monkeypatch.setenv("ROS_LOCALHOST_ONLY", "1")
    assert "<AllowMulticast>false</AllowMulticast></General>" in configuration()
    assert "<Peer address='localhost'/>" in configuration()
    monkeypatch.delenv("ROS_LOCALHOST_ONLY")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "OFF")
    assert "<Tag>physai_discovery_off_" in configuration()
    monkeypatch.setenv("CYCLONEDDS_URI", "<CycloneDDS/>")
    assert configuration().endswith(",<CycloneDDS/>")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SYSTEM_DEFAULT")
    assert configuration() == ",<CycloneDDS/>"
    assert configuration("OFF").startswith("<CycloneDDS/>,<CycloneDDS><Domain><General><AllowMulticast>false")
    assert configuration("LOCALHOST").startswith("<CycloneDDS/>,<CycloneDDS><Domain><General>")


@pytest.mark.parametrize(("loopback", "named"), [(True, 0), (False, 1)])
def test_loopback_is_used_on_this_machine_and_never_named_twice(
    loopback: bool, named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CYCLONEDDS_URI", raising=False)
    monkeypatch.setattr(domain, "_only_loopback", lambda: loopback)
    assert configuration("LOCALHOST").count("<NetworkInterface name='lo'/>") == named
    assert "NetworkInterface" not in configuration("SUBNET")


def test_who_names_interfaces_gets_no_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(domain, "_only_loopback", lambda: False)
    file = tmp_path / "cyclonedds.xml"
    file.write_text(domain.LOOPBACK)
    for own in (domain.LOOPBACK, f"file://{file}", f"<CycloneDDS/>,file://{file},<CycloneDDS/>"):
        monkeypatch.setenv("CYCLONEDDS_URI", own)
        monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        assert configuration().replace(own, "").count("NetworkInterface") == 0
        assert configuration("LOCALHOST").replace(own, "").count("NetworkInterface") == 0
    for own in ("<CycloneDDS/>", f"file://{tmp_path / 'absent.xml'}"):
        monkeypatch.setenv("CYCLONEDDS_URI", own)
        assert configuration().count("<NetworkInterface name='lo'/>") == 1


@pytest.mark.usefixtures("domain")
@pytest.mark.parametrize("where", ["environment", "option"])
def test_a_domain_is_joined_with_interfaces_and_a_range(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "_only_loopback", lambda: False)
    if where == "environment":
        monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    DdsNode(domain.domain_id({}), "alone", "LOCALHOST" if where == "option" else None).close()


def test_a_range_or_peer_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LAN")
    with pytest.raises(TransportError, match=f"is 'LAN', expected {', '.join(RANGES)}"):
        configuration()
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    monkeypatch.setenv("ROS_STATIC_PEERS", "a'/><b")
    with pytest.raises(TransportError, match="which is no address"):
        configuration()
    with pytest.raises(TransportError, match="option range: 'LAN', expected SUBNET"):
        DdsTransport({"range": "LAN"})


@pytest.mark.usefixtures("domain")
def test_two_processes_of_one_machine_meet_without_multicast(
    monkeypatch: pytest.MonkeyPatch, contract_of: ContractOf, tmp_path: Path
) -> None:
    monkeypatch.delenv("CYCLONEDDS_URI")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    contract = contract_of("pendubot-swingup")
    with runtime(contract) as transport, peer("robot", contract, tmp_path):
        assert transport.wait(PATIENCE_S)


def test_ros_reads_the_type_hash_of_a_companion() -> None:
    """`parse_key_value` of ROS 2's rmw takes nothing at all where a key has anything but letters and digits."""
    from cyclonedds.qos import Policy

    data = writer_qos("sensor_msgs/msg/JointState", "0123456789ab" * 2)[Policy.Userdata].data
    pairs = dict(pair.split(b"=") for pair in data.split(b";") if pair)
    assert [key for key in pairs if not key.isalnum()] == []
    assert pairs[b"typehash"].startswith(b"RIHS01_")
