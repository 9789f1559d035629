"""Draws on a device equal those on the CPU bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.sim.envs import rng
from physai.sim.envs.rng import Stream

torch = pytest.importorskip("torch")
from physai.sim.envs.device import device_rng  # noqa: E402

SEEDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8).map(lambda seeds: np.array(seeds, np.uint64))
STEPS = st.integers(0, 2**40)


@given(seed=st.integers(0, 2**63), worlds=st.integers(1, 9), episode=st.integers(0, 2**40))
def test_episode_seeds_are_the_same(seed: int, worlds: int, episode: int) -> None:
    numbers, episodes = np.arange(worlds), np.arange(worlds) + episode
    wanted = rng.episode_seeds(seed, numbers, episodes)
    found = device_rng.episode_seeds(
        device_rng.base_of(seed), torch.as_tensor(numbers), torch.as_tensor(episodes)
    ).numpy()
    assert np.array_equal(found.view(np.uint64), wanted)


@given(seeds=SEEDS, stream=st.sampled_from(Stream), size=st.integers(1, 9), step=STEPS)
def test_draws_are_the_same(seeds: rng.Seeds, stream: Stream, size: int, step: int) -> None:
    on_device, steps = device_rng.seeds_from(seeds, "cpu"), np.arange(len(seeds)) + step
    for draw, device_draw in ((rng.uniform, device_rng.uniform), (rng.normal, device_rng.normal)):
        found = device_draw(on_device, stream, size, steps=torch.as_tensor(steps)).numpy()
        assert np.array_equal(found, draw(seeds, stream, size, steps=steps))
