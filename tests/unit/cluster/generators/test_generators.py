"""Generators in one process: the numbers of a process alone, whatever becomes of them."""

import dataclasses
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from physai.cluster.generators.buffering import joined_played
from physai.cluster.generators.collector import MAX_LOSSES, ClusterCollector
from physai.cluster.generators.executor import Executor, GeneratorLostError, LocalGenerators
from physai.cluster.generators.generator import Arrays, Chunk, ChunkRequest, Weights, pack, unpack
from physai.cluster.generators.launch import check_generators
from physai.cluster.placement.world_split import shares
from physai.compute.ray.cluster import ClusterError, check_address
from physai.sim.tasks.registry import load_task
from physai.train.collectors.collector import Share, StepRecords
from physai.train.runners.runner import Trainer, build_learner
from physai.train.settings.config import TrainConfig

TASK = dataclasses.replace(load_task("cartpole-swingup"), episode_length_s=0.4)
CONFIG = TrainConfig(num_envs=50, horizon=6, epochs=1, minibatches=2, hidden=(16, 16), num_threads=1, gru_size=8)
ITERATIONS = 3


class Mortal(LocalGenerators):
    """Loses generators at the given deliveries, before they have done what was asked or after."""

    def __init__(self, *, before: set[int], after: set[int]) -> None:
        super().__init__(TASK, CONFIG, num_threads=1)
        self._before, self._after = before, after
        self._delivery = -1

    def next_chunk(self) -> tuple[int, Chunk]:
        self._delivery += 1
        which = self._asked[0][0]
        if self._delivery in self._before:
            del self._generators[which]
            raise GeneratorLostError(which, "died before the chunk")
        which, chunk = super().next_chunk()
        if self._delivery in self._after:
            del self._generators[which]
            raise GeneratorLostError(which, "died with the chunk")
        return which, chunk


class Repeating(LocalGenerators):
    """Delivers every chunk twice, and once more with the next order."""

    def __init__(self) -> None:
        super().__init__(TASK, CONFIG, num_threads=1)
        self._again: list[tuple[int, Chunk]] = []

    def next_chunk(self) -> tuple[int, Chunk]:
        if len(self._again) > 3 or not self._asked:
            return self._again.pop(0)
        self._again += 2 * [super().next_chunk()]
        return self._again[-1]


def trained(executor: Executor | None, *, generators: int = 3, config: TrainConfig = CONFIG) -> tuple[Any, ...]:
    """Weights, statistics and reports after some iterations; of a process alone without an executor."""
    torch.set_num_threads(1)
    if executor is None:
        trainer = Trainer(TASK, config)
    else:
        trainer = Trainer(TASK, config, source=lambda learner: joint(learner, executor, generators, config))
    stats = [trainer.train_iteration() for _ in range(ITERATIONS)]
    return everything(trainer), [(one.success, one.metrics, one.update, one.reward_per_s) for one in stats]


def joint(learner: Any, executor: Executor, generators: int, config: TrainConfig) -> ClusterCollector:
    return ClusterCollector(TASK, config, learner, executor, generators=generators)


def as_numbers(tensor: Any) -> Any:
    return tensor.tolist()


def everything(trainer: Trainer) -> list[Any]:
    learner = trainer.learner
    return [as_numbers(tensor) for tensor in (*learner.parameters(), *learner.buffers())]


@cache
def alone() -> tuple[Any, ...]:
    return trained(None)


@pytest.mark.parametrize("actor", ["mlp", "gru"])
@pytest.mark.parametrize("generators", [1, 2, 3])
def test_generators_learn_bit_for_bit_what_one_process_learns(actor: Any, generators: int) -> None:
    config = dataclasses.replace(CONFIG, actor=actor)
    together = trained(LocalGenerators(TASK, config, num_threads=1), generators=generators, config=config)
    assert together == trained(None, config=config)


def test_something_was_judged_and_cut_off() -> None:
    """Else the tests here would say nothing of how outcomes and time-outs are joined."""
    trainer = Trainer(TASK, CONFIG)
    rollout = trainer.collector.collect(trainer.new_rollout())
    assert rollout.bootstrap.count_nonzero() > 3
    for _ in range(ITERATIONS):
        assert trainer.train_iteration().metrics is not None
    assert len(trainer.collector.state_dict()["judged"]) > 3


@settings(max_examples=8, deadline=None)
# Not more than one generator may be lost in a row.
@given(before=st.sets(st.integers(0, 11), max_size=3), after=st.sets(st.integers(0, 11), max_size=MAX_LOSSES - 3))
def test_deaths_at_any_moment_leave_the_numbers_as_they_are(before: set[int], after: set[int]) -> None:
    assert trained(Mortal(before=before, after=after)) == alone()


def test_no_chunk_counts_twice() -> None:
    assert trained(Repeating()) == alone()


def test_a_generator_that_keeps_dying_ends_the_run() -> None:
    with pytest.raises(ClusterError, match=rf"generator 0 was lost {MAX_LOSSES + 1} times in a row"):
        trained(Mortal(before=set(range(100)), after=set()))


@pytest.mark.parametrize(("first", "second"), [(None, 3), (3, 2), (2, None)])
def test_a_state_continues_with_another_number_of_generators(first: int | None, second: int | None) -> None:
    def trainer(generators: int | None) -> Trainer:
        if generators is None:
            return Trainer(TASK, CONFIG)
        executor = LocalGenerators(TASK, CONFIG, num_threads=1)
        return Trainer(TASK, CONFIG, source=lambda learner: joint(learner, executor, generators, CONFIG))

    before, after = trainer(first), trainer(second)
    before.train_iteration()
    after.learner.follow(before.learner)
    after.collector.learner.follow(before.learner)
    before.collector.learner.follow(before.learner)
    after.collector.load_state_dict(before.collector.state_dict())
    left, right = (one.collector.collect(one.new_rollout()) for one in (before, after))
    for name, tensor in left.state_dict().items():
        assert torch.equal(tensor, right.state_dict()[name]), name
    assert before.collector.success == after.collector.success


@given(worlds=st.integers(1, 2000), generators=st.integers(1, 40))
def test_shares_are_all_worlds_in_whole_blocks(worlds: int, generators: int) -> None:
    if generators > max(1, worlds // 16):
        with pytest.raises(ClusterError, match=f"`generators` {generators}, but {worlds} worlds"):
            shares(worlds, generators)
        return
    parts = shares(worlds, generators)
    assert [world for share, count in parts for world in range(share.first, share.first + count)] == [*range(worlds)]
    assert all(share.first % 16 == 0 and (count >= 16 or generators == 1) for share, count in parts)
    # As even as whole blocks allow: 15 of the last block's rest, and a block.
    assert max(count for _, count in parts) - min(count for _, count in parts) <= 31


def test_shares_by_hand() -> None:
    assert shares(50, 3) == [(Share(0, 50), 16), (Share(16, 50), 16), (Share(32, 50), 18)]
    with pytest.raises(ClusterError, match=r"\[1, 1024\], got 0"):
        shares(50, 0)


def test_what_shares_played_is_joined_by_steps_then_by_worlds() -> None:
    def part(outcomes: list[list[float]], values: list[float]) -> StepRecords:
        cut = torch.tensor(outcomes) >= 0.0
        column: Tensor = torch.tensor(values)
        metrics = {"angle": column.double()} if values else {}
        return StepRecords(
            outcomes=torch.tensor(outcomes), metrics=metrics, cut=cut, final_critic=column[:, None], last_critic=column
        )

    left = part([[1.0, -1.0], [0.0, 1.0]], [1.0, 2.0, 3.0])
    right = part([[0.0], [-1.0]], [4.0])
    nothing = part([[-1.0], [-1.0]], [])
    joined = joined_played([left, nothing, right])
    assert as_numbers(joined.outcomes) == [[1.0, -1.0, -1.0, 0.0], [0.0, 1.0, -1.0, -1.0]]
    assert as_numbers(joined.metrics["angle"]) == [1.0, 4.0, 2.0, 3.0]
    assert as_numbers(joined.final_critic.flatten()) == [1.0, 4.0, 2.0, 3.0]


def test_weights_travel_to_the_last_bit() -> None:
    source, target = build_learner(TASK, CONFIG), build_learner(TASK, CONFIG)
    source.graph.normaliser.update(torch.randn(100, source.graph.observation.size))
    packed: Weights = pack(source)
    packed.flags.writeable = False
    unpack(packed, target)
    for left, right in zip(source.graph.state_dict().values(), target.graph.state_dict().values(), strict=True):
        assert torch.equal(left, right)
    assert torch.equal(source.ppo.log_std, target.ppo.log_std)


def test_what_does_not_go_with_generators_is_refused_with_the_way_out() -> None:
    with pytest.raises(ClusterError, match="engine is warp; start the run with `engine` mujoco"):
        check_generators(dataclasses.replace(CONFIG, engine="warp"), 2, None)
    with pytest.raises(ClusterError, match="overlap is true; start the run with `settings` overlap=false"):
        check_generators(dataclasses.replace(CONFIG, overlap=True), 2, None)
    with pytest.raises(ClusterError, match="start 3 or fewer, or simulate `num_envs` 64 or more"):
        check_generators(CONFIG, 4, None)
    for address in ("ray://head:10001", "head", "head:port", "a b:1"):
        with pytest.raises(ClusterError, match="expected auto, local, or HOST:PORT"):
            check_address(address)
    for address in ("auto", "local", "10.0.0.1:6379", "[::1]:6379", "head.lab:6379"):
        check_address(address)


def test_an_order_names_what_determines_a_chunk() -> None:
    """The same order, weights and state give the same chunk, in another generator."""
    weights = pack(build_learner(TASK, CONFIG))
    executor = LocalGenerators(TASK, CONFIG, num_threads=1)
    chunks: list[Chunk] = []
    state: Arrays | None = None
    for _ in range(2):
        executor.start(0, Share(16, 50), 34, state)
        state = executor.state(0)
        executor.submit(0, ChunkRequest(0, 1.0), weights)
        chunks.append(executor.next_chunk()[1])
    for name, column in chunks[0].columns.items():
        assert (column == chunks[1].columns[name]).all(), name
