"""A random operator who sends any request at any moment: between ticks, during a tick, from another thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from physai.deploy_jetson.runtime.commands.queue import MAX_WAITING, Command, CommandError, CommandQueue, RequestTicket

Heard = Callable[[Command, RequestTicket | None], None]

TICKETS = (Command.RESET, Command.START, Command.ACTIVATE)
STOPS = (Command.STOP, Command.HOLD, Command.DAMP)

_MOST_READS = 14
"""Approximate number of clock reads per tick; a request can arrive between any two of them."""


@dataclass(frozen=True)
class OperatorHabits:
    """Probabilities of an operator's actions, per period."""

    stop: float = 0.006
    reset: float = 0.6
    """In states other than RUN."""
    any_ticket: float = 0.02
    flood: float = 0.002
    deactivate: float = 0.0005
    while_flooding: int = 30
    """Maximum duration of a flood of requests, in periods."""


NEVER = OperatorHabits(stop=0.0, reset=0.0, any_ticket=0.0, flood=0.0, deactivate=0.0)
"""Habits of an operator who does nothing."""


class OperatorModel:
    """Puts requests into a queue."""

    def __init__(
        self, commands: CommandQueue, random: Random, heard: Heard, habits: OperatorHabits | None = None
    ) -> None:
        """Creates an operator; `heard` is called for every accepted request."""
        self._commands, self._random, self._heard = commands, random, heard
        self._habits = habits or OperatorHabits()
        self._other_thread = ThreadPoolExecutor(1, "operator")
        self._flood = 0
        self._interrupts: dict[int, list[Command]] = {}
        self._reads = 0
        self.refused = 0
        """Requests that were refused because the queue was full."""

    def close(self) -> None:
        """Ends the other thread."""
        self._other_thread.shutdown()

    def asks(self, command: Command) -> None:
        """Sends a request, sometimes from another thread, and reports it to `heard`."""
        elsewhere = self._random.random() < 0.1
        try:
            put = self._commands.put
            ticket = self._other_thread.submit(put, command).result() if elsewhere else put(command)
        except CommandError:
            self.refused += 1
            return
        self._heard(command, ticket)

    def lives(self, *, stopped: bool) -> None:
        """Draws the requests of a new period."""
        random, habits = self._random, self._habits
        self._reads, self._interrupts = 0, {}
        requests: list[Command] = []
        if random.random() < habits.stop:
            requests.append(random.choice(STOPS))
            # Pressed repeatedly, or followed immediately by a reset.
            requests += random.choices((*STOPS, *TICKETS), k=random.choice((0, 0, 1, 2)))
        if stopped and random.random() < habits.reset:
            requests += random.choices(TICKETS[:2], k=random.choice((1, 1, 2)))
        if random.random() < habits.any_ticket:
            requests.append(random.choice(TICKETS))
        if random.random() < habits.flood:
            self._flood = random.randrange(habits.while_flooding)
        if self._flood:
            self._flood -= 1
            requests += random.choices(TICKETS, k=random.randrange(MAX_WAITING + 2))
        if random.random() < habits.deactivate:
            requests.append(Command.DEACTIVATE)
        for request in requests:
            self._interrupts.setdefault(random.randrange(_MOST_READS), []).append(request)
        self.looked()

    def looked(self) -> None:
        """Called at every read of the clock: sends the requests due at this read."""
        for request in self._interrupts.pop(self._reads, ()):
            self.asks(request)
        self._reads += 1
