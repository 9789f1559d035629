"""Collects rollouts with generators that play on while the trainer learns: asynchronous training."""

import copy
import logging
import threading
import time
from collections import Counter
from typing import Any

import torch

from physai.cluster.generators.batching import Admission, ChunkTicket
from physai.cluster.generators.buffering import fill
from physai.cluster.generators.dispatch import OF_WORLDS, joined_arrays, part
from physai.cluster.generators.executor import Executor, GeneratorLostError
from physai.cluster.generators.generator import Arrays, Chunk, ChunkRequest, Weights, as_arrays, as_tensors, pack
from physai.cluster.placement.world_split import equal_shares
from physai.compute.ray.cluster import ClusterError
from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout
from physai.train.collectors.collector import Learner
from physai.train.settings.config import TrainConfig

MAX_LOSSES = 5
"""How often a generator may be lost in a row before the run ends."""
MAX_SHARES_LOGGED = 16
"""With more generators, only the least and the greatest share are logged."""
_TURN_S = 0.005
"""How long the thread that serves generators waits for a chunk while another one is idle [s]."""

logger = logging.getLogger(__name__)


class AsyncCollector:
    """`Collector` whose worlds are stepped by generators which need not wait for the trainer; see `Admission`.

    A chunk is played with the weights that the trainer had when it asked for it, which do not change meanwhile: the
    version of a chunk is that of each of its steps. A generator continues its worlds from where its last accepted chunk
    ended, so each step of each world is played once, and a batch may have several chunks of one generator, or none.

    The worlds that a checkpoint holds stand where those chunks ended that were learned from. What was at hand or being
    played at that moment is played again after a resume, with the weights of then.
    """

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        learner: Learner,
        executor: Executor,
        *,
        generators: int,
        background: bool = False,
    ) -> None:
        """Divides the worlds; generators start with the first rollout, or to save where the worlds stand.

        Args:
            task: what the worlds play.
            config: settings of the run.
            learner: whose copy has the present weights.
            executor: runs the generators, each for `config.horizon // config.segments` steps a chunk.
            generators: how many share the worlds.
            background: serve generators in a thread while the trainer learns. Else they are served only while it waits
                for a batch, which makes the same run the same each time.

        Raises:
            ClusterError: the worlds cannot be divided into equal shares.
        """
        self.learner = copy.deepcopy(learner)
        self.diverged = 0
        """Episodes that ended because the physics diverged, since the collector was built."""
        self.replaced = 0
        """Generators that were lost and replaced."""
        self._metrics = tuple(task.metrics)
        self._config, self._executor, self._background = config, executor, background
        self._shares = equal_shares(config.num_envs, generators)
        self._judged = torch.zeros(0)
        self._curriculum = 0.0 if config.curriculum_iterations else 1.0
        self._changed = threading.Condition()
        """Guards what follows, which the thread and the trainer share."""
        self._thread: threading.Thread | None = None
        self._closed = False
        self._begin([None] * generators, version=0)

    def _begin(self, states: list[Arrays | None], *, version: int) -> None:
        count, config = len(self._shares), self._config
        self.admission = Admission(
            count,
            batch=count * config.segments,
            staleness=config.staleness,
            version=version,
            stragglers=config.stragglers,
        )
        self._learned = states
        """Where each generator's worlds stood after its last chunk that was learned from."""
        self._accepted = list(states)
        """Where they stand after its last chunk that was accepted."""
        self._stepped = [0] * count
        """Chunks accepted of each."""
        self._position = [0] * count
        """Which of them was learned from last; all generators' noise is numbered so."""
        self._chunks: dict[int, tuple[Chunk, int]] = {}
        """Chunks at hand and their place among their generator's, by ticket."""
        self._outbox: list[tuple[ChunkTicket, ChunkRequest, Any]] = []
        self._weights: Weights | None = None
        self._losses: Counter[int] = Counter()
        self._started = False
        self._waiting = False
        self._failure: BaseException | None = None

    @property
    def success(self) -> float:
        """Share of the latest judged commands or episodes that succeeded, with exploration on."""
        return float(self._judged.mean()) if len(self._judged) else 0.0

    def collect(self, rollout: Rollout) -> Rollout:
        """Fills the rollout with the next batch of chunks, and its summary of them.

        Raises:
            ClusterError: a generator was lost too often, or failed in a way that would repeat itself.
        """
        self._start()
        begun = time.monotonic()
        with self._changed:
            self._advance()
        self._await_batch()
        waited_s = time.monotonic() - begun
        with self._changed:
            tickets = self.admission.take()
            taken = [self._chunks.pop(ticket.number) for ticket in tickets]
        for ticket, (chunk, place) in zip(tickets, taken, strict=True):
            self._learned[ticket.generator], self._position[ticket.generator] = chunk.state, place
        chunks = [chunk for chunk, _ in taken]
        played = fill(rollout, chunks, self.learner, metrics=self._metrics)
        outcomes = played.outcomes.flatten()
        self._judged = torch.cat([self._judged, outcomes[outcomes >= 0.0]])[-self._config.num_envs :]
        self._curriculum = self._config.curriculum(self._curriculum, self.success)
        self.diverged += sum(chunk.diverged for chunk in chunks)
        self._correct(rollout, [self.admission.version - ticket.version for ticket in tickets])
        rollout.asynchronous |= {"waited_s": waited_s, **self.totals()}
        return rollout

    @torch.no_grad()
    def _correct(self, rollout: Rollout, staleness: list[int]) -> None:
        """Makes up for the weights that were older when they played."""
        width = rollout.done.shape[1] // len(staleness)
        ages = torch.tensor(staleness).repeat_interleave(width)
        stale, ppo = ages > 0, self.learner.ppo
        rollout.importance = None
        divergence = capped = 0.0
        if stale.any():
            rollout.observation[:, stale] = self.learner.graph.normaliser(rollout.raw_observation[:, stale])
            log_ratio = ppo.decouple(rollout, stale).double()
            samples = rollout.done.numel()
            # Not negative for any sample, with the divergence's mean (Schulman 2020, Approximating KL Divergence).
            divergence = float((torch.expm1(log_ratio) - log_ratio).sum()) / samples
            capped = float((log_ratio.exp() > self._config.importance_cap).sum()) / samples
        rollout.asynchronous = {
            "staleness_mean": sum(staleness) / len(staleness),
            "staleness_max": float(max(staleness)),
            "behaviour_kl": divergence,
            "importance_capped": capped,
        }

    def totals(self) -> dict[str, float]:
        """Counts of chunks and generators by what became of them since the session began."""
        shares = self.admission.shares()
        few = shares if len(shares) <= MAX_SHARES_LOGGED else []
        return {
            "dropped": float(self.admission.dropped),
            "refused": float(self.admission.refused),
            "replaced": float(self.replaced),
            "share_least": min(shares),
            "share_most": max(shares),
            **{f"share_{which}": share for which, share in enumerate(few)},
        }

    def _advance(self) -> None:
        """Puts out the present weights as a new version, and asks for chunks with them."""
        for late in self.admission.advance():
            del self._chunks[late.number]
        self._weights = self._executor.publish(pack(self.learner))
        self._ask()

    def _ask(self) -> None:
        if self._weights is None:
            return
        self._outbox += [
            (ticket, ChunkRequest(ticket.number, self._curriculum), self._weights) for ticket in self.admission.deal()
        ]
        self._changed.notify_all()

    def _await_batch(self) -> None:
        if not self._background:
            while not self.admission.ready:
                self._serve()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve_on, name="generators", daemon=True)
            self._thread.start()
        with self._changed:
            self._waiting = True
            while not self.admission.ready and self._failure is None:
                self._changed.wait(1.0)
            self._waiting = False
            if self._failure is not None:
                raise self._failure

    def _serve_on(self) -> None:
        """The thread: only it submits and receives, so that the executor needs no lock."""
        try:
            while not self._closed:
                self._serve()
        except BaseException as failure:
            with self._changed:
                self._failure = failure
                self._changed.notify_all()

    def _serve(self) -> None:
        """Sends orders, and waits a turn for a chunk."""
        with self._changed:
            outbox, self._outbox = self._outbox, []
            # Only a new version lets an idle generator be asked, and that takes a trainer that is learning.
            waits = self._waiting and not self.admission.ready
            patient = waits or self.admission.running == len(self._shares) or not self._background
            if not outbox and not self.admission.running:
                self._changed.wait(_TURN_S)
                return
        try:
            for ticket, order, weights in outbox:
                self._executor.submit(ticket.generator, order, weights)
            if patient or self._executor.answered(_TURN_S):
                self._accept(*self._executor.next_chunk())
        except GeneratorLostError as lost:
            self._replace(lost)

    def _accept(self, which: int, chunk: Chunk) -> None:
        with self._changed:
            waited_for = self.admission.waits_for(which, chunk.number)
            if self.admission.arrive(which, chunk.number):
                self._chunks[chunk.number] = chunk, self._stepped[which] + 1
            if waited_for:
                # Dropped or not, its worlds stand there now.
                self._accepted[which] = chunk.state
                self._stepped[which] += 1
                self._losses[which] = 0
            self._ask()

    def _replace(self, lost: GeneratorLostError) -> None:
        """Another generator continues from the last accepted chunk, and is asked anew, with the present weights."""
        if self._closed:
            return
        self._losses[lost.which] += 1
        self.replaced += 1
        if self._losses[lost.which] > MAX_LOSSES:
            raise ClusterError(
                f"generator {lost.which} was lost {self._losses[lost.which]} times in a row, at last: {lost.reason}; "
                "see `ray logs` for its output, then continue from the last checkpoint with `resume` RUN"
            ) from lost
        logger.warning("%s; another one continues its worlds", lost)
        self._start_one(lost.which)
        with self._changed:
            self.admission.lose(lost.which)
            self._outbox = [sent for sent in self._outbox if sent[0].generator != lost.which]
            self._ask()

    def _start_one(self, which: int) -> None:
        self._executor.start(which, *self._shares[which], self._accepted[which])

    def _start(self) -> None:
        """Starts the generators, and notes where their worlds stand before the first chunk."""
        if self._started:
            return
        for which in range(len(self._shares)):
            self._start_one(which)
        for which in range(len(self._shares)):
            while self._accepted[which] is None:
                try:
                    self._accepted[which] = self._learned[which] = self._executor.state(which)
                except GeneratorLostError as lost:
                    self._replace(lost)
        self._started = True

    def state_dict(self) -> dict[str, Any]:
        """As `Collector.state_dict` of a process that steps all worlds, which may continue from it."""
        self._start()
        parts = [state for state in self._learned if state is not None]
        # The exploration of the generator furthest on: none of the worlds has had what comes after that.
        furthest = max(range(len(parts)), key=lambda which: self._position[which])
        return {
            **as_tensors({name: joined_arrays([one[name] for one in parts]) for name in OF_WORLDS}),
            "generator": torch.tensor(parts[furthest]["generator"]),
            "judged": self._judged,
            "curriculum": torch.tensor(self._curriculum, dtype=torch.float64),
            "begun": torch.tensor(max(int(one["begun"]) for one in parts)),
            "version": torch.tensor(self.admission.batches),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues where `state_dict` left off, there with any number of generators.

        Raises:
            ValueError: the state has not as many worlds as the run.
        """
        worlds = len(state["critic"])
        if worlds != self._config.num_envs:
            raise ValueError(f"state of {worlds} worlds, not {self._config.num_envs}")
        self._judged = state["judged"][-worlds:]
        self._curriculum = float(state["curriculum"])
        version = int(state.get("version", 0))
        arrays = as_arrays({name: value for name, value in state.items() if name != "version"})
        self._begin([part(arrays, share, count) for share, count in self._shares], version=version)

    def begin_beside(self, state: dict[str, Any]) -> None:
        """Generators belong to one trainer.

        Raises:
            ClusterError: always.
        """
        raise ClusterError("generators work for one process that learns; start it without `gpus` and torchrun")

    def close(self) -> None:
        """Ends generators and the thread that serves them."""
        self._closed = True
        self._executor.close()
        if self._thread is not None:
            self._thread.join(timeout=10.0)
