"""Random numbers: what a world draws depends on its episode's seed, the purpose and the step, on nothing else."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sim.envs.rng import NORMAL_TABLE, Seeds, Stream, episode_seeds, mix, normal, uniform

SEEDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20).map(lambda x: np.array(x, np.uint64))
STEPS = st.integers(0, 2**40 - 1)


def test_the_mixer_is_that_of_splitmix64() -> None:
    # Published first outputs of SplitMix64 with seed 1234567: the state advances by the golden gamma, then is mixed.
    states = np.uint64(1234567) + np.arange(1, 6, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    assert mix(states).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(SEEDS, st.sampled_from(Stream), st.integers(1, 9), STEPS)
def test_a_world_draws_the_same_among_any_others(seeds: Seeds, stream: Stream, size: int, step: int) -> None:
    together = uniform(seeds, stream, size, steps=step)
    noise = normal(seeds, stream, size, steps=step)
    for world in range(len(seeds)):
        assert np.array_equal(uniform(seeds[world : world + 1], stream, size, steps=step)[0], together[world])
        assert np.array_equal(normal(seeds[world : world + 1], stream, size, steps=step)[0], noise[world])
    assert np.array_equal(uniform(seeds[::-1], stream, size, steps=step), together[::-1])


@given(SEEDS, st.sampled_from(Stream), st.integers(1, 9), st.integers(1, 9))
def test_one_more_number_leaves_the_others_alone(seeds: Seeds, stream: Stream, size: int, more: int) -> None:
    assert np.array_equal(uniform(seeds, stream, size + more)[:, :size], uniform(seeds, stream, size))
    assert np.array_equal(normal(seeds, stream, size + more)[:, :size], normal(seeds, stream, size))


@given(SEEDS, st.lists(STEPS, min_size=20, max_size=20))
def test_each_world_may_be_at_a_step_of_its_own(seeds: Seeds, steps: list[int]) -> None:
    own = np.array(steps[: len(seeds)])
    mixed = uniform(seeds, Stream.PUSH, 3, steps=own)
    for world, step in enumerate(own):
        assert np.array_equal(mixed[world], uniform(seeds, Stream.PUSH, 3, steps=int(step))[world])


@given(SEEDS, st.sampled_from(Stream), STEPS)
def test_uniform_numbers_lie_in_the_unit_interval(seeds: Seeds, stream: Stream, step: int) -> None:
    numbers = uniform(seeds, stream, 5, steps=step)
    assert numbers.dtype == np.float64
    assert (numbers >= 0.0).all()
    assert (numbers < 1.0).all()


@pytest.mark.parametrize("stream", Stream)
def test_uniform_numbers_are_uniform(stream: Stream) -> None:
    seeds = episode_seeds(1, np.arange(20_000), np.zeros(20_000, int))
    numbers = uniform(seeds, stream, 5)
    # Mean 1/2 and variance 1/12; 1e5 numbers, so 5 standard errors are 5 · 0.2887 / 316.
    assert abs(numbers.mean() - 0.5) < 5 * 0.2887 / 316
    assert abs(numbers.var() - 1 / 12) < 2e-3
    counts = np.histogram(numbers, bins=20, range=(0.0, 1.0))[0]
    # Chi-square with 19 degrees of freedom exceeds 50 once in 8000 cases.
    assert ((counts - 5000) ** 2 / 5000).sum() < 50


def test_streams_steps_and_columns_are_independent() -> None:
    seeds = episode_seeds(3, np.arange(20_000), np.ones(20_000, int))
    draws = [uniform(seeds, stream, 1, steps=step)[:, 0] for stream in Stream for step in (0, 1, 2)]
    draws += list(uniform(seeds, Stream.STATE, 4)[:, 1:].T)
    for a, b in itertools.combinations(draws, 2):
        # 5 standard errors of a correlation of 20000 pairs.
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / 141


def test_the_normal_table_is_symmetric_and_standard() -> None:
    assert len(NORMAL_TABLE) == 16384
    assert np.array_equal(NORMAL_TABLE, -NORMAL_TABLE[::-1])
    assert (np.diff(NORMAL_TABLE) > 0.0).all()
    assert abs(NORMAL_TABLE.std() - 1.0) < 1e-3
    # Its last entry is the quantile at 1 - 1/32768: 4.01 standard deviations.
    assert NORMAL_TABLE[-1] == pytest.approx(4.0096, abs=1e-3)


def test_normal_numbers_are_normal() -> None:
    seeds = episode_seeds(5, np.arange(20_000), np.zeros(20_000, int))
    numbers = normal(seeds, Stream.NOISE, 6, steps=7)
    assert numbers.shape == (20_000, 6)
    assert numbers.dtype == np.float32
    assert abs(numbers.mean()) < 5 / 346
    assert abs(numbers.std() - 1.0) < 0.01
    assert abs((np.abs(numbers) < 1.0).mean() - 0.6827) < 0.01
    # Four numbers come from one word: they must not be the same number, nor follow each other.
    correlation = np.corrcoef(numbers.T) - np.eye(6)
    assert np.abs(correlation).max() < 5 / 141


@given(st.integers(), st.integers())
def test_episodes_of_all_worlds_have_seeds_of_their_own(seed: int, other: int) -> None:
    worlds, episodes = (x.ravel() for x in np.meshgrid(np.arange(20), np.arange(20)))
    seeds = episode_seeds(seed, worlds, episodes)
    assert len(set(seeds.tolist())) == 400
    if (seed - other) % 2**64:
        assert not set(seeds.tolist()) & set(episode_seeds(other, worlds, episodes).tolist())
