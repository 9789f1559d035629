"""Generators on Ray, in processes on this computer or others that may come and go."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from physai.cluster.generators.actors import ActorLostError, Actors, GeneratorActor, InitialWorlds
from physai.cluster.generators.dispatch import deal, fewest_held
from physai.cluster.generators.executor import WAY_OUT, GeneratorLostError
from physai.cluster.generators.generator import Arrays, Chunk, ChunkRequest, Weights
from physai.cluster.placement.placement import Seat
from physai.compute.ray.cluster import ClusterError
from physai.compute.ray.head import Head, says_whether_lost
from physai.sim.policies.resolve import absolute
from physai.train.collectors.collector import Scorer, Share
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig

START_S = 180.0
"""How long to wait for a process while there is none, for instance while a cluster starts a computer, and how much
longer a chunk may take whose worlds have to be built [s]."""
JOIN_S = 10.0
"""How long worlds wait at the beginning for a process each before they share one [s]."""
LEAST_PATIENCE_S = 60.0
"""How long any chunk may take [s]."""
PATIENCE = 20.0
"""How much longer a chunk may take than the longest before."""
_TURN_S = 1.0
"""How often to look whether work still goes on [s]."""


@dataclass(frozen=True)
class _Work:
    """Work of an actor."""

    which: int
    answer: Any
    since: float
    builds: bool


class RayGenerators:
    """Generators in actors of the Ray cluster that this process is connected with.

    A generator is worlds and where they stand; an actor is a process that steps the worlds of one generator at a time.
    As many actors as generators are asked for. While there are fewer, an actor steps several generators' worlds in
    turn, so what is played depends neither on how many there are nor on which has what.
    """

    def __init__(
        self,
        ray: Any,
        source: RunTaskSource,
        config: TrainConfig,
        *,
        seats: Sequence[Seat] = (),
        way_out: str = WAY_OUT,
    ) -> None:
        """Starts nothing yet.

        Args:
            ray: the module.
            source: where every computer finds the task.
            config: settings of the run.
            seats: where the process of each generator starts; where Ray finds a processor, if empty.
            way_out: what to do after an error.
        """
        self._seats, self._way_out = seats, way_out
        self._ray, self._source, self._config = ray, absolute(source), config
        # Supervision is ours: an actor that Ray restarts would begin new worlds.
        self._actor: Any = ray.remote(max_restarts=0, max_task_retries=0)(GeneratorActor)
        self._actors = Actors(ray, self._start_actor)
        self.head = Head(ray, way_out=way_out)
        self._scorer: Scorer | None = None
        self._worlds: dict[int, InitialWorlds] = {}
        """Where the worlds of each generator stand after what it sent last."""
        self._holders: dict[int, int] = {}
        """The actor that has the worlds of a generator as they stand."""
        self._waiting: dict[int, tuple[ChunkRequest, Any]] = {}
        """What each generator is to do as soon as an actor is idle, those first that wait longest."""
        self._working: dict[int, _Work] = {}
        self._longest_s = 0.0
        self._begun_s = self._going_s = time.monotonic()
        """When generators were started first, and when there was an actor last."""

    def _start_actor(self, number: int) -> Any:
        seat = self._seats[number] if self._seats else Seat()
        return self._actor.options(**seat.options).remote(self._source, self._config, seat.processors)

    @property
    def processes(self) -> dict[int, tuple[str, int]]:
        """Host and process of each generator whose worlds a process has."""
        found = {which: self._actors.ready[number] for which, number in self._holders.items()}
        return {which: (process.host, process.pid) for which, process in sorted(found.items())}

    def score_with(self, scorer: Scorer) -> None:
        """Gives generators that are built from now on a scorer."""
        self._scorer = scorer

    @says_whether_lost
    def start(self, which: int, share: Share, count: int, state: Arrays | None) -> None:
        """Notes the worlds, and asks for another process if there are fewer than generators."""
        for number, work in list(self._working.items()):
            if work.which == which:
                self._replace(number)
        if not self._worlds:
            self._begun_s = self._going_s = time.monotonic()
        self._waiting.pop(which, None)
        self._holders.pop(which, None)
        self._worlds[which] = InitialWorlds(share, count, state, self._scorer)
        self.head.require()
        self._actors.require(len(self._worlds))

    @says_whether_lost
    def publish(self, weights: Weights) -> Any:
        """One copy in the object store of each computer."""
        self.head.require()
        return self._ray.put(weights)

    @says_whether_lost
    def submit(self, which: int, order: ChunkRequest, weights: Any) -> None:
        """Asks for a chunk."""
        self._waiting[which] = order, weights
        self._deal()

    def _deal(self) -> None:
        self.head.require()
        self._actors.welcome()
        idle = [number for number in self._actors.ready if number not in self._working]
        for which, number in deal(self._waiting, idle, self._holders):
            order, weights = self._waiting.pop(which)
            worlds = self._hand_over(which, number)
            answer = self._actors[number].collect.remote(which, worlds, order, weights)
            self._working[number] = _Work(which, answer, time.monotonic(), builds=worlds is not None)

    def _hand_over(self, which: int, number: int) -> InitialWorlds | None:
        """Facts that an actor needs to step a generator's worlds; None if it has them."""
        before = self._holders.get(which)
        if before == number:
            return None
        if before is not None:
            self._actors[before].forget.remote(which)
        self._holders[which] = number
        return self._worlds[which]

    @says_whether_lost
    def answered(self, timeout_s: float) -> bool:
        """Waits that long for a chunk [s]; whether one is there, or its actor's process died."""
        self._deal()
        return bool(self._wait(timeout_s))

    def _wait(self, timeout_s: float) -> list[int]:
        """Waits for an answer, and while something waits for an actor, for one of those; actors that answered."""
        working = {work.answer: number for number, work in self._working.items()}
        references = [*working, *(self._actors.coming if self._waiting else [])]
        if not references:
            return []
        return [working[one] for one in self._ray.wait(references, timeout=timeout_s)[0] if one in working]

    @says_whether_lost
    def next_chunk(self) -> tuple[int, Chunk]:
        """The next chunk of any generator.

        Raises:
            GeneratorLostError: an actor's process or computer died, cannot be reached, or takes too long.
            ClusterError: there is no actor and no processor for one, or the head does not answer.
            PhysaiError: a generator failed in a way that would repeat itself.
        """
        while True:
            self._deal()
            for number in self._wait(_TURN_S):
                self.head.require()
                return self._received(number)
            self._require_progress()

    def _received(self, number: int) -> tuple[int, Chunk]:
        work = self._working[number]
        chunk: Chunk = self._answer(work.which, number, work.answer)
        del self._working[number]
        self._longest_s = max(self._longest_s, time.monotonic() - work.since)
        self._worlds[work.which] = replace(self._worlds[work.which], state=chunk.state)
        return work.which, chunk

    def _answer(self, which: int, number: int, reference: Any, *, timeout_s: float | None = None) -> Any:
        try:
            return self._actors.get(reference, timeout_s=timeout_s)
        except ActorLostError as error:
            self._replace(number)
            raise GeneratorLostError(which, str(error)) from error

    def _replace(self, number: int) -> None:
        self._working.pop(number, None)
        self._holders = {which: holder for which, holder in self._holders.items() if holder != number}
        self.head.require()
        self._actors.replace(number)

    def _require_progress(self) -> None:
        self.head.require()
        now = time.monotonic()
        for number, work in self._working.items():
            waited_s = now - work.since
            limit_s = max(LEAST_PATIENCE_S, PATIENCE * self._longest_s) + (START_S if work.builds else 0.0)
            if not waited_s <= limit_s:
                host = self._actors.ready[number].host
                self._replace(number)
                raise GeneratorLostError(work.which, f"no answer from {host} in {waited_s:.0f} s")
        if self._actors.ready:
            self._going_s = now
        elif not now - self._going_s <= START_S:
            raise ClusterError(f"no generator could start within {now - self._going_s:.0f} s: {self._about()}")

    def _about(self) -> str:
        nodes: list[dict[str, Any]] = [node for node in self._ray.nodes() if node["Alive"]]
        whole = sum(node["Resources"].get("CPU", 0.0) for node in nodes)
        free = self._ray.available_resources().get("CPU", 0.0)
        most = max((seat.processors for seat in self._seats), default=1)
        return (
            f"each takes {most} of the processors, and the cluster has {len(nodes)} "
            f"node{'s' if len(nodes) > 1 else ''} with {whole:g} processors, {free:g} of them free; "
            f"add computers with `ray start --address {self.head.address}`, then "
            f"{self._way_out}"
        )

    @says_whether_lost
    def state(self, which: int) -> Arrays:
        """State of a generator's worlds before it has been asked for a chunk.

        Raises:
            GeneratorLostError: its process or computer died.
            ClusterError: no processor is free for it.
        """
        number = self._any_actor(which)
        worlds = self._hand_over(which, number)
        patience_s = LEAST_PATIENCE_S + (START_S if worlds is not None else 0.0)
        state: Arrays = self._answer(
            which, number, self._actors[number].state.remote(which, worlds), timeout_s=patience_s
        )
        self._worlds[which] = replace(self._worlds[which], state=state)
        return state

    def _any_actor(self, which: int) -> int:
        """The actor that has a generator's worlds, or else the one with the fewest."""
        while True:
            self._actors.welcome()
            if which in self._holders:
                return self._holders[which]
            held = Counter(self._holders.values())
            number = fewest_held(self._actors.ready, held, which) if self._actors.ready else None
            late = time.monotonic() - self._begun_s > JOIN_S
            if number is not None and (not held[number] or late):
                return number
            self._require_progress()
            self._ray.wait(self._actors.coming, timeout=_TURN_S)

    def close(self) -> None:
        """Ends all actors; without a head they end by themselves."""
        self._waiting.clear()
        self._working.clear()
        if self.head.usable:
            self._actors.close()
        self.head.close()
