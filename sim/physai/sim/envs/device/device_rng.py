"""The draws of `physai.sim.envs.rng` as Warp kernels, bit for bit: an episode's seed gives the same numbers everywhere.

One kernel a draw: written in torch, a draw takes thirty. Seeds are int64 tensors with the bits of the uint64 ones,
because torch has no arithmetic for uint64.
"""

import functools
from typing import Any

import numpy as np
import torch

from physai.sim.engines.warp import modules, on_torch_stream
from physai.sim.envs import rng
from physai.sim.envs.rng import Stream

Seeds = torch.Tensor
"""Episode seeds, int64, shape (n,)."""

_MASK = 2**64 - 1


@functools.cache
def _kernels() -> Any:
    """The kernels, compiled when first launched.

    Raises:
        MissingExtraError: warp is not installed.
    """
    modules()
    from physai.sim.envs.device import rng_kernels

    return rng_kernels


def _launch(kernel: Any, out: torch.Tensor, *inputs: Any) -> torch.Tensor:
    wp = modules()[0]

    def array(value: Any) -> Any:
        integers = isinstance(value, torch.Tensor) and value.dtype == torch.int64
        return wp.from_torch(value, dtype=wp.uint64 if integers else None) if torch.is_tensor(value) else value

    with on_torch_stream(str(out.device)):
        wp.launch(kernel, dim=tuple(out.shape), inputs=[array(value) for value in inputs], outputs=[array(out)])
    return out


def seeds_from(seeds: rng.Seeds, device: torch.device | str) -> Seeds:
    """The same seeds on a device."""
    return torch.as_tensor(seeds.view(np.int64).copy()).to(device)


def base_of(seed: int) -> int:
    """Part of the seeds that all episodes of an environment share."""
    return int(rng.mix(np.array([seed & _MASK], np.uint64) + rng.GOLDEN)[0])


def episode_seeds(base: int, worlds: torch.Tensor, episodes: torch.Tensor) -> Seeds:
    """Seeds of the given episode of each world, shape (n,); `base` is that of `base_of`."""
    return _launch(_kernels().episodes, torch.empty_like(worlds), base, worlds, episodes)


def _purpose(stream: Stream) -> int:
    return (int(stream) << 60) * int(rng.STREAM) & _MASK


@functools.cache
def _first_step(device: torch.device) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int64, device=device)


def _steps(seeds: Seeds, steps: torch.Tensor | None) -> torch.Tensor:
    return _first_step(seeds.device) if steps is None else steps.reshape(-1)


def uniform(seeds: Seeds, stream: Stream, size: int, *, steps: torch.Tensor | None = None) -> torch.Tensor:
    """Uniform numbers in [0, 1), float64, shape (len(seeds), size).

    Args:
        seeds: of the episodes.
        stream: what the draw is for.
        size: numbers per episode.
        steps: of the episodes, int64, shape (len(seeds),) or one for all; step 0 if None.
    """
    out = torch.empty(len(seeds), size, dtype=torch.float64, device=seeds.device)
    return _launch(_kernels().uniform, out, seeds, _steps(seeds, steps), _purpose(stream)) if size else out


@functools.cache
def _table(device: torch.device) -> torch.Tensor:
    return torch.as_tensor(rng.NORMAL_TABLE).to(device)


def normal(seeds: Seeds, stream: Stream, size: int, *, steps: torch.Tensor | None = None) -> torch.Tensor:
    """Standard normal numbers, float32, shape (len(seeds), size); arguments as of `uniform`."""
    out = torch.empty(len(seeds), size, device=seeds.device)
    inputs = seeds, _steps(seeds, steps), _purpose(stream), _table(seeds.device)
    return _launch(_kernels().normal, out, *inputs) if size else out
