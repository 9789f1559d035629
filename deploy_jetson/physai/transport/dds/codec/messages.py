"""ROS 2 messages that the runtime uses, as defined in their interface files (common_interfaces, ROS 2 Jazzy).

DDS matches publishers and subscribers by type name only. The hash of each definition (REP-2016, `RIHS01_…`, as
announced by ROS 2) is therefore announced and compared.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from typing import Any

# Fields of each message type, one per line as in its .msg file, without constants and comments; `char` is written as
# uint8, which it is in ROS 2.
DEFINITIONS = {
    "builtin_interfaces/msg/Time": "int32 sec\nuint32 nanosec",
    "builtin_interfaces/msg/Duration": "int32 sec\nuint32 nanosec",
    "std_msgs/msg/String": "string data",
    "std_msgs/msg/Header": "builtin_interfaces/Time stamp\nstring frame_id",
    "std_msgs/msg/MultiArrayDimension": "string label\nuint32 size\nuint32 stride",
    "std_msgs/msg/MultiArrayLayout": "std_msgs/MultiArrayDimension[] dim\nuint32 data_offset",
    "std_msgs/msg/Float64MultiArray": "std_msgs/MultiArrayLayout layout\nfloat64[] data",
    "geometry_msgs/msg/Vector3": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/msg/Point": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/msg/Quaternion": "float64 x\nfloat64 y\nfloat64 z\nfloat64 w",
    "geometry_msgs/msg/Pose": "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation",
    "geometry_msgs/msg/PoseStamped": "std_msgs/Header header\ngeometry_msgs/Pose pose",
    "geometry_msgs/msg/Twist": "geometry_msgs/Vector3 linear\ngeometry_msgs/Vector3 angular",
    "geometry_msgs/msg/TwistStamped": "std_msgs/Header header\ngeometry_msgs/Twist twist",
    "sensor_msgs/msg/JointState": (
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort"
    ),
    "sensor_msgs/msg/Imu": (
        "std_msgs/Header header\n"
        "geometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n"
        "geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n"
        "geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance"
    ),
    "trajectory_msgs/msg/JointTrajectoryPoint": (
        "float64[] positions\nfloat64[] velocities\nfloat64[] accelerations\nfloat64[] effort\n"
        "builtin_interfaces/Duration time_from_start"
    ),
    "trajectory_msgs/msg/JointTrajectory": (
        "std_msgs/Header header\nstring[] joint_names\ntrajectory_msgs/JointTrajectoryPoint[] points"
    ),
    "diagnostic_msgs/msg/KeyValue": "string key\nstring value",
    "diagnostic_msgs/msg/DiagnosticStatus": (
        "byte level\nstring name\nstring message\nstring hardware_id\ndiagnostic_msgs/KeyValue[] values"
    ),
    "diagnostic_msgs/msg/DiagnosticArray": "std_msgs/Header header\ndiagnostic_msgs/DiagnosticStatus[] status",
    "rmw_dds_common/msg/Gid": "uint8[16] data",
    "rmw_dds_common/msg/NodeEntitiesInfo": (
        "string<=256 node_namespace\nstring<=256 node_name\n"
        "rmw_dds_common/Gid[] reader_gid_seq\nrmw_dds_common/Gid[] writer_gid_seq"
    ),
    "rmw_dds_common/msg/ParticipantEntitiesInfo": (
        "rmw_dds_common/Gid gid\nrmw_dds_common/NodeEntitiesInfo[] node_entities_info_seq"
    ),
}

# Primitive types in use and their `struct` codes, except `string`.
PRIMITIVES = {"int32": "i", "uint32": "I", "byte": "B", "uint8": "B", "float64": "d"}

TYPE_IDS = {"uint8": 3, "int32": 6, "uint32": 7, "float64": 11, "byte": 16, "string": 17}
NESTED, BOUNDED_STRING = 1, 21
# Type ids, and offsets for arrays and sequences: type_description_interfaces/msg/FieldType.
ARRAY, SEQUENCE = 48, 144


@dataclass(frozen=True)
class MessageField:
    """A field of a message."""

    name: str
    base: str
    """A primitive, `string`, or the full name of a message type."""
    length: int | None = None
    """None for a single value, 0 for a sequence of any length, else the length of a fixed array."""
    most: int = 0
    """Maximum length of a string; 0 for any."""


@cache
def fields_of(message: str) -> tuple[MessageField, ...]:
    """Return the fields of a message type in order."""
    return tuple(_field(line) for line in DEFINITIONS[message].split("\n"))


def _field(line: str) -> MessageField:
    kind, name = line.split(" ")
    # `string<=256` is bounded, `float64[9]` an array, `float64[]` a sequence.
    base, bracket, length = kind.partition("[")
    base, _, most = base.partition("<=")
    if "/" in base:
        base = base.replace("/", "/msg/")
    return MessageField(name, base, int(length.rstrip("]") or 0) if bracket else None, int(most or 0))


@cache
def type_hash(message: str) -> str:
    """Return the SHA-256 of a message type's description in 64 hexadecimal digits (REP-2016, RIHS01).

    Source: https://ros.org/reps/rep-2016.html, and rosidl_generator_type_description for the JSON, which has
    one space after every comma and colon, and no default values.
    """
    # Sorted by name, as the specification demands: the hash is over this text.
    referenced = sorted(_referenced(message) - {message})
    text = json.dumps(
        {
            "type_description": _description(message),
            "referenced_type_descriptions": [_description(other) for other in referenced],
        }
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _referenced(message: str) -> set[str]:
    found = {message}
    for field in fields_of(message):
        if "/" in field.base:
            found |= _referenced(field.base)
    return found


def _description(message: str) -> dict[str, Any]:
    return {"type_name": message, "fields": [_described(field) for field in fields_of(message)]}


def _described(field: MessageField) -> dict[str, Any]:
    nested = "/" in field.base
    number = NESTED if nested else BOUNDED_STRING if field.most else TYPE_IDS[field.base]
    if field.length is not None:
        # FieldType numbers arrays and sequences of a type at a fixed distance from the type itself.
        number += ARRAY if field.length else SEQUENCE
    kind = {
        "type_id": number,
        "capacity": field.length or 0,
        "string_capacity": field.most,
        "nested_type_name": field.base if nested else "",
    }
    return {"name": field.name, "type": kind}


def dds_type(message: str) -> str:
    """Return the DDS name of a message type, such as `sensor_msgs::msg::dds_::JointState_`."""
    package, _, name = message.split("/")
    return f"{package}::msg::dds_::{name}_"


def dds_topic(topic: str) -> str:
    """Return the DDS name of a ROS topic: `/joint_states` is `rt/joint_states`."""
    return f"rt/{topic.removeprefix('/')}"


def user_data(message: str) -> bytes:
    """Return the user data with which ROS 2 announces the type hash of an endpoint."""
    return f"typehash=RIHS01_{type_hash(message)};".encode()
