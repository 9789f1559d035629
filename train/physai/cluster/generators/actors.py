"""Processes of generators and scorers: actors of Ray, as many as are asked for and as there are processors for."""

import logging
import os
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from physai.cluster.generators.generator import Arrays, Chunk, ChunkRequest, RolloutGenerator, Weights
from physai.compute.ray.cluster import TRAINING_PACKAGES, ClusterError, brief, require_same_versions, versions
from physai.sdk.base.errors import PhysaiError
from physai.train.collectors.collector import Scorer, Share
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig

MAX_FAILED_STARTS = 5
"""How often in a row an actor may die before it has answered."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class InitialWorlds:
    """From which a generator begins; see `RolloutGenerator`."""

    share: Share
    count: int
    state: Arrays | None
    scorer: Scorer | None = None


def about_process() -> dict[str, str]:
    """Versions of what computes, and the process; what an actor answers first."""
    return {**versions(TRAINING_PACKAGES), "pid": str(os.getpid()), "host": socket.gethostname()}


class GeneratorActor:
    """Content of an actor's process: generators, one at a time."""

    def __init__(self, source: RunTaskSource, config: TrainConfig, num_threads: int = 1) -> None:
        """Takes so many processors, for its engine; builds nothing yet."""
        # torch rounds differently with another number of threads.
        torch.set_num_threads(1)
        self._source, self._config, self._num_threads = source, config, num_threads
        self._generators: dict[int, RolloutGenerator] = {}

    def about(self) -> dict[str, str]:
        """See `about_process`."""
        return about_process()

    def build(self, source: RunTaskSource, worlds: InitialWorlds) -> RolloutGenerator:
        """A generator of these worlds."""
        return RolloutGenerator(
            source.load(),
            self._config,
            worlds.share,
            worlds.count,
            num_threads=self._num_threads,
            state=worlds.state,
            scorer=worlds.scorer,
        )

    def collect(self, which: int, worlds: InitialWorlds | None, order: ChunkRequest, weights: Weights) -> Chunk:
        """Has a generator play, from these worlds, or from where it stands if None."""
        return self._generator(which, worlds).collect(order, weights)

    def state(self, which: int, worlds: InitialWorlds | None) -> Arrays:
        """State of a generator's worlds."""
        return self._generator(which, worlds).state

    def forget(self, which: int) -> None:
        """Frees the worlds of a generator that another actor continues."""
        self._generators.pop(which, None)

    def _generator(self, which: int, worlds: InitialWorlds | None) -> RolloutGenerator:
        if worlds is not None:
            self._generators[which] = self.build(self._source, worlds)
        return self._generators[which]


class ActorLostError(ClusterError):
    """An actor's process or computer died, or cannot be reached."""


@dataclass(frozen=True)
class ActorProcess:
    """Of an actor that has answered."""

    host: str
    pid: int


class Actors:
    """Numbered actors. One that is lost is asked for again, and Ray holds it back until there is a processor for it.

    So a cluster that grows gets the actors that are missing, and a run goes on with those that it has.
    """

    def __init__(self, ray: Any, start: Callable[[int], Any], *, role: str = "generator") -> None:
        """Asks for none yet.

        Args:
            ray: the module.
            start: starts the actor of a number, and does not wait for it.
            role: what an actor is, for messages.
        """
        self._ray, self._start, self._role = ray, start, role
        self._handles: dict[int, Any] = {}
        self._coming: dict[int, Any] = {}
        """The first answer of each actor that has not answered yet."""
        self._failed: Counter[int] = Counter()
        self.ready: dict[int, ActorProcess] = {}

    def __getitem__(self, number: int) -> Any:
        """The handle of an actor."""
        return self._handles[number]

    @property
    def coming(self) -> list[Any]:
        """References to wait for until an actor is ready."""
        return list(self._coming.values())

    def require(self, count: int) -> None:
        """Asks for so many, as far as they have not been asked for."""
        for number in range(count):
            if number not in self._handles:
                self._enlist(number)

    def _enlist(self, number: int) -> None:
        self._handles[number] = self._start(number)
        self._coming[number] = self._handles[number].about.remote()

    def welcome(self) -> None:
        """Notes which actors have become ready.

        Raises:
            ClusterError: one dies whenever it starts, or is on a computer with other versions.
        """
        if not self._coming:
            return
        numbers = {reference: number for number, reference in self._coming.items()}
        for reference in self._ray.wait(list(numbers), num_returns=len(numbers), timeout=0.0)[0]:
            number = numbers[reference]
            try:
                about: dict[str, str] = self.get(reference)
            except ActorLostError as error:
                self._failed[number] += 1
                if self._failed[number] > MAX_FAILED_STARTS:
                    raise ClusterError(
                        f"the process of a {self._role} died {self._failed[number]} times while it started, at last: "
                        f"{error}; see `ray logs` for its output"
                    ) from error
                self.replace(number)
                continue
            del self._coming[number]
            self._failed[number] = 0
            require_same_versions(about["host"], {name: about[name] for name in TRAINING_PACKAGES})
            self.ready[number] = ActorProcess(about["host"], int(about["pid"]))
            logger.info("a %s's process starts on %s; there are %d", self._role, about["host"], len(self.ready))

    def get(self, reference: Any, *, timeout_s: float | None = None) -> Any:
        """An actor's answer.

        Raises:
            ActorLostError: it cannot.
            PhysaiError: it failed in a way that would repeat itself.
        """
        exceptions: Any = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=timeout_s)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, PhysaiError):
                raise error.cause from None
            raise ClusterError(f"a {self._role} failed: {error.cause!r}") from error
        except exceptions.RayError as error:
            raise ActorLostError(brief(error)) from error

    def replace(self, number: int) -> None:
        """Ends an actor and asks for another one in its place."""
        self._end(number)
        self._enlist(number)

    def _end(self, number: int) -> None:
        self._coming.pop(number, None)
        self.ready.pop(number, None)
        # It may only have been cut off, and work on.
        self._ray.kill(self._handles.pop(number), no_restart=True)

    def close(self) -> None:
        """Ends all."""
        for number in list(self._handles):
            self._end(number)
