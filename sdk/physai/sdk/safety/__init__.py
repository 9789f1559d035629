"""The guard, which limits a policy's joint commands, and its supervisor; the same code in the twin and on the robot."""

from physai.sdk.safety.decision import NO_REQUEST, GuardResult, Request
from physai.sdk.safety.guard import HOLD_S, Guard
from physai.sdk.safety.limits import STILL_S, GuardError, GuardLimits, guard_limits
from physai.sdk.safety.states import ANSWERS, GuardState, Reason, RequestAnswer
from physai.sdk.safety.supervisor import NOTHING

__all__ = [
    "ANSWERS",
    "HOLD_S",
    "NOTHING",
    "NO_REQUEST",
    "STILL_S",
    "Guard",
    "GuardError",
    "GuardLimits",
    "GuardResult",
    "GuardState",
    "Reason",
    "Request",
    "RequestAnswer",
    "guard_limits",
]
