"""Why the policy's command was not sent: the guard's reasons, and those of the runtime can know."""

from enum import IntFlag

from physai.sdk.safety import Reason


class RuntimeFault(IntFlag):
    """Faults that the runtime detects, one bit each, above the bits of the guard's `Reason`."""

    FIELD_NOT_FINITE = 1 << 16
    """A sensor or command field that the policy reads is NaN or infinite."""
    WATCHDOG = 1 << 17
    """The loop was silent for so long that its watchdog braked the robot."""
    INFERENCE_FAILED = 1 << 18
    """The policy could not be computed."""
    TRANSPORT_FAILED = 1 << 19
    """The robot could not be heard or spoken to."""
    PERIODS_SKIPPED = 1 << 20
    """Whole control periods passed without a tick: the process stood still, or the tick before took too long."""
    NOT_SENT = 1 << 21
    """Every decision of this period was out of date before it could be sent, so nothing was."""
    OPERATOR_SILENT = 1 << 22
    """The operator's sign of life did not come."""
    HOLD_REQUESTED = 1 << 23
    """An operator, or the end of the program, asked for HOLD."""
    DAMP_REQUESTED = 1 << 24
    """An operator, or the end of the program, asked for DAMP."""
    COMMAND_CUT = 1 << 25
    """A command of the operator was cut to the range the policy was trained for; the policy goes on."""
    GUARD_FAILED = 1 << 26
    """The guard itself raised an error; nothing was sent."""
    LEASE_LOST = 1 << 27
    """The robot is no longer this runtime's, so nothing was sent."""


HARMLESS = int(RuntimeFault.COMMAND_CUT)
"""Bits with which the policy's command may still be sent."""


INTERVENTIONS = int(
    Reason.COMMAND_NOT_FINITE
    | Reason.COMMAND_LIMIT
    | Reason.COMMAND_RATE
    | RuntimeFault.INFERENCE_FAILED
    | RuntimeFault.GUARD_FAILED
)
"""Bits that say that the policy's own command was not fit to be sent."""

_POLICY_FAULTS = INTERVENTIONS | int(
    Reason.COMMAND_STALE
    | Reason.DEADLINE_MISSED
    | Reason.JOINT_POSITION
    | Reason.JOINT_VELOCITY
    | Reason.FOLLOWING_ERROR
)

_NOT_THE_POLICY = int(
    Reason.SENSOR_NOT_FINITE
    | Reason.SENSOR_STALE
    | Reason.SENSOR_IMPLAUSIBLE
    | Reason.SENSOR_CONTRADICTS
    | Reason.SENSOR_FROZEN
    | Reason.STOP_REQUESTED
    | Reason.NO_REFERENCE
    | RuntimeFault.FIELD_NOT_FINITE
    | RuntimeFault.TRANSPORT_FAILED
    | RuntimeFault.PERIODS_SKIPPED
    | RuntimeFault.NOT_SENT
    | RuntimeFault.OPERATOR_SILENT
    | RuntimeFault.HOLD_REQUESTED
    | RuntimeFault.DAMP_REQUESTED
    | RuntimeFault.WATCHDOG
    | RuntimeFault.LEASE_LOST
)


def blames_policy(reasons: int) -> bool:
    """Whether a rise of the state for these reasons counts against the policy on trial.

    A missing command has another cause where sensors, transport, machine or operator are at fault in the same period.
    A joint outside its limits is the policy's business whatever else is wrong.
    """
    found = reasons & _POLICY_FAULTS
    if reasons & _NOT_THE_POLICY:
        found &= ~int(Reason.DEADLINE_MISSED | Reason.COMMAND_STALE)
    return bool(found)


_WITHHELD = int(
    Reason.SENSOR_STALE
    | Reason.SENSOR_NOT_FINITE
    | Reason.SENSOR_IMPLAUSIBLE
    | Reason.SENSOR_CONTRADICTS
    | Reason.SENSOR_FROZEN
) | sum(int(member) for member in RuntimeFault if not member & HARMLESS)
"""Bits for which the policy's command was withheld: it is then missing, as if it were late."""


def describe(reasons: int) -> str:
    """The bits of a tick record in words, lower case, in order; `nothing` for none.

    That the command was missing is said only where nothing else says why.
    """
    if reasons & _WITHHELD:
        reasons &= ~int(Reason.DEADLINE_MISSED)
    names = [member.name for kind in (Reason, RuntimeFault) for member in kind if reasons & member]
    return ", ".join(name.lower().replace("_", " ") for name in names if name) or "nothing"
