"""Messages to bytes and back, checked against rosbags, which has its own definitions and its own CDR."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from physai.transport.dds.codec import cdr
from physai.transport.dds.codec.cdr import EncodingError, decode, encode
from physai.transport.dds.codec.messages import (
    DEFINITIONS,
    MessageField,
    dds_topic,
    dds_type,
    fields_of,
    type_hash,
    user_data,
)

JAZZY = get_typestore(Stores.ROS2_JAZZY)
TOPIC_TYPES = (
    "std_msgs/msg/String",
    "std_msgs/msg/Float64MultiArray",
    "geometry_msgs/msg/PoseStamped",
    "geometry_msgs/msg/Twist",
    "geometry_msgs/msg/TwistStamped",
    "sensor_msgs/msg/JointState",
    "sensor_msgs/msg/Imu",
    "trajectory_msgs/msg/JointTrajectory",
    "diagnostic_msgs/msg/DiagnosticArray",
    "rmw_dds_common/msg/ParticipantEntitiesInfo",
)
KNOWN_TO_ROSBAGS = sorted({*TOPIC_TYPES} - {"rmw_dds_common/msg/ParticipantEntitiesInfo"})
"""rosbags 0.11.9 hashes `char` as another type than ROS 2 does."""

PUBLISHED = {
    # ros2/ros2_documentation, jazzy, source/Tutorials/Beginner-CLI-Tools/Understanding-ROS2-Topics.
    "geometry_msgs/msg/Twist": "9c45bf16fe0983d80e3cfe750d6835843d265a9a6c46bd2e609fcddde6fb8d2a",
    # hpmicro/hpm_sdk, middleware/microros/kilted/include/sensor_msgs/msg/detail/joint_state__description.c, generated.
    "sensor_msgs/msg/JointState": "a13ee3a330e346c9d87b5aa18d24e11690752bd33a0350f11c5882bc9179260e",
    "builtin_interfaces/msg/Time": "b106235e25a4c5ed35098aa0a61a3ee9c9b18d197f398b0e4206cea9acf9c197",
    "std_msgs/msg/Header": "f49fb3ae2cf070f793645ff749683ac6b06203e41c891e17701b1cb597ce6a01",
    # Output of `ros2 topic info --verbose` and of rosidl_generator_c, as several public repositories quote it.
    "geometry_msgs/msg/TwistStamped": "5f0fcd4f81d5d06ad9b4c4c63e3ea51b82d6ae4d0558f1d475229b1121db6f64",
    "geometry_msgs/msg/PoseStamped": "10f3786d7d40fd2b54367835614bff85d4ad3b5dab62bf8bca0cc232d73b4cd8",
    "trajectory_msgs/msg/JointTrajectory": "179b33eba59d676f6d967ac71fe35e7ca2f64b2f3928f4a018cec115e213796e",
    "sensor_msgs/msg/Imu": "7d9a00ff131080897a5ec7e26e315954b8eae3353c3f995c55faf71574000b5b",
    "std_msgs/msg/Float64MultiArray": "1025ddc6b9552d191f89ef1a8d2f60f3d373e28b283d8891ddcc974e8c55397f",
    "diagnostic_msgs/msg/DiagnosticArray": "5a8a36efb05fb25070fa0fb3810290c0e6cd4862b54a8fb975a1ee8dc55a333e",
    "rmw_dds_common/msg/Gid": "ab6f21cfbb0a6dbb837161e1110c2051a2850ed9f9c53944d7115d9bcebedf71",
    "rmw_dds_common/msg/NodeEntitiesInfo": "8ffef65ee2d088c63b1e8fcd31e800ba9fc8dbe0ee15ca60d1676de5218087a7",
    "rmw_dds_common/msg/ParticipantEntitiesInfo": "91a0593bacdcc50ea9bdcf849a938b128412cc1ea821245c663bcd26f83c295e",
}
"""Hashes (RIHS01) as real ROS 2 has announced or generated them."""
HEADER = {"stamp": {"sec": 5, "nanosec": 7}, "frame_id": "base"}

numbers = st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
BASES: dict[str, st.SearchStrategy[Any]] = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "byte": st.integers(0, 127),  # rosbags takes it for signed
    "float64": numbers,
    "string": texts,
}


def values(field: MessageField) -> st.SearchStrategy[Any]:
    base = BASES[field.base] if field.base in BASES else messages(field.base)
    if field.length is None:
        return base
    return st.lists(base, min_size=field.length, max_size=field.length or 3)


def messages(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({field.name: values(field) for field in fields_of(kind)})


kinds_and_messages = st.sampled_from(KNOWN_TO_ROSBAGS).flatmap(lambda kind: st.tuples(st.just(kind), messages(kind)))


def as_rosbags(kind: str, message: dict[str, Any]) -> Any:
    parts: dict[str, Any] = {}
    for field in fields_of(kind):
        value = message[field.name]
        if field.base not in BASES:
            many = field.length is not None
            parts[field.name] = [as_rosbags(field.base, v) for v in value] if many else as_rosbags(field.base, value)
        elif field.base == "float64" and field.length is not None:
            parts[field.name] = np.array(value, np.float64)
        else:
            parts[field.name] = value
    return JAZZY.types[kind](**parts)


@pytest.mark.parametrize("kind", KNOWN_TO_ROSBAGS)
def test_definitions_are_those_of_ros(kind: str) -> None:
    ours = get_typestore(Stores.EMPTY)
    for name, text in DEFINITIONS.items():
        ours.register(get_types_from_msg(text, name))
    assert ours.hash_rihs01(kind) == JAZZY.hash_rihs01(kind) == f"RIHS01_{type_hash(kind)}"


@pytest.mark.parametrize("kind", sorted(PUBLISHED))
def test_hashes_are_those_of_ros(kind: str) -> None:
    assert type_hash(kind) == PUBLISHED[kind]


def test_names_on_the_wire() -> None:
    assert dds_topic("/joint_states") == "rt/joint_states"
    assert dds_type("sensor_msgs/msg/JointState") == "sensor_msgs::msg::dds_::JointState_"
    digest = "a13ee3a330e346c9d87b5aa18d24e11690752bd33a0350f11c5882bc9179260e"
    assert user_data("sensor_msgs/msg/JointState") == f"typehash=RIHS01_{digest};".encode()


@settings(max_examples=50, deadline=None)
@given(kinds_and_messages)
def test_bytes_are_those_of_rosbags(case: tuple[str, dict[str, Any]]) -> None:
    kind, message = case
    expected = bytes(JAZZY.serialize_cdr(as_rosbags(kind, message), kind))
    data, _ = encode(kind, message)
    # DDS wants a multiple of four bytes; rosbags leaves that to it.
    assert bytes(data).rstrip(b"\0") == expected.rstrip(b"\0")
    assert len(data) == 4 + -(-(len(expected) - 4) // 4) * 4
    assert decode(kind, bytes(data))[0] == message


@settings(max_examples=50, deadline=None)
@given(kinds_and_messages)
def test_big_endian_is_read_too(case: tuple[str, dict[str, Any]]) -> None:
    kind, message = case
    data = bytes(JAZZY.serialize_cdr(as_rosbags(kind, message), kind, little_endian=False))
    read, _, order = decode(kind, data)
    assert (read, order) == (message, ">")


def test_places_of_the_numbers_by_hand() -> None:
    names = {"header": HEADER, "name": ["a", "bcd"], "position": [1.0, 2.0], "velocity": [3.0, 4.0]}
    data, places = encode("sensor_msgs/msg/JointState", names)
    # 4 head, 8 stamp, 4+5 frame, to 24: count of names, 28: 4+2 "a", to 36: 4+4 "bcd", 44: count, 4 to align to 8.
    assert places == {"header.stamp": (4, 1), "position": (52, 2), "velocity": (76, 2)}
    assert struct.unpack_from("<2d", data, 52) == (1.0, 2.0)
    assert struct.unpack_from("<iI", data, 4) == (5, 7)
    assert struct.unpack_from("<I", data, 92) == (0,)
    assert len(data) == 96


def test_fixed_arrays_have_their_length() -> None:
    with pytest.raises(ValueError, match="orientation_covariance has 8 values, expected 9"):
        encode("sensor_msgs/msg/Imu", {"orientation_covariance": [0.0] * 8})


@settings(max_examples=50, deadline=None)
@given(kinds_and_messages, st.data())
def test_what_is_cut_off_is_refused(case: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    kind, message = case
    whole = bytes(JAZZY.serialize_cdr(as_rosbags(kind, message), kind))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(EncodingError):
        decode(kind, cut)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(KNOWN_TO_ROSBAGS), st.binary(max_size=300))
def test_garbage_is_refused_or_read_but_never_more(kind: str, garbage: bytes) -> None:
    try:
        _, places, _ = decode(kind, b"\x00\x01\x00\x00" + garbage)
    except EncodingError:
        return
    assert all(start + 8 * count <= 4 + len(garbage) for start, count in places.values())


def test_other_encodings_are_refused() -> None:
    data, _ = encode("geometry_msgs/msg/Twist", {})
    with pytest.raises(EncodingError, match="encoding 0x0007; ROS 2 sends plain CDR, 0x0001"):
        decode("geometry_msgs/msg/Twist", b"\x00\x07" + bytes(data[2:]))


def test_another_type_is_noticed() -> None:
    data, _ = encode("sensor_msgs/msg/Imu", {"header": HEADER})
    with pytest.raises(EncodingError, match="bytes"):
        decode("geometry_msgs/msg/Twist", bytes(data))


def test_a_count_beyond_the_message_is_refused() -> None:
    data, _ = encode("std_msgs/msg/Float64MultiArray", {"data": [1.0]})
    damaged = bytearray(data)
    struct.pack_into("<I", damaged, 4, 2**31)
    with pytest.raises(EncodingError, match=r"layout\.dim claims 2147483648 elements"):
        decode("std_msgs/msg/Float64MultiArray", bytes(damaged))


def test_a_message_has_bounds() -> None:
    with pytest.raises(EncodingError, match=f"{cdr.MAX_MESSAGE_BYTES + 1} bytes"):
        decode("geometry_msgs/msg/Twist", bytes(cdr.MAX_MESSAGE_BYTES + 1))
    with pytest.raises(EncodingError, match="3 bytes"):
        decode("geometry_msgs/msg/Twist", b"\x00\x01\x00")


def test_a_string_that_is_none() -> None:
    data, _ = encode("diagnostic_msgs/msg/DiagnosticArray", {"header": {"frame_id": "ab"}})
    for damage, problem in ((b"abc", "does not end with 0"), (b"\xff\xfe\x00", "not UTF-8")):
        damaged = bytes(data).replace(b"ab\x00", damage)
        with pytest.raises(EncodingError, match=problem):
            decode("diagnostic_msgs/msg/DiagnosticArray", damaged)
