"""Operator requests to a running policy, and the queue that carries them to the control loop.

Requests that make the robot safer are numbered levels: they take effect in the next tick and cannot be lost. Requests
that make it less safe wait in a short queue, carry the state that their sender saw, and are each answered: obeyed, or
why not. One made before the newest stop, hold, damp or deactivate is refused.
"""

import itertools
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from physai.sdk.base.errors import PhysaiError


class CommandError(PhysaiError):
    """A request was refused or cannot be queued."""


class Command(StrEnum):
    """A request of an operator."""

    ACTIVATE = "activate"
    """Begin to send commands; only from INACTIVE, and not while a stop has not been reset."""
    DEACTIVATE = "deactivate"
    """Ramp to a safe state, then send nothing more."""
    HOLD = "hold"
    """Brake to a standstill, until `reset`."""
    DAMP = "damp"
    """Brake without stiffness, until `reset`."""
    STOP = "stop"
    """Protective stop, until `reset`; confirmed when every joint was measured at rest."""
    RESET = "reset"
    """Reset a confirmed stop. The robot stays where it is."""
    START = "start"
    """Return from standstill to the policy."""
    SHUTDOWN = "shutdown"
    """Ramp to a safe state, then end."""


# Capacity of the queue; the loop answers one request per control period.
MAX_WAITING = 8

Levels = tuple[int, int, int, int]
# Before any request.
NO_LEVELS: Levels = (0, 0, 0, 0)


@dataclass(eq=False)
class RequestTicket:
    """A request that will be answered."""

    command: Command
    levels: Levels
    """`CommandQueue.levels` when it was made."""
    read_back: int
    """`CommandQueue.read_back` when it was made."""
    obeyed: bool = False
    text: str = ""
    _answered: threading.Event = field(default_factory=threading.Event)

    def answer(self, text: str, *, obeyed: bool = False) -> None:
        """Wake the waiting caller."""
        self.text, self.obeyed = text, obeyed
        self._answered.set()

    def withdraw(self) -> None:
        """Withdraw the request, unless it is being executed."""
        # The loop skips a ticket that is answered already.
        self.answer("withdrawn: there was no answer in time")

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self._answered.is_set()

    def wait(self, timeout_s: float) -> str:
        """Return the answer.

        Raises:
            CommandError: the request was refused, or withdrawn because no answer came in time.
        """
        if not self._answered.wait(timeout_s):
            self.withdraw()
            raise CommandError(f"{self.command}: no answer within {timeout_s:g} s")
        if not self.obeyed:
            raise CommandError(f"{self.command}: {self.text}")
        return self.text


class CommandQueue:
    """Written by helper threads and signal handlers, read by the loop; takes no lock, as a signal handler may not."""

    def __init__(self) -> None:
        """Initialize without requests."""
        # Unique numbers: of two threads that write at once, neither can hide the other's request.
        self._numbers = itertools.count(1)
        self.stop = self.hold = self.damp = self.deactivate = 0
        """Number of the newest request of each kind; 0 before the first."""
        self.shutdown = False
        self.barred = ""
        """Why no request may start the policy: its verdict was revoked, say; empty if one may."""
        self.acknowledged = 0
        """Value of `stop` that a reset has acknowledged."""
        self.read_back = 0
        """Number that a reset or start must carry, updated by the loop every period; see `GuardResult.read_back`.
        Negative while nothing is driven, see `Standby`."""
        self.heartbeat_ns = 0
        """CLOCK_MONOTONIC of the operator's last heartbeat [ns]; 0 before the first."""
        self._tickets: deque[RequestTicket] = deque()

    @property
    def levels(self) -> Levels:
        """Numbers of the newest requests that make the robot safer."""
        return self.stop, self.hold, self.damp, self.deactivate

    @property
    def stopped(self) -> bool:
        """Whether a stop was requested that no reset has acknowledged."""
        return self.stop != self.acknowledged

    def latch(self) -> int:
        """Require a reset for a stop that acts already, or acted in an earlier process; return its number."""
        self.stop = number = next(self._numbers)
        return number

    def __len__(self) -> int:
        """Return the number of waiting tickets."""
        return len(self._tickets)

    def put(self, command: Command) -> RequestTicket | None:
        """Queue a request for the loop.

        Returns:
            A ticket that will be answered; None for a level, which needs no answer.

        Raises:
            CommandError: too many requests wait already.
        """
        if command is Command.SHUTDOWN:
            self.shutdown = True
        elif command in (Command.STOP, Command.HOLD, Command.DAMP, Command.DEACTIVATE):
            # One assignment, which is atomic: a signal handler may come between any two instructions.
            setattr(self, command.value, next(self._numbers))
        else:
            if len(self) >= MAX_WAITING:
                raise CommandError(f"{command}: refused, {MAX_WAITING} requests wait already; ask again")
            ticket = RequestTicket(command, self.levels, self.read_back)
            self._tickets.append(ticket)
            return ticket
        return None

    def take(self) -> RequestTicket | None:
        """Pop the oldest request that was not withdrawn, or return None; the caller answers it."""
        with suppress(IndexError):
            while (ticket := self._tickets.popleft()).answered:
                pass
            return ticket
        return None

    def refuse_all(self, why: str) -> None:
        """Answer every queued request with a refusal."""
        while (ticket := self.take()) is not None:
            ticket.answer(why)
