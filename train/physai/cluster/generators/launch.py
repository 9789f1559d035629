"""Generators for a run: where they are, and what does not go with them."""

import dataclasses
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from physai.cluster.generators.async_collector import AsyncCollector
from physai.cluster.generators.collector import ClusterCollector, ScorersPlace
from physai.cluster.generators.executor import WAY_OUT, Executor, LocalGenerators
from physai.cluster.generators.ray_executor import RayGenerators
from physai.cluster.generators.scoring import ScoringActors
from physai.cluster.placement.placement import Placement, Seat, seats_on
from physai.cluster.placement.world_split import equal_shares, shares
from physai.compute.ray.cluster import ClusterError, check_address, connected, ray_version
from physai.sdk.base.errors import PhysaiError
from physai.sim.tasks.task import Task
from physai.train.collectors.collector import Learner
from physai.train.runners.runner import RolloutSource, engine_threads
from physai.train.runs.run_config import RunTaskSource
from physai.train.settings.config import TrainConfig

ScoringPlace = Literal["trainer", "generators", "apart"]


@dataclasses.dataclass(frozen=True)
class Generators:
    """Generators of rollouts, which step a run's worlds for its trainer; a `physai.train.RolloutPool`."""

    count: int
    """Number of generators, which divide the worlds."""
    ray: str | None = None
    """Ray cluster, see `physai.compute.ray.cluster.connected`; None for generators in the trainer's process."""
    placement: Placement | None = None
    """Nodes of the cluster that run them; None for any node with a free processor."""
    placed_by: Path | None = None
    """File of the placement, for messages."""

    def check(self, config: TrainConfig) -> None:
        """Refuse settings that do not go with generators, and a placement of scorers.

        Raises:
            PhysaiError: a setting does not, with the way out.
        """
        check_generators(config, self.count, self.ray)
        self.placed(scorers=False)

    def described(self, config: TrainConfig) -> str:
        """Text that follows the number of worlds."""
        stale = f", staleness {config.staleness}" if config.staleness else ""
        return f" on {self.count} generator{'s' if self.count > 1 else ''}{stale}"

    def origin(self) -> dict[str, str]:
        """Entries of a run's provenance."""
        if self.ray is None:
            return {"generators": str(self.count)}
        return {"generators": str(self.count), "ray": self.ray, "version.ray": ray_version()}

    def placed(self, *, scorers: bool) -> Placement | None:
        """The placement, if there is one.

        Args:
            scorers: whether the run starts scorers.

        Raises:
            PhysaiError: the placement has scorers, and the run starts none.
        """
        if self.placement is not None and self.placement.scorers and not scorers:
            raise PhysaiError(
                f"{self.placed_by or 'the placement'} places scorers, which only `physai finetune --scoring apart` "
                "starts; remove `scorers`, or use that"
            )
        return self.placement

    def opened(
        self, task: Task, source: RunTaskSource, config: TrainConfig
    ) -> AbstractContextManager[Callable[[Learner], RolloutSource]]:
        """Maker of the trainer's collector while the block runs; see `generators_of`."""
        return generators_of(
            task, source, config, generators=self.count, address=self.ray, placement=self.placed(scorers=False)
        )

    def totals(self, collector: RolloutSource) -> dict[str, Any]:
        """Entries of the outcome: what became of generators and their chunks in this session."""
        return {"asynchronous": collector.totals()} if isinstance(collector, AsyncCollector) else {}


def check_generators(config: TrainConfig, generators: int, address: str | None) -> None:
    """Refuses what does not go with generators, before anything starts.

    Args:
        config: settings of the run.
        generators: how many.
        address: see `physai.compute.ray.cluster.connected`; None for generators in this process.

    Raises:
        ClusterError: something does not, with the way out.
    """
    (equal_shares if config.staleness else shares)(config.num_envs, generators)
    if address is not None:
        check_address(address)
    if config.engine != "mujoco":
        raise ClusterError(
            f"`generators` {generators} step worlds on CPUs, and engine is {config.engine}; start the run with "
            "`engine` mujoco, or leave out `generators`"
        )
    if (config.reward, config.advantage) != ("task", "gae"):
        raise ClusterError(
            f"`generators` {generators} collect the task's reward for a critic; start the run with "
            "`settings` reward=task `settings` advantage=gae, or leave out `generators`"
        )
    if config.overlap:
        raise ClusterError(
            f"`generators` {generators} take turns with the learner, and overlap is true; start the run with "
            "`settings` overlap=false, or leave out `generators`"
        )


@contextmanager
def generators_of(
    task: Task,
    source: RunTaskSource,
    config: TrainConfig,
    *,
    generators: int,
    address: str | None,
    placement: Placement | None = None,
) -> Generator[Callable[[Learner], ClusterCollector | AsyncCollector]]:
    """Has generators at hand while the block runs; yields what makes a trainer's collector of them.

    Args:
        task: what the worlds play.
        source: where every computer finds it.
        config: settings of the run.
        generators: how many share the worlds.
        address: see `physai.compute.ray.cluster.connected`; None for generators in this process.
        placement: of as many generators, on the cluster; where Ray finds a processor, if None.

    Raises:
        ClusterError: the cluster cannot be joined, or the placement is not possible there.
        MissingExtraError: ray is not installed.
    """
    with ExitStack() as stack:
        ray, seats = _joined(stack, generators, address, placement)
        executor = _executor(ray, task, source, config, seats[:generators])

        def collector(learner: Learner) -> ClusterCollector | AsyncCollector:
            if config.staleness == 0:
                stack.callback(executor.close)
                return ClusterCollector(task, config, learner, executor, generators=generators)
            background = address is not None
            made = AsyncCollector(task, config, learner, executor, generators=generators, background=background)
            stack.callback(made.close)
            return made

        yield collector


@contextmanager
def scored_generators(
    task: Task,
    source: RunTaskSource,
    config: TrainConfig,
    *,
    generators: int,
    address: str | None,
    placement: Placement | None = None,
    scoring: ScoringPlace,
    way_out: str,
) -> Generator[Callable[[Learner], ClusterCollector]]:
    """Has generators at hand whose chunks can be scored, as `ClusterCollector.score_with` does.

    Args:
        task: see `generators_of`.
        source: likewise.
        config: settings of the run, without staleness.
        generators: see `generators_of`.
        address: likewise.
        placement: likewise.
        scoring: where; apart is in actors of their own on the cluster, those of the placement or else one.
        way_out: what to do after an error.

    Raises:
        ClusterError: see `generators_of`.
        MissingExtraError: likewise.
    """
    with ExitStack() as stack:
        ray, seats = _joined(stack, generators + (scoring == "apart"), address, placement)
        executor = _executor(ray, task, source, config, seats[:generators], way_out=way_out)
        stack.callback(executor.close)
        scorers: ScorersPlace
        if scoring == "apart":
            scorers = ScoringActors(ray, seats=seats[generators:] or (Seat(),), way_out=way_out)
            stack.callback(scorers.close)
        else:
            scorers = scoring
        yield lambda learner: ClusterCollector(
            task, config, learner, executor, generators=generators, scorers=scorers, way_out=way_out
        )


def _joined(
    stack: ExitStack, processors: int, address: str | None, placement: Placement | None
) -> tuple[Any, tuple[Seat, ...]]:
    """Ray's module while the stack is open, None without an address, and the seats of a placement there."""
    if address is None:
        return None, ()
    ray = stack.enter_context(connected(address, processors=placement.processors if placement else processors))
    return ray, seats_on(ray, placement) if placement else ()


def _executor(
    ray: Any, task: Task, source: RunTaskSource, config: TrainConfig, seats: Sequence[Seat], *, way_out: str = WAY_OUT
) -> Executor:
    played = chunk_config(config)
    if ray is None:
        return LocalGenerators(task, played, num_threads=engine_threads(config))
    return RayGenerators(ray, source, played, seats=seats, way_out=way_out)


def chunk_config(config: TrainConfig) -> TrainConfig:
    """The settings that generators play a segment with."""
    return dataclasses.replace(config, horizon=config.horizon // config.segments, segments=1, minibatches=1)
