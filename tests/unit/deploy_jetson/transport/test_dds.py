"""The transport `dds` over real DDS: two processes on loopback, in a domain of this test run's own."""

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from physai.deploy_jetson.transport.dds.diagnostics import Level
from physai.deploy_jetson.transport.dds.domain import domain_id
from physai.deploy_jetson.transport.dds.ends import DdsTransport
from physai.deploy_jetson.transport.dds.node import Node
from physai.sdk.contract import PolicyContract
from physai.sdk.contract_io import save_contract
from physai.sdk.wire import TransportError
from physai.sdk.wire_ends import open_robot_link, open_transport

pytest.importorskip("cyclonedds")

PEER = Path(__file__).parent / "dds_peer.py"
WAIT_S = 90.0
ContractOf = Callable[[str], PolicyContract]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where contracts are written for the other process, which starts quicker without the tasks."""
    monkeypatch.chdir(tmp_path)


@contextmanager
def peer(role: str, contract: PolicyContract) -> Generator[None]:
    """Another process that plays a role until the block ends."""
    path = Path(f"{contract.task}.json")
    save_contract(contract, path)
    command = [sys.executable, str(PEER), role, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.communicate(timeout=WAIT_S)


@contextmanager
def runtime(contract: PolicyContract) -> Generator[DdsTransport]:
    transport = DdsTransport({})
    transport.open(contract)
    try:
        yield transport
    finally:
        transport.close()


def told(transport: DdsTransport, text: str) -> str:
    """The problem that contains a text, as soon as there is one."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        transport.wait(0.05)
        for problem in transport.problems():
            if text in problem:
                return problem
    pytest.fail(f"no problem with {text!r} but {transport.problems()}")


@pytest.mark.usefixtures("domain")
@pytest.mark.parametrize("task", ["go2-velocity", "ur10e-reach"])
def test_there_and_back_between_two_processes(task: str, contract_of: ContractOf) -> None:
    contract = contract_of(task)
    target = contract.action.terms[0].target_name
    commanded = np.arange(len(contract.action.terms[0].joints)) / 8.0
    with runtime(contract) as transport, peer("robot", contract):
        assert transport.wait(WAIT_S)
        sample = transport.sample()
        assert transport.missing() == ()
        for sensor in contract.robot.sensors:
            expected = np.arange(sensor.size) / 4.0
            np.testing.assert_array_equal(sample.fields[sensor.name][:-1], expected[:-1])
        for field in contract.command.fields:
            assert sample.fields[field.name].tolist() == [0.5] * field.size
        assert 0 <= time.time_ns() - sample.stamp_ns < WAIT_S * 1e9
        assert sample.stamp_ns == min(sample.stamps_ns[name] for name in ("joint_pos", "joint_vel"))
        end = time.monotonic() + WAIT_S
        while sample.fields["joint_vel"][-1] != commanded.sum() and time.monotonic() < end:
            transport.send({target: commanded[None]}, time.time_ns())
            transport.wait(1.0)
        assert sample.fields["joint_vel"][-1] == commanded.sum()
        assert transport.problems() == ()


def test_a_missing_topic_is_told_by_name(domain: int, contract_of: ContractOf) -> None:
    with runtime(contract_of("go2-velocity")) as transport:
        assert not transport.wait(0.0)
        names, waited = zip(*transport.missing(), strict=True)
        assert names == ("joint_pos", "joint_vel", "imu_quat", "imu_ang_vel_b", "velocity_command")
        assert all(0.0 <= seconds < WAIT_S for seconds in waited)
        assert transport.problems() == ()
        told(transport, "nobody subscribes")
        assert transport.problems() == (
            f"/joint_states: nobody publishes it in domain {domain}; published are nothing",
            f"/imu/data: nobody publishes it in domain {domain}; published are nothing",
            f"/cmd_vel: nobody publishes it in domain {domain}; published are nothing",
            f"/joint_command: nobody subscribes to it in domain {domain}; subscribed to are nothing",
        )


@pytest.mark.usefixtures("domain")
@pytest.mark.parametrize(
    ("role", "problem"),
    [
        ("wrong names", "/joint_states: refused: it names the joints a, b; expected joint1, joint2"),
        ("no stamp", "/joint_states: its stamp is 0 s"),
        ("future", "/joint_states: stamps are 4e+03 s ahead of this clock; at most 0.01 s are taken"),
        ("wrong type", "published as sensor_msgs::msg::dds_::Imu_, expected sensor_msgs::msg::dds_::JointState_"),
        ("wrong hash", "has the hash abababababab…, ROS 2's is a13ee3a330e3…"),
    ],
)
def test_what_another_process_does_wrong_is_told(role: str, problem: str, contract_of: ContractOf) -> None:
    contract = contract_of("pendubot-swingup")
    with runtime(contract) as transport, peer(role, contract):
        assert problem in told(transport, problem)
        assert not transport.poll()
        assert [name for name, _ in transport.missing()] == ["joint_pos", "joint_vel"]
        assert transport.sample().sequence == 0
        assert np.isnan(transport.sample().fields["joint_pos"]).all()


@pytest.mark.usefixtures("domain")
def test_a_second_publisher_is_refused_and_heard_when_it_is_alone(contract_of: ContractOf) -> None:
    contract = contract_of("pendubot-swingup")
    with runtime(contract) as transport, peer("other robot", contract):
        with peer("robot", contract):
            assert transport.wait(WAIT_S)
            first = transport.sample().fields["joint_pos"][1]
            assert first in (0.25, 25.0)
            assert "2 publishers, expected 1" in told(transport, "2 publishers")
        end = time.monotonic() + WAIT_S
        while transport.sample().fields["joint_pos"][1] != 25.0 and time.monotonic() < end:
            transport.wait(0.1)
        assert transport.sample().fields["joint_pos"][1] == 25.0


@pytest.mark.usefixtures("domain")
def test_two_targets_of_another_length_do_not_leave(contract_of: ContractOf) -> None:
    problem = pytest.raises(TransportError, match="joint_effort_target has 2 elements, expected 1")
    with runtime(contract_of("pendubot-swingup")) as transport, problem:
        transport.send({"joint_effort_target": np.zeros(2)}, time.time_ns())


@pytest.mark.usefixtures("domain")
def test_diagnostics_are_published(domain: int, contract_of: ContractOf) -> None:
    contract = contract_of("pendubot-swingup")
    with runtime(contract) as transport:
        transport.diagnose(Level.OK, "running", {"fingerprint": contract.fingerprint})
        listener = Node(domain)
        try:
            end = time.monotonic() + WAIT_S
            while "rt/diagnostics" not in {found.topic for found in listener.publishers()}:
                assert time.monotonic() < end
                time.sleep(0.01)
        finally:
            listener.close()


def test_the_domain_is_that_of_ros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROS_DOMAIN_ID", raising=False)
    assert domain_id({}) == 0
    monkeypatch.setenv("ROS_DOMAIN_ID", "17")
    assert domain_id({}) == 17
    assert domain_id({"domain": "3"}) == 3
    for text in ("233", "-1", "x", "٣"):
        with pytest.raises(TransportError, match=r"expected 0 … 232"):
            domain_id({"domain": text})


@pytest.mark.usefixtures("domain")
def test_states_of_an_end(contract_of: ContractOf) -> None:
    contract = contract_of("pendubot-swingup")
    for end in (open_transport("dds", {}), open_robot_link("dds", {})):
        with pytest.raises(TransportError, match="the transport dds is not open"):
            end.wait(0.0)
        end.open(contract)
        with pytest.raises(TransportError, match="is open already"):
            end.open(contract)
        end.close()
        end.close()


def test_a_configuration_that_is_none(monkeypatch: pytest.MonkeyPatch, contract_of: ContractOf) -> None:
    monkeypatch.setenv("CYCLONEDDS_URI", "<CycloneDDS><Nonsense/></CycloneDDS>")
    transport = open_transport("dds", {"domain": "201"})
    with pytest.raises(TransportError, match=r"domain 201 cannot be joined: .* CYCLONEDDS_URI is <CycloneDDS><Non"):
        transport.open(contract_of("pendubot-swingup"))


@pytest.mark.usefixtures("domain")
def test_a_robot_obeys_on_when_the_runtimes_clock_is_set_back(contract_of: ContractOf) -> None:
    contract = contract_of("pendubot-swingup")
    link = open_robot_link("dds", {})
    link.open(contract)
    with runtime(contract) as transport:
        now_ns = time.time_ns()
        for number, stamp_ns in enumerate((now_ns, now_ns - 60 * 10**9), 1):
            targets = {"joint_effort_target": np.array([float(number)])}
            end = time.monotonic() + WAIT_S
            while link.command().targets["joint_effort_target"][0] != number:
                assert time.monotonic() < end
                transport.send(targets, stamp_ns)
                stamp_ns += 1
                link.wait(0.05)
        assert link.command().stamp_ns < now_ns
    link.close()
