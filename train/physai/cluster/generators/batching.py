"""Bookkeeping of asynchronous training: when a generator is asked for a chunk, and which chunks a batch is made of.

Admission is that of AReaL (Fu et al. 2025, arXiv:2505.24298, section 4.1). No process, thread or clock is in here, so
any order of events can be tested.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

Stragglers = Literal["wait", "drop"]


@dataclass(frozen=True)
class ChunkTicket:
    """A chunk that a generator was asked for."""

    number: int
    """Counts the tickets; what arrives without one counts for nothing."""
    generator: int
    version: int
    """Number of updates of the weights that the whole chunk is played with."""


class Admission:
    """Bounds how old the weights are that a batch was played with, and shares the batches out among generators.

    With version V, the number of updates so far, batch B and staleness η:

    - Each chunk of batch V, counted from 0, has a version of at least V - η.
    - Chunks that may be asked for are min(generators - running, (η + V + 1) B - (accepted + running)), so no more are
      accepted by version V than batches up to V + η have room for.
    - A generator plays one chunk at a time. Idle ones are asked in the order of how little they have contributed.
    - A batch takes the oldest chunks first. If stragglers are waited for, no batch is taken that would make a chunk too
      old which is still played. So none is ever dropped, and each generator contributes to at least one of any η + 1
      consecutive batches, unless it is lost.
    - If they are dropped, batches do not wait, and a chunk that comes too late counts for nothing: a generator that is
      slower than η + 1 batches then contributes nothing at all.

    η = 0 is synchronous: no generator plays while the trainer learns, and a batch is of one version.
    """

    def __init__(
        self, generators: int, *, batch: int, staleness: int, version: int = 0, stragglers: Stragglers = "wait"
    ) -> None:
        """Begins at a version, with nothing running and nothing at hand.

        Args:
            generators: how many there are; all are idle.
            batch: chunks that an update learns from, at least as many as there are generators.
            staleness: η, how many updates a chunk's weights may be older than those that learn from it.
            version: updates so far. As many batches count as accepted, else the rule would admit that many at once.
            stragglers: what to do about a chunk that would be too old.
        """
        self.batch, self.staleness, self.version = batch, staleness, version
        self._stragglers: Stragglers = stragglers
        self._generators = generators
        self._taken = version
        """Batches that were taken; one more than the version while the trainer learns."""
        self._running: dict[int, ChunkTicket] = {}
        self._at_hand: list[ChunkTicket] = []
        self._dealt = 0
        self._contributed: Counter[int] = Counter()
        self.learned: Counter[int] = Counter()
        """Chunks of each generator that were taken into batches."""
        self.dropped = 0
        """Chunks that came too late."""
        self.refused = 0
        """Chunks that were not asked for, or not any more: from generators that were given up."""

    @property
    def batches(self) -> int:
        """Batches that were taken, those before a resume included."""
        return self._taken

    @property
    def accepted(self) -> int:
        """Chunks that were taken or are at hand, those before a resume included."""
        return self._taken * self.batch + len(self._at_hand)

    @property
    def running(self) -> int:
        """Chunks that are asked for and have not come."""
        return len(self._running)

    @property
    def allowed(self) -> int:
        """Number of chunks that may be asked for now."""
        room = (self.staleness + self.version + 1) * self.batch - (self.accepted + self.running)
        return max(0, min(self._generators - self.running, room))

    def deal(self) -> list[ChunkTicket]:
        """Asks idle generators for chunks, as far as that is allowed."""
        idle = [which for which in range(self._generators) if which not in self._running]
        idle.sort(key=lambda which: (self._contributed[which], which))
        tickets = [ChunkTicket(self._dealt + n, which, self.version) for n, which in enumerate(idle[: self.allowed])]
        self._dealt += len(tickets)
        self._running |= {ticket.generator: ticket for ticket in tickets}
        return tickets

    def waits_for(self, generator: int, number: int) -> bool:
        """Whether a generator was asked for this chunk last, and has not sent it."""
        ticket = self._running.get(generator)
        return ticket is not None and ticket.number == number

    def arrive(self, generator: int, number: int) -> bool:
        """Whether a chunk that arrived counts; only one that is waited for does."""
        if not self.waits_for(generator, number):
            self.refused += 1
            return False
        ticket = self._running.pop(generator)
        if self._too_old(ticket, self._taken):
            self.dropped += 1
            return False
        self._at_hand.append(ticket)
        self._contributed[generator] += 1
        return True

    def lose(self, generator: int) -> None:
        """Forgets what a generator that was lost was asked for; `deal` asks its successor, for the present version."""
        self._running.pop(generator, None)

    def _too_old(self, ticket: ChunkTicket, batch: int) -> bool:
        return batch - ticket.version > self.staleness

    @property
    def overdue(self) -> list[int]:
        """Generators whose running chunks would be too old for any batch after the next."""
        return [which for which, ticket in self._running.items() if self._too_old(ticket, self._taken + 1)]

    @property
    def ready(self) -> bool:
        """Whether the next batch can be taken."""
        waits = self._stragglers == "wait" and bool(self.overdue)
        return self._taken == self.version and len(self._at_hand) >= self.batch and not waits

    def take(self) -> list[ChunkTicket]:
        """The batch that the trainer learns from next, by generators, then in the order in which each played.

        Raises:
            RuntimeError: it is not ready.
        """
        if not self.ready:
            raise RuntimeError(f"no batch is ready at version {self.version}")
        # Sorting is stable: of equally old ones, the one that came first.
        self._at_hand.sort(key=lambda ticket: ticket.version)
        batch, self._at_hand = self._at_hand[: self.batch], self._at_hand[self.batch :]
        self._taken += 1
        self.learned.update(ticket.generator for ticket in batch)
        return sorted(batch, key=lambda ticket: (ticket.generator, ticket.number))

    def advance(self) -> list[ChunkTicket]:
        """Goes on to the version that has learned from the batch taken; returns what is too old now, and dropped."""
        self.version = self._taken
        late = [ticket for ticket in self._at_hand if self._too_old(ticket, self._taken)]
        self._at_hand = [ticket for ticket in self._at_hand if ticket not in late]
        self.dropped += len(late)
        return late

    def shares(self) -> list[float]:
        """Share of each generator in what was learned from; 0 before anything was."""
        whole = max(1, sum(self.learned.values()))
        return [self.learned[which] / whole for which in range(self._generators)]
