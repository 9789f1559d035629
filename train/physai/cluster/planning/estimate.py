"""Number of generators that pays off, from the costs of a step, an update and a chunk.

One iteration of synchronous training with K generators takes

T(K) = n·g/K + K·c + n·b/B + l,

with n environment steps, g the time of a step on one processor, c that of a call to a generator and of joining its
chunk, b the bytes of a step, B the bandwidth to the trainer and l the time of the updates. It is least at K = √(n·g/c).
Asynchronous training takes max(n·g/K, K·c + n·b/B + l). Neither is faster than K·c + n·b/B + l.
"""

import math
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from physai.cluster.generators.generator import ChunkRequest, RolloutGenerator, pack
from physai.cluster.placement.placement import Placement, PlacementGroup, read_document
from physai.cluster.placement.world_split import BLOCK
from physai.compute.ray.cluster import ClusterError
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen
from physai.sim.tasks.task import Task
from physai.train.collectors.collector import Share
from physai.train.runners.runner import Trainer
from physai.train.settings.config import TrainConfig

CALL_S = 0.003
"""A call through Ray and the joining of its chunk, on the computers that this was measured on [s]."""
BANDWIDTH = 1.25e9
"""10 Gbit/s [B/s]."""
WORTH = 0.05
"""Further generators are not worth it if the best number of them saves less than this share of an iteration."""
MEASURED = 3
MAX_NODES = 10_000


class Node(Frozen):
    """A computer of a cluster."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    cpus: Annotated[int, Field(ge=1, le=4096)]
    gpus: Annotated[int, Field(ge=0, le=64)] = 0
    """Neither generators nor their trainer use any, so a node without is preferred to one that is otherwise equal."""


class Nodes(Frozen):
    """The computers of a cluster."""

    format_version: Annotated[int, Field(ge=1, le=1)] = 1
    nodes: Annotated[tuple[Node, ...], Field(min_length=1, max_length=MAX_NODES)]


NODES_FILE = DocumentKind(name="list of nodes", format_version=1, max_bytes=1 << 20, max_depth=4, error=ClusterError)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Costs of training, measured on one processor of this computer."""

    steps: int
    """Environment steps of an iteration."""
    step_s: float
    """Of one environment step in a generator [s]."""
    learn_s: float
    """Of the updates of an iteration [s]."""
    step_bytes: float
    """What a chunk holds per step [B]."""
    weights_bytes: int
    call_s: float = CALL_S
    bandwidth: float = BANDWIDTH
    """From the generators to the trainer [B/s]."""
    most: int = 1
    """Generators among which the worlds can be divided."""

    @property
    def transfer_s(self) -> float:
        """Time in which the chunks of an iteration reach the trainer [s]."""
        return self.steps * self.step_bytes / self.bandwidth

    def iteration_s(self, generators: int, *, asynchronous: bool = False) -> float:
        """Time of an iteration [s]; see the module."""
        played = self.steps * self.step_s / generators
        rest = generators * self.call_s + self.transfer_s + self.learn_s
        return max(played, rest) if asynchronous else played + rest

    @property
    def best(self) -> int:
        """The number of generators with the least time."""
        ideal = math.sqrt(self.steps * self.step_s / self.call_s)
        around = {min(max(1, int(count)), self.most) for count in (ideal, ideal + 1)}
        return min(around, key=lambda count: (self.iteration_s(count), count))

    def limits(self) -> dict[str, float]:
        """The generators from which each of these takes longer than playing does."""
        played = self.steps * self.step_s
        return {
            "learner": played / self.learn_s,
            "network": played / self.transfer_s,
            "calls": math.sqrt(played / self.call_s),
        }


def measure(task: Task, config: TrainConfig) -> Costs:
    """Measures for a few iterations, on one thread each.

    Args:
        task: what is played.
        config: settings of the run.
    """
    # Without overlap and shards one call is an iteration's learning.
    alone = replace(config, num_threads=1, overlap=False, shards=1)
    trainer = Trainer(task, alone)
    generator = RolloutGenerator(task, alone, Share(0, alone.num_envs), alone.num_envs, num_threads=1, state=None)
    weights = pack(trainer.learner)
    rollout = trainer.new_rollout()
    played_s: list[float] = []
    learned_s: list[float] = []
    size = 0
    for number in range(MEASURED + 1):
        start = time.perf_counter()
        chunk = generator.collect(ChunkRequest(number, 0.0), weights)
        played = time.perf_counter() - start
        rollout = trainer.collector.collect(rollout)
        start = time.perf_counter()
        trainer.learner.ppo.update(rollout, trainer.gamma, trainer.generator)
        # The first one warms up.
        if number:
            played_s.append(played)
            learned_s.append(time.perf_counter() - start)
        size = len(pickle.dumps(chunk, protocol=5))
    steps = alone.num_envs * alone.horizon
    return Costs(
        steps=steps,
        step_s=min(played_s) / steps,
        learn_s=min(learned_s),
        step_bytes=size / steps,
        weights_bytes=len(weights),
        most=max(1, alone.num_envs // BLOCK),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Work of each computer, with reasons."""

    trainer: str
    """Node of the trainer."""
    generators: dict[str, int]
    """How many run on each node."""
    reasons: tuple[str, ...]

    @property
    def count(self) -> int:
        """All generators."""
        return sum(self.generators.values())

    def placement(self, *, named: bool) -> Placement:
        """The plan as `physai train --placement` takes it.

        Args:
            named: whether nodes have names that Ray knows; else there is one, on which all is.
        """
        groups = (
            PlacementGroup(number=count, colocated=True)
            if node == self.trainer
            else PlacementGroup(number=count, node=node)
            for node, count in self.generators.items()
        )
        return Placement(trainer=self.trainer if named else None, generators=tuple(groups))


def read_nodes(path: Path) -> tuple[Node, ...]:
    """Reads a list of nodes.

    Raises:
        ClusterError: it cannot be read or is malformed, or a name is there twice.
    """
    nodes = read_document(path, Nodes, NODES_FILE, what="a list of nodes").nodes
    names = [node.name for node in nodes]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ClusterError(f"{path}: the node {twice!r} is there twice")
    return nodes


def plan(costs: Costs, nodes: Sequence[Node], *, learner_cpus: int = 1) -> Plan:
    """Places the trainer and as many generators as pay off.

    Args:
        costs: what was measured.
        nodes: the computers.
        learner_cpus: processors that the trainer keeps.
    """
    # Where the most generators are near the trainer. It learns on processors, as `check_generators` asks for.
    home = max(nodes, key=lambda node: (node.cpus, -node.gpus))
    free = {node.name: node.cpus - (learner_cpus if node is home else 0) for node in nodes}
    there = sum(max(0, count) for count in free.values())
    wanted = fewest(costs)
    count = max(1, min(wanted, there))
    placed: dict[str, int] = {}
    # On the trainer's node first: what does not cross the network costs nothing of it.
    for node in sorted(nodes, key=lambda node: node is not home):
        here = max(0, min(free[node.name], count - sum(placed.values())))
        if here:
            placed[node.name] = here
    if not placed:
        placed = {home.name: 1}
    one, many = costs.iteration_s(1), costs.iteration_s(count)
    why = ", which has the most processors" if len(nodes) > 1 else ""
    gain = f"{count} generators bring it from {one:.2f} to {many:.2f} s" if count > 1 else f"it takes {one:.2f} s"
    reasons = [
        f"the trainer runs on {home.name}{why}; with generators it learns without a GPU",
        f"an iteration plays {costs.steps * costs.step_s:.2f} s on one processor and learns {costs.learn_s:.2f} s",
        gain,
    ]
    if wanted > there:
        reasons.append(f"{wanted} would pay off, but there are processors for {max(1, there)}")
    elif count < costs.best:
        reasons.append(f"{costs.best} would be fastest, by less than {WORTH:.0%}")
    first = min(costs.limits().items(), key=lambda item: item[1])
    reasons.append(f"{first[0]} is what limits first, from {first[1]:.0f} generators on")
    return Plan(trainer=home.name, generators=placed, reasons=tuple(reasons))


def fewest(costs: Costs) -> int:
    """The fewest generators whose iteration takes at most `WORTH` longer than the best number's."""
    limit = (1.0 + WORTH) * costs.iteration_s(costs.best)
    return next(count for count in range(1, costs.best + 1) if costs.iteration_s(count) <= limit)
