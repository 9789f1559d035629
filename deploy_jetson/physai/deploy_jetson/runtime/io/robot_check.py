"""Checks that the connected robot is the one of the contract."""

import math
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from physai.sdk.base.errors import ContractMismatchError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.robot import JointSpec, RobotSpec
from physai.sdk.safety import GuardLimits
from physai.sdk.transport.protocol import Array


@runtime_checkable
class DescribesRobot(Protocol):
    """A transport whose robot describes itself."""

    def description(self) -> RobotSpec | None:
        """Return the robot's own description; None without one."""
        ...


def check_robot(contract: PolicyContract, robot: RobotSpec) -> None:
    """Compare a contract with the robot's own description, joints by name.

    Raises:
        ContractMismatchError: a joint is missing or of another kind, or the contract exceeds its limits.
    """
    problems = list(_problems(contract, robot))
    if problems:
        raise ContractMismatchError(
            f"the policy is for {contract.robot.name}, the robot calls itself {robot.name}, and they do not fit:\n  "
            + "\n  ".join(problems)
        )


def misplaced(joints: Sequence[JointSpec], limits: GuardLimits, joint_pos: Array) -> str:
    """Describe the first joint measured outside its range; empty if there is none.

    Args:
        joints: of the robot.
        limits: of its guard.
        joint_pos: measured positions [rad or m], shape (1, joints).
    """
    for number, joint in enumerate(joints):
        at = float(joint_pos[0, number])
        lower, upper = float(limits.position_lower[number]), float(limits.position_upper[number])
        if lower <= at <= upper:
            continue
        unit = "m" if joint.kind == "prismatic" else "rad"
        hint = degrees_hint(at, lower, upper) if unit == "rad" else ""
        return f"{joint.name} reads {at:.4g} {unit}, its range is [{lower:.4g}, {upper:.4g}] {unit}{hint}"
    return ""


def moving(joints: Sequence[JointSpec], limits: GuardLimits, joint_vel: Array) -> str:
    """Describe the joint that is fastest relative to its limit of rest; empty if none is above it.

    Args:
        joints: of the robot.
        limits: of its guard.
        joint_vel: measured velocities [rad/s or m/s], shape (1, joints).
    """
    shares = np.abs(joint_vel[0]) / limits.still
    number = int(np.nanargmax(shares)) if np.isfinite(shares).any() else 0
    if not shares[number] > 1.0:
        return ""
    unit = "m/s" if joints[number].kind == "prismatic" else "rad/s"
    speed, limit = float(joint_vel[0, number]), float(limits.still[number])
    return f": {joints[number].name} at {speed:.3g} {unit}, at rest below {limit:.3g} {unit}"


def contradiction(joints: Sequence[JointSpec], found: tuple[int, float] | None) -> str:
    """Describe a joint whose position changed by more than its velocity explains; empty for None.

    Args:
        joints: of the robot.
        found: index of the joint, and the unexplained change [rad or m].
    """
    if found is None:
        return ""
    number, change = found
    unit = "m" if joints[number].kind == "prismatic" else "rad"
    text = f"the position of {joints[number].name} changed by {change:.3g} {unit} more than its velocity explains"
    turns = change / (2.0 * math.pi)
    if unit == "rad" and abs(turns) > 0.9 and abs(turns - round(turns)) < 0.05:
        text += ", a full turn: its sensor wraps, and has to count turns"
    return text


def degrees_hint(value: float, lower: float, upper: float) -> str:
    """Explain a value out of its range by a driver that sends degrees, the usual reason; empty if it does not."""
    radians = math.radians(value)
    if not lower <= radians <= upper:
        return ""
    return f"; if the driver sends degrees, that is {radians:.4g} rad, and it has to send radians"


def _problems(contract: PolicyContract, robot: RobotSpec) -> Iterator[str]:
    if contract.robot.base != robot.base:
        yield f"base: {contract.robot.base} in the contract, {robot.base} on the robot"
    joints = {joint.name: joint for joint in robot.joints}
    for joint, envelope in zip(contract.robot.joints, contract.safety.joints, strict=True):
        own = joints.get(joint.name)
        if own is None:
            yield f"joint {joint.name}: the robot has none, but {', '.join(joints)}"
            continue
        if own.kind != joint.kind:
            yield f"joint {joint.name}: {joint.kind} in the contract, {own.kind} on the robot"
        # Written so that NaN is a problem, too.
        if not envelope.effort_limit <= own.effort_limit:
            allowed, actual = envelope.effort_limit, own.effort_limit
            yield f"joint {joint.name}: effort up to {allowed:g} in the contract, {actual:g} on the robot"
        yield from _range_problems(joint, own)
    sensors = {sensor.name: sensor for sensor in robot.sensors}
    for sensor in contract.robot.sensors:
        own_sensor = sensors.get(sensor.name)
        if own_sensor is not None and own_sensor.size != sensor.size:
            yield f"sensor {sensor.name}: {sensor.size} values in the contract, {own_sensor.size} on the robot"


def _range_problems(joint: JointSpec, own: JointSpec) -> Iterator[str]:
    limits = (joint.position_lower, joint.position_upper, own.position_lower, own.position_upper)
    lower, upper, own_lower, own_upper = limits
    # The robot's joint has no limits, so no range exceeds them.
    if own_lower is None or own_upper is None:
        return
    if lower is None or upper is None:
        yield f"joint {joint.name}: no position limits in the contract, [{own_lower:g}, {own_upper:g}] on the robot"
    elif not (own_lower <= lower and upper <= own_upper):
        yield f"joint {joint.name}: range [{lower:g}, {upper:g}] in the contract, [{own_lower:g}, {own_upper:g}] there"
