"""Inputs and outputs of the guard."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from physai.sdk.safety.limits import Array
from physai.sdk.safety.plant import Bools
from physai.sdk.safety.states import GuardState, RequestAnswer
from physai.sdk.safety.supervisor import NOTHING

Flags = npt.NDArray[np.uint32]
Levels = npt.NDArray[np.uint8]
Numbers = TypeVar("Numbers", npt.NDArray[np.int64], npt.NDArray[np.uint8])


@dataclass(frozen=True, slots=True)
class Request:
    """Requests to the supervisor since the last control period; for one world, or alike for all except `stop`."""

    stop: bool | Bools = False
    """A protective stop."""
    least: int = GuardState.RUN
    """State to rise to."""
    reset: int = NOTHING
    """Back to STANDSTILL: the `GuardResult.read_back` that the requester saw."""
    start: int = NOTHING
    """From STANDSTILL to RUN, likewise."""
    skipped: int = 0
    """Control periods that passed without a decision."""
    reasons: int = 0
    """`Reason` flags to add to `GuardResult.reasons` and `.causes`."""


NO_REQUEST = Request()
"""The empty request; compared by identity, which is fast."""


@dataclass(slots=True)
class GuardResult:
    """Decision of one control period. Callers may keep the arrays but must not write to them."""

    # Not frozen, which would cost the control loop a microsecond per period.

    targets: dict[str, Array]
    """Joint commands by output name, finite and inside the limits, shape (num_worlds, joints of the term)."""
    state: Levels
    """GuardState of each world, shape (num_worlds,)."""
    intervened: Bools
    """Whether the policy's command was replaced, limited or missing, shape (num_worlds,)."""
    reasons: Flags
    """Reason flags of this control period, shape (num_worlds,). A measurement outside its limits is flagged from the
    first sample on, whether or not the guard intervenes yet."""
    causes: Flags
    """Reason flags of the control periods in which the state rose, shape (num_worlds,); 0 in RUN."""
    stopped: Bools
    """Whether a standstill has been read back and lasts: every joint measured at rest, shape (num_worlds,)."""
    number: npt.NDArray[np.int64]
    """See `SupervisorState.number`."""
    read_back: npt.NDArray[np.int64]
    """Number that a reset or start request must carry, see `SupervisorState.read_back`."""
    reset: Levels
    """`RequestAnswer` to the request."""
    start: Levels
    """`RequestAnswer` to the request."""
    referenced: Bools
    """Whether commands are defined: False until a valid sample has shown the position of position-commanded joints."""
    excess: Array
    """Greatest amount by which the policy's command exceeds a limit [rad, m, N·m or N], shape (num_worlds,)."""


def everywhere(usual: Numbers, value: int) -> Numbers:
    """Return the value in every world; reuses the usual array if it has that value."""
    return usual if usual[0] == value else np.full_like(usual, value)


@dataclass(frozen=True, slots=True)
class Quiet:
    """Preallocated, read-only arrays of a period without faults."""

    no: Bools
    yes: Bools
    run: Levels
    flags: Flags
    zero: Array
    none: npt.NDArray[np.int64]
    nothing: npt.NDArray[np.int64]


def quiet_arrays(count: int) -> Quiet:
    """The arrays for so many worlds, each of shape (count,)."""
    quiet = Quiet(
        no=np.zeros(count, bool),
        yes=np.ones(count, bool),
        run=np.full(count, RequestAnswer.NONE, np.uint8),
        flags=np.zeros(count, np.uint32),
        zero=np.zeros(count),
        none=np.zeros(count, np.int64),
        nothing=np.full(count, NOTHING, np.int64),
    )
    for array in (quiet.no, quiet.yes, quiet.run, quiet.flags, quiet.zero, quiet.none, quiet.nothing):
        array.flags.writeable = False
    return quiet
