"""The supervisor: one pure state machine for the robot's runtime, the twin's rollouts and the tests.

`step(state, inputs, thresholds)` returns the next state and the answers to the requests. It has no threads, clock or
I/O. Every array has shape (n,), one row per robot; rows never influence each other.

Requests that make a robot safer (stop, a least state) are levels: they act in the period in which they are seen.
Requests that make it less safe (reset, start) carry the number that their sender had read back. `number` counts
everything that changes what such a request would mean: rising states, requested stops, resets, starts. A request with
an older number is refused, so a reset can never take back a stop that came after it, whatever the order of delivery
(ISO 13850, 4.1.4: the reset permits a restart, it does not cause one).
"""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from physai.sdk.safety.states import GuardState, RequestAnswer

Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
Levels = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.uint32]

NOTHING = -1
"""No request, in `Inputs.reset` and `Inputs.start`."""

# As numpy scalars, because looking up an enumeration member takes longer than the comparison.
_RUN, _STANDSTILL, _HOLD, _DAMP, _STOP = (np.uint8(state) for state in GuardState)


@dataclass(frozen=True, slots=True)
class SupervisorThresholds:
    """Consecutive control periods after which a condition takes effect."""

    reused: int
    """Without a usable command, before HOLD."""
    hold: int
    """In HOLD without a sample that is valid, before DAMP."""
    tolerated: int
    """With a violation, before HOLD; fewer are treated as noise."""
    effect: int
    """In DAMP without effect, before PROTECTIVE_STOP."""
    still: int
    """With a new sample at rest, before a standstill is confirmed."""
    confirm: int
    """In PROTECTIVE_STOP without a confirmed standstill, before that is reported."""


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """State of the machine."""

    level: Levels
    """`GuardState`."""
    number: Counts
    """Counter of events that supersede a request; see the module docstring."""
    read_back: Counts
    """The last number in which a standstill was confirmed."""
    causes: Flags
    """Reasons of the periods in which the state rose; 0 in RUN and STANDSTILL."""
    missed: Counts
    violated: Counts
    ineffective: Counts
    rested: Counts
    moved: Counts
    stopping: Counts

    @classmethod
    def initial(cls, count: int, level: GuardState) -> Self:
        """Initial state of n robots."""
        number, read_back, *counters = np.zeros((8, count), np.int64)
        return cls(np.full(count, level, np.uint8), number, read_back, np.zeros(count, np.uint32), *counters)

    def where(self, mask: Bools, other: Self) -> Self:
        """This state in the masked rows, the other one elsewhere."""
        pairs = [(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)]
        columns: list[Any] = [np.where(mask, mine, theirs) for mine, theirs in pairs]
        return type(self)(*columns)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Findings of one control period, and requests since the previous one."""

    missing: Bools
    """There is no usable command."""
    blind: Bools
    """The sample is not valid: not finite, too old, implausible, contradictory or frozen."""
    violated: Bools
    """A valid sample shows a joint outside its range, too fast, or too far from its command."""
    too_fast: Bools
    at_rest: Bools
    """A valid sample shows every joint at rest, and the commanded positions are constant."""
    repeated: Bools
    """No new sample arrived in this period, so it is no further evidence of rest or motion."""
    ready: Bools
    """A valid sample inside all limits: the policy may take over."""
    unreferenced: Bools
    """No position has been measured since the activation."""
    reasons: Flags
    """What is wrong, for `SupervisorState.causes`."""
    skipped: Counts
    """Control periods that passed without a decision since the last one."""
    least: Levels
    """Minimum state requested by an operator or the runtime; RUN for none."""
    stop: Bools
    """A protective stop was requested since the last period."""
    reset: Counts
    """`read_back` as the sender of the reset saw it; NOTHING for none."""
    start: Counts
    """The same of a start."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Outputs of one control period."""

    confirmed: Bools
    """A standstill has been read back and lasts."""
    unconfirmed: Bools
    """A protective stop was not read back in time."""
    reset: Levels
    """`RequestAnswer`."""
    start: Levels
    """`RequestAnswer`."""


def step(state: SupervisorState, inputs: Inputs, limits: SupervisorThresholds) -> tuple[SupervisorState, Outputs]:
    """One control period of every robot."""
    counted = _count(state, inputs, limits)
    level = _risen(state, counted, inputs, limits)
    asked = inputs.stop | (inputs.least > _RUN)
    risen = level > state.level
    changed = asked | risen
    number = state.number + changed
    rested = np.where(changed, 0, counted.rested)
    read_back = np.where(rested >= limits.still, number, state.read_back)
    causes = state.causes | np.where(risen | asked, inputs.reasons, np.uint32(0))

    seen = _Seen(changed, number, read_back)
    reset = _answer_reset(state, inputs, seen)
    start = _answer_start(state, inputs, seen)
    down, up = reset == RequestAnswer.OBEYED, start == RequestAnswer.OBEYED
    level = np.where(down, _STANDSTILL, np.where(up, _RUN, level))
    number = number + (down | up)
    read_back = np.where(down, number, read_back)
    stopping = np.where(level == _STOP, np.minimum(state.stopping + 1, limits.confirm + 1), 0)
    confirmed = (level > _RUN) & (rested >= limits.still)
    cleared = down | up
    after = SupervisorState(
        level=level,
        number=number,
        read_back=read_back,
        causes=np.where(cleared, np.uint32(0), causes),
        missed=np.where(cleared, 0, counted.missed),
        violated=np.where(cleared, 0, counted.violated),
        ineffective=np.where(cleared, 0, counted.ineffective),
        rested=rested,
        moved=np.where(cleared, 0, counted.moved),
        stopping=stopping,
    )
    unconfirmed = (stopping > limits.confirm) & ~confirmed
    return after, Outputs(confirmed=confirmed, unconfirmed=unconfirmed, reset=reset, start=start)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Facts against which a request is checked."""

    changed: Bools
    number: Counts
    read_back: Counts


@dataclass(frozen=True, slots=True)
class _Counted:
    missed: Counts
    violated: Counts
    ineffective: Counts
    rested: Counts
    moved: Counts


def _count(state: SupervisorState, inputs: Inputs, limits: SupervisorThresholds) -> _Counted:
    """Count consecutive periods of each condition; counts saturate just above their thresholds."""
    in_run = state.level == _RUN
    # Outside RUN the policy is not asked, so only the sensors can be missing.
    awaits = np.where(in_run, inputs.missing, inputs.blind)
    damping = state.level >= _DAMP
    unknown = inputs.blind | inputs.repeated
    moves = (state.level == _STANDSTILL) & ~inputs.at_rest & ~unknown
    rests = inputs.at_rest & ~in_run
    return _Counted(
        missed=_in_a_row(state.missed + np.where(awaits, inputs.skipped, 0), awaits, limits.reused + limits.hold),
        violated=_in_a_row(state.violated, inputs.violated, limits.tolerated, keep=inputs.blind),
        ineffective=_in_a_row(state.ineffective, damping & (inputs.blind | inputs.too_fast), limits.effect),
        rested=_in_a_row(state.rested, rests & ~inputs.repeated, limits.still, keep=rests),
        moved=_in_a_row(state.moved, moves, limits.tolerated, keep=unknown),
    )


def _in_a_row(count: Counts, happens: Bools, most: int, *, keep: Bools | None = None) -> Counts:
    """Increment the count where the condition holds, else reset it, or keep it if `keep`; saturates at `most + 1`."""
    otherwise = 0 if keep is None else np.where(keep, count, 0)
    return np.minimum(np.where(happens, count + 1, otherwise), most + 1)


def _risen(state: SupervisorState, counted: _Counted, inputs: Inputs, limits: SupervisorThresholds) -> Levels:
    """Return the state after faults and requests; it is never lower than before."""
    hold = (counted.missed > limits.reused) | (counted.moved > limits.tolerated)
    damp = (counted.missed > limits.reused + limits.hold) | (counted.violated > limits.tolerated)
    stop = inputs.stop | (counted.ineffective > limits.effect) | (inputs.unreferenced & (state.level == _RUN))
    level = np.maximum(state.level, inputs.least)
    for least, where in ((_HOLD, hold), (_DAMP, damp), (_STOP, stop)):
        level = np.maximum(level, np.where(where, least, _RUN))
    return level


def _answer_reset(state: SupervisorState, inputs: Inputs, seen: _Seen) -> Levels:
    if not (inputs.reset != NOTHING).any():
        return np.zeros_like(state.level)
    return _first(
        (inputs.reset == NOTHING, RequestAnswer.NONE),
        (seen.changed, RequestAnswer.SUPERSEDED),
        (state.level <= _STANDSTILL, RequestAnswer.ALREADY),
        (seen.read_back != seen.number, RequestAnswer.NOT_READ_BACK),
        (inputs.reset != seen.number, RequestAnswer.SUPERSEDED),
        (~inputs.at_rest, RequestAnswer.NOT_AT_REST),
    )


def _answer_start(state: SupervisorState, inputs: Inputs, seen: _Seen) -> Levels:
    if not (inputs.start != NOTHING).any():
        return np.zeros_like(state.level)
    return _first(
        (inputs.start == NOTHING, RequestAnswer.NONE),
        (seen.changed, RequestAnswer.SUPERSEDED),
        (state.level == _RUN, RequestAnswer.ALREADY),
        (state.level != _STANDSTILL, RequestAnswer.NOT_RESET),
        (inputs.start != seen.number, RequestAnswer.SUPERSEDED),
        (~inputs.ready, RequestAnswer.NOT_READY),
        (~inputs.at_rest, RequestAnswer.NOT_AT_REST),
    )


def _first(*cases: tuple[Bools, RequestAnswer]) -> Levels:
    """Return the answer of the first case that holds; OBEYED if none does."""
    answer = np.full(cases[0][0].shape, RequestAnswer.OBEYED, np.uint8)
    for holds, value in reversed(cases):
        answer = np.where(holds, np.uint8(value), answer)
    return answer
