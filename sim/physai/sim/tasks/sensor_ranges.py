"""What a robot's sensors can show at all: values beyond mean another unit, a broken wire or a damaged message.

These are not limits on what the robot may do. They lie far enough beyond those that a robot which breaks a limit is
still believed, and is stopped for it.
"""

from collections.abc import Sequence

from physai.sdk.contract.robot import JointSpec, RobotSpec
from physai.sdk.contract.safety_envelope import SensorRange

POSITION_MARGIN = 0.25
"""What a position may lie beyond its range, as a share of it: end stops and mounted encoders give much less; degrees
and raw encoder counts lie beyond."""

SPEED_FACTOR = 5.0
"""Greatest plausible speed, in velocity limits: falling or thrown, joints of the twin reach 3."""

EFFORT_FACTOR = 5.0
"""Greatest plausible effort, in effort limits: motors give a multiple of their rated torque for moments."""

QUATERNION_REACH = 1.1
"""Greatest component of an orientation: of a unit quaternion 1."""

GYRO_REACH = 35.0
"""Greatest angular velocity [rad/s]: MEMS gyroscopes of robots end at 2000 °/s, which are 34.9 rad/s."""

ACCELEROMETER_REACH = 320.0
"""Greatest specific force [m/s²]: MEMS accelerometers end at 16 g or 32 g, which are 157 and 314 m/s²."""

_IMU = {"imu_quat": QUATERNION_REACH, "imu_ang_vel_b": GYRO_REACH, "imu_lin_acc_b": ACCELEROMETER_REACH}

Bounds = tuple[float | None, float | None]
"""Least and greatest plausible value; None for no bound."""


def plausible_ranges(robot: RobotSpec, *, speeds: Sequence[float] = ()) -> tuple[SensorRange, ...] | None:
    """Ranges of the sensors that are known here, from the robot's own limits; None if there are none.

    Args:
        robot: gives sensors and limits; a joint without a limit has no range.
        speeds: greatest plausible speed of each joint where its velocity limit does not say [rad/s or m/s].
    """
    known = {
        "joint_pos": [_position(joint) for joint in robot.joints],
        "joint_vel": [_symmetric(speed) for speed in speeds] or [_speed(joint) for joint in robot.joints],
        "joint_effort": [_symmetric(EFFORT_FACTOR * joint.effort_limit or None) for joint in robot.joints],
        **{name: [_symmetric(reach)] * (4 if name == "imu_quat" else 3) for name, reach in _IMU.items()},
    }
    ranges: list[SensorRange] = []
    for sensor in robot.sensors:
        bounds = known.get(sensor.name, [])
        if any(high is not None for _, high in bounds):
            lower, upper = zip(*bounds, strict=True)
            ranges.append(SensorRange(name=sensor.name, lower=lower, upper=upper))
    return tuple(ranges) or None


def _position(joint: JointSpec) -> Bounds:
    if joint.position_lower is None or joint.position_upper is None:
        return None, None
    margin = POSITION_MARGIN * (joint.position_upper - joint.position_lower)
    return round(joint.position_lower - margin, 6), round(joint.position_upper + margin, 6)


def _speed(joint: JointSpec) -> Bounds:
    return _symmetric(None if joint.velocity_limit is None else round(SPEED_FACTOR * joint.velocity_limit, 6))


def _symmetric(reach: float | None) -> Bounds:
    return (None, None) if reach is None else (-reach, reach)
