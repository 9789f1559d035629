"""Events of a control period, as inputs of the supervisor and of its oracle.

Oracle and events are derived from `docs/explanation/safety.md` and share no code with the supervisor. Where the
supervisor compares numbers, the oracle uses times: of the last stop, of the standstill published since, and of each
request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from physai.sdk.safety import GuardState

Bools = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


class RequestTicket(IntEnum):
    """What the sender of a reset or start request knew."""

    NONE = 0
    """No request."""
    FRESH = 1
    """Made in this period, with the state published in the previous one."""
    KEPT = 2
    """Made in an earlier period that `SupervisorEvent.keeps`, and delivered (possibly again) in this one."""
    UNREAD = 3
    """Made with the current number, although it may not have been published yet."""
    AHEAD = 4
    """Made with a guess of the next number."""


@dataclass(frozen=True, slots=True)
class SupervisorEvent:
    """One control period."""

    missing: bool = False
    blind: bool = False
    violated: bool = False
    too_fast: bool = False
    at_rest: bool = False
    repeated: bool = False
    """Whether there is no newer sample."""
    ready: bool = True
    unreferenced: bool = False
    skipped: int = 0
    """Periods without a tick before this one."""
    least: int = GuardState.RUN
    stop: bool = False
    reset: int = RequestTicket.NONE
    start: int = RequestTicket.NONE
    keeps: bool = False
    """Whether an operator notes the state published in this period, for a later request."""

    def __str__(self) -> str:
        """The fields that differ from their defaults."""
        parts: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name in ("reset", "start"):
                parts.append(f"{field.name} {RequestTicket(value).name.lower()}")
            elif field.name == "least":
                parts.append(GuardState(value).name)
            elif value is False:
                parts.append(f"not {field.name}")
            else:
                parts.append(field.name if value is True else f"{field.name} {value}")
        return ", ".join(parts) or "nothing"


SAMPLES = {
    "moving": SupervisorEvent(),
    "moving, no newer sample": SupervisorEvent(repeated=True),
    "at rest": SupervisorEvent(at_rest=True),
    "at rest, no newer sample": SupervisorEvent(at_rest=True, repeated=True),
    "moving, no command": SupervisorEvent(missing=True),
    "at rest, no command": SupervisorEvent(missing=True, at_rest=True),
    "blind": SupervisorEvent(missing=True, blind=True, ready=False),
    "blind before any reference": SupervisorEvent(missing=True, blind=True, ready=False, unreferenced=True),
    "outside": SupervisorEvent(violated=True, ready=False),
    "outside, no command": SupervisorEvent(violated=True, missing=True, ready=False),
    "outside, at rest": SupervisorEvent(violated=True, at_rest=True, ready=False),
    "too fast": SupervisorEvent(violated=True, too_fast=True, ready=False),
}
"""States of sensors and policy in a period. Late, lost, frozen, NaN and jumping samples are all `blind`; a slow, hung
or raising policy, or one that outputs NaN, gives no command."""

OPERATORS = (
    SupervisorEvent(),
    SupervisorEvent(least=GuardState.HOLD),
    SupervisorEvent(least=GuardState.DAMP),
    SupervisorEvent(stop=True),
    SupervisorEvent(stop=True, least=GuardState.HOLD),
)

REQUESTS = (
    *((RequestTicket.NONE, ticket) for ticket in RequestTicket),
    *((ticket, RequestTicket.NONE) for ticket in RequestTicket if ticket),
    (RequestTicket.FRESH, RequestTicket.FRESH),
    (RequestTicket.KEPT, RequestTicket.FRESH),
    (RequestTicket.FRESH, RequestTicket.KEPT),
)
"""Combinations of reset and start requests in one period."""


def every_event() -> list[SupervisorEvent]:
    """All combinations of sensors, policy, operator, requests and skipped periods that the supervisor distinguishes."""
    return [
        replace(
            sample, skipped=skipped, least=asked.least, stop=asked.stop, reset=int(reset), start=int(start), keeps=keeps
        )
        for sample, asked, (reset, start), keeps in product(SAMPLES.values(), OPERATORS, REQUESTS, (False, True))
        for skipped in ((0, 1, 5) if sample.missing else (0,))
    ]


def frequent_events() -> list[SupervisorEvent]:
    """A few events, of which all sequences of length seven can be enumerated."""
    rest = SAMPLES["at rest"]
    return [
        SAMPLES["moving"],
        replace(rest, keeps=True),
        SAMPLES["blind"],
        SAMPLES["outside"],
        replace(rest, stop=True),
        replace(rest, reset=int(RequestTicket.FRESH)),
        replace(rest, start=int(RequestTicket.FRESH)),
        replace(rest, reset=int(RequestTicket.KEPT)),
    ]


def varied_events() -> list[SupervisorEvent]:
    """More events, for shorter sequences."""
    rest, moving = SAMPLES["at rest"], SAMPLES["moving"]
    tickets = [t for t in RequestTicket if t is not RequestTicket.NONE]
    return [
        *SAMPLES.values(),
        *(replace(rest, least=one.least, stop=one.stop) for one in OPERATORS[1:]),
        *(replace(rest, reset=int(ticket)) for ticket in tickets),
        *(replace(rest, start=int(ticket)) for ticket in tickets),
        replace(moving, reset=int(RequestTicket.FRESH)),
        replace(moving, start=int(RequestTicket.FRESH)),
        replace(rest, stop=True, reset=int(RequestTicket.FRESH)),
        replace(rest, stop=True, start=int(RequestTicket.FRESH)),
        replace(rest, least=GuardState.HOLD, reset=int(RequestTicket.KEPT)),
        replace(rest, reset=int(RequestTicket.FRESH), start=int(RequestTicket.FRESH)),
        replace(rest, keeps=True),
        replace(rest, stop=True, keeps=True),
        replace(SAMPLES["blind"], skipped=1),
        replace(SAMPLES["moving, no command"], skipped=5),
        replace(SAMPLES["outside, at rest"], start=int(RequestTicket.FRESH)),
        replace(SAMPLES["outside, at rest"], reset=int(RequestTicket.FRESH)),
    ]


@dataclass(frozen=True, slots=True)
class EventColumns:
    """Events as columns, one row per event."""

    missing: Bools
    blind: Bools
    violated: Bools
    too_fast: Bools
    at_rest: Bools
    repeated: Bools
    ready: Bools
    unreferenced: Bools
    skipped: Counts
    least: npt.NDArray[np.uint8]
    stop: Bools
    reset: Counts
    start: Counts
    keeps: Bools

    @classmethod
    def of(cls, events: Sequence[SupervisorEvent]) -> "EventColumns":
        """Builds the columns, one row per event."""
        columns: dict[str, Any] = {
            field.name: np.array([getattr(event, field.name) for event in events]) for field in fields(SupervisorEvent)
        }
        return cls(**{**columns, "least": columns["least"].astype(np.uint8)})

    def take(self, rows: npt.NDArray[np.intp]) -> "EventColumns":
        """The given rows, in that order."""
        return EventColumns(*(getattr(self, field.name)[rows] for field in fields(self)))
