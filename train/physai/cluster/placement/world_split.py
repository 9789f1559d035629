"""Worlds of each generator."""

import itertools

from physai.compute.ray.cluster import ClusterError
from physai.train.collectors.collector import Share

BLOCK = 16
"""Worlds that stay together. Matrix products compute so many rows at once (AVX-512: 16 numbers of single precision) and
what is left over, or fewer rows, by other routines, which round differently. Shares that begin at multiples of it and
are no smaller give each world the rounding that it has where one process steps all; measured, not promised by MKL."""
MAX_GENERATORS = 1024


def shares(worlds: int, generators: int) -> list[tuple[Share, int]]:
    """Divides a run's worlds over its generators in whole blocks, as evenly as that allows.

    Args:
        worlds: worlds of the run, at least 1.
        generators: how many share them.

    Returns:
        For each generator where its worlds begin, and their number.

    Raises:
        ClusterError: no generator, or more than there are blocks.
    """
    if not 1 <= generators <= MAX_GENERATORS:
        raise ClusterError(f"`generators` must lie in [1, {MAX_GENERATORS}], got {generators}")
    # The last block has what is left over, too.
    blocks = max(1, worlds // BLOCK)
    if generators > blocks:
        raise ClusterError(
            f"`generators` {generators}, but {worlds} worlds are {blocks} blocks of {BLOCK}, which stay together; "
            f"start {blocks} or fewer, or simulate `num_envs` {generators * BLOCK} or more"
        )
    bounds = [*(BLOCK * (blocks * number // generators) for number in range(generators)), worlds]
    return [(Share(first, worlds), end - first) for first, end in itertools.pairwise(bounds)]


def equal_shares(worlds: int, generators: int) -> list[tuple[Share, int]]:
    """As `shares`, of as many worlds each, so that chunks can stand for one another in a batch.

    Raises:
        ClusterError: that is not possible.
    """
    parts = shares(worlds, generators)
    if len({count for _, count in parts}) > 1:
        unit = BLOCK * generators
        raise ClusterError(
            f"`staleness` takes equal shares, and {worlds} worlds are not {generators} such of blocks of {BLOCK}; "
            f"simulate `num_envs` {unit * max(1, round(worlds / unit))}, or start another number of generators"
        )
    return parts
