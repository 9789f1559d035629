"""The datagram, byte by byte as its documentation says."""

import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import SensorField
from physai.sdk.transport.protocol import TransportError
from physai.transport.udp.packet import (
    MAX_VALUES,
    Clock,
    Header,
    Kind,
    PacketLayout,
    PacketReader,
    PacketWriter,
    is_newer,
    packet_layout,
)

LAYOUT = PacketLayout(Kind.SENSORS, bytes(range(8)), {"pos": slice(0, 2), "vel": slice(2, 3)})
WHOSE = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
"""Commander and lease."""


def read(data: bytes, *layouts: PacketLayout) -> tuple[Header, list[float]]:
    reader = PacketReader(layouts or (LAYOUT,))
    reader.room[: len(data)] = data
    header = reader.read(len(data))
    return header, reader.values[header.kind].tolist()


def packet(stamp_ns: int = 77) -> bytes:
    writer = PacketWriter(LAYOUT)
    writer.commander, writer.lease = 8, 9
    assert writer.write({"pos": np.array([1.5, -2.0]), "vel": np.array([0.25])}, stamp_ns)
    return bytes(writer.data)


def changed(position: int, value: bytes, *, sealed: bool = True) -> bytes:
    data = bytearray(packet())
    data[position : position + len(value)] = value
    if sealed:
        data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
    return bytes(data)


def test_bytes_are_as_documented() -> None:
    body = b"PHYS" + bytes([2, 1, 0, 0]) + bytes(range(8)) + struct.pack("<IIQII3f", 0, 3, 77, 8, 9, 1.5, -2.0, 0.25)
    assert packet() == body + struct.pack("<I", zlib.crc32(body))


def test_the_sequence_counts_and_wraps() -> None:
    writer = PacketWriter(LAYOUT, Clock.OWN)
    sequences: list[int] = []
    for _ in range(3):
        writer.write({"vel": np.zeros(1)}, 1)
        header, values = read(bytes(writer.data))
        sequences.append(header.sequence)
        assert header.clock is Clock.OWN
        assert np.isnan(values[:2]).all()
    assert sequences == [0, 1, 2]


@pytest.mark.parametrize(
    ("newer", "last", "expected"),
    [(1, 0, True), (0, 0, False), (0, 1, False), (0, 2**32 - 1, True), (2**32 - 1, 0, False), (2**31, 0, False)],
)
def test_newer_across_the_wrap(newer: int, last: int, *, expected: bool) -> None:
    assert is_newer(newer, last) is expected


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(packet()) * 8 - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    data = bytearray(packet())
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(TransportError):
        read(bytes(data))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "a packet of 0 bytes, expected 44 to 1472"),
        (bytes(1473), "a packet of 1473 bytes"),
        (changed(0, b"PHYZ"), "starts with b'PHYZ', expected b'PHYS'"),
        (changed(4, b"\x01"), "version 1, expected 2"),
        (changed(5, b"\x03"), "kind 3, expected 1"),
        (changed(6, b"\x02"), "clock 2, expected 0 or 1"),
        (changed(8, b"\xff"), r"of the contract ff01020304050607…, expected 0001020304050607…"),
        (changed(20, b"\x02"), "2 values and 56 bytes, expected 3 values"),
        (changed(40, b"\x00", sealed=False)[:-1], "CRC does not fit"),
        (changed(41, b"\x55", sealed=False), "CRC does not fit"),
    ],
)
def test_what_is_wrong_is_told(data: bytes, problem: str) -> None:
    with pytest.raises(TransportError, match=problem):
        read(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=1480))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(TransportError):
        read(data[:1473])


@settings(deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3), st.integers(0, 2**64 - 1), WHOSE)
def test_there_and_back(numbers: list[float], stamp_ns: int, whose: tuple[int, int]) -> None:
    writer = PacketWriter(LAYOUT)
    writer.commander, writer.lease = whose
    writer.write({"pos": np.array([numbers[:2]]), "vel": np.array(numbers[2:])}, stamp_ns)
    header, values = read(bytes(writer.data))
    assert values == numbers
    assert header == Header(Kind.SENSORS, Clock.REALTIME, 0, stamp_ns, *whose)


def test_vectors_of_another_size_do_not_leave() -> None:
    with pytest.raises(TransportError, match="pos has 3 elements, expected 2"):
        PacketWriter(LAYOUT).write({"pos": np.zeros(3)}, 1)


def test_layout_of_a_contract(contract_of: Callable[[str], PolicyContract]) -> None:
    contract = contract_of("go2-velocity")
    sensors = packet_layout(contract, Kind.SENSORS)
    assert sensors.count == 12 * 3 + 4 + 3 + 3
    assert sensors.slices["imu_quat"] == slice(36, 40)
    assert sensors.fingerprint.hex() == contract.fingerprint[:16]
    assert packet_layout(contract, Kind.COMMANDS).slices == {"velocity_command": slice(0, 3)}
    assert packet_layout(contract, Kind.TARGETS).slices == {"joint_pos_target": slice(0, 12)}


def test_what_fills_no_frame_is_refused(contract_of: Callable[[str], PolicyContract]) -> None:
    contract = contract_of("cartpole-swingup")
    camera = SensorField(name="depth", size=MAX_VALUES, unit="m")
    robot = contract.robot.model_copy(update={"sensors": (*contract.robot.sensors, camera)})
    with pytest.raises(TransportError, match=f"{MAX_VALUES + 6} values, a packet holds {MAX_VALUES}: use dds"):
        packet_layout(contract.model_copy(update={"robot": robot}), Kind.SENSORS)
