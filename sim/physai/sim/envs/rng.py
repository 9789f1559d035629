"""Counter-based random numbers: what a world draws depends on its episode's seed alone.

An episode replays exactly whatever the number of worlds, their order or the engine, which is what a stored
counterexample, a paired comparison of two policies and a resumed training need. The mixer is the finaliser of
SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
"""

from enum import IntEnum
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Seeds = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
STREAM = np.uint64(0xD1B54A32D192ED03)
_QUANTILES = 1 << 14

_normal_quantiles = np.array(
    [NormalDist().inv_cdf((i + 0.5) / _QUANTILES) for i in range(_QUANTILES // 2, _QUANTILES)], np.float32
)
NORMAL_TABLE: Floats = np.concatenate([-_normal_quantiles[::-1], _normal_quantiles])
"""Midpoint quantiles of the standard normal distribution; the largest is 4.0 standard deviations."""


class Stream(IntEnum):
    """Purpose of a draw, so that adding one leaves the others' numbers alone."""

    EPISODE = 0
    STATE = 1
    COMMAND = 2
    PARAMETERS = 3
    NOISE = 4
    PUSH = 5
    DELAY = 6
    STAGGER = 7
    EXPLORATION = 8
    HISTORY = 9


def mix(values: Seeds) -> Seeds:
    """Scrambles 64-bit integers so that neighbours share no structure; shape is kept."""
    values = (values ^ (values >> np.uint64(30))) * MIX_1
    values = (values ^ (values >> np.uint64(27))) * MIX_2
    return values ^ (values >> np.uint64(31))


def episode_seeds(seed: int, worlds: npt.NDArray[np.integer], episodes: npt.NDArray[np.integer]) -> Seeds:
    """Seeds of the given episode of each world, shape (n,)."""
    base = mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64) + GOLDEN)
    return mix(base + worlds.astype(np.uint64) * GOLDEN + mix(episodes.astype(np.uint64) * STREAM + MIX_1))


def _words(seeds: Seeds, stream: Stream, count: int, steps: npt.NDArray[np.integer] | int) -> Seeds:
    """Raw 64-bit words, shape (n, count)."""
    # The step takes the bits from 20 on and the stream the top four, so no two draws share a counter.
    counters = np.atleast_1d(np.asarray(steps)).astype(np.uint64) * np.uint64(1 << 20) + np.uint64(int(stream) << 60)
    keys = mix(seeds + counters * STREAM)
    return mix(keys[:, None] + np.arange(1, count + 1, dtype=np.uint64) * GOLDEN)


def uniform(
    seeds: Seeds, stream: Stream, size: int, *, steps: npt.NDArray[np.integer] | int = 0
) -> npt.NDArray[np.float64]:
    """Uniform numbers in [0, 1), shape (len(seeds), size).

    Args:
        seeds: episode seed of each world, shape (n,).
        stream: purpose of the draw.
        size: numbers per world.
        steps: step within the episode, one for all or shape (n,).
    """
    # The upper 53 bits fill a double's mantissa exactly, so 1.0 never occurs.
    return (_words(seeds, stream, size, steps) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(seeds: Seeds, stream: Stream, size: int, *, steps: npt.NDArray[np.integer] | int = 0) -> Floats:
    """Standard normal numbers, shape (len(seeds), size); four of them from each 64-bit word."""
    words = _words(seeds, stream, (size + 3) // 4, steps)
    quarters = words.view(np.uint16).reshape(len(seeds), -1)[:, :size]
    # The upper 14 of each word's 16 bits are the index into the table.
    return NORMAL_TABLE[quarters >> np.uint16(2)]
