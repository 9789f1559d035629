"""Training on a Ray cluster whose nodes, head and links die: the same numbers, or a clear end."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from physai.sim.tasks.registry import load_task
from physai.sim.workers.cluster import ClusterError, connected
from physai.train.cluster import ray_executor
from physai.train.cluster.collector import ClusterCollector
from physai.train.cluster.ray_executor import RayExecutor
from physai.train.config import TrainConfig
from physai.train.runners.run_config import RunTaskSource
from physai.train.runners.runner import Trainer
from tests.support.ray_nodes import RayNodes, ray_nodes

TASK = "cartpole-swingup"
CONFIG = TrainConfig(num_envs=48, horizon=6, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1)
GENERATORS = 3


def weights(trainer: Trainer) -> list[Any]:
    return [tensor.tolist() for tensor in (*trainer.learner.parameters(), *trainer.learner.buffers())]


def undisturbed(iterations: int) -> Trainer:
    trainer = Trainer(load_task(TASK), CONFIG)
    for _ in range(iterations):
        trainer.train_iteration()
    return trainer


class Training:
    """A trainer with generators on a cluster."""

    def __init__(self, ray: Any) -> None:
        torch.set_num_threads(1)
        task = load_task(TASK)
        self.executor = RayExecutor(ray, RunTaskSource(task=TASK), CONFIG)

        def source(learner: Any) -> ClusterCollector:
            return ClusterCollector(task, CONFIG, learner, self.executor, generators=GENERATORS)

        self.trainer = Trainer(task, CONFIG, source=source)

    @property
    def hosts(self) -> set[int]:
        """Processes that have worlds."""
        return {pid for _, pid in self.executor.processes.values()}

    def until(self, met: Callable[[], bool]) -> None:
        """Trains until a condition is met after an iteration."""
        for _ in range(2000):
            self.trainer.train_iteration()
            if met():
                return
        raise AssertionError("not met in 2000 iterations")


@contextmanager
def training(nodes: RayNodes) -> Generator[Training]:
    with connected(nodes.address, processors=1) as ray:
        one = Training(ray)
        yield one
        one.executor.close()


@pytest.mark.slow
def test_nodes_die_and_join_while_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "START_S", 5.0)
    with ray_nodes((0, 1, 2)) as nodes, training(nodes) as one:
        one.until(lambda: len(one.hosts) == GENERATORS)
        nodes.kill(nodes.nodes[2])
        one.until(lambda: len(one.hosts) == 1)
        lost: Any = one.trainer.collector
        assert 1 <= lost.replaced <= 4
        nodes.start(cpus=2)
        one.until(lambda: len(one.hosts) == GENERATORS)
        reached = one.trainer.iteration
        assert one.trainer.env_steps == reached * 48 * 6
        assert weights(one.trainer) == weights(undisturbed(reached))
        for node in nodes.nodes[1:]:
            nodes.kill(node)
        with pytest.raises(ClusterError, match=r"no generator could start within .*the cluster has 1 node with 0 proc"):
            one.trainer.train_iteration()
