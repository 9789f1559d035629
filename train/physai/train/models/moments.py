"""Mean and variance of what several processes hold."""

from typing import Protocol

import torch
from torch import Tensor


class Peers(Protocol):
    """The processes that learn one policy together, each from as many samples as every other."""

    @property
    def size(self) -> int:
        """Number of elements."""
        ...

    def average(self, values: Tensor) -> None:
        """Replaces the values with their mean over all processes, in place."""
        ...


def moments(x: Tensor, peers: Peers | None) -> tuple[Tensor, Tensor]:
    """Mean and variance over the first axis, in double precision and over the samples of all peers.

    Args:
        x: this process's samples, shape (n, size), with equal n everywhere.
        peers: the processes that hold the others; None for none.

    Returns:
        Mean and variance, the squared deviations divided by their number, both (size,).
    """
    variance, mean = torch.var_mean(x.double(), dim=0, correction=0)
    if peers is None:
        return mean, variance
    own = mean.clone()
    peers.average(mean)
    # Variance within the processes and between them.
    variance = variance + (own - mean) ** 2
    peers.average(variance)
    return mean, variance
