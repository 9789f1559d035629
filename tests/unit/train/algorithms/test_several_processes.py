"""What processes that learn together compute, each of them a thread here, is what one computes from all samples."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from physai.train.algorithms.ppo import orders, standardised
from physai.train.models.moments import moments
from physai.train.models.numpy_policy import seeded
from physai.train.models.policy_graph import Normaliser

T = TypeVar("T")


class Threads:
    """Peers that are threads of this process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._given: list[Tensor] = []
        self._barrier = threading.Barrier(size)

    def average(self, values: Tensor) -> None:
        self._given.append(values.clone())
        self._barrier.wait(10.0)
        mean = torch.stack(self._given).mean(dim=0)
        if self._barrier.wait(10.0) == 0:
            self._given = []
        self._barrier.wait(10.0)
        values.copy_(mean)


def together(size: int, compute: Callable[[int, Threads], T]) -> list[T]:
    peers = Threads(size)
    with ThreadPoolExecutor(size) as pool:
        return [future.result() for future in [pool.submit(compute, rank, peers) for rank in range(size)]]


def samples() -> Tensor:
    """Of three processes whose means lie far apart, shape (3, 5, 2)."""
    return torch.randn(3, 5, 2, generator=seeded(0)) + 100.0 * torch.arange(3)[:, None, None]


def test_moments_are_those_of_all_samples() -> None:
    x = samples()
    variance, mean = torch.var_mean(x.double().flatten(0, 1), dim=0, correction=0)
    for found in together(3, lambda rank, peers: moments(x[rank], peers)):
        torch.testing.assert_close(found, (mean, variance))


def test_advantages_are_standardised_by_all_samples() -> None:
    x = samples()[..., 0]
    expected = standardised(x, None)
    for rank, found in enumerate(together(3, lambda rank, peers: standardised(x[rank], peers))):
        torch.testing.assert_close(found, expected[rank])


def test_normalisers_see_all_samples() -> None:
    x = samples()
    alone = Normaliser(2)
    for _ in range(2):
        alone.update(x.flatten(0, 1))

    def compute(rank: int, peers: Threads) -> dict[str, Tensor]:
        normaliser = Normaliser(2)
        for _ in range(2):
            normaliser.update(x[rank], peers)
        return normaliser.state_dict()

    for found in together(3, compute):
        torch.testing.assert_close(found, alone.state_dict())


@pytest.mark.parametrize("steps", [1, 3])
def test_minibatches_are_those_of_as_many_processes(steps: int) -> None:
    """Two shares of four worlds each: worlds 0 to 3 and 4 to 7."""
    share, worlds, minibatches = 4, 8, 3
    whole = orders(steps, worlds, minibatches, [seeded(5), seeded(6)])
    parts = [orders(steps, share, minibatches, [seeded(seed)]) for seed in (5, 6)]
    assert len(whole) == len(parts[0])
    for number, batch in enumerate(whole):
        expected = [
            (t * worlds) + w + rank * share
            for rank, part in enumerate(parts)
            for t, w in (divmod(int(index), share) for index in part[number])
        ]
        assert [int(index) for index in batch] == expected
    assert sorted(int(index) for batch in whole for index in batch) == list(range(steps * worlds))
