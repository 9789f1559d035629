"""Mapping between fields of the contract and parts of ROS topics: a YAML file, or a built-in one per robot."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from physai.sdk.base.errors import unknown_name
from physai.sdk.base.formats.yaml_file import read_yaml
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import JOINT_SENSORS, MAX_JOINTS, Frozen, Name, NonNegative, require_unique
from physai.sdk.transport.protocol import TransportError

FORMAT_VERSION = 1
MAX_FILE_BYTES = 64 * 1024
# Relative difference of gains that does not matter.
GAIN_TOLERANCE = 0.01
# The built-in bindings, one file per robot; copy and adapt one for your robot.
FOLDER = Path(__file__).parent / "bindings"

# A ROS topic's full name, with the leading slash.
TopicName = Annotated[str, Field(pattern=r"^/[A-Za-z_~][A-Za-z0-9_/]{0,250}$")]
Part = Annotated[str, Field(pattern=r"^[a-z_]{1,32}(\.[a-z]{1,8})?$")]
Frame = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[ -~]*$")]
MessageType = Literal[
    "sensor_msgs/msg/JointState",
    "sensor_msgs/msg/Imu",
    "geometry_msgs/msg/Twist",
    "geometry_msgs/msg/TwistStamped",
    "geometry_msgs/msg/PoseStamped",
    "std_msgs/msg/Float64MultiArray",
    "trajectory_msgs/msg/JointTrajectory",
]

XYZ, WXYZ = ("x", "y", "z"), ("w", "x", "y", "z")
# Parts with one number per joint, and their paths in the message.
JOINT_PARTS = {
    "sensor_msgs/msg/JointState": {"position": "position", "velocity": "velocity", "effort": "effort"},
    "trajectory_msgs/msg/JointTrajectory": {
        "positions": "points.0.positions",
        "velocities": "points.0.velocities",
        "effort": "points.0.effort",
    },
}
# Path of the joint names in the message.
JOINT_NAMES = {"sensor_msgs/msg/JointState": "name", "trajectory_msgs/msg/JointTrajectory": "joint_names"}


def _vectors(prefix: str, parts: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    # A part as a whole, such as `linear`, and each of its numbers, such as `linear.x`.
    whole = {part: tuple(f"{prefix}{part}.{axis}" for axis in axes) for part, axes in parts.items()}
    single = {f"{part}.{axis}": (f"{prefix}{part}.{axis}",) for part, axes in parts.items() for axis in axes}
    return whole | single


_TWIST = {"linear": XYZ, "angular": XYZ}
_POSE = _vectors("pose.", {"position": XYZ, "orientation": WXYZ})
# Parts of fixed size, and the paths of their numbers; quaternions in the contract's order, wxyz.
NUMBER_PARTS = {
    "sensor_msgs/msg/Imu": _vectors("", {"orientation": WXYZ, "angular_velocity": XYZ, "linear_acceleration": XYZ}),
    "geometry_msgs/msg/Twist": _vectors("", _TWIST),
    "geometry_msgs/msg/TwistStamped": _vectors("twist.", _TWIST),
    "geometry_msgs/msg/PoseStamped": {**_POSE, "pose": _POSE["position"] + _POSE["orientation"]},
}
# Messages for which zeros are a valid command.
ZEROED = ("geometry_msgs/msg/Twist", "geometry_msgs/msg/TwistStamped", "std_msgs/msg/Float64MultiArray")
# Has one part, `data`, of any size and without names; ordered as `joints`, or as the contract.
ARRAY_TYPE = "std_msgs/msg/Float64MultiArray"


class TopicBinding(Frozen):
    """A topic and the contract's fields in it."""

    topic: TopicName
    type: MessageType
    fields: Annotated[dict[Name, Part | tuple[Part, ...]], Field(min_length=1, max_length=16)]
    """Field of the contract (a sensor, a command, or an output of the graph) to the part of the message, or parts."""
    joints: dict[Name, Name] = Field(default_factory=dict[str, str], max_length=MAX_JOINTS)
    """The robot's own name of a joint, where it differs from the contract's. In a Float64MultiArray, which has no
    names, all joints in the order in which the robot expects them."""
    qos: Literal["sensor_data", "default"] = "default"
    """`sensor_data`: a reader takes best effort, so that any publisher matches; `default`: reliable. As in ROS 2."""
    stamp: Literal["header", "source"] = "header"
    """Source of the time of measurement: the message's header, or the publisher's source time stamp, for drivers that
    leave the header empty and for messages without one."""
    frame: Frame | None = None
    """The only accepted `frame_id`; None for any."""
    timeout_s: Annotated[float, Field(gt=0.0, le=60.0)] | None = None
    """Only for operator commands: time after which the last one expires [s]; None if it never does, as for a position
    target."""
    at_timeout: Literal["zero", "hold"] = "hold"
    """Effect of the timeout: zeros, as for a velocity, or no command, for which the robot holds."""

    @model_validator(mode="after")
    def _parts_exist(self) -> Self:
        # Found out when the file is read, not when the first message arrives.
        known = parts_of(self.type)
        for name, parts in self.fields.items():
            for part in (parts,) if isinstance(parts, str) else parts:
                if part not in known:
                    raise ValueError(f"{name}: a {self.type} has no part {part!r}; it has {', '.join(known)}")
            if not isinstance(parts, str) and any(known[part] is None for part in parts):
                raise ValueError(f"{name}: only parts of fixed size can be put together, got {', '.join(parts)}")
        if self.timeout_s is not None and self.at_timeout == "zero" and self.type not in ZEROED:
            raise ValueError(f"{self.topic}: zeros are no {self.type}; use `at_timeout: hold`")
        if self.type == ARRAY_TYPE and len(self.fields) > 1:
            raise ValueError(f"{self.topic}: a {self.type} holds one field, got {', '.join(self.fields)}")
        return self


class FixedGains(Frozen):
    """Gains of a position servo that the robot's drivers fix."""

    stiffness: NonNegative
    """[N·m/rad or N/m]"""
    damping: NonNegative
    """[N·m·s/rad or N·s/m]"""


class Binding(Frozen):
    """All topics between a runtime and one robot."""

    format_version: Literal[1] = FORMAT_VERSION
    robot: Name
    """Name of the robot in the contract."""
    reads: Annotated[tuple[TopicBinding, ...], Field(min_length=1, max_length=32)]
    """Topics the robot, an operator or a planner publishes."""
    writes: Annotated[tuple[TopicBinding, ...], Field(min_length=1, max_length=8)]
    """Topics the runtime publishes."""
    gains: dict[Name, FixedGains] = Field(default_factory=dict[str, FixedGains], max_length=MAX_JOINTS)
    """Gains of joints whose positions are commanded, where the owner knows them: none of these messages carries gains,
    so a policy for others would drive another robot."""

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        for label, topics in (("reads", self.reads), ("writes", self.writes)):
            require_unique(f"{label}: field", (name for topic in topics for name in topic.fields))
        require_unique("topic", (topic.topic for topic in (*self.reads, *self.writes)))
        return self


def parts_of(message: str) -> dict[str, int | None]:
    """Return the parts of a message type and their sizes; None for one number per joint, or for any size."""
    if message == ARRAY_TYPE:
        return {"data": None}
    if message in JOINT_PARTS:
        return dict.fromkeys(JOINT_PARTS[message])
    return {part: len(paths) for part, paths in NUMBER_PARTS[message].items()}


def load_binding(path: Path) -> Binding:
    """Load a binding from a YAML file.

    Raises:
        TransportError: the file is missing, too large, or not a valid binding.
    """
    document = read_yaml(path, what="a binding", max_bytes=MAX_FILE_BYTES, error=TransportError)
    try:
        # By way of JSON: among Python values, a strict model takes no list for a tuple.
        text = json.dumps(document)
    except (ValueError, TypeError) as error:
        raise TransportError(f"binding {path}: {error}") from None
    try:
        return Binding.model_validate_json(text)
    except ValidationError as error:
        raise TransportError(f"binding {path}: {_problems(error)}") from None


def _problems(error: ValidationError) -> str:
    lines: list[str] = []
    # The first few: one mistake in a binding often causes many errors.
    for detail in error.errors(include_url=False)[:3]:
        where = ".".join(str(part) for part in detail["loc"])
        lines.append(f"{where + ': ' if where else ''}{detail['msg'].removeprefix('Value error, ')}")
    more = error.error_count() - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more else "")


def built_in_bindings() -> tuple[str, ...]:
    """Return the names of the built-in bindings; the one named as a robot is that robot's default."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def find_binding(contract: PolicyContract, wanted: str | None) -> Binding:
    """Return a binding by name or file, else the built-in one of the contract's robot, else a generated one.

    Args:
        contract: of the policy.
        wanted: name of a built-in one, or a file's path; None for the robot's default.

    Raises:
        UnknownNameError: `wanted` is neither a built-in name nor a file.
        TransportError: the binding is malformed, or for another robot.
    """
    robot = contract.robot.name
    if wanted is None:
        if robot not in built_in_bindings():
            return made_binding(contract)
        return _completed(load_binding(FOLDER / f"{robot}.yaml"), contract)
    if wanted in built_in_bindings():
        binding = load_binding(FOLDER / f"{wanted}.yaml")
    # Anything else is a misspelt name rather than a file.
    elif "/" in wanted or wanted.endswith((".yaml", ".yml")):
        binding = load_binding(Path(wanted))
    else:
        raise unknown_name("binding", wanted, (*built_in_bindings(), "a file's path ending in .yaml"))
    if binding.robot != robot:
        raise TransportError(f"binding {wanted} is of robot {binding.robot}, the contract's is {robot}")
    _require_gains(binding, contract)
    return binding


def _require_gains(binding: Binding, contract: PolicyContract) -> None:
    """Compare the gains that the robot has with those that the policy was trained for.

    Raises:
        TransportError: they differ by more than `GAIN_TOLERANCE`, or a joint is not the contract's.
    """
    joints = {joint.name: joint for joint in contract.robot.joints}
    for name, own in binding.gains.items():
        if name not in joints:
            raise TransportError(f"binding: gains: {unknown_name('joint', name, joints)}")
        for label in ("stiffness", "damping"):
            given: float = getattr(own, label)
            wanted: float = getattr(joints[name], label)
            if not abs(given - wanted) <= GAIN_TOLERANCE * max(given, wanted):
                raise TransportError(
                    f"{name}: the robot's drivers have a {label} of {given:g}, the policy is for {wanted:g}; set the "
                    "drivers to it, or train for this robot's"
                )


def _completed(binding: Binding, contract: PolicyContract) -> Binding:
    """Adds generated topics for what the task reads and the robot's driver does not send, such as a cube's place."""
    carried = {name for topic in binding.reads for name in topic.fields}
    known = {*JOINT_SENSORS, "imu_quat", "imu_ang_vel_b", "imu_lin_acc_b"}
    extra = [topic for topic in made_binding(contract).reads if not {*topic.fields} & (carried | known)]
    return binding.model_copy(update={"reads": (*binding.reads, *extra)})


def made_binding(contract: PolicyContract) -> Binding:
    """Generate a binding with the topics that ROS 2 drivers usually have."""
    parts = {"joint_pos": "position", "joint_vel": "velocity", "joint_effort": "effort"}
    names = [sensor.name for sensor in contract.robot.sensors]
    inertial = {"imu_quat": "orientation", "imu_ang_vel_b": "angular_velocity", "imu_lin_acc_b": "linear_acceleration"}
    reads: list[dict[str, Any]] = []
    for topic, kind, known in (
        ("/joint_states", "sensor_msgs/msg/JointState", {name: parts[name] for name in JOINT_SENSORS}),
        ("/imu/data", "sensor_msgs/msg/Imu", inertial),
    ):
        found = {name: part for name, part in known.items() if name in names}
        if found:
            reads.append({"topic": topic, "type": kind, "fields": found, "qos": "sensor_data"})
    # No ROS message is made for these, so each gets an array of its own.
    others = [name for name in names if name not in {*parts, *inertial}]
    others += [field.name for field in contract.command.fields]
    reads += [{"topic": f"/{_plain(name)}", "type": ARRAY_TYPE, "fields": {name: "data"}} for name in others]
    targets = {term.target_name for term in contract.action.terms}
    known = {"joint_pos_target": "position", "joint_effort_target": "effort"}
    writes = [
        {
            "topic": "/joint_command" if len(targets) == 1 else f"/{name}",
            "type": "sensor_msgs/msg/JointState",
            "fields": {name: known[name]},
        }
        for name in sorted(targets)
    ]
    try:
        text = json.dumps({"robot": contract.robot.name, "reads": reads, "writes": writes})
        return Binding.model_validate_json(text)
    except ValidationError as error:
        raise TransportError(f"robot {contract.robot.name} needs a binding file: {_problems(error)}") from None


def _plain(name: str) -> str:
    # A ROS topic's name has letters, digits and underscores only.
    return "".join(letter if letter.isalnum() else "_" for letter in name)
