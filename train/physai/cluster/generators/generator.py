"""A generator: it steps a share of a run's worlds with the weights that the trainer sends."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from physai.sim.tasks.task import Task
from physai.train.algorithms.ppo import Rollout
from physai.train.collectors.collector import Collector, Learner, Scorer, Scoring, Share
from physai.train.models.numpy_policy import as_tensor
from physai.train.runners.runner import build_learner, empty_rollout
from physai.train.settings.config import TrainConfig

Weights = npt.NDArray[np.uint8]
"""What acts, as one vector of bytes: weights in single precision, statistics of the observations in double."""
Arrays = dict[str, Any]
"""Arrays, and dictionaries of them; arrays of numpy, because those travel between processes without copies."""

MEMORY = "scorer_memory"
"""Entry of a generator's state: what its scorer remembers."""
ACTED = ("observation", "raw_observation", "raw_critic", "action", "mean", "log_prob", "reward", "done")
"""Columns of a rollout that acting fills, (T, N, …)."""


@dataclass(frozen=True)
class ChunkRequest:
    """Request to a generator. Order, weights and the state before determine the chunk."""

    number: int
    """Counts the orders of a run; a chunk has that of its order."""
    curriculum: float
    """Progress of the curriculum in [0, 1]."""


@dataclass(frozen=True)
class Chunk:
    """T steps of a generator's N worlds, and where these stand afterwards."""

    number: int
    columns: Arrays
    """`ACTED` of the rollout by name, and `hidden`."""
    played: Arrays
    """`physai.train.collectors.collector.StepRecords`."""
    reward_terms: dict[str, float]
    """Mean of each weighted reward term over these worlds, per second."""
    diverged: int
    """Episodes that ended in these steps because the physics diverged."""
    state: Arrays
    """From which a new generator continues; `Collector.state_dict`."""


def acting(learner: Learner) -> list[Tensor]:
    """The tensors of a learner that actions depend on."""
    return [*learner.graph.parameters(), *learner.graph.buffers(), learner.ppo.log_std]


def pack(learner: Learner) -> Weights:
    """The acting weights of a learner."""
    return np.concatenate([x.detach().contiguous().numpy().reshape(-1).view(np.uint8) for x in acting(learner)])


@torch.no_grad()
def unpack(weights: Weights, learner: Learner) -> None:
    """Gives a learner acting weights that `pack` made of one of the same task and configuration."""
    begin = 0
    for tensor in acting(learner):
        end = begin + tensor.numel() * tensor.element_size()
        # A copy: what comes from another process is read-only and not aligned.
        values = weights[begin:end].copy().view(tensor.numpy().dtype).reshape(tensor.shape)
        tensor.copy_(as_tensor(values))
        begin = end


def as_arrays(state: Mapping[str, Any]) -> Arrays:
    """Tensors as arrays that share their memory, dictionaries by their entries."""
    return _mapped(state, lambda tensor: tensor.numpy())


def as_tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as tensors with a memory of their own, dictionaries by their entries."""
    return _mapped(arrays, torch.tensor)


def _mapped(entries: Mapping[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        name: _mapped(cast("dict[str, Any]", value), change) if isinstance(value, dict) else change(value)
        for name, value in entries.items()
    }


class RolloutGenerator:
    """Steps a share of the worlds, in whatever process it is."""

    def __init__(
        self,
        task: Task,
        config: TrainConfig,
        share: Share,
        count: int,
        *,
        num_threads: int,
        state: Arrays | None,
        scorer: Scorer | None = None,
    ) -> None:
        """Builds the worlds.

        Args:
            task: what they play.
            config: settings of the run.
            share: where this generator's worlds begin.
            count: how many they are.
            num_threads: threads of the engine.
            state: to continue from; None for new worlds.
            scorer: scores each chunk as it ends; None for chunks without scores.
        """
        # Minibatches are the trainer's.
        own = dataclasses.replace(config, num_envs=count, minibatches=1, shards=1)
        self._collector = Collector(task, own, build_learner(task, own), num_threads=num_threads, share=share)
        self._rollout: Rollout = empty_rollout(self._collector.learner.graph, task, own)
        self._scoring = None if scorer is None else Scoring.of(scorer, count)
        if state is not None:
            tensors = as_tensors(state)
            self._collector.load_state_dict(tensors)
            if self._scoring is not None:
                self._scoring.memory = tensors[MEMORY]

    @property
    def state(self) -> Arrays:
        """State of the worlds, a copy."""
        state = self._collector.state_dict()
        if self._scoring is not None:
            state[MEMORY] = self._scoring.memory
        return as_arrays(as_tensors(as_arrays(state)))

    def collect(self, order: ChunkRequest, weights: Weights) -> Chunk:
        """Steps the worlds with these weights."""
        collector, rollout = self._collector, self._rollout
        unpack(weights, collector.learner)
        collector.env.curriculum = order.curriculum
        before = collector.diverged
        played = collector.play(rollout)
        columns = {name: tensor for name, tensor in rollout.state_dict().items() if name in (*ACTED, "hidden")}
        if self._scoring is not None:
            played = self._scoring.scored(rollout, played)
        return Chunk(
            number=order.number,
            columns=as_arrays(columns),
            played=as_arrays(vars(played)),
            reward_terms=dict(rollout.reward_terms),
            diverged=collector.diverged - before,
            state=self.state,
        )
