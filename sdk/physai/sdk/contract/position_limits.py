"""Limits on commanded positions that the policy graph itself enforces, for contracts of format 2 or later.

Values are float32, the precision of the graph. Bounds are rounded outwards like the guard's, steps towards zero, so
that the graph's commands are inside the guard's limits.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.contract.terms import ActionTerm

Floats = npt.NDArray[np.float32]

SINCE_FORMAT = 2
"""Graphs of format 1 contracts have no such limits."""

POSITION_TARGET = "joint_pos_target"
"""Name of the graph output that the limits apply to."""

# Finite, because infinity times 0 is NaN.
UNLIMITED = 1e12
"""Step limit that stands for "no limit"; wider than any range."""


@dataclass(frozen=True, slots=True)
class PositionLimits:
    """Limits of the commanded joints of a position term, in its order; shape (joints,) each."""

    lower: Floats
    """Least position [rad or m]."""
    upper: Floats
    """Greatest position [rad or m]."""
    stop_lower: Floats
    """Position before which a joint with an acceleration limit stops: `lower` and what rounding may add [rad or m]."""
    stop_upper: Floats
    """The same at the other end [rad or m]."""
    step: Floats
    """Greatest change of the command per control period [rad or m]."""
    change: Floats
    """Greatest change of that step from one control period to the next [rad or m]."""

    @property
    def accelerates(self) -> bool:
        """Whether a joint has an acceleration limit, so that the step sent last must be remembered."""
        return bool((self.change < UNLIMITED).any())


def position_limits(contract: PolicyContract, period_s: float | None = None) -> PositionLimits | None:
    """The limits of a contract's position term; None if there is no such term, or nothing limits its steps.

    Args:
        contract: of the policy.
        period_s: time between two commands, for instance two steps of a plan; None for the control period.
    """
    term = next((term for term in contract.action.terms if term.target_name == POSITION_TARGET), None)
    if term is None or contract.format_version < SINCE_FORMAT:
        return None
    period = contract.timing.control_dt if period_s is None else period_s
    envelopes = [contract.safety.joints[index] for index in contract.robot.joint_index(term.joints)]
    steps = [UNLIMITED if e.velocity_limit is None else e.velocity_limit * period for e in envelopes]
    changes = [UNLIMITED if e.acceleration_limit is None else e.acceleration_limit * period**2 for e in envelopes]
    if min(steps + changes) >= UNLIMITED:
        return None
    lower, upper = _bounds(term, contract)
    step, change = _inwards(steps), _inwards(changes)
    margin = _margin(lower, upper, step, change)
    return PositionLimits(lower, upper, lower + margin, upper - margin, step, change)


def _bounds(term: ActionTerm, contract: PolicyContract) -> tuple[Floats, Floats]:
    """Return the intersection of the term's and the safety envelope's bounds."""
    lower, upper = list(term.lower), list(term.upper)
    for i, index in enumerate(contract.robot.joint_index(term.joints)):
        envelope = contract.safety.joints[index]
        if envelope.position_lower is not None and envelope.position_upper is not None:
            lower[i], upper[i] = max(lower[i], envelope.position_lower), min(upper[i], envelope.position_upper)
    return -_outwards([-value for value in lower]), _outwards(upper)


def _margin(lower: Floats, upper: Floats, step: Floats, change: Floats) -> Floats:
    """Bound the effect of float32 rounding on a joint's stopping distance."""
    # A position is rounded by up to half a unit u in its last place. This changes a step, and therefore the stopping
    # distance once per remaining period: over n periods of braking by less than n²·u / 4.
    periods = np.minimum(step / change, np.sqrt(2.0 * (upper - lower) / change))
    unit = np.spacing(np.maximum(np.abs(lower), np.abs(upper)))
    return np.where(change < UNLIMITED, unit * (8.0 + 0.5 * periods**2), 0.0).astype(np.float32)


def _outwards(values: list[float]) -> Floats:
    """Round up to float32."""
    single = np.array(values, np.float32)
    return np.where(single >= np.array(values), single, np.nextafter(single, np.float32(np.inf)))


def _inwards(values: list[float]) -> Floats:
    """Round down to float32."""
    single = np.array(values, np.float32)
    return np.where(single <= np.array(values), single, np.nextafter(single, np.float32(-np.inf)))
