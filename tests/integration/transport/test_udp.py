"""Both ends of a UDP link, on real sockets."""

import os
import socket
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.support.patience import PATIENCE_S, until

from physai.sdk.base.errors import UnknownNameError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import (
    Exclusive,
    RobotEndpoint,
    SupportsReset,
    SupportsWatchdog,
    Transport,
    TransportError,
)
from physai.sdk.transport.registry import open_robot_link, open_transport
from physai.transport.udp import grants as udp_grants
from physai.transport.udp import link as udp_link
from physai.transport.udp.packet import Clock, Kind, PacketWriter, packet_layout
from physai.transport.udp.udp_ends import UdpRobotEndpoint, address
from physai.twin.virtual_robot.transport import free_port

Ends = tuple[Transport, RobotEndpoint, PolicyContract, tuple[int, int]]
"""Runtime's end, robot's end, their contract, and the port of either."""


@pytest.fixture
def ends(contract_of: Callable[[str], PolicyContract]) -> Iterator[Ends]:
    contract, own, robot = contract_of("go2-velocity"), free_port(), free_port()
    transport = open_transport("udp", {"robot": f"127.0.0.1:{robot}", "bind": f"127.0.0.1:{own}"})
    link = open_robot_link("udp", {"bind": f"127.0.0.1:{robot}"})
    link.open(contract)
    transport.open(contract)
    yield transport, link, contract, (own, robot)
    transport.close()
    link.close()


def fields(contract: PolicyContract) -> dict[str, np.ndarray]:
    sensors = {sensor.name: np.arange(sensor.size) / 4.0 for sensor in contract.robot.sensors}
    return sensors | {field.name: np.full(field.size, 0.5) for field in contract.command.fields}


def meet(ends: Ends) -> None:
    """The runtime greets, the robot answers."""
    transport, link, contract, _ = ends

    def answer() -> None:
        assert not link.wait(0.05)
        link.publish(fields(contract), time.time_ns())

    assert not transport.wait(0.01)
    answer()
    # Once more only where the greeting had not come: the tests count samples.
    until(lambda: transport.wait(2.0), answer)


def test_there_and_back(ends: Ends) -> None:
    transport, link, contract, _ = ends
    assert [name for name, _ in transport.missing()] == [
        "joint_pos", "joint_vel", "imu_quat", "imu_ang_vel_b", "velocity_command",
    ]  # fmt: skip
    meet(ends)
    sample = transport.sample()
    for name, values in fields(contract).items():
        np.testing.assert_array_equal(sample.fields[name], values)
    assert transport.missing() == ()
    assert sample.sequence == 1
    stamp_ns = time.time_ns()
    transport.send({"joint_pos_target": np.arange(12)[None] / 8.0}, stamp_ns)
    assert link.wait(PATIENCE_S)
    np.testing.assert_array_equal(link.command().targets["joint_pos_target"], np.arange(12) / 8.0)
    assert link.command().stamp_ns == stamp_ns
    assert (transport.problems(), link.problems()) == ((), ())


def test_the_newest_sample_is_kept_and_none_is_seen_twice(ends: Ends) -> None:
    transport, link, contract, _ = ends
    meet(ends)
    now = time.time_ns()
    for number in range(3):
        link.publish({**fields(contract), "joint_pos": np.full(12, float(number))}, now + number)
    assert transport.wait(PATIENCE_S)
    until(lambda: transport.sample().fields["joint_pos"][0] == 2.0, transport.poll)
    assert transport.sample().stamp_ns == now + 2
    assert not transport.poll()


def test_only_the_robot_is_heard(ends: Ends) -> None:
    transport, link, contract, ports = ends
    meet(ends)
    writer = PacketWriter(packet_layout(contract, Kind.SENSORS))
    writer.write({"joint_pos": np.full(12, 9.0)}, time.time_ns())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as intruder:
        intruder.sendto(writer.data, ("127.0.0.1", ports[0]))
    link.publish(fields(contract), time.time_ns())
    assert transport.wait(PATIENCE_S)
    # The kernel promises no order between two senders.
    until(transport.problems, lambda: transport.wait(0.05))
    assert transport.sample().fields["joint_pos"][0] == 0.0
    assert transport.problems()[0].startswith("UDP: packets from 127.0.0.1, only 127.0.0.1:")
    assert isinstance(transport, SupportsReset)
    transport.forget()
    assert transport.problems() == ()


def test_a_robot_obeys_one_runtime_at_a_time(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udp_grants, "LEAST_SILENCE_S", 60.0)
    transport, link, contract, ports = ends
    link.close()
    link.open(contract)
    meet(ends)
    assert claimed(transport) == ""
    ones, nines = ({"joint_pos_target": np.full(12, value)} for value in (1.0, 9.0))
    second = open_transport("udp", {"robot": f"127.0.0.1:{ports[1]}"})
    second.open(contract)
    until(lambda: claimed(second) == "the robot, which obeys another runtime", lambda: answered(second, link))
    assert second.missing()[0][0] == "the robot, which obeys another runtime"
    second.send(nines, time.time_ns())
    assert not link.wait(0.2)
    transport.send(ones, time.time_ns())
    assert link.wait(PATIENCE_S)
    assert link.command().targets["joint_pos_target"][0] == 1.0
    assert "refused: the runtime at 127.0.0.1:" in link.problems()[0]
    second.close()


def test_a_runtime_that_lost_the_robot_knows_it_and_is_not_obeyed(ends: Ends) -> None:
    """The first one is silent for long; a second one takes over; the first one comes back."""
    transport, link, contract, ports = ends
    meet(ends)
    assert claimed(transport) == ""
    second = open_transport("udp", {"robot": f"127.0.0.1:{ports[1]}"})
    second.open(contract)
    until(lambda: claimed(second) == "", lambda: answered(second, link))
    numbers = [one.lease_number for one in (transport, second) if isinstance(one, Exclusive)]
    assert numbers == [1, 2]
    assert lost(transport) == ""
    transport.send({"joint_pos_target": np.ones(12)}, time.time_ns())
    assert not link.wait(0.2)
    until(lambda: lost(transport) == "the robot obeys another runtime now", transport.poll)
    assert lost(second) == ""
    second.close()


def test_a_robot_that_has_started_anew_obeys_nobody(ends: Ends) -> None:
    transport, link, contract, _ = ends
    meet(ends)
    assert claimed(transport) == ""
    link.close()
    link.open(contract)
    transport.send({"joint_pos_target": np.ones(12)}, time.time_ns())
    assert not link.wait(0.2)
    until(lambda: lost(transport) == "the robot has started anew", transport.poll)
    assert link.command().sequence == 0


def test_a_companion_speaks_as_its_commander(ends: Ends) -> None:
    transport, link, contract, _ = ends
    meet(ends)
    assert isinstance(transport, SupportsWatchdog)
    told = transport.companion()
    options = {**told.options, "socket": str(os.dup(told.descriptors[0]))}
    companion = open_transport(told.transport, options)
    companion.open(contract)
    companion.send({"joint_pos_target": np.full(12, 3.0)}, time.time_ns())
    assert link.wait(PATIENCE_S)
    assert link.command().targets["joint_pos_target"][0] == 3.0
    companion.close()


def claimed(transport: Transport) -> str:
    assert isinstance(transport, Exclusive)
    return transport.claim()


def lost(transport: Transport) -> str:
    assert isinstance(transport, Exclusive)
    return transport.lost()


def answered(transport: Transport, link: RobotEndpoint) -> None:
    """Lets a runtime ask, and the robot answer."""
    transport.wait(0.05)
    link.wait(0.01)
    transport.poll()


def test_a_damaged_packet_is_not_heard(ends: Ends) -> None:
    _, link, contract, ports = ends
    meet(ends)
    writer = PacketWriter(packet_layout(contract, Kind.TARGETS))
    writer.write({"joint_pos_target": np.full(12, 9.0)}, time.time_ns())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second:
        second.sendto(bytes(writer.data)[:-1] + b"?", ("127.0.0.1", ports[1]))
    until(link.problems, lambda: link.wait(0.05))
    assert "CRC does not fit" in link.problems()[0]
    assert link.command().sequence == 0


def test_another_contract_is_refused(
    contract_of: Callable[[str], PolicyContract], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp_link, "MEETING_S", PATIENCE_S)
    port = free_port()
    transport = open_transport("udp", {"robot": f"127.0.0.1:{port}"})
    link = open_robot_link("udp", {"bind": f"127.0.0.1:{port}"})
    link.open(contract_of("acrobot-swingup"))
    transport.open(contract_of("pendubot-swingup"))
    until(link.problems, lambda: (transport.wait(0.01), link.wait(0.05)))
    (told,) = link.problems()
    ours, theirs = (contract_of(f"{name}-swingup").fingerprint[:16] for name in ("acrobot", "pendubot"))
    assert told.startswith(f"UDP: refused: a packet of the contract {theirs}…, expected {ours}…")
    transport.close()
    link.close()


def test_stamps_that_cannot_be(ends: Ends) -> None:
    transport, link, contract, _ = ends
    meet(ends)
    before = transport.sample().sequence
    link.publish(fields(contract), 0)
    link.publish(fields(contract), time.time_ns() + 10 * 10**9)

    def told() -> list[str]:
        return [text for text in transport.problems() if text.startswith("UDP sensors")]

    until(lambda: len(told()) == 2, lambda: transport.wait(0.05))
    assert transport.sample().sequence == before
    zero, future = told()
    assert "its stamp is 0 s" in zero
    assert "ahead of this clock" in future


def test_a_microcontrollers_own_clock(contract_of: Callable[[str], PolicyContract]) -> None:
    contract, port = contract_of("pendubot-swingup"), free_port()
    transport = open_transport("udp", {"robot": f"127.0.0.1:{port}"})
    transport.open(contract)
    writer = PacketWriter(packet_layout(contract, Kind.SENSORS), Clock.OWN)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as board:
        board.bind(("127.0.0.1", port))
        board.settimeout(PATIENCE_S)
        assert not transport.wait(0.01)
        _, runtime = board.recvfrom(100)
        before = time.time_ns()
        writer.write({"joint_pos": np.zeros(2)}, 5_000_000)
        board.sendto(writer.data, runtime)
        assert transport.wait(PATIENCE_S)
        assert before <= transport.sample().stamp_ns <= time.time_ns()
        first = transport.sample().stamp_ns
        writer.write({"joint_pos": np.zeros(2)}, 5_000_001)
        board.sendto(writer.data, runtime)
        assert transport.wait(PATIENCE_S)
        assert transport.sample().stamp_ns == first + 1
    transport.close()


def test_a_board_that_restarts_is_heard_again(contract_of: Callable[[str], PolicyContract]) -> None:
    contract, port = contract_of("pendubot-swingup"), free_port()
    transport = open_transport("udp", {"robot": f"127.0.0.1:{port}"})
    transport.open(contract)
    layout = packet_layout(contract, Kind.SENSORS)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as board:
        board.bind(("127.0.0.1", port))
        board.settimeout(PATIENCE_S)
        assert not transport.wait(0.01)
        _, runtime = board.recvfrom(100)
        writer = PacketWriter(layout, Clock.OWN)
        for stamp in (60 * 10**9, 61 * 10**9):
            writer.write({"joint_pos": np.zeros(2)}, stamp)
            board.sendto(writer.data, runtime)
            assert transport.wait(PATIENCE_S)
        again = PacketWriter(layout, Clock.OWN)
        again.write({"joint_pos": np.ones(2)}, 10**9)
        board.sendto(again.data, runtime)
        assert transport.wait(PATIENCE_S)
    assert transport.sample().fields["joint_pos"][0] == 1.0
    assert transport.problems() == ("UDP sensors: the sender started anew",)
    transport.close()


def test_a_robot_with_this_clock_that_restarts_is_heard_again(ends: Ends) -> None:
    transport, link, contract, ports = ends
    meet(ends)
    for _ in range(20):
        link.publish(fields(contract), time.time_ns())
        assert transport.wait(PATIENCE_S)
    link.close()
    again = UdpRobotEndpoint({"bind": f"127.0.0.1:{ports[1]}"})
    again.open(contract)
    until(lambda: again.grants.holder, lambda: (transport.wait(0.05), again.wait(0.01)))
    transport.send({"joint_pos_target": np.ones(12)}, time.time_ns())
    assert again.wait(PATIENCE_S)
    again.publish({**fields(contract), "joint_pos": np.full(12, 7.0)}, time.time_ns())
    assert transport.wait(PATIENCE_S)
    assert transport.sample().fields["joint_pos"][0] == 7.0
    assert "UDP sensors: the sender started anew" in transport.problems()
    again.close()


def test_a_runtime_that_restarts_is_obeyed_again(ends: Ends) -> None:
    transport, link, contract, ports = ends
    meet(ends)
    for _ in range(20):
        transport.send({"joint_pos_target": np.ones(12)}, time.time_ns())
        assert link.wait(PATIENCE_S)
    transport.close()
    again = open_transport("udp", {"robot": f"127.0.0.1:{ports[1]}"})
    again.open(contract)
    seven = {"joint_pos_target": np.full(12, 7.0)}
    until(lambda: claimed(again) == "", lambda: answered(again, link))
    again.send(seven, time.time_ns())
    assert link.wait(PATIENCE_S)
    assert link.command().targets["joint_pos_target"][0] == 7.0
    again.close()


def test_packets_that_were_overtaken_or_doubled_are_left_out(ends: Ends) -> None:
    transport, _, contract, ports = ends
    writer = PacketWriter(packet_layout(contract, Kind.SENSORS))
    now_ns = time.time_ns()
    packets: list[bytes] = []
    for number in range(3):
        writer.write({**fields(contract), "joint_pos": np.full(12, float(number))}, now_ns + number)
        packets.append(bytes(writer.data))
    ends[1].close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as board:
        board.bind(("127.0.0.1", ports[1]))
        for packet in (packets[0], packets[2], packets[1], packets[2], packets[0]):
            board.sendto(packet, ("127.0.0.1", ports[0]))
        position = transport.sample().fields["joint_pos"]
        until(lambda: position[0] == 2.0, transport.poll)
        transport.wait(0.2)
    assert position[0] == 2.0
    assert transport.problems() == ()


def test_silence_is_told(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    transport, link, _, ports = ends
    monkeypatch.setattr(udp_link, "MEETING_S", PATIENCE_S)
    assert transport.problems() == link.problems() == ()
    monkeypatch.setattr(udp_link, "MEETING_S", 0.0)
    assert transport.problems() == (
        f"UDP: greeted 127.0.0.1:{ports[1]}, nothing has been heard from it; is that the robot, and is it on?",
    )
    assert link.problems() == (f"UDP: no runtime has been heard on 127.0.0.1:{ports[1]}",)
    meet(ends)
    assert transport.problems() == link.problems() == ()


def test_options_and_states() -> None:
    with pytest.raises(UnknownNameError, match="no option of transport udp named 'robt'; did you mean robot"):
        open_transport("udp", {"robt": "127.0.0.1:1"})
    for text in ("127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000", ":5"):
        with pytest.raises(TransportError, match="expected HOST:PORT"):
            address(text)
    transport = open_transport("udp", {})
    with pytest.raises(TransportError, match="not open"):
        transport.poll()
    transport.close()
    with pytest.raises(UnknownNameError, match="no transport named 'dbs'; did you mean dds"):
        open_transport("dbs", {})


def test_a_port_that_is_taken(contract_of: Callable[[str], PolicyContract]) -> None:
    contract, port = contract_of("pendubot-swingup"), free_port()
    link = open_robot_link("udp", {"bind": f"127.0.0.1:{port}"})
    link.open(contract)
    other = open_robot_link("udp", {"bind": f"127.0.0.1:{port}"})
    with pytest.raises(TransportError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
        other.open(contract)
    link.close()
    other.open(contract)
    other.close()
    other.close()
