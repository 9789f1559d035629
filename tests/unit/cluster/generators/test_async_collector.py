"""Asynchronous training in one process: synchronous numbers without staleness, and exact accounting with it."""

import dataclasses
from collections import Counter
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.cluster.generators.async_collector import MAX_LOSSES, AsyncCollector
from physai.cluster.generators.batching import ChunkTicket
from physai.cluster.generators.collector import ClusterCollector
from physai.cluster.generators.executor import GeneratorLostError, LocalGenerators
from physai.cluster.generators.generator import Arrays, Chunk, ChunkRequest, Weights
from physai.cluster.generators.launch import check_generators, chunk_config
from physai.cluster.placement.world_split import equal_shares
from physai.compute.ray.cluster import ClusterError
from physai.sim.tasks.registry import load_task
from physai.train.collectors.collector import Share
from physai.train.runners.runner import Trainer
from physai.train.settings.config import ConfigError, TrainConfig

TASK = dataclasses.replace(load_task("cartpole-swingup"), episode_length_s=0.4)
CONFIG = TrainConfig(num_envs=48, horizon=6, epochs=2, minibatches=2, hidden=(16, 16), num_threads=1, gru_size=8)
STALE = dataclasses.replace(CONFIG, staleness=2)


class Clocked(LocalGenerators):
    """Generators that take different times, on a clock that only they move; some are lost instead of answering."""

    def __init__(self, config: TrainConfig, *, durations: tuple[int, ...], lost: frozenset[int] = frozenset()) -> None:
        super().__init__(TASK, chunk_config(config), num_threads=1)
        self._durations, self._lost, self._due = durations, lost, dict[int, int]()
        self._now = self._delivery = 0
        self.weights: dict[int, Weights] = {}
        """What each delivered chunk was played with, by its number."""

    def start(self, which: int, share: Share, count: int, state: Arrays | None) -> None:
        super().start(which, share, count, state)
        self._due.pop(which, None)

    def submit(self, which: int, order: ChunkRequest, weights: Weights) -> None:
        super().submit(which, order, weights)
        self._due[which] = self._now + self._durations[which]
        self.weights[order.number] = weights

    def next_chunk(self) -> tuple[int, Chunk]:
        which = min(self._due, key=lambda one: (self._due[one], one))
        self._now = max(self._now, self._due.pop(which))
        self._asked.sort(key=lambda asked: asked[0] != which)
        self._delivery += 1
        if self._delivery in self._lost:
            raise GeneratorLostError(which, "died with the chunk")
        return super().next_chunk()


def learned_from(trainer: Trainer) -> list[tuple[ChunkTicket, Chunk]]:
    """Grows by what the trainer learns from."""
    collector: Any = trainer.collector
    take = collector.admission.take
    found: list[tuple[ChunkTicket, Chunk]] = []

    def noting() -> Any:
        tickets = take()
        found.extend((ticket, collector._chunks[ticket.number][0]) for ticket in tickets)
        return tickets

    collector.admission.take = noting
    return found


def trainer_of(
    executor: LocalGenerators, config: TrainConfig, generators: int = 3, kind: Any = AsyncCollector
) -> Trainer:
    torch.set_num_threads(1)
    return Trainer(TASK, config, source=lambda learner: kind(TASK, config, learner, executor, generators=generators))


def numbers(tensor: Any) -> Any:
    return tensor.tolist()


def everything(trainer: Trainer) -> list[Any]:
    learner = trainer.learner
    return [numbers(tensor) for tensor in (*learner.parameters(), *learner.buffers())]


@pytest.mark.parametrize("actor", ["mlp", "gru"])
def test_without_staleness_it_is_synchronous_training_bit_for_bit(actor: Any) -> None:
    config = dataclasses.replace(CONFIG, actor=actor)
    executors = Clocked(config, durations=(1, 5, 2)), LocalGenerators(TASK, config, num_threads=1)
    pair = [
        trainer_of(one, config, kind=kind)
        for one, kind in zip(executors, (AsyncCollector, ClusterCollector), strict=True)
    ]
    for _ in range(3):
        left, right = (trainer.train_iteration() for trainer in pair)
        assert left.update == right.update
        assert (left.success, left.metrics, left.reward_per_s) == (right.success, right.metrics, right.reward_per_s)
        assert left.asynchronous["staleness_max"] == left.asynchronous["behaviour_kl"] == 0.0
        assert not right.asynchronous
    assert everything(pair[0]) == everything(pair[1])
    assert_equal(pair[0].collector.state_dict(), {**pair[1].collector.state_dict(), "version": torch.tensor(3)})


def assert_equal(left: Any, right: Any) -> None:
    if isinstance(left, dict):
        entries = cast("dict[str, Any]", left)
        assert entries.keys() == right.keys()
        for name, value in entries.items():
            assert_equal(value, right[name])
    else:
        assert torch.equal(left, right)


def test_in_one_process_a_run_repeats_itself() -> None:
    pair = [trainer_of(LocalGenerators(TASK, STALE, num_threads=1), STALE) for _ in range(2)]
    for trainer in pair:
        ages = [trainer.train_iteration().asynchronous["staleness_max"] for _ in range(3)]
        assert ages == [0.0, 1.0, 1.0]
    assert everything(pair[0]) == everything(pair[1])


@pytest.mark.parametrize(("actor", "segments"), [("mlp", 1), ("mlp", 2), ("gru", 3)])
def test_old_weights_are_accounted_for(actor: Any, segments: int) -> None:
    config = dataclasses.replace(STALE, actor=actor, segments=segments)
    trainer = trainer_of(Clocked(config, durations=(1, 10, 1)), config)
    stats = [trainer.train_iteration() for _ in range(8)]
    assert max(one.asynchronous["staleness_max"] for one in stats) == 2.0
    assert max(one.asynchronous["behaviour_kl"] for one in stats) > 1e-6
    assert all(np.isfinite(one.update.kl) for one in stats)
    assert trainer.env_steps == 8 * 48 * 6
    last = stats[-1].asynchronous
    assert last["dropped"] == last["refused"] == last["replaced"] == 0.0
    assert sum(last[f"share_{which}"] for which in range(3)) == pytest.approx(1.0)
    assert 0.0 < last["share_least"] == last["share_1"] < last["share_0"]


def test_a_chunk_is_played_with_the_weights_of_its_version() -> None:
    """So its version is that of each of its steps."""
    executor = Clocked(STALE, durations=(1, 10, 1))
    trainer = trainer_of(executor, STALE)
    published: list[Weights] = []
    collector: Any = trainer.collector
    learned = learned_from(trainer)
    for _ in range(8):
        trainer.train_iteration()
        published.append(collector._weights)
    for ticket, _ in learned:
        assert np.array_equal(executor.weights[ticket.number], published[ticket.version])
    assert len({bytes(weights) for weights in published}) == 8


def test_importance_by_hand() -> None:
    """A Gaussian of deviation 1, whose mean was 0 when it sampled 1 and is 2 now: both are equally likely; from 3, the
    ratio is exp(-1/2 + 9/2), which the cap of 2 bounds."""
    trainer = Trainer(TASK, dataclasses.replace(CONFIG, num_envs=4, horizon=1, minibatches=1))
    ppo, rollout = trainer.learner.ppo, trainer.new_rollout()
    with torch.no_grad():
        for parameter in ppo.actor.parameters():
            parameter.zero_()
        list(ppo.actor.parameters())[-1].fill_(2.0)
    rollout.action[0, :, 0] = torch.tensor([1.0, 3.0, 3.0, 1.0])
    rollout.log_prob[0] = -0.5 * rollout.action[0, :, 0] ** 2 - 0.9189385
    before = rollout.log_prob.clone()
    log_ratio = ppo.decouple(rollout, torch.tensor([True, True, False, False]))
    assert numbers(log_ratio[0]) == pytest.approx([0.0, 4.0], abs=1e-5)
    assert rollout.importance is not None
    assert numbers(rollout.importance[0]) == pytest.approx([1.0, 2.0, 1.0, 1.0], abs=1e-5)
    assert numbers(rollout.log_prob[0, :2]) == pytest.approx([-0.5 - 0.9189385, -0.5 - 0.9189385], abs=1e-5)
    assert torch.equal(rollout.log_prob[0, 2:], before[0, 2:])
    assert numbers(rollout.mean[0, :, 0]) == [2.0, 2.0, 0.0, 0.0]


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    durations=st.tuples(*[st.integers(1, 12)] * 3),
    lost=st.frozensets(st.integers(1, 25), max_size=6),
    segments=st.sampled_from([1, 2]),
    resumed_after=st.integers(1, 5),
)
def test_each_step_of_each_world_counts_once(
    durations: tuple[int, int, int], lost: frozenset[int], segments: int, resumed_after: int
) -> None:
    """Each generator's chunks that were learned from follow one another, across deaths and a resume: one begins with
    the observation in which the one before ended."""
    config = dataclasses.replace(STALE, segments=segments)
    first = trainer_of(Clocked(config, durations=durations, lost=lost), config)
    second = trainer_of(Clocked(config, durations=durations), config)
    before = learned_from(first)
    for _ in range(resumed_after):
        first.train_iteration()
    collector: Any = second.collector
    collector.load_state_dict(first.collector.state_dict())
    assert collector.admission.accepted == resumed_after * 3 * segments
    after = learned_from(second)
    for _ in range(3):
        second.train_iteration()
    assert collector.admission.batches == resumed_after + 3
    ends: dict[int, Any] = {}
    for learned, batches in ((before, resumed_after), (after, 3)):
        assert len({ticket.number for ticket, _ in learned}) == len(learned) == batches * 3 * segments
        for ticket, chunk in sorted(learned, key=lambda one: one[0].number):
            if (end := ends.get(ticket.generator)) is not None:
                assert np.array_equal(end, chunk.columns["raw_critic"][0])
            ends[ticket.generator] = chunk.played["last_critic"]


def test_a_generator_that_keeps_dying_ends_the_run() -> None:
    trainer = trainer_of(Clocked(STALE, durations=(1, 1, 1), lost=frozenset(range(1, 100))), STALE)
    with pytest.raises(ClusterError, match=rf"generator 0 was lost {MAX_LOSSES + 1} times in a row"):
        trainer.train_iteration()


def test_a_run_that_drops_stragglers_says_so() -> None:
    config = dataclasses.replace(STALE, stragglers="drop")
    trainer = trainer_of(Clocked(config, durations=(1, 30, 1)), config)
    last = [trainer.train_iteration() for _ in range(30)][-1].asynchronous
    assert last["dropped"] >= 1.0
    assert last["share_1"] == 0.0


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ClusterError, match="48 worlds are not 2 such of blocks of 16; simulate `num_envs` 64"):
        check_generators(dataclasses.replace(CONFIG, staleness=1), 2, None)
    assert Counter(count for _, count in equal_shares(64, 2)) == {32: 2}
    with pytest.raises(ConfigError, match=r"staleness must lie in \[0, 1000\] updates, got -1"):
        dataclasses.replace(CONFIG, staleness=-1)
    with pytest.raises(ConfigError, match="segments 2 are for training with staleness"):
        dataclasses.replace(CONFIG, segments=2)
    with pytest.raises(ConfigError, match="horizon 6 cannot be divided into 4 equal segments"):
        dataclasses.replace(STALE, segments=4)
