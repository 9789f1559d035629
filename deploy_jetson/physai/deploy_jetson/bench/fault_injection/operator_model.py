"""An operator who asks for anything at any moment: between ticks, in the middle of one, from another thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from physai.deploy_jetson.runtime.commands.queue import MAX_WAITING, Command, CommandError, CommandQueue, Ticket

Heard = Callable[[Command, Ticket | None], None]

TICKETS = (Command.RESET, Command.START, Command.ACTIVATE)
STOPS = (Command.STOP, Command.HOLD, Command.DAMP)

_MOST_READS = 14
"""A tick looks at the clock about that often; a request can come between any two looks."""


@dataclass(frozen=True)
class OperatorHabits:
    """How often an operator does what, in a period."""

    stop: float = 0.006
    reset: float = 0.6
    """In a state that is not RUN."""
    any_ticket: float = 0.02
    flood: float = 0.002
    deactivate: float = 0.0005
    while_flooding: int = 30
    """Periods that a flood lasts."""


NEVER = OperatorHabits(stop=0.0, reset=0.0, any_ticket=0.0, flood=0.0, deactivate=0.0)
"""An operator who does nothing."""


class OperatorModel:
    """Puts requests into a queue."""

    def __init__(
        self, commands: CommandQueue, random: Random, heard: Heard, habits: OperatorHabits | None = None
    ) -> None:
        """`heard` learns of every request that was accepted."""
        self._commands, self._random, self._heard = commands, random, heard
        self._habits = habits or OperatorHabits()
        self._other_thread = ThreadPoolExecutor(1, "operator")
        self._flood = 0
        self._interrupts: dict[int, list[Command]] = {}
        self._reads = 0
        self.refused = 0
        """Requests that found the queue full."""

    def close(self) -> None:
        """Ends the other thread."""
        self._other_thread.shutdown()

    def asks(self, command: Command) -> None:
        """Puts a request, now and then from another thread, and says so."""
        elsewhere = self._random.random() < 0.1
        try:
            put = self._commands.put
            ticket = self._other_thread.submit(put, command).result() if elsewhere else put(command)
        except CommandError:
            self.refused += 1
            return
        self._heard(command, ticket)

    def lives(self, *, stopped: bool) -> None:
        """A period begins; what comes to an operator's mind in it."""
        random, habits = self._random, self._habits
        self._reads, self._interrupts = 0, {}
        wishes: list[Command] = []
        if random.random() < habits.stop:
            wishes.append(random.choice(STOPS))
            # Pressed again and again, or a reset right after it.
            wishes += random.choices((*STOPS, *TICKETS), k=random.choice((0, 0, 1, 2)))
        if stopped and random.random() < habits.reset:
            wishes += random.choices(TICKETS[:2], k=random.choice((1, 1, 2)))
        if random.random() < habits.any_ticket:
            wishes.append(random.choice(TICKETS))
        if random.random() < habits.flood:
            self._flood = random.randrange(habits.while_flooding)
        if self._flood:
            self._flood -= 1
            wishes += random.choices(TICKETS, k=random.randrange(MAX_WAITING + 2))
        if random.random() < habits.deactivate:
            wishes.append(Command.DEACTIVATE)
        for wish in wishes:
            self._interrupts.setdefault(random.randrange(_MOST_READS), []).append(wish)
        self.looked()

    def looked(self) -> None:
        """The loop looks at its clock: a request may interrupt it there."""
        for wish in self._interrupts.pop(self._reads, ()):
            self.asks(wish)
        self._reads += 1
