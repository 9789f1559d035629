"""What one control period can bring to the supervisor, and what the supervisor must make of it.

Everything here is written from `docs/explanation/safety.md`, without a line of the supervisor's own code. Where the
supervisor
compares numbers, the oracle knows times: when something last stopped the robot, when its standstill was shown, and
when a request was made.
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
    """When a reset or a start was made."""

    NONE = 0
    """There is none."""
    FRESH = 1
    """Just now, by someone who looked at what the period before has published."""
    KEPT = 2
    """In an earlier period that `SupervisorEvent.keeps`, and delivered now; maybe not for the first time."""
    UNREAD = 3
    """By someone who knows the current number, although it may not have been read back."""
    AHEAD = 4
    """By someone who guesses the next number."""


@dataclass(frozen=True, slots=True)
class SupervisorEvent:
    """One control period."""

    missing: bool = False
    blind: bool = False
    violated: bool = False
    too_fast: bool = False
    at_rest: bool = False
    repeated: bool = False
    """Whether no newer sample has come."""
    ready: bool = True
    unreferenced: bool = False
    skipped: int = 0
    """Periods without a decision before this one."""
    least: int = GuardState.RUN
    stop: bool = False
    reset: int = RequestTicket.NONE
    start: int = RequestTicket.NONE
    keeps: bool = False
    """Whether someone notes at its end what is published then, for a request that comes later."""

    def __str__(self) -> str:
        """Only what is out of the ordinary."""
        said: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name in ("reset", "start"):
                said.append(f"{field.name} {RequestTicket(value).name.lower()}")
            elif field.name == "least":
                said.append(GuardState(value).name)
            elif value is False:
                said.append(f"not {field.name}")
            else:
                said.append(field.name if value is True else f"{field.name} {value}")
        return ", ".join(said) or "nothing"


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
"""What sensors and policy can do in a period: late, lost, frozen, NaN and jumping samples are all `blind`; a slow, hung
or raising policy and one that computes NaN give no command."""

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
"""Resets and starts that can come in one period."""


def every_event() -> list[SupervisorEvent]:
    """All combinations of sensors, policy, operator, requests and silence that differ for the supervisor."""
    return [
        replace(
            sample, skipped=skipped, least=asked.least, stop=asked.stop, reset=int(reset), start=int(start), keeps=keeps
        )
        for sample, asked, (reset, start), keeps in product(SAMPLES.values(), OPERATORS, REQUESTS, (False, True))
        for skipped in ((0, 1, 5) if sample.missing else (0,))
    ]


def frequent_events() -> list[SupervisorEvent]:
    """Few enough that all sequences of seven of them can be tried one by one."""
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
    """More, for shorter sequences."""
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
    """Many events, one per row."""

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
        """One row for each event."""
        columns: dict[str, Any] = {
            field.name: np.array([getattr(event, field.name) for event in events]) for field in fields(SupervisorEvent)
        }
        return cls(**{**columns, "least": columns["least"].astype(np.uint8)})

    def take(self, rows: npt.NDArray[np.intp]) -> "EventColumns":
        """Some of the rows, in that order."""
        return EventColumns(*(getattr(self, field.name)[rows] for field in fields(self)))
