"""Test oracle of the supervisor: checks each control period, independently of the supervisor's code.

The oracle consists of arrays of small counters, one row per robot, because millions of sequences are checked at once.
It records when events happened, whereas the supervisor compares numbers; a disagreement is a bug in one of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from tests.harness.supervisor.events import Bools, Counts, EventColumns, RequestTicket

from physai.sdk.safety import GuardState, RequestAnswer
from physai.sdk.safety.supervisor import Outputs, SupervisorState, SupervisorThresholds

MOVES, STOPPED, RESET = 0, 1, 2
"""What requests and faults so far permit: motion; no motion until a reset; no motion until a start."""

Verdicts = Iterator[tuple[str, Bools]]
"""A safety property, and the rows that violate it."""


@dataclass(frozen=True, slots=True)
class Oracle:
    """State of the oracle for n robots; arrays of shape (n,)."""

    phase: Counts
    """MOVES, STOPPED or RESET."""
    quiet: Counts
    """Consecutive new samples at rest since the last stop, fault or start."""
    shown: Bools
    """Whether a standstill has been published since then."""
    valid: Bools
    """Whether the earlier request (`RequestTicket.KEPT`) was made with that standstill published, and nothing happened
    since."""
    without: Counts
    """Consecutive periods without a command, or, outside RUN, without a valid sample."""
    off: Counts
    """Consecutive valid samples with a violation."""
    useless: Counts
    """Consecutive periods in which DAMP has no effect."""
    strays: Counts
    """Consecutive new valid samples with motion at standstill."""
    waited: Counts
    """Periods in PROTECTIVE_STOP."""

    @classmethod
    def initial(cls, count: int, level: GuardState) -> "Oracle":
        """Robots that were just activated (STANDSTILL), or whose episode has just begun (RUN)."""
        phase = np.full(count, RESET if level is GuardState.STANDSTILL else MOVES)
        zeros = [np.zeros(count, np.int64) for _ in range(6)]
        shown, valid = np.ones(count, bool), np.zeros(count, bool)
        return cls(phase, zeros[0], shown, valid, *zeros[1:])


@dataclass(frozen=True, slots=True)
class ObservedPeriod:
    """Observation of one period."""

    level: npt.NDArray[np.uint8]
    """Before it."""
    number: Counts
    """Before it."""
    read_back: Counts
    """Published before the period."""
    event: EventColumns
    after: SupervisorState
    out: Outputs


def observe(before: Oracle, seen: ObservedPeriod, limits: SupervisorThresholds) -> tuple[Oracle, "ExpectedPeriod"]:
    """State of the oracle after a period, and the expected result of the period."""
    event, level = seen.event, seen.level
    counted = _count(before, seen)
    raised = _raised(counted, seen, limits)
    stopped = event.stop | (event.least > GuardState.RUN) | (raised > level)
    quiet = np.where(event.at_rest & (level != GuardState.RUN) & ~stopped, before.quiet + ~event.repeated, 0)
    shown: Bools = ~stopped & (before.shown | (quiet >= limits.still))
    may_reset, may_start = (
        ~stopped & event.at_rest & _knows(ticket, before, quiet >= limits.still) & (before.phase == phase)
        for ticket, phase in ((event.reset, STOPPED), (event.start, RESET))
    )
    may_start = may_start & event.ready
    # Whether a reset or start was obeyed is observed here, and checked in `verdicts`.
    down: Bools = seen.out.reset == RequestAnswer.OBEYED
    up: Bools = seen.out.start == RequestAnswer.OBEYED
    phase = np.where(stopped, STOPPED, before.phase)
    phase = np.where(down & may_reset, RESET, np.where(up & may_start, MOVES, phase))
    expected = np.where(down, GuardState.STANDSTILL, np.where(up, GuardState.RUN, raised))
    shown = shown & ~up
    stays = (expected == GuardState.PROTECTIVE_STOP) & (level == GuardState.PROTECTIVE_STOP)
    waited = np.where(expected == GuardState.PROTECTIVE_STOP, np.where(stays, before.waited + 1, 1), 0)
    # A noted state stays valid until something happens; a note made in RUN is never valid.
    lasts = before.valid & ~stopped & ~down & ~up
    valid = np.where(event.keeps, shown & (phase != MOVES), lasts)
    after = Oracle(
        phase=phase,
        quiet=np.minimum(quiet, limits.still),
        shown=shown,
        valid=valid,
        without=np.where(down | up, 0, np.minimum(counted.without, limits.reused + limits.hold + 1)),
        off=np.where(down | up, 0, np.minimum(counted.off, limits.tolerated + 1)),
        useless=np.where(down | up, 0, np.minimum(counted.useless, limits.effect + 1)),
        strays=np.where(down | up, 0, np.minimum(counted.strays, limits.tolerated + 1)),
        waited=np.minimum(waited, limits.confirm + 1),
    )
    return after, ExpectedPeriod(expected, stopped, may_reset, may_start)


def _count(before: Oracle, seen: ObservedPeriod) -> Oracle:
    """Updates the durations of the faults, this period included."""
    event, level = seen.event, seen.level
    lacks = np.where(level == GuardState.RUN, event.missing, event.blind)
    stirs = (level == GuardState.STANDSTILL) & ~event.at_rest
    helpless = (level >= GuardState.DAMP) & (event.blind | event.too_fast)
    return replace(
        before,
        without=np.where(lacks, before.without + event.skipped + 1, 0),
        # An invalid sample neither continues nor ends a violation.
        off=np.where(event.blind, before.off, np.where(event.violated, before.off + 1, 0)),
        strays=np.where(event.blind | event.repeated, before.strays, np.where(stirs, before.strays + 1, 0)),
        useless=np.where(helpless, before.useless + 1, 0),
    )


def _raised(counted: Oracle, seen: ObservedPeriod, limits: SupervisorThresholds) -> Counts:
    """Minimum state required: by faults after their tolerance, by requests immediately."""
    level, event = seen.level, seen.event
    hold = (counted.without > limits.reused) | (counted.strays > limits.tolerated)
    damp = (counted.without > limits.reused + limits.hold) | (counted.off > limits.tolerated)
    lost = event.unreferenced & (level == GuardState.RUN)
    stop = event.stop | (counted.useless > limits.effect) | lost
    asked = np.select([stop, damp, hold], [GuardState.PROTECTIVE_STOP, GuardState.DAMP, GuardState.HOLD], 0)
    return np.maximum(np.maximum(level, event.least), asked)


def _knows(ticket: Counts, before: Oracle, shown_now: Bools) -> Bools:
    """Whether the request was made after the current standstill was published."""
    guessed = (ticket == RequestTicket.UNREAD) & (before.shown | shown_now)
    return ((ticket == RequestTicket.FRESH) & before.shown) | ((ticket == RequestTicket.KEPT) & before.valid) | guessed


@dataclass(frozen=True, slots=True)
class ExpectedPeriod:
    """Expected result of a period."""

    level: Counts
    stopped: Bools
    """Whether an operator or a fault raised the state, or an operator repeated the request."""
    may_reset: Bools
    may_start: Bools


def verdicts(
    before: Oracle, after: Oracle, expected: ExpectedPeriod, seen: ObservedPeriod, limits: SupervisorThresholds
) -> Verdicts:
    """All safety properties, and the rows that violate them."""
    event, out, level = seen.event, seen.out, seen.after.level
    reset, start = out.reset, out.start
    down, up = reset == RequestAnswer.OBEYED, start == RequestAnswer.OBEYED
    yield "moves after a stop, without a reset and a start", (level == GuardState.RUN) & (after.phase != MOVES)
    yield "moves and has to", (level != GuardState.RUN) & (after.phase == MOVES)
    yield "a requested stop stops at once", event.stop & (level != GuardState.PROTECTIVE_STOP)
    yield "a requested state is reached at once", level < np.where(down | up, 0, event.least)
    yield "the state falls only by an obeyed reset or start", (level < seen.level) & ~down & ~up
    yield "faults raise the state when they should, and not before", level != expected.level
    yield "a reset that may be obeyed is", expected.may_reset & ~down
    yield "a reset that may not be obeyed is not", down & ~expected.may_reset
    yield "a start that may be obeyed is", expected.may_start & ~up & ~down
    yield "a start that may not be obeyed is not", up & ~expected.may_start
    yield "a reset does not move", down & (level != GuardState.STANDSTILL)
    yield "every reset is answered", (event.reset == RequestTicket.NONE) != (reset == RequestAnswer.NONE)
    yield "every start is answered", (event.start == RequestTicket.NONE) != (start == RequestAnswer.NONE)
    yield "a refused reset is told why", _untrue(reset, event.reset, before, expected, seen)
    yield "a refused start is told why", _untrue(start, event.start, before, expected, seen)
    changed = expected.stopped | down | up
    yield "numbers grow with everything that changes what a request means", (seen.after.number > seen.number) != changed
    yield "numbers never fall", seen.after.number < seen.number
    known = level > GuardState.RUN
    published = seen.after.read_back == seen.after.number
    yield "a standstill is published when it was measured for long enough", known & (published != after.shown)
    moved = (level == GuardState.RUN) & (seen.after.read_back != seen.read_back)
    yield "in RUN no standstill is published", (up & published) | moved
    rests = known & (after.quiet >= limits.still)
    yield "a stop is confirmed while it lasts", out.confirmed != rests
    late = (level == GuardState.PROTECTIVE_STOP) & (after.waited > limits.confirm) & ~rests
    yield "a stop that is not confirmed in time is reported", out.unconfirmed != late
    caused = seen.after.causes != 0
    yield "there are causes where there is a stop", caused != (level > GuardState.STANDSTILL)


def _untrue(
    answer: npt.NDArray[np.uint8], ticket: Counts, before: Oracle, expected: ExpectedPeriod, seen: ObservedPeriod
) -> Bools:
    """Rows in which an answer gives a wrong reason."""
    event, level, stopped = seen.event, seen.level, expected.stopped
    knew = ((ticket == RequestTicket.FRESH) & before.shown) | ((ticket == RequestTicket.KEPT) & before.valid)
    reasons: dict[RequestAnswer, Bools] = {
        RequestAnswer.ALREADY: (level <= GuardState.STANDSTILL) & ~stopped,
        RequestAnswer.SUPERSEDED: stopped | ~knew,
        RequestAnswer.NOT_READ_BACK: ~before.shown & ~stopped,
        RequestAnswer.NOT_AT_REST: ~event.at_rest,
        RequestAnswer.NOT_RESET: level > GuardState.STANDSTILL,
        RequestAnswer.NOT_READY: ~event.ready,
    }
    wrong = np.zeros(len(level), bool)
    for value, holds in reasons.items():
        wrong |= (answer == value) & ~holds
    return wrong
