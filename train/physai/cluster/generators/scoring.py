"""Scores chunks in actors of their own, on a Ray cluster, while others are still being played."""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from physai.cluster.generators.actors import ActorLostError, Actors, about_process
from physai.cluster.generators.executor import WAY_OUT
from physai.cluster.generators.generator import Arrays, Chunk, as_arrays, as_tensors
from physai.cluster.placement.placement import Seat
from physai.compute.ray.cluster import ClusterError
from physai.compute.ray.head import Head, says_whether_lost
from physai.train.collectors.collector import Scorer

START_S = 180.0
"""How long to wait for an actor to start [s]."""
PATIENCE_S = 60.0
"""How long an actor that has chunks to score may not answer [s]."""
MAX_LOSSES = 5
"""How often a scorer may be lost, without a score in between, before the run ends."""
_TURN_S = 1.0
"""How often to look whether work still goes on [s]."""

logger = logging.getLogger(__name__)


class ScoringActor:
    """Content of an actor's process."""

    def __init__(self, scorer: Scorer) -> None:
        """Keeps the scorer."""
        # torch rounds differently with another number of threads.
        torch.set_num_threads(1)
        self._scorer = scorer

    def about(self) -> dict[str, str]:
        """See `about_process`."""
        return about_process()

    def score(self, columns: Arrays, memory: Any) -> tuple[Arrays, Any]:
        """See `Scorer.score`; arrays in place of tensors."""
        scores, after = self._scorer.score(as_tensors(columns), torch.tensor(memory))
        return as_arrays(scores), after.numpy()


@dataclass(frozen=True)
class _Job:
    """A chunk that is being scored."""

    columns: Arrays
    handle: Any
    """Of the actor that has it."""
    answer: Any


class ScoringActors:
    """Scores the chunks of an iteration as they come.

    Scores follow from a chunk and the memory before it, which is kept here. So another actor in the place of a lost one
    makes the same scores, and each counts once.
    """

    def __init__(self, ray: Any, *, seats: Sequence[Seat], way_out: str = WAY_OUT) -> None:
        """Starts nothing yet.

        Args:
            ray: the module.
            seats: where each actor starts.
            way_out: what to do after an error.
        """
        self._ray, self._seats, self._way_out = ray, seats, way_out
        self._actor: Any = ray.remote(max_restarts=0, max_task_retries=0)(ScoringActor)
        self._actors = Actors(ray, self._start_actor, role="scorer")
        self.head = Head(ray, way_out=way_out)
        self._scorer: Any = None
        self._columns: tuple[str, ...] = ()
        self._memories: list[Any] = []
        """By generator, what its worlds' memory is after the chunk that was scored last."""
        self._jobs: dict[int, _Job] = {}
        """By generator."""
        self._heard_s: dict[int, float] = {}
        """When each actor that has work answered last, or got it."""
        self._losses: Counter[int] = Counter()
        self.replaced = 0
        """Actors that were lost and replaced."""

    def _start_actor(self, number: int) -> Any:
        self._heard_s[number] = time.monotonic()
        return self._actor.options(**self._seats[number].options).remote(self._scorer)

    @property
    def processes(self) -> dict[int, tuple[str, int]]:
        """Host and process of each actor that has answered."""
        self._actors.welcome()
        return {number: (one.host, one.pid) for number, one in sorted(self._actors.ready.items())}

    @says_whether_lost
    def score_with(self, scorer: Scorer, worlds: Sequence[int]) -> None:
        """Starts the actors.

        Args:
            scorer: what they have.
            worlds: how many each generator has.
        """
        self.head.require()
        self._scorer, self._columns = self._ray.put(scorer), scorer.columns
        self._memories = [scorer.memory(count).numpy() for count in worlds]
        self._actors.require(len(self._seats))

    @says_whether_lost
    def submit(self, which: int, chunk: Chunk) -> None:
        """Has a generator's next chunk scored."""
        number = self._number(which)
        if all(self._number(other) != number for other in self._jobs):
            self._heard_s[number] = time.monotonic()
        self._send(which, {name: chunk.columns[name] for name in self._columns})

    def _number(self, which: int) -> int:
        return which % len(self._seats)

    def _send(self, which: int, columns: Arrays) -> None:
        handle = self._actors[self._number(which)]
        self._jobs[which] = _Job(columns, handle, handle.score.remote(columns, self._memories[which]))

    @says_whether_lost
    def results(self) -> dict[str, Tensor]:
        """Waits for the scores of one chunk of each generator; by name, (T, N, …), in the order of worlds.

        Raises:
            ClusterError: an actor cannot start, or is lost again and again.
            PhysaiError: a scorer failed in a way that would repeat itself.
        """
        found: dict[int, Arrays] = {}
        while self._jobs:
            self.head.require()
            self._welcome()
            jobs = {job.answer: which for which, job in self._jobs.items()}
            ready: list[Any] = self._ray.wait(list(jobs), timeout=_TURN_S)[0]
            for answer in ready:
                # Not if it was sent to another actor meanwhile.
                if self._jobs[jobs[answer]].answer is answer:
                    self._receive(jobs[answer], found)
            if not ready:
                self._require_progress()
        parts = [as_tensors(found[which]) for which in sorted(found)]
        return {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}

    def _receive(self, which: int, found: dict[int, Arrays]) -> None:
        number = self._number(which)
        try:
            found[which], self._memories[which] = self._actors.get(self._jobs[which].answer)
        except ActorLostError as error:
            self._replace(number, str(error))
            return
        del self._jobs[which]
        self._losses[number] = 0
        self._heard_s[number] = time.monotonic()

    def _welcome(self) -> None:
        before = set(self._actors.ready)
        self._actors.welcome()
        for number in set(self._actors.ready) - before:
            self._heard_s[number] = time.monotonic()

    def _replace(self, number: int, reason: str) -> None:
        """Has another actor do what one had to do that is lost."""
        mine = [which for which in self._jobs if self._number(which) == number]
        # One that died while it started has been replaced already.
        if any(self._jobs[which].handle is self._actors[number] for which in mine):
            self._losses[number] += 1
            self.replaced += 1
            if self._losses[number] > MAX_LOSSES:
                raise ClusterError(
                    f"scorer {number} was lost {self._losses[number]} times in a row, at last: {reason}; "
                    f"see `ray logs` for its output, then {self._way_out}"
                )
            logger.warning("scorer %d was lost: %s; another one scores its chunks", number, reason)
            self._actors.replace(number)
        for which in mine:
            self._send(which, self._jobs[which].columns)

    def _require_progress(self) -> None:
        now = time.monotonic()
        for number in {self._number(which) for which in self._jobs}:
            silent_s = now - self._heard_s[number]
            if number in self._actors.ready:
                if not silent_s <= PATIENCE_S:
                    self._replace(number, f"no answer in {silent_s:.0f} s")
            elif not silent_s <= START_S:
                raise ClusterError(
                    f"scorer {number} did not start within {silent_s:.0f} s; it takes {self._seats[number].processors} "
                    f"of the cluster's processors: add computers with `ray start --address {self.head.address}`, then "
                    f"{self._way_out}"
                )

    def close(self) -> None:
        """Ends all actors; without a head they end by themselves."""
        self._jobs.clear()
        if self.head.usable:
            self._actors.close()
        self.head.close()
