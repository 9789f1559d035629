"""Checks of the motion: whether each joint moves enough, and whether measured efforts follow the commands."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from physai.sdk.contract.robot import JointSpec
from physai.twin.logs.findings import LogFinding, Severity
from physai.twin.logs.raw_log import RawLog
from physai.twin.logs.robot_log import Array
from physai.twin.logs.signals.lag import is_copy
from physai.twin.logs.signals.lag_fit import LagEstimate
from physai.twin.logs.signals.noise import resolution

MIN_RANGE_RAD = 0.1
"""Minimum range of motion that identifies a joint's mass and friction [rad]."""

MIN_RANGE_M = 0.01
"""Minimum range of motion of a slide joint [m]."""

_MIN_STEPS = 50.0
"""Minimum range of motion in encoder steps."""

_FOLLOWED = 0.5
"""Minimum share of the measured effort's variance that a command in the same unit should explain."""


_EFFORT_RATIOS = ((1e3, "mN*m", "mN*m"), (1.0 / 0.0980665, "kgf*cm", "kgf*cm"))
"""Ratio of an effort in another unit to one in N·m, and that unit; N·mm are mN·m."""

_STRONGEST = 20.0
"""Measured efforts above this many times a joint's limit are in another unit."""


@dataclass(frozen=True)
class Motion:
    """Summary of one joint's motion."""

    lowest: float
    """Minimum position [rad or m]."""
    highest: float
    """Maximum position [rad or m]."""
    fastest: float
    """99th percentile of the speed [rad/s or m/s]."""
    reversals: int
    """Number of reversals by more than a tenth of its range."""
    enough: bool
    """Whether it moves enough to calibrate its mass and friction."""


def joint_motion(log: RawLog, j: int) -> Motion:
    """Summarise the motion of joint `j` in a recording without NaN and with ascending time."""
    position = log.joint_pos[:, j]
    reach = float(np.ptp(position))
    speeds = np.gradient(position, log.time) if log.joint_vel is None else log.joint_vel[:, j]
    return Motion(
        lowest=float(position.min()),
        highest=float(position.max()),
        fastest=float(np.quantile(np.abs(speeds), 0.99)),
        reversals=_reversals(position, 0.1 * reach),
        # A small motion of a coarse encoder consists mostly of rounding, so its steps count as well.
        enough=reach >= max(_least_range(log.joints[j]), _MIN_STEPS * resolution(position)),
    )


def _least_range(joint: JointSpec) -> float:
    return MIN_RANGE_M if joint.kind == "prismatic" else MIN_RANGE_RAD


def motion_findings(log: RawLog, motions: Sequence[Motion]) -> Iterator[LogFinding]:
    """Yield a finding for each joint that moves too little."""
    none = not any(motion.enough for motion in motions)
    for joint, motion in zip(log.joints, motions, strict=True):
        unit = "m" if joint.kind == "prismatic" else "rad"
        reach = motion.highest - motion.lowest
        least = _least_range(joint)
        if not motion.enough:
            yield LogFinding(
                severity="defect" if none else "warning",
                check="motion",
                joint=joint.name,
                message=f"{joint.name} moves by {reach:.3g} {unit}, at least {least:g} {unit} are needed",
                advice="no joint moves enough: use this recording for noise only, and record an excitation"
                if none
                else f"record an excitation of {joint.name}; its mass and friction cannot be calibrated",
                numbers={"range": reach, "needed": least},
            )
        elif motion.reversals == 0:
            yield LogFinding(
                severity="warning",
                check="motion",
                joint=joint.name,
                message=f"{joint.name} moves in one direction only, by {reach:.3g} {unit}",
                advice="record both directions; otherwise friction and load cannot be distinguished",
                numbers={"range": reach, "reversals": 0},
            )


def command_findings(log: RawLog, lags: Sequence[LagEstimate | None]) -> Iterator[LogFinding]:
    """Yield findings on whether commands change, stay within limits and are followed."""
    if any(log.driven) and not any(np.ptp(log.command[:, j]) > 0.0 for j in range(len(log.joints))):
        yield LogFinding(
            severity="warning",
            check="command",
            message="no command ever changes",
            advice="map the command's column, unless the robot was moved by hand",
        )
    for j, joint in enumerate(log.joints):
        yield from _beyond_limit(log, j, joint)
        yield from _beyond_effort(log, j, joint)
        yield from _lag(joint, lags[j])
        if log.command_kind == "joint_effort" and log.joint_effort is not None:
            yield from _followed(joint, log.command[:, j], log.joint_effort[:, j], lags[j])


def _beyond_limit(log: RawLog, j: int, joint: JointSpec) -> Iterator[LogFinding]:
    if not log.limits_known or log.command_kind != "joint_effort" or not log.driven[j]:
        return
    greatest = float(np.abs(log.command[:, j]).max())
    # The margin of 0.1 % ignores rounding in a command that saturates at the limit.
    if greatest > 1.001 * joint.effort_limit:
        yield LogFinding(
            severity="warning",
            check="limit",
            joint=joint.name,
            channel="command",
            message=f"commands of {joint.name} reach {greatest:.4g}, its effort limit is {joint.effort_limit:g}",
            advice="check the unit (N·m at the joint, not at the motor) and the robot's limit",
            numbers={"greatest": greatest, "limit": joint.effort_limit},
        )


def _beyond_effort(log: RawLog, j: int, joint: JointSpec) -> Iterator[LogFinding]:
    """Measured efforts that the joint's motor cannot give: they are in N·mm, or at the motor before a gear."""
    if not log.limits_known or log.joint_effort is None or not joint.effort_limit > 0.0:
        return
    # The quantile ignores spikes.
    greatest = float(np.quantile(np.abs(log.joint_effort[:, j]), 0.99))
    if greatest > _STRONGEST * joint.effort_limit:
        unit = "mN" if joint.kind == "prismatic" else "mN*m"
        fits = 1e-3 * greatest <= 1.2 * joint.effort_limit
        yield LogFinding(
            severity="defect",
            check="units",
            joint=joint.name,
            channel="joint_effort",
            message=f"efforts of {joint.name} reach {greatest:.4g}, its effort limit is {joint.effort_limit:g}",
            advice=f"set `unit: {unit}` for joint_effort" if fits else "check the unit, or correct the robot's limit",
            numbers={"greatest": greatest, "limit": joint.effort_limit},
        )


def _lag(joint: JointSpec, lag: LagEstimate | None) -> Iterator[LogFinding]:
    """Report the lag of measured effort behind the command."""
    if lag is None:
        return
    if lag.identified:
        message = (
            f"effort of {joint.name} lags its command by {1e3 * lag.lag_s:.1f} ms (95 %: "
            f"{1e3 * lag.lower_s:.1f} to {1e3 * lag.upper_s:.1f}): dead time {1e3 * lag.dead_time_s:.1f} ms, time "
            f"constant {1e3 * lag.time_constant_s:.1f} ms; the two series are {1e3 * lag.shift_s:.1f} ms apart"
        )
    else:
        message = (
            f"the lag of {joint.name} is not identifiable: its command explains {max(lag.explained, 0.0):.0%} of "
            f"the fast changes of the measured effort"
        )
    yield LogFinding(
        severity="note",
        check="lag",
        joint=joint.name,
        channel="joint_effort",
        message=message,
        advice="" if lag.identified else "add steps or noise to the command",
        numbers=asdict(lag),
    )


def _followed(joint: JointSpec, command: Array, measured: Array, lag: LagEstimate | None) -> Iterator[LogFinding]:
    """Compare measured and commanded effort: sign, scale and correlation."""
    if np.ptp(command) == 0.0 or np.ptp(measured) == 0.0:
        return
    # Least-squares slope of measured over commanded effort, each around its mean.
    moved = command - command.mean()
    gain = float(moved @ measured) / float(moved @ moved)
    explained = float(np.corrcoef(command, measured)[0, 1] ** 2)
    # The lag's fit ignores slow changes and the delay between the series, which both spoil a plain correlation.
    if lag is not None and lag.identified and lag.explained > explained:
        gain, explained = lag.gain, lag.explained
    severity: Severity = "warning"
    if is_copy(command, measured):
        message = f"command and measured effort of {joint.name} are equal but for rounding: one is a copy of the other"
        advice = (
            "map the effort that was measured; without one, leave out joint_effort: a copy does not show how the motor "
            "follows its command"
        )
    elif explained < _FOLLOWED:
        message = f"the command explains {explained:.0%} of the variance of {joint.name}'s measured effort"
        advice = "a servo adds its own effort, or the columns are unrelated; replay the measured effort"
    elif gain < 0.0:
        severity = "defect"
        message = f"measured effort of {joint.name} is {gain:.2f} times its command: their signs differ"
        advice = "set `sign: -1` for one of the two in the column map"
    elif explained > 0.9 and not 0.7 <= gain <= 1.4:
        message = f"measured effort of {joint.name} is {gain:.3g} times its command, expected about 1"
        advice = "check units and gear ratio of both columns"
        for ratio, of_measured, of_command in _EFFORT_RATIOS:
            if abs(gain / ratio - 1.0) <= 0.2:
                severity, advice = "defect", f"set `unit: {of_measured}` for joint_effort of {joint.name}"
            elif abs(gain * ratio - 1.0) <= 0.2:
                severity, advice = "defect", f"set `unit: {of_command}` for command of {joint.name}"
    else:
        return
    yield LogFinding(
        severity=severity,
        check="follow",
        joint=joint.name,
        channel="joint_effort",
        message=message,
        advice=advice,
        numbers={"gain": gain, "explained": explained},
    )


def _reversals(position: Array, least: float) -> int:
    """Count the position's reversals by more than `least`, with hysteresis."""
    count, direction = 0, 0
    # Noise alone never moves the position by `least`, so it does not count as a reversal.
    low = high = float(position[0])
    for value in position.tolist():
        low, high = min(low, value), max(high, value)
        if direction >= 0 and value < high - least:
            count, direction, low = count + (direction > 0), -1, value
        elif direction <= 0 and value > low + least:
            count, direction, high = count + (direction < 0), 1, value
    return count
