"""Limits that a contract imposes on commands, derived independently of the guard's code."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionTerm
from physai.sdk.transport.protocol import Array

Bools = npt.NDArray[np.bool_]

ROUNDING = 4e-6
"""Tolerance for float32 rounding of a command of a few radians; a hundredth of any relevant difference."""

STILL_S = 0.25
STILL_SHARE, STILL_SPEED = 0.02, 0.1
"""A joint is at rest below this fraction of its velocity limit, or below this speed [rad/s or m/s]; see safety.md."""


@dataclass(frozen=True)
class Bounds:
    """Limits of all commanded joints, in the order of the action terms; infinite if there is no limit."""

    slices: dict[str, slice]
    joints: npt.NDArray[np.intp]
    servo: Bools
    """Whether the command is a position."""
    incremental: Bools
    lower: Array
    """Lower limit of the policy's commands; `upper` is the upper one."""
    upper: Array
    hard_lower: Array
    """Lower limit of any command; `hard_upper` is the upper one."""
    hard_upper: Array
    speed: Array
    """Maximum step of a position per period."""
    change: Array
    """Maximum change of that step per period."""
    rate: Array
    """Maximum step of an effort per period."""
    damping: Array
    """Damping of braking efforts; 0 for positions."""
    weak: Bools
    """Servos whose envelope allows less effort than their drive can exert."""
    stiffness: Array
    servo_damping: Array
    effort: Array
    rest_speed: Array
    """Speed below which each joint of the robot is at rest."""
    rest_periods: int
    """Periods at rest before a standstill is confirmed."""

    def row(self, targets: Mapping[str, Array]) -> Array:
        """Commands of all terms, concatenated."""
        row = np.empty(len(self.joints))
        for name, part in self.slices.items():
            row[part] = np.asarray(targets[name]).reshape(-1)
        return row

    def stopping(self, step: Array) -> Array:
        """Signed stopping distance, this step included."""
        with np.errstate(all="ignore"):
            periods = np.maximum(np.ceil(np.abs(step) / self.change), 1.0)
            less = np.where(periods > 1.0, self.change, 0.0)
            distance = periods * np.abs(step) - less * periods * (periods - 1.0) / 2.0
        return np.copysign(distance, step)

    def braked(self, step: Array) -> Array:
        """The next step of a position under maximum braking."""
        return np.copysign(np.maximum(np.abs(step) - self.change, 0.0), step)


def bounds_of(contract: PolicyContract) -> Bounds:
    """The limits that a contract states."""
    terms = contract.action.terms
    rows = [row for term in terms for row in _rows(term, contract)]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    ends = np.cumsum([0, *(len(term.joints) for term in terms)]).tolist()
    speeds = [envelope.velocity_limit for envelope in contract.safety.joints]
    return Bounds(
        slices={term.target_name: slice(*ends_of) for term, ends_of in zip(terms, pairwise(ends), strict=True)},
        joints=columns.pop("joint").astype(np.intp),
        servo=columns.pop("servo") > 0.0,
        incremental=columns.pop("incremental") > 0.0,
        weak=columns.pop("weak") > 0.0,
        rest_speed=np.array([STILL_SPEED if speed is None else STILL_SHARE * speed for speed in speeds]),
        rest_periods=math.ceil(STILL_S / contract.timing.control_dt),
        **columns,
    )


def _rows(term: ActionTerm, contract: PolicyContract) -> list[dict[str, float]]:
    dt, rows = contract.timing.control_dt, list[dict[str, float]]()
    envelopes = {envelope.joint: envelope for envelope in contract.safety.joints}
    drives = {joint.name: joint for joint in contract.robot.joints}
    servo, incremental = term.target_name == "joint_pos_target", term.kind.endswith("_incremental")
    for name, scale, offset, lower, upper in zip(
        term.joints, term.scale, term.offset, term.lower, term.upper, strict=True
    ):
        limits, drive = envelopes[name], drives[name]
        low, high = -limits.effort_limit, limits.effort_limit
        if servo:
            low, high = limits.position_lower, limits.position_upper
        hard_lower, hard_upper = (-math.inf if low is None else low), (math.inf if high is None else high)
        least, most = (lower, upper) if incremental else (max(lower, offset - scale), min(upper, offset + scale))
        speed = math.inf if limits.velocity_limit is None else limits.velocity_limit
        damping = drive.damping or (0.0 if speed == math.inf else limits.effort_limit / speed)
        rows.append(
            {
                "joint": contract.robot.joint_names.index(name),
                "servo": servo,
                "incremental": incremental,
                "lower": max(least, hard_lower),
                "upper": min(most, hard_upper),
                "hard_lower": hard_lower,
                "hard_upper": hard_upper,
                "speed": min(speed * dt, scale if incremental else math.inf) if servo else math.inf,
                "change": (limits.acceleration_limit or math.inf) * dt**2 if servo else math.inf,
                "rate": scale if incremental and not servo else math.inf,
                "damping": 0.0 if servo else damping,
                "weak": servo and drive.stiffness > 0.0 and limits.effort_limit < drive.effort_limit,
                "stiffness": drive.stiffness,
                "servo_damping": drive.damping,
                "effort": limits.effort_limit,
            }
        )
    return rows
