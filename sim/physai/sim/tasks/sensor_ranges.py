"""Plausible sensor ranges: values outside indicate a wrong unit, a broken wire or a corrupted message.

They are wider than the robot's safety limits, so that a robot that violates a limit is stopped for the violation and
not for an implausible sensor.
"""

from collections.abc import Sequence

from physai.sdk.contract.robot import JointSpec, RobotSpec
from physai.sdk.contract.safety_envelope import SensorRange

POSITION_MARGIN = 0.25
"""Margin of a position beyond its range, as a fraction of the range: wider than compliance of end stops and encoder
offsets, narrow enough to reject degrees and raw encoder counts."""

SPEED_FACTOR = 5.0
"""Greatest plausible speed in multiples of the velocity limit; falling or thrown robots reach 3 in simulation."""

EFFORT_FACTOR = 5.0
"""Greatest plausible effort in multiples of the effort limit; peak torque briefly exceeds rated torque."""

QUATERNION_REACH = 1.1
"""Greatest magnitude of a quaternion component, 1 for unit quaternions."""

GYRO_REACH = 35.0
"""Greatest angular velocity [rad/s]: MEMS gyroscopes measure up to 2000 °/s, 34.9 rad/s."""

ACCELEROMETER_REACH = 320.0
"""Greatest specific force [m/s²]: MEMS accelerometers measure up to 16 g or 32 g, 157 or 314 m/s²."""

_IMU = {"imu_quat": QUATERNION_REACH, "imu_ang_vel_b": GYRO_REACH, "imu_lin_acc_b": ACCELEROMETER_REACH}

Bounds = tuple[float | None, float | None]
"""Least and greatest plausible value; None for no bound."""


def plausible_ranges(robot: RobotSpec, *, speeds: Sequence[float] = ()) -> tuple[SensorRange, ...] | None:
    """Ranges of the supported sensors, derived from the robot's limits; None if there are none.

    Args:
        robot: the robot; a joint without a limit gets no range.
        speeds: greatest plausible speed of each joint [rad/s or m/s], raised to its velocity limit if that is greater;
            empty to derive it from the velocity limits.
    """
    limits = [joint.velocity_limit or 0.0 for joint in robot.joints]
    known = {
        "joint_pos": [_position(joint) for joint in robot.joints],
        "joint_vel": [_symmetric(max(pair)) for pair in zip(speeds, limits, strict=True)]
        if speeds
        else [_speed(joint) for joint in robot.joints],
        "joint_effort": [_symmetric(EFFORT_FACTOR * joint.effort_limit or None) for joint in robot.joints],
        **{name: [_symmetric(reach)] * (4 if name == "imu_quat" else 3) for name, reach in _IMU.items()},
    }
    ranges: list[SensorRange] = []
    for sensor in robot.sensors:
        # A sensor that is not listed has no range rather than a guessed one.
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
