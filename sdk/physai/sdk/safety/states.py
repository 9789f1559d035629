"""States and reasons of the safety functions, and answers to operator requests."""

from enum import IntEnum, IntFlag


class GuardState(IntEnum):
    """Freedom that the guard leaves the policy. Without a reset the state only rises.

    Stop categories are those of IEC 60204-1:2016, 9.2.2. None of these states is a safety function in the sense of
    ISO 13849: they run on the same computer as the policy, and they do not replace a safety-rated circuit.
    """

    RUN = 0
    """The policy's commands reach the joints, inside the contract's limits."""
    STANDSTILL = 1
    """Stopped and reset: the commanded positions are constant, efforts damp. A start leads to RUN, nothing else does.
    Like the end of a category 2 stop: the drives stay energised."""
    HOLD = 2
    """Position commands brake within the limits and then stay constant; effort commands approach -d·v at the
    contract's rate. Like a category 2 stop."""
    DAMP = 3
    """Positions as in HOLD; efforts are -d·v at once, and 0 without sound measurements. Like a category 2 stop of a
    position-commanded robot; an effort-commanded one is not held against gravity."""
    PROTECTIVE_STOP = 4
    """Commands as in DAMP, and the standstill is read back. A category 1 stop needs the power to be removed after it:
    that is the business of the robot's own safety circuit. It is never a category 0 stop."""


class Reason(IntFlag):
    """Detected faults, one bit each. Bits from 16 on belong to the runtime (`physai.deploy_jetson.ticks.reasons`)."""

    SENSOR_NOT_FINITE = 1 << 0
    """A measured value is NaN or infinite."""
    SENSOR_STALE = 1 << 1
    """The sample is older than max_observation_age_s by its own stamp, or from the future."""
    COMMAND_NOT_FINITE = 1 << 2
    """A command is NaN or infinite."""
    COMMAND_STALE = 1 << 3
    """The command was computed more than a control period ago."""
    DEADLINE_MISSED = 1 << 4
    """No command arrived in time for this control period."""
    COMMAND_LIMIT = 1 << 5
    """A command outside the limits on position or effort, or one from which the joint could not stop before them."""
    COMMAND_RATE = 1 << 6
    """A command that changes too fast: speed and acceleration of positions, effort per period."""
    JOINT_POSITION = 1 << 7
    """A joint measured outside its range by more than the margin."""
    JOINT_VELOCITY = 1 << 8
    """A joint measured above its speed limit."""
    STOP_REQUESTED = 1 << 9
    """A protective stop was requested."""
    STOP_NOT_CONFIRMED = 1 << 10
    """A protective stop has not brought the joints to rest in time."""
    NO_REFERENCE = 1 << 11
    """No valid sample has arrived yet, so no position can be commanded."""
    FOLLOWING_ERROR = 1 << 12
    """A joint is farther from its commanded position than following_error_limit."""
    SENSOR_IMPLAUSIBLE = 1 << 13
    """A sensor value outside the contract's sensor_ranges."""
    SENSOR_CONTRADICTS = 1 << 14
    """A measured position jumps, or does not agree with the integral of the measured velocity."""
    SENSOR_FROZEN = 1 << 15
    """Positions and velocities are bit-equal in sample after sample while the robot is commanded to move."""


class RequestAnswer(IntEnum):
    """Answer to a reset or start request."""

    NONE = 0
    """Nothing was requested."""
    OBEYED = 1
    ALREADY = 2
    """The state is reached already."""
    SUPERSEDED = 3
    """A stop or a fault came after the state that the request was made in."""
    NOT_READ_BACK = 4
    """The standstill had not been confirmed by the sensors when the request was made."""
    NOT_AT_REST = 5
    """A joint moves, or the sensors do not show that it rests."""
    NOT_RESET = 6
    """A start needs a reset first."""
    NOT_READY = 7
    """The last sample is not sound, or a joint is outside its limits or too far from its commanded position."""


ANSWERS = {
    RequestAnswer.NONE: "nothing was requested",
    RequestAnswer.OBEYED: "done",
    RequestAnswer.ALREADY: "nothing to do: that state is reached already",
    RequestAnswer.SUPERSEDED: "refused: a stop or a fault came after the request; look at the status and ask again",
    RequestAnswer.NOT_READ_BACK: "refused: the joints have not been measured at rest since the last stop; "
    "wait for that, then ask again",
    RequestAnswer.NOT_AT_REST: "refused: the joints are not measured at rest",
    RequestAnswer.NOT_RESET: "refused: reset first",
    RequestAnswer.NOT_READY: "refused: the newest sample is not sound, or the robot is outside its limits "
    "or not where it was commanded to be",
}
"""Text of each answer."""
