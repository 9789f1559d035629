"""Executors of generators: the trainer's interface to them, and the one for a process alone."""

import copy
from typing import Any, Protocol

from physai.cluster.generators.generator import Arrays, Chunk, ChunkRequest, RolloutGenerator, Weights
from physai.compute.ray.cluster import ClusterError
from physai.sim.tasks.task import Task
from physai.train.collectors.collector import Scorer, Share
from physai.train.settings.config import TrainConfig

WAY_OUT = "continue from the last checkpoint with --resume RUN"
"""What to do when a run lost its generators."""


class GeneratorLostError(ClusterError):
    """A generator died, cannot be reached, or does not answer."""

    def __init__(self, which: int, reason: str) -> None:
        """Initialize with the generator and the reason of its loss."""
        super().__init__(f"generator {which} was lost: {reason}")
        self.which, self.reason = which, reason


class Executor(Protocol):
    """Runs generators. `start` may be called again for a lost one; what that still sends is dropped."""

    def score_with(self, scorer: Scorer) -> None:
        """Has the generators that are started from now on score each chunk as it ends."""
        ...

    def start(self, which: int, share: Share, count: int, state: Arrays | None) -> None:
        """Starts a generator, or another in its place, see `RolloutGenerator`."""
        ...

    def publish(self, weights: Weights) -> Any:
        """Puts weights where all generators can read them; returns what `submit` takes."""
        ...

    def submit(self, which: int, order: ChunkRequest, weights: Any) -> None:
        """Asks a generator for a chunk."""
        ...

    def answered(self, timeout_s: float) -> bool:
        """Waits that long for a chunk [s]; whether one is there, or its generator was lost."""
        ...

    def next_chunk(self) -> tuple[int, Chunk]:
        """Waits for the next chunk, of whichever generator.

        Raises:
            GeneratorLostError: a generator that was asked cannot answer any more.
        """
        ...

    def state(self, which: int) -> Arrays:
        """State of a generator's worlds before it has been asked for anything.

        Raises:
            GeneratorLostError: it cannot answer any more.
        """
        ...

    def close(self) -> None:
        """Ends all generators."""
        ...


class LocalGenerators:
    """Generators in this process, one after another: the same numbers as elsewhere, for tests and laptops."""

    def __init__(self, task: Task, config: TrainConfig, *, num_threads: int) -> None:
        """Generators of a task; `num_threads` are each one's engine's."""
        self._task, self._config, self._threads = task, config, num_threads
        self._generators: dict[int, RolloutGenerator] = {}
        self._asked: list[tuple[int, ChunkRequest, Weights]] = []
        self._scorer: Scorer | None = None

    def score_with(self, scorer: Scorer) -> None:
        """Gives generators that are built from now on a scorer."""
        self._scorer = scorer

    def start(self, which: int, share: Share, count: int, state: Arrays | None) -> None:
        """Builds a generator."""
        self._asked = [asked for asked in self._asked if asked[0] != which]
        self._generators[which] = RolloutGenerator(
            self._task, self._config, share, count, num_threads=self._threads, state=state, scorer=self._scorer
        )

    def publish(self, weights: Weights) -> Weights:
        """The weights themselves."""
        return weights

    def submit(self, which: int, order: ChunkRequest, weights: Weights) -> None:
        """Notes the order."""
        self._asked.append((which, order, weights))

    def answered(self, timeout_s: float) -> bool:
        """Whether there is an order to execute."""
        return bool(self._asked)

    def next_chunk(self) -> tuple[int, Chunk]:
        """Executes the oldest order."""
        which, order, weights = self._asked.pop(0)
        # A copy, as from another process: the generator's next chunk is in the same memory.
        return which, copy.deepcopy(self._generators[which].collect(order, weights))

    def state(self, which: int) -> Arrays:
        """State of the worlds."""
        return self._generators[which].state

    def close(self) -> None:
        """Forgets the generators."""
        self._generators.clear()
