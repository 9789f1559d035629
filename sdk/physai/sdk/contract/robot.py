"""Specification of a robot: joints, sensors and kinematic chains.

Lengths in m, angles in rad, efforts in N·m (N for prismatic joints). Quaternions are wxyz.
Frames: `_b` is the base, `_w` the world.
"""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from physai.sdk.base.errors import unknown_name

MAX_JOINTS = 64
"""Maximum number of joints of a robot."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.\-/]{0,63}$")]
"""An identifier as URDF, MJCF and ROS use it, at most 64 characters."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""64 lower-case hexadecimal digits."""

Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e9, le=1e9)]
"""A finite number of sane size."""

NonNegative = Annotated[float, Field(allow_inf_nan=False, ge=0.0, le=1e9)]
Positive = Annotated[float, Field(allow_inf_nan=False, gt=0.0, le=1e9)]
Label = Annotated[str, Field(max_length=32, pattern=r"^[ -~·²³°]*$")]
"""A unit or the name of a frame: printable, at most 32 characters."""

Vector3 = tuple[Finite, Finite, Finite]
Quaternion = tuple[Finite, Finite, Finite, Finite]


class Frozen(BaseModel):
    """A strict, immutable record: unknown fields, NaN and wrong types are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class JointSpec(Frozen):
    """One joint, in the units of its kind."""

    name: Name
    kind: Literal["revolute", "continuous", "prismatic"]
    position_lower: Finite | None = None
    """Lower position limit [rad or m]; None where there is none."""
    position_upper: Finite | None = None
    """Upper position limit [rad or m]; None where there is none."""
    velocity_limit: Positive | None = None
    """Greatest speed [rad/s or m/s]; None where the maker states none."""
    effort_limit: NonNegative
    """Greatest actuator effort at the joint [N·m or N]; 0 for a joint without an actuator."""
    stiffness: NonNegative = 0.0
    """Position gain kp of the joint's servo [N·m/rad or N/m]; 0 for effort control."""
    damping: NonNegative = 0.0
    """Velocity gain kd of the joint's servo [N·m·s/rad or N·s/m]."""
    default_pos: Finite = 0.0
    """Position at rest, the zero of relative observations and actions [rad or m]."""

    @model_validator(mode="after")
    def _limits_are_ordered(self) -> Self:
        lower, upper = self.position_lower, self.position_upper
        if (lower is None) != (upper is None):
            raise ValueError(f"joint {self.name}: give both position limits or none, got {lower} and {upper}")
        if self.kind == "continuous" and lower is not None:
            raise ValueError(f"joint {self.name}: a continuous joint has no position limits, got {lower}")
        if lower is not None and upper is not None:
            if not lower < upper:
                raise ValueError(f"joint {self.name}: position_lower {lower} is not below position_upper {upper}")
            if not lower <= self.default_pos <= upper:
                raise ValueError(f"joint {self.name}: default_pos {self.default_pos} lies outside [{lower}, {upper}]")
        return self


class SensorField(Frozen):
    """One vector the robot measures, in SI units."""

    name: Name
    size: Annotated[int, Field(ge=1, le=4096)]
    unit: Label
    """Unit of every element, empty for none."""
    frame: Label = ""
    """Frame the vector is expressed in, empty where it has none (joint space)."""


class ChainSegment(Frozen):
    """A fixed transform, then one joint: p_parent = translation + R(quat) · R(axis, q) · p_child."""

    translation: Vector3
    """Origin of the segment in its parent [m]."""
    quat: Quaternion
    """Orientation of the segment in its parent, wxyz, unit length."""
    joint: Name | None = None
    """Joint that moves the segment; None for a fixed one."""
    axis: Vector3 = (0.0, 0.0, 1.0)
    """Joint axis in the segment's own frame, unit length."""

    @model_validator(mode="after")
    def _directions_have_unit_length(self) -> Self:
        for label, vector in (("quat", self.quat), ("axis", self.axis)):
            _require_unit("chain segment", label, vector)
        return self


class KinematicChain(Frozen):
    """Base-to-tip forward kinematics, so that a graph can compute what no sensor measures."""

    name: Name
    """Name of the tip frame, for instance `ee`."""
    segments: Annotated[tuple[ChainSegment, ...], Field(min_length=1, max_length=2 * MAX_JOINTS)]


class CameraLens(Frozen):
    """A pinhole with the distortion that ROS and OpenCV call plumb_bob."""

    k: tuple[Positive, Positive, Finite, Finite]
    """Focal lengths fx, fy and principal point cx, cy [pixels]."""
    d: tuple[Finite, Finite, Finite, Finite, Finite] = (0.0, 0.0, 0.0, 0.0, 0.0)
    """Distortion k1, k2, p1, p2, k3."""
    tolerance: NonNegative = 0.0
    """Relative error of the focal lengths that the policy was trained for."""


class CameraMount(Frozen):
    """Pose of a camera's optical frame: x to the right of the image, y down, z forward."""

    frame: Name
    """Link that carries the camera, or `world`."""
    translation: Vector3
    """Origin in that frame [m]."""
    quat: Quaternion
    """Orientation in that frame, wxyz, unit length."""
    tolerance_m: NonNegative = 0.0
    """Error of the origin that the policy was trained for [m]."""
    tolerance_rad: NonNegative = 0.0
    """Error of the orientation that the policy was trained for [rad]."""

    @model_validator(mode="after")
    def _orientation_has_unit_length(self) -> Self:
        _require_unit("camera mount", "quat", self.quat)
        return self


class CameraSpec(Frozen):
    """One camera; since format 3."""

    name: Name
    width: Annotated[int, Field(ge=1, le=8192)]
    """Columns of the image [pixels]."""
    height: Annotated[int, Field(ge=1, le=8192)]
    """Rows of the image [pixels]."""
    encoding: Literal["rgb8", "bgr8", "mono8", "16UC1"]
    """As in sensor_msgs/Image; 16UC1 is a depth [mm]."""
    lens: CameraLens
    mount: CameraMount
    rate_hz: Annotated[float, Field(ge=0.1, le=1000.0)]
    """Images per second."""
    exposure_s: Annotated[tuple[NonNegative, NonNegative], Field(description="Shortest and longest exposure [s].")]
    readout_s: NonNegative = 0.0
    """Time from the first row's exposure to the last one's [s]; 0 for a global shutter."""
    stamp: Literal["mid_exposure", "start", "arrival"]
    """Instant that the driver's stamp names."""
    stamp_offset_s: Finite = 0.0
    """Time from the middle of the exposure to the stamp [s], as calibrated."""
    auto_exposure: bool = False
    auto_white_balance: bool = False
    jpeg_quality: Annotated[int, Field(ge=1, le=100)] | None = None
    """Least quality of images that come as JPEG; None for images without compression."""

    @model_validator(mode="after")
    def _exposures_are_ordered(self) -> Self:
        shortest, longest = self.exposure_s
        if not shortest <= longest <= 1.0 / self.rate_hz:
            raise ValueError(
                f"camera {self.name}: exposures {shortest} to {longest} s at {self.rate_hz} images per second; they "
                f"ascend, and none is longer than {1.0 / self.rate_hz:.6g} s"
            )
        return self


class RobotSpec(Frozen):
    """The joints in their order, the sensors and the chains of one robot."""

    name: Name
    base: Literal["fixed", "floating"]
    # The schema is that of contracts, which command joints.
    joints: Annotated[tuple[JointSpec, ...], Field(max_length=MAX_JOINTS, json_schema_extra={"minItems": 1})]
    """Empty for a free body only, such as a thrown object: no contract can command it."""
    sensors: Annotated[tuple[SensorField, ...], Field(min_length=1, max_length=64)]
    chains: Annotated[tuple[KinematicChain, ...], Field(max_length=16)] = ()
    cameras: Annotated[tuple[CameraSpec, ...], Field(max_length=16, exclude_if=lambda cameras: not cameras)] = ()
    """Cameras by name; left out of the document if there is none."""

    @model_validator(mode="after")
    def _names_are_consistent(self) -> Self:
        if not self.joints and (self.base == "fixed" or self.chains):
            raise ValueError("joints: a robot needs at least one; only a floating base without chains may have none")
        require_unique("joint", (j.name for j in self.joints))
        require_unique("sensor", (s.name for s in self.sensors))
        require_unique("chain", (c.name for c in self.chains))
        require_unique("camera", (c.name for c in self.cameras))
        for chain in self.chains:
            moving = [segment.joint for segment in chain.segments if segment.joint is not None]
            require_unique(f"chain {chain.name}: joint", moving)
            for joint in moving:
                if joint not in self.joint_names:
                    raise ValueError(f"chain {chain.name}: {unknown_name('joint', joint, self.joint_names)}")
        return self

    @model_validator(mode="after")
    def _sensors_have_their_sizes(self) -> Self:
        for sensor in self.sensors:
            if sensor.name in JOINT_SENSORS and sensor.size != len(self.joints):
                raise ValueError(
                    f"sensor {sensor.name}: size {sensor.size} differs from the number of joints {len(self.joints)}"
                )
            expected = IMU_SENSORS.get(sensor.name, sensor.size)
            if sensor.size != expected:
                raise ValueError(f"sensor {sensor.name}: size {sensor.size}, expected {expected}")
        return self

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of the joints in the order of every joint vector."""
        return tuple(joint.name for joint in self.joints)

    def joint_index(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the indices of the named joints in a joint vector.

        Raises:
            UnknownNameError: a name is not a joint of this robot.
        """
        positions = {name: position for position, name in enumerate(self.joint_names)}
        for name in names:
            if name not in positions:
                raise unknown_name("joint", name, positions)
        return tuple(positions[name] for name in names)


JOINT_SENSORS = ("joint_pos", "joint_vel", "joint_effort")
"""Sensor fields with one element per joint, in the robot's joint order."""

IMU_SENSORS = {"imu_quat": 4, "imu_ang_vel_b": 3}
"""Sensor fields of an inertial measurement unit and their sizes: orientation of the base in the world, wxyz, and
angular velocity of the base [rad/s], base frame."""


def require_unique(kind: str, names: Iterable[str]) -> None:
    """Check that no name occurs twice; raises ValueError."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{kind} {name!r} occurs twice")
        seen.add(name)


def _require_unit(owner: str, label: str, vector: tuple[float, ...]) -> None:
    """Check that a vector has the length 1; raises ValueError."""
    length = sum(x * x for x in vector) ** 0.5
    if not abs(length - 1.0) <= 1e-6:
        raise ValueError(f"{owner}: {label} {vector} has length {length:.9g}, expected 1")
