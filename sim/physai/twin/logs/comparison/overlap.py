"""Find recordings that hold the same samples: copies under other names, in other formats, or parts of each other."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from physai.twin.logs.robot_log import Array, RobotLog

RUN = 64
"""Number of consecutive samples that must agree."""
MIN_CHANGES = 32
"""Number of those that differ from the sample before: robots at rest give the same samples again and again."""
RESOLUTIONS = (1e-4, 1e-5)
"""Positions are compared rounded to these [rad or m], because formats keep different numbers of digits.

Text with four or five digits agrees exactly at one of them; more digits, or single precision, in most runs.
"""
SHARE = 16
"""One in so many runs is compared, chosen by content so that it is the same one in every recording."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def overlapping(logs: Sequence[RobotLog]) -> Iterator[tuple[int, int, float]]:
    """Yield pairs of recordings, by their index, that hold the same samples, and the common share of the smaller one.

    Recordings are compared by measured positions, sample by sample: independent ones differ by noise, even of the same
    motion. Copies that were filtered or sampled anew are not found.
    """
    shares: dict[tuple[int, int], float] = {}
    for resolution in RESOLUTIONS:
        for pair, share in _shares([_runs(log.positions, resolution) for log in logs]):
            shares[pair] = max(share, shares.get(pair, 0.0))
    for (one, other), share in sorted(shares.items()):
        yield one, other, share


def _shares(runs: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield pairs of recordings with common runs, and their share of the smaller one's runs."""
    owners: dict[int, list[int]] = {}
    for index, hashes in enumerate(runs):
        for value in hashes:
            owners.setdefault(value, []).append(index)
    # Neighbours are enough to name a recording's copies, and a thousand copies do not make a million pairs.
    common = Counter(pair for holders in owners.values() for pair in pairwise(holders))
    for (one, other), count in common.items():
        yield (one, other), count / min(len(runs[one]), len(runs[other]))


def _runs(position: Array, resolution: float) -> list[int]:
    """Hashes of the compared runs of samples."""
    if len(position) < RUN:
        return []
    ticks = np.round(np.clip(position, -1e9, 1e9) / resolution).astype(np.int64).view(np.uint64)
    rows = _mixed((ticks * _powers(ticks.shape[1])).sum(axis=1, dtype=np.uint64))
    hashes = _mixed(np.convolve(rows, _powers(RUN), mode="valid"))
    changes = np.concatenate([[0], np.cumsum(rows[1:] != rows[:-1])])
    moving = changes[RUN - 1 :] - changes[: len(changes) - RUN + 1] >= MIN_CHANGES
    return np.unique(hashes[moving & (hashes % np.uint64(SHARE) == 0)]).tolist()


def _powers(count: int) -> NDArray[np.uint64]:
    """Powers of an odd number modulo 2**64, from the first."""
    return np.cumprod(np.full(count, _MIX, dtype=np.uint64), dtype=np.uint64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Let every bit depend on the higher ones, too; products only carry upwards."""
    values = (values ^ (values >> _SHIFT)) * _MIX
    return values ^ (values >> _SHIFT)
