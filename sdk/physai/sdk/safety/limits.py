"""Limits of the guard as arrays, derived from the contract alone.

Policies compute in float32. Every bound is therefore rounded outwards to float32, and commands are compared with a
rounding tolerance (`slack`), so that a graph that clips to its contract never exceeds a limit by a last digit.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sdk.base.errors import PhysaiError
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.position_limits import POSITION_TARGET, position_limits
from physai.sdk.contract.safety_envelope import JointEnvelope
from physai.sdk.contract.terms import ActionTerm

Array = npt.NDArray[np.float64]

UNLIMITED = float(np.finfo(np.float64).max)
"""Value for "no limit": infinity and NaN still exceed it."""

GREATEST_COMMAND = 1e9
"""Bound of a command that the contract leaves unlimited; contracts contain no greater numbers."""

GREATEST_ROUNDED = 100.0
"""Magnitude of a command [rad, m, N·m or N] up to which the rounding tolerance grows."""

POSITION_MARGIN = 0.01
"""Tolerance of a measured position outside its limits, as a share of their range: noise and compliant end stops."""

STILL_SHARE = 0.02
"""A joint is at rest below this share of its velocity limit: 0.4 rad/s of 20, seven times the noise of the double
pendulum's velocity signal (0.06 rad/s)."""

STILL_S = 0.25
"""Time for which every joint must be measured at rest before a stop is confirmed [s]: longer than a pendulum is slow
at its turning point."""

STILL_SPEED = 0.1
"""A joint without a velocity limit is at rest below this speed [rad/s or m/s]."""


class GuardError(PhysaiError):
    """A vector has another shape or name than the contract's, or the contract cannot be enforced."""


@dataclass(frozen=True)
class GuardLimits:
    """Limits of J joints and of the A commanded ones, the latter in the order of the action terms."""

    slices: dict[str, slice]
    """Slice of each output of the graph among the commanded joints."""
    joints: npt.NDArray[np.intp]
    """Index of each commanded joint in the robot's order, shape (A,)."""
    holds_position: npt.NDArray[np.bool_]
    """Whether the command is a position, shape (A,)."""
    rest: Array
    """Command before the first measurement: the default position, effort 0, shape (A,)."""
    lower: Array
    """Least command of the policy, shape (A,)."""
    upper: Array
    """Greatest command of the policy, shape (A,)."""
    hard_lower: Array
    """Least command of the guard itself, the envelope's, shape (A,)."""
    hard_upper: Array
    """Greatest command of the guard itself, the envelope's, shape (A,)."""
    rate: Array
    """Greatest change of the command per control period, shape (A,)."""
    change: Array
    """Greatest change of that change: acceleration_limit · control_dt², UNLIMITED for efforts, shape (A,)."""
    slack: Array
    """Tolerance for float32 rounding of a command, shape (A,)."""
    brake: Array
    """Damping d of a joint that brakes by effort -d·v [N·m·s/rad or N·s/m], 0 for position commands, shape (A,)."""
    position_lower: Array
    """Least measured position, margin included, shape (J,)."""
    position_upper: Array
    """Greatest measured position, margin included, shape (J,)."""
    speed: Array
    """Greatest measured speed, shape (J,)."""
    still: Array
    """Speed below which a joint is at rest, shape (J,)."""
    still_travel: Array
    """Distance that a joint at rest may have moved since its rest began, shape (J,)."""
    following: Array
    """Greatest distance between commanded and measured position, shape (A,)."""
    mismatch: Array
    """Greatest difference between position and integrated velocity, shape (J,)."""
    servos: npt.NDArray[np.intp]
    """Position-commanded joints whose envelope allows less effort than their drive: indices below A, shape (S,)."""
    stiffness: Array
    """Position gain of these servos, shape (S,)."""
    damping: Array
    """Velocity gain of these servos, shape (S,)."""
    effort: Array
    """Greatest effort of these servos, shape (S,)."""


def guard_limits(contract: PolicyContract) -> GuardLimits:
    """Derive the guard's limits from a contract.

    Raises:
        GuardError: the safety envelope leaves no allowed command for a joint.
    """
    terms = contract.action.terms
    indices = [index for term in terms for index in contract.robot.joint_index(term.joints)]
    holds = [term.kind.startswith("joint_pos") for term in terms for _ in term.joints]
    drives = [contract.robot.joints[index] for index in indices]
    envelopes = [contract.safety.joints[index] for index in indices]
    hard_lower, hard_upper = _rounded([_hard_bounds(*pair) for pair in zip(envelopes, holds, strict=True)])
    own_lower, own_upper = _rounded([bounds for term in terms for bounds in _action_bounds(term, contract)])
    lower, upper = np.maximum(own_lower, hard_lower), np.minimum(own_upper, hard_upper)
    for envelope, low, high in zip(envelopes, lower, upper, strict=True):
        if not low <= high:
            raise GuardError(
                f"joint {envelope.joint}: no command is inside both its action's and its safety envelope's limits; "
                f"the greater lower one is {low:g}, the smaller upper one {high:g}"
            )
    servos = [
        i
        for i, (drive, envelope) in enumerate(zip(drives, envelopes, strict=True))
        if holds[i] and drive.stiffness > 0.0 and envelope.effort_limit < drive.effort_limit
    ]
    position_lower, position_upper = _position_range(contract)
    speeds = [envelope.velocity_limit for envelope in contract.safety.joints]
    still = np.array([STILL_SPEED if speed is None else STILL_SHARE * speed for speed in speeds])
    slack = _slack(lower, upper)
    rest = [drive.default_pos if hold else 0.0 for drive, hold in zip(drives, holds, strict=True)]
    return GuardLimits(
        slices=_slices(contract),
        joints=np.array(indices, np.intp),
        holds_position=np.array(holds),
        rest=np.clip(rest, lower, upper),
        lower=lower,
        upper=upper,
        hard_lower=hard_lower,
        hard_upper=hard_upper,
        rate=np.array([rate for term in terms for rate in _rates(term, contract)]),
        change=np.array([_change(e, contract) if h else UNLIMITED for e, h in zip(envelopes, holds, strict=True)]),
        slack=slack,
        brake=np.array([0.0 if hold else _brake(contract, i) for i, hold in zip(indices, holds, strict=True)]),
        position_lower=position_lower,
        position_upper=position_upper,
        speed=np.array([UNLIMITED if speed is None else speed for speed in speeds]),
        still=still,
        still_travel=still * STILL_S,
        following=np.array(
            [_or_unlimited(e.following_error_limit if h else None) for e, h in zip(envelopes, holds, strict=True)]
        ),
        mismatch=np.array([_or_unlimited(e.velocity_mismatch_limit) for e in contract.safety.joints]),
        servos=np.array(servos, np.intp),
        stiffness=np.array([drives[i].stiffness for i in servos]),
        damping=np.array([drives[i].damping for i in servos]),
        effort=np.array([envelopes[i].effort_limit for i in servos]),
    )


def _slices(contract: PolicyContract) -> dict[str, slice]:
    slices: dict[str, slice] = {}
    start = 0
    for term in contract.action.terms:
        slices[term.target_name] = slice(start, start + len(term.joints))
        start += len(term.joints)
    return slices


def _rounded(bounds: list[tuple[float, float]]) -> tuple[Array, Array]:
    """Return lower and upper bounds, rounded outwards to float32."""
    exact = np.array(bounds)
    single = exact.astype(np.float32)
    lower = np.where(single[:, 0] <= exact[:, 0], single[:, 0], np.nextafter(single[:, 0], np.float32(-np.inf)))
    upper = np.where(single[:, 1] >= exact[:, 1], single[:, 1], np.nextafter(single[:, 1], np.float32(np.inf)))
    return lower.astype(np.float64), upper.astype(np.float64)


def _hard_bounds(envelope: JointEnvelope, is_position: bool) -> tuple[float, float]:
    if not is_position:
        return -envelope.effort_limit, envelope.effort_limit
    lower, upper = envelope.position_lower, envelope.position_upper
    return (-GREATEST_COMMAND if lower is None else lower), (GREATEST_COMMAND if upper is None else upper)


def _action_bounds(term: ActionTerm, contract: PolicyContract) -> list[tuple[float, float]]:
    """Return the range that the term can command: the graph bounds the network's output to ± output_limit.

    Positions with limited steps start at the measured position, and may overshoot their target while braking.
    """
    overshoots = term.target_name == POSITION_TARGET and position_limits(contract) is not None
    reach = UNLIMITED if term.output_limit is None else term.output_limit
    bounds: list[tuple[float, float]] = []
    for offset, scale, lower, upper in zip(term.offset, term.scale, term.lower, term.upper, strict=True):
        low, high = lower, upper
        if not (term.kind.endswith("_incremental") or overshoots):
            low, high = max(lower, offset - reach * scale), min(upper, offset + reach * scale)
        bounds.append((low, high))
    return bounds


def _rates(term: ActionTerm, contract: PolicyContract) -> list[float]:
    """Greatest change per control period, one per joint of the term.

    An incremental term changes by at most its scale times the output's limit, a position by at most what the joint's
    speed limit allows.
    """
    rates: list[float] = []
    for i, index in enumerate(contract.robot.joint_index(term.joints)):
        rate, speed = UNLIMITED, contract.safety.joints[index].velocity_limit
        if term.kind.endswith("_incremental"):
            rate = UNLIMITED if term.output_limit is None else term.output_limit * term.scale[i]
        if term.kind.startswith("joint_pos") and speed is not None:
            rate = min(rate, speed * contract.timing.control_dt)
        rates.append(rate)
    return rates


def _change(envelope: JointEnvelope, contract: PolicyContract) -> float:
    """Greatest change per control period of a position's change per control period."""
    limit = envelope.acceleration_limit
    return UNLIMITED if limit is None else limit * contract.timing.control_dt**2


def _or_unlimited(limit: float | None) -> float:
    return UNLIMITED if limit is None else limit


def _slack(lower: Array, upper: Array) -> Array:
    """Return the rounding tolerance of a float32 graph: a few sums of numbers of this size."""
    size = np.minimum(np.maximum(np.abs(lower), np.abs(upper)), GREATEST_ROUNDED)
    return 8.0 * np.spacing(np.maximum(size, 1e-3).astype(np.float32)).astype(np.float64)


def _brake(contract: PolicyContract, joint: int) -> float:
    """Damping of a joint that brakes by effort: the servo's own, else full effort at the velocity limit.

    With d = effort limit / velocity limit and delay T the loop v' = -d v(t - T) / m is stable while d T / m < π / 2;
    m / d is the time in which full effort brings the joint to its velocity limit, which is many control periods for
    any joint that can be controlled at all. Without a velocity limit d is 0: the joint coasts.
    """
    damping = contract.robot.joints[joint].damping
    envelope = contract.safety.joints[joint]
    if damping > 0.0 or envelope.velocity_limit is None:
        return damping
    return envelope.effort_limit / envelope.velocity_limit


def _position_range(contract: PolicyContract) -> tuple[Array, Array]:
    ranges: list[tuple[float, float]] = []
    for envelope in contract.safety.joints:
        lower, upper = envelope.position_lower, envelope.position_upper
        if lower is None or upper is None:
            ranges.append((-UNLIMITED, UNLIMITED))
        else:
            margin = POSITION_MARGIN * (upper - lower)
            ranges.append((lower - margin, upper + margin))
    exact = np.array(ranges)
    return exact[:, 0], exact[:, 1]
