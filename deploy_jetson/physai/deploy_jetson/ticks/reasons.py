"""Why the policy's command was not sent: the guard's reasons and the runtime's faults."""

from enum import IntFlag

from physai.sdk.safety import Reason


class RuntimeFault(IntFlag):
    """Faults that the runtime detects, one bit each, above the bits of the guard's `Reason`."""

    FIELD_NOT_FINITE = 1 << 16
    """A sensor or command field that the policy reads is NaN or infinite."""
    WATCHDOG = 1 << 17
    """The loop sent no command for so long that the watchdog braked the robot."""
    INFERENCE_FAILED = 1 << 18
    """The policy could not be computed."""
    TRANSPORT_FAILED = 1 << 19
    """Receiving from or sending to the robot failed."""
    PERIODS_SKIPPED = 1 << 20
    """Control periods passed without a tick: the process was suspended, or a tick took too long."""
    NOT_SENT = 1 << 21
    """Nothing was sent, as every decision of this period was late."""
    OPERATOR_SILENT = 1 << 22
    """The operator's heartbeat is overdue."""
    HOLD_REQUESTED = 1 << 23
    """An operator, or the end of the program, requested HOLD."""
    DAMP_REQUESTED = 1 << 24
    """An operator, or the end of the program, requested DAMP."""
    COMMAND_CUT = 1 << 25
    """An operator's command was clipped to the range the policy was trained for; the policy continues."""
    GUARD_FAILED = 1 << 26
    """The guard raised an exception; nothing was sent."""
    LEASE_LOST = 1 << 27
    """The runtime no longer holds the robot's lease, so nothing was sent."""


# Bits with which the policy's command may still be sent.
HARMLESS = int(RuntimeFault.COMMAND_CUT)


# Bits for an invalid command of the policy.
INTERVENTIONS = int(
    Reason.COMMAND_NOT_FINITE
    | Reason.COMMAND_LIMIT
    | Reason.COMMAND_RATE
    | RuntimeFault.INFERENCE_FAILED
    | RuntimeFault.GUARD_FAILED
)

# Bits that count against a policy on trial, unless something else explains them.
_POLICY_FAULTS = INTERVENTIONS | int(
    Reason.COMMAND_STALE
    | Reason.DEADLINE_MISSED
    | Reason.JOINT_POSITION
    | Reason.JOINT_VELOCITY
    | Reason.FOLLOWING_ERROR
)

_BAD_SAMPLE = int(
    Reason.SENSOR_NOT_FINITE
    | Reason.SENSOR_STALE
    | Reason.SENSOR_IMPLAUSIBLE
    | Reason.SENSOR_CONTRADICTS
    | Reason.SENSOR_FROZEN
)

# Causes that lie in the sensors, the transport, the machine or the operator.
_NOT_THE_POLICY = _BAD_SAMPLE | int(
    Reason.STOP_REQUESTED
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
    """Whether an intervention for these reasons counts against the policy on trial."""
    faults = reasons & _POLICY_FAULTS
    if reasons & _NOT_THE_POLICY:
        # Sensors, transport, machine or operator explain a missing command; they do not explain a joint beyond its
        # limits.
        faults &= ~int(Reason.DEADLINE_MISSED | Reason.COMMAND_STALE)
    return bool(faults)


# Bits for which the policy's command was withheld, which the guard treats as a missed deadline.
_WITHHELD = _BAD_SAMPLE | sum(int(member) for member in RuntimeFault if not member & HARMLESS)


def describe(reasons: int) -> str:
    """Return the names of the bits in lower case and in order; `nothing` for none."""
    if reasons & _WITHHELD:
        # Another reason already explains the missing command.
        reasons &= ~int(Reason.DEADLINE_MISSED)
    names = [member.name for kind in (Reason, RuntimeFault) for member in kind if reasons & member]
    return ", ".join(name.lower().replace("_", " ") for name in names if name) or "nothing"
