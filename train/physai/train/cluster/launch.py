"""Generators for a run: where they are, and what does not go with them."""

import dataclasses
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

from physai.sim.tasks.task import Task
from physai.sim.workers.cluster import ClusterError, check_address, connected
from physai.train.cluster.async_collector import AsyncCollector
from physai.train.cluster.collector import ClusterCollector
from physai.train.cluster.executor import Executor, InProcess
from physai.train.cluster.placement import Placement, seats_on
from physai.train.cluster.ray_executor import RayExecutor
from physai.train.cluster.shares import equal_shares, shares
from physai.train.config import TrainConfig
from physai.train.runners.collector import Learner
from physai.train.runners.run_config import RunTaskSource
from physai.train.runners.runner import engine_threads


def check_generators(config: TrainConfig, generators: int, address: str | None) -> None:
    """Refuses what does not go with generators, before anything starts.

    Args:
        config: settings of the run.
        generators: how many.
        address: see `physai.sim.workers.cluster.connected`; None for generators in this process.

    Raises:
        ClusterError: something does not, with the way out.
    """
    (equal_shares if config.staleness else shares)(config.num_envs, generators)
    if address is not None:
        check_address(address)
    if config.engine != "mujoco":
        raise ClusterError(
            f"--generators {generators} step worlds on CPUs, and engine is {config.engine}; start the run with "
            "--engine mujoco, or leave out --generators"
        )
    if (config.reward, config.advantage) != ("task", "gae"):
        raise ClusterError(
            f"--generators {generators} collect the task's reward for a critic; start the run with --set reward=task "
            "--set advantage=gae, or leave out --generators"
        )
    if config.overlap:
        raise ClusterError(
            f"--generators {generators} take turns with the learner, and overlap is true; start the run with --set "
            "overlap=false, or leave out --generators"
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
        address: see `physai.sim.workers.cluster.connected`; None for generators in this process.
        placement: of as many generators, on the cluster; where Ray finds a processor, if None.

    Raises:
        ClusterError: the cluster cannot be joined, or the placement is not possible there.
        MissingExtraError: ray is not installed.
    """
    with ExitStack() as stack:
        played = chunk_config(config)
        if address is None:
            executor: Executor = InProcess(task, played, num_threads=engine_threads(config))
        else:
            processors = generators if placement is None else placement.processors
            ray = stack.enter_context(connected(address, processors=processors))
            seats = () if placement is None else seats_on(ray, placement)
            executor = RayExecutor(ray, source, played, seats=seats)

        def collector(learner: Learner) -> ClusterCollector | AsyncCollector:
            if config.staleness == 0:
                stack.callback(executor.close)
                return ClusterCollector(task, config, learner, executor, generators=generators)
            background = address is not None
            made = AsyncCollector(task, config, learner, executor, generators=generators, background=background)
            stack.callback(made.close)
            return made

        yield collector


def chunk_config(config: TrainConfig) -> TrainConfig:
    """The settings that generators play a segment with."""
    return dataclasses.replace(config, horizon=config.horizon // config.segments, segments=1, minibatches=1)
