"""Commands of positions and speeds against what they command: units, signs and zeros of both."""

import math
from collections.abc import Iterator

import numpy as np

from physai.sdk.contract.robot import JointSpec
from physai.twin.logs.findings import LogFinding
from physai.twin.logs.raw_log import RawColumn, RawLog
from physai.twin.logs.robot_log import Array

MAX_LAG_S, LAGS = 0.5, 25
"""Longest lag of a servo that is tried, and the number of lags [s]."""
FOLLOWS = 0.8
"""Share of the measurement's variance that a command explains at the best of these lags if a servo follows it."""
MIN_GAIN, MAX_GAIN = 0.1, 10.0
"""Gains of a servo that follows; others are those of units. A resonance reaches 5, a slow servo 0.2."""
APART_RAD, APART_M = 0.5, 0.05
"""Least distance between a command and what follows it that no load explains [rad or m]."""

_RATIOS = (
    (math.pi / 180.0, "in degrees", "`unit: deg`", "`unit: deg/s`"),
    (2.0 * math.pi, "in revolutions", "`unit: rev`", "`unit: rev/s`"),
    (2.0 * math.pi / 60.0, "in rpm", "", "`unit: rpm`"),
    (1e-3, "in millimetres", "`unit: mm`", "`unit: mm/s`"),
)
"""Gain of a measurement in SI units over a command in another one, in words, and units of positions and speeds."""


def tracking_findings(log: RawLog) -> Iterator[LogFinding]:
    """Yield defects of commands that cannot be in the unit, direction or zero of the measurements that follow them."""
    if log.command_kind == "joint_effort":
        return
    measured = log.joint_pos if log.command_kind == "joint_pos" else log.joint_vel
    for j, joint in enumerate(log.joints):
        if measured is not None and log.driven[j]:
            yield from _tracking(log, joint, log.command[:, j], measured[:, j])


def _tracking(log: RawLog, joint: JointSpec, command: Array, measured: Array) -> Iterator[LogFinding]:
    series = log.command_kind
    gain = _gain(log.time, command, measured)
    if gain is None:
        return
    apart = float(np.abs(measured - command).min())
    unit = "m" if joint.kind == "prismatic" else "rad"
    far = APART_M if joint.kind == "prismatic" else APART_RAD
    unit_name, advice = _unit(gain, series, prismatic=joint.kind == "prismatic")
    if unit_name or not MIN_GAIN <= abs(gain) <= MAX_GAIN:
        guess = f": commands are {unit_name}" if unit_name else ""
        message = f"{series} of {joint.name} changes by {gain:.3g} times its command{guess}"
        # What was converted by hand has a unit, scale and offset that the command needs, too.
        if advice == "" or _converted(log, series, joint.name):
            advice = f"give the command of {joint.name} the unit, scale and offset of {series}"
        else:
            advice = f"set {advice} for the command of {joint.name}"
    elif gain < 0.0:
        message = f"{series} of {joint.name} moves against its command, by {gain:.3g} times"
        advice = f"give {series} and command of {joint.name} the same `sign`"
    elif series == "joint_pos" and apart > far:
        message = f"{series} of {joint.name} follows its command and never comes nearer than {apart:.3g} {unit}"
        advice = f"give {series} and command of {joint.name} the same `offset`"
    else:
        return
    yield LogFinding(
        severity="defect",
        check="follow",
        joint=joint.name,
        channel="command",
        message=message,
        advice=f"{advice} in the column map",
        numbers={"gain": gain, "apart": apart},
    )


def _gain(time: Array, command: Array, measured: Array) -> float | None:
    """Slope of the measurement over its command, at the lag that explains most; None if it does not follow."""
    period = float(np.median(np.diff(time)))
    best: tuple[float, float] | None = None
    for shift in sorted({round(lag / period) for lag in np.linspace(0.0, MAX_LAG_S, LAGS)}):
        if len(time) - shift < max(20, len(time) // 2):
            break
        sent, seen = command[: len(time) - shift], measured[shift:]
        around, seen_around = sent - sent.mean(), seen - seen.mean()
        power, energy, cross = float(around @ around), float(seen_around @ seen_around), float(around @ seen_around)
        if not (power > 0.0 and energy > 0.0):
            continue
        explained = cross * cross / (power * energy)
        if best is None or explained > best[0]:
            best = (explained, cross / power)
    return None if best is None or not best[0] >= FOLLOWS else best[1]


def _unit(gain: float, series: str, *, prismatic: bool) -> tuple[str, str]:
    """Unit that a command seems to have, and the entry of the column map that declares it; empty if no unit has that
    ratio.
    """
    for ratio, words, position, speed in _RATIOS:
        advice = position if series == "joint_pos" else speed
        if advice and prismatic is (words == "in millimetres") and abs(abs(gain) / ratio - 1.0) <= 0.1:
            return words, advice
    return "", ""


def _converted(log: RawLog, series: str, joint: str) -> bool:
    """Whether the column map converts the values of a joint's measurement."""
    column: RawColumn | None = next((c for c in log.channels if c.series == series and c.joint == joint), None)
    return column is not None and not np.array_equal(column.raw, column.values, equal_nan=True)
