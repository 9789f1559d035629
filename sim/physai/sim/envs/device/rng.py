"""The draws of `physai.sim.envs.rng` in torch, bit for bit: an episode's seed gives the same numbers everywhere.

Seeds are int64 tensors with the bits of the uint64 ones; torch has no arithmetic for uint64, and sums and products of
both kinds have the same bits.
"""

import functools

import numpy as np
import torch

from physai.sim.envs import rng
from physai.sim.envs.rng import Stream

Seeds = torch.Tensor
"""Episode seeds, int64, shape (n,)."""


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


_GOLDEN, _MIX_1, _MIX_2, _STREAM = (
    _signed(int(constant)) for constant in (rng.GOLDEN, rng.MIX_1, rng.MIX_2, rng.STREAM)
)


def seeds_from(seeds: rng.Seeds, device: torch.device | str) -> Seeds:
    """The same seeds on a device."""
    return torch.as_tensor(seeds.view(np.int64).copy()).to(device)


def _shifted(values: torch.Tensor, bits: int) -> torch.Tensor:
    # torch shifts the sign in; the mask makes it the shift of an unsigned number.
    return (values >> bits) & ((1 << (64 - bits)) - 1)


def mix(values: torch.Tensor) -> torch.Tensor:
    """Scrambles 64-bit integers so that neighbours share no structure; shape is kept."""
    values = (values ^ _shifted(values, 30)) * _MIX_1
    values = (values ^ _shifted(values, 27)) * _MIX_2
    return values ^ _shifted(values, 31)


def base_of(seed: int) -> int:
    """What the episodes of an environment's seed have in common."""
    return _signed(int(rng.mix(np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64) + rng.GOLDEN)[0]))


def episode_seeds(base: int, worlds: torch.Tensor, episodes: torch.Tensor) -> Seeds:
    """Seeds of the given episode of each world, shape (n,); `base` is that of `base_of`."""
    return mix(base + worlds * _GOLDEN + mix(episodes * _STREAM + _MIX_1))


def _words(seeds: Seeds, stream: Stream, count: int, steps: torch.Tensor | int) -> torch.Tensor:
    # Products of Python's integers do not wrap; those of tensors do.
    purpose = _signed((int(stream) << 60) * _STREAM % 2**64)
    step = _signed((_STREAM << 20) % 2**64)
    offset = _signed(steps * step % 2**64) if isinstance(steps, int) else steps * step
    keys = mix(seeds + offset + purpose)
    return mix(keys[:, None] + torch.arange(1, count + 1, device=seeds.device) * _GOLDEN)


def uniform(seeds: Seeds, stream: Stream, size: int, *, steps: torch.Tensor | int = 0) -> torch.Tensor:
    """Uniform numbers in [0, 1), float64, shape (len(seeds), size)."""
    return _shifted(_words(seeds, stream, size, steps), 11).to(torch.float64) * 2.0**-53


@functools.cache
def _table(device: torch.device) -> torch.Tensor:
    return torch.as_tensor(rng.NORMAL_TABLE).to(device)


def normal(seeds: Seeds, stream: Stream, size: int, *, steps: torch.Tensor | int = 0) -> torch.Tensor:
    """Standard normal numbers, float32, shape (len(seeds), size); four of them from each 64-bit word."""
    words = _words(seeds, stream, (size + 3) // 4, steps)
    # The upper 14 bits of each quarter are the index into the table; the lowest quarter comes first.
    quarters = torch.stack([_shifted(words, 16 * quarter + 2) & 0x3FFF for quarter in range(4)], dim=2)
    return _table(seeds.device)[quarters.reshape(len(seeds), -1)[:, :size]]
