"""Generators for a run: where they are, and what does not go with them."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

from physai.sim.tasks.task import Task
from physai.train.cluster.collector import ClusterCollector
from physai.train.cluster.executor import Executor, InProcess
from physai.train.cluster.ray_environment import restored_environment
from physai.train.cluster.ray_executor import RayExecutor, check_address, connected
from physai.train.cluster.shares import ClusterError, shares
from physai.train.config import TrainConfig
from physai.train.runners.collector import Learner
from physai.train.runners.run_config import RunTaskSource
from physai.train.runners.runner import engine_threads


def check_generators(config: TrainConfig, generators: int, address: str | None) -> None:
    """Refuses what does not go with generators, before anything starts.

    Args:
        config: settings of the run.
        generators: how many.
        address: see `physai.train.cluster.ray_executor.connected`; None for generators in this process.

    Raises:
        ClusterError: something does not, with the way out.
    """
    shares(config.num_envs, generators)
    if address is not None:
        check_address(address)
    if config.engine != "mujoco":
        raise ClusterError(
            f"--generators {generators} step worlds on CPUs, and engine is {config.engine}; start the run with "
            "--engine mujoco, or leave out --generators"
        )
    if config.overlap:
        raise ClusterError(
            f"--generators {generators} take turns with the learner, and overlap is true; start the run with --set "
            "overlap=false, or leave out --generators"
        )


@contextmanager
def generators_of(
    task: Task, source: RunTaskSource, config: TrainConfig, *, generators: int, address: str | None
) -> Generator[Callable[[Learner], ClusterCollector]]:
    """Has generators at hand while the block runs; yields what makes a trainer's collector of them.

    Args:
        task: what the worlds play.
        source: where every computer finds it.
        config: settings of the run.
        generators: how many share the worlds.
        address: see `physai.train.cluster.ray_executor.connected`; None for generators in this process.

    Raises:
        ClusterError: the cluster cannot be joined.
        MissingExtraError: ray is not installed.
    """
    with ExitStack() as stack:
        if address is None:
            executor: Executor = InProcess(task, config, num_threads=engine_threads(config))
        else:
            stack.enter_context(restored_environment())
            ray = stack.enter_context(connected(address, generators=generators))
            executor = RayExecutor(ray, source, config)
        stack.callback(executor.close)
        yield lambda learner: ClusterCollector(task, config, learner, executor, generators=generators)
