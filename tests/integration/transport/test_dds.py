"""The transport `dds` over real DDS: two processes on loopback, in a domain of this test run's own."""

import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from tests.support.dds_ends import peer, runtime, told
from tests.support.patience import PATIENCE_S, until

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import TransportError, required_fields
from physai.sdk.transport.registry import open_robot_link, open_transport
from physai.transport.dds import dds_ends as ends
from physai.transport.dds.diagnostics import Level
from physai.transport.dds.domain import domain_id
from physai.transport.dds.node import DdsNode

pytest.importorskip("cyclonedds")

ContractOf = Callable[[str], PolicyContract]


def patient_binding(robot: str, folder: Path) -> str:
    """A file with the robot's binding, whose operator may be silent for as long as one may be (60 s)."""
    path = folder / "binding.yaml"
    shipped = resources.files("physai.transport.bindings").joinpath(f"{robot}.yaml").read_text()
    path.write_text(shipped.replace("timeout_s: 0.5", "timeout_s: 60"))
    return str(path)


@pytest.mark.usefixtures("domain")
@pytest.mark.parametrize("task", ["go2-velocity", "ur10e-reach"])
def test_there_and_back_between_two_processes(task: str, contract_of: ContractOf, tmp_path: Path) -> None:
    contract = contract_of(task)
    binding = patient_binding(contract.robot.name, tmp_path)
    target = contract.action.terms[0].target_name
    commanded = np.arange(len(contract.action.terms[0].joints)) / 8.0
    with runtime(contract, binding=binding) as transport, peer("robot", contract, tmp_path):
        assert transport.wait(PATIENCE_S)
        sample = transport.sample()
        until(lambda: transport.missing() == (), lambda: transport.wait(0.05))
        for sensor in contract.robot.sensors:
            expected = np.arange(sensor.size) / 4.0
            np.testing.assert_array_equal(sample.fields[sensor.name][:-1], expected[:-1])
        commands = [sample.fields[field.name] for field in contract.command.fields]
        # A velocity that nobody has commanded yet is zero, and what is measured does not wait for it.
        until(lambda: all(values.any() for values in commands), lambda: transport.wait(0.05))
        for values in commands:
            assert values.tolist() == [0.5] * len(values)
        assert 0 <= time.time_ns() - sample.stamp_ns < PATIENCE_S * 1e9
        needed = {sensor.name for sensor in contract.robot.sensors} & set(required_fields(contract))
        assert sample.stamp_ns == min(sample.stamps_ns[name] for name in needed)

        def command() -> None:
            transport.send({target: commanded[None]}, time.time_ns())
            transport.wait(1.0)

        until(lambda: bool(sample.fields["joint_vel"][-1] == commanded.sum()), command)
        assert transport.problems() == ()


def test_a_missing_topic_is_told_by_name(domain: int, contract_of: ContractOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "DISCOVERY_S", PATIENCE_S)
    with runtime(contract_of("go2-velocity")) as transport:
        assert not transport.wait(0.0)
        names, waited = zip(*transport.missing(), strict=True)
        assert names == ("joint_pos", "joint_vel", "imu_quat", "imu_ang_vel_b", "a subscriber of /joint_command")
        assert all(0.0 <= seconds < PATIENCE_S for seconds in waited)
        assert transport.problems() == ()
        monkeypatch.setattr(ends, "DISCOVERY_S", 0.0)
        told(transport, "no subscriber")
        assert transport.problems() == (
            f"/joint_states: no publisher in domain {domain}; published topics: nothing",
            f"/imu/data: no publisher in domain {domain}; published topics: nothing",
            f"/cmd_vel: no publisher in domain {domain}; published topics: nothing",
            f"/joint_command: no subscriber in domain {domain}; subscribed topics: nothing",
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
def test_what_another_process_does_wrong_is_told(
    role: str, problem: str, contract_of: ContractOf, tmp_path: Path
) -> None:
    contract = contract_of("pendubot-swingup")
    with runtime(contract) as transport, peer(role, contract, tmp_path):
        assert problem in told(transport, problem)
        assert not transport.poll()
        assert [name for name, _ in transport.missing()][:2] == ["joint_pos", "joint_vel"]
        assert transport.sample().sequence == 0
        assert np.isnan(transport.sample().fields["joint_pos"]).all()


@pytest.mark.usefixtures("domain")
def test_a_second_publisher_is_refused_and_heard_when_it_is_alone(contract_of: ContractOf, tmp_path: Path) -> None:
    contract = contract_of("pendubot-swingup")
    with runtime(contract) as transport, peer("other robot", contract, tmp_path):
        with peer("robot", contract, tmp_path):
            assert transport.wait(PATIENCE_S)
            first = transport.sample().fields["joint_pos"][1]
            assert first in (0.25, 25.0)
            assert "2 publishers, expected 1" in told(transport, "2 publishers")
        position = transport.sample().fields["joint_pos"]
        until(lambda: bool(position[1] == 25.0), lambda: transport.wait(0.1))


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
        listener = DdsNode(domain)
        try:
            until(lambda: "rt/diagnostics" in {found.topic for found in listener.publishers()})
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
            end = time.monotonic() + PATIENCE_S
            while link.command().targets["joint_effort_target"][0] != number:
                assert time.monotonic() < end
                transport.send(targets, stamp_ns)
                stamp_ns += 1
                link.wait(0.05)
        assert link.command().stamp_ns < now_ns
    link.close()
