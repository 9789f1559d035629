"""Collects rollouts with generators: asks each for a chunk, replaces those that are lost, and joins the chunks."""

import copy
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, cast

import torch

from physai.cluster.generators.buffering import fill
from physai.cluster.generators.dispatch import OF_WORLDS, joined_arrays, part
from physai.cluster.generators.executor import WAY_OUT, Executor, GeneratorLostError
from physai.cluster.generators.generator import Arrays, Chunk, ChunkRequest, as_arrays, as_tensors, pack
from physai.cluster.generators.scoring import ScoringActors
from physai.cluster.placement.world_split import shares
from physai.compute.ray.cluster import ClusterError
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout
from physai.train.collectors.collector import Learner, Scorer, Scoring, StepRecords
from physai.train.settings.config import TrainConfig

MAX_LOSSES = 5
"""How often a generator may be lost in a row before the run ends."""

ScorersPlace = Literal["trainer", "generators"] | ScoringActors

logger = logging.getLogger(__name__)


class ClusterCollector:
    """`Collector` whose worlds are stepped by generators.

    A chunk follows from order, weights and the generator's state before it. The state after the last chunk that was
    accepted is kept here, so another generator in the place of a lost one makes the same chunk, and each counts once.
    """

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        learner: Learner,
        executor: Executor,
        *,
        generators: int,
        scorers: ScorersPlace = "trainer",
        way_out: str = WAY_OUT,
    ) -> None:
        """Divides the worlds; generators start with the first rollout, or to save where the worlds stand.

        Args:
            task: what the worlds play.
            config: settings of the run.
            learner: whose copy acts.
            executor: runs the generators.
            generators: how many share the worlds.
            scorers: what scores if `score_with` is called: this process whole rollouts, generators or actors chunks.
            way_out: what to do after an error.

        Raises:
            ClusterError: the worlds cannot be divided so.
        """
        self.learner = copy.deepcopy(learner)
        self.diverged = 0
        """Episodes that ended because the physics diverged, since the collector was built."""
        self.replaced = 0
        """Generators that were lost and replaced."""
        self._metrics = tuple(task.metrics)
        self._config = config
        self._executor, self._scorers, self._way_out = executor, scorers, way_out
        self._shares = shares(config.num_envs, generators)
        self._scoring: Scoring | None = None
        self._states: list[Arrays | None] = [None] * generators
        self._started = False
        self._number = 0
        self._judged = torch.zeros(0)
        self._curriculum = 0.0 if config.curriculum_iterations else 1.0

    @property
    def success(self) -> float:
        """Share of the latest judged commands or episodes that succeeded, with exploration on."""
        return float(self._judged.mean()) if len(self._judged) else 0.0

    def score_with(self, scorer: Scorer) -> None:
        """Has what is played scored; to be called before the first rollout."""
        if isinstance(self._scorers, ScoringActors):
            self._scorers.score_with(scorer, [count for _, count in self._shares])
        elif self._scorers == "generators":
            self._executor.score_with(scorer)
        else:
            self._scoring = Scoring.of(scorer, self._config.num_envs)

    def collect(self, rollout: Rollout) -> Rollout:
        """Fills the rollout with the next steps of every world, and its summary of them.

        Raises:
            ClusterError: a generator or scorer was lost too often, or failed in a way that would repeat itself.
        """
        self.gather(rollout)
        return rollout

    def gather(self, rollout: Rollout) -> StepRecords:
        """`collect`, and what the steps left besides, with their scores if there are any."""
        self._start()
        chunks = self._chunks(ChunkRequest(self._number, self._curriculum))
        self._number += 1
        self._states = [chunk.state for chunk in chunks]
        played = fill(rollout, chunks, self.learner, metrics=self._metrics)
        outcomes = played.outcomes.flatten()
        self._judged = torch.cat([self._judged, outcomes[outcomes >= 0.0]])[-self._config.num_envs :]
        self._curriculum = self._config.curriculum(self._curriculum, self.success)
        self.diverged += sum(chunk.diverged for chunk in chunks)
        if self._scoring is not None:
            return self._scoring.scored(rollout, played)
        return replace(played, scores=self._scorers.results()) if isinstance(self._scorers, ScoringActors) else played

    def _start(self) -> None:
        if not self._started:
            for which in range(len(self._shares)):
                self._start_one(which)
            self._started = True

    def _start_one(self, which: int) -> None:
        share, count = self._shares[which]
        self._executor.start(which, share, count, self._states[which])

    def _chunks(self, order: ChunkRequest) -> list[Chunk]:
        """One chunk of every generator, in their order."""
        weights = self._executor.publish(pack(self.learner))
        for which in range(len(self._shares)):
            self._executor.submit(which, order, weights)
        chunks: dict[int, Chunk] = {}

        def accept() -> None:
            while len(chunks) < len(self._shares):
                which, chunk = self._executor.next_chunk()
                # Nothing counts twice, whatever an executor delivers.
                if chunk.number == order.number and which not in chunks:
                    chunks[which] = chunk
                    if isinstance(self._scorers, ScoringActors):
                        self._scorers.submit(which, chunk)

        self._insist(accept, again=lambda which: self._executor.submit(which, order, weights))
        return [chunks[which] for which in range(len(self._shares))]

    def _insist(self, attempt: Callable[[], None], *, again: Callable[[int], None]) -> None:
        """Attempts something until no generator is lost on the way; each is replaced, and `again` is called for it."""
        losses: Counter[int] = Counter()
        while True:
            try:
                return attempt()
            except GeneratorLostError as lost:
                losses[lost.which] += 1
                self.replaced += 1
                if losses[lost.which] > MAX_LOSSES:
                    raise ClusterError(
                        f"generator {lost.which} was lost {losses[lost.which]} times in a row, at last: {lost.reason}; "
                        f"see `ray logs` for its output, then {self._way_out}"
                    ) from lost
                logger.warning("%s; another one continues its worlds", lost)
                self._start_one(lost.which)
                again(lost.which)

    def state_dict(self) -> dict[str, Any]:
        """As `Collector.state_dict` of a process that steps all worlds, which may continue from it."""
        self._start()
        for which in range(len(self._states)):
            self._insist(lambda which=which: self._note_state(which), again=lambda _: None)
        parts = cast("list[Arrays]", self._states)
        return {
            **as_tensors({name: joined_arrays([one[name] for one in parts]) for name in OF_WORLDS}),
            "generator": torch.tensor(parts[0]["generator"]),
            "judged": self._judged,
            "curriculum": torch.tensor(self._curriculum, dtype=torch.float64),
            "begun": torch.tensor(max(int(part["begun"]) for part in parts)),
        }

    def _note_state(self, which: int) -> None:
        if self._states[which] is None:
            self._states[which] = self._executor.state(which)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state_dict` left off, there with any number of generators or with none.

        Raises:
            ValueError: the state has not as many worlds as the run.
        """
        worlds = len(state["critic"])
        if worlds != self._config.num_envs:
            raise ValueError(f"state of {worlds} worlds, not {self._config.num_envs}")
        arrays = as_arrays(state)
        self._states = [part(arrays, share, count) for share, count in self._shares]
        self._judged = state["judged"][-worlds:]
        self._curriculum = float(state["curriculum"])
        self._started = False

    def begin_beside(self, state: dict[str, Any]) -> None:
        """Generators belong to one trainer.

        Raises:
            ClusterError: always.
        """
        raise ClusterError("generators work for one process that learns; start it without `gpus` and torchrun")
