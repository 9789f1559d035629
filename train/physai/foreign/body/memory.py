"""Buffers in which a TorchScript module remembers from one call to the next."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Memory:
    """A buffer that calls change."""

    path: str
    """Name of the buffer, with those of the modules that contain it: `rnn.hidden_state`."""
    axis: int
    """Axis of the robots, along which the file has one."""
    initial: Tensor
    """Value in the file."""

    @property
    def width(self) -> int:
        """Number of elements per robot."""
        return self.initial.numel()

    def write(self, module: Any, value: Tensor) -> None:
        """Set the buffer to its initial value plus these elements, shape (n, width)."""
        shape = [size for axis, size in enumerate(self.initial.shape) if axis != self.axis]
        moved = torch.movedim(value.reshape(value.shape[0], *shape), 0, self.axis)
        owner, name = self._owner(module)
        setattr(owner, name, moved + self.initial)

    def read(self, module: Any) -> Tensor:
        """Return the buffer less its initial value, shape (n, width)."""
        owner, name = self._owner(module)
        value = torch.movedim(getattr(owner, name) - self.initial, self.axis, 0)
        return value.reshape(value.shape[0], self.width)

    def _owner(self, module: Any) -> tuple[Any, str]:
        *owners, name = self.path.split(".")
        for owner in owners:
            module = getattr(module, owner)
        return module, name


def changing_buffers(module: Any, width: int, calls: int = 4) -> dict[str, Tensor]:
    """Return buffers that calls with random observations change, with their values before.

    The module keeps the values of the last call.
    """
    before = {name: value.detach().clone() for name, value in module.named_buffers()}
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(calls):
            module(torch.randn(1, width, generator=random))
    return {
        name: before[name]
        for name, value in module.named_buffers()
        if value.shape != before[name].shape or not torch.equal(value, before[name])
    }
