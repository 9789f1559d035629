"""Counts what a step does on its device: kernels it launches, and values it waits for."""

import traceback
from types import TracebackType
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from physai.sim.engines.warp import modules

_WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "equal")
"""Operations whose result, or its shape, the host must know before it goes on."""
# Views and new memory, which launch nothing.
_NO_KERNEL = (
    *("view", "_unsafe_view", "slice", "select", "expand", "unsqueeze", "squeeze", "as_strided", "detach", "t"),
    *("permute", "transpose", "reshape", "alias", "unbind", "split", "empty", "empty_like", "lift_fresh"),
)


class OperationCounter(TorchDispatchMode):
    """Counts torch operations and Warp launches inside its block.

    It sees operations of any device, so what it counts on the CPU device is what a GPU would do.
    """

    def __init__(self) -> None:
        """Nothing counted yet."""
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.waits: list[str] = []
        """Operations that wait for the device, by name."""
        self.uploads: list[str] = []
        """Where numbers of the host became a tensor, which on a GPU are copied there."""
        self.torch_kernels = 0
        self.warp_kernels = 0
        self._warp: Any = modules()[0]
        self._launches: dict[str, Any] = {}

    def __enter__(self) -> Self:
        for name in ("launch", "launch_tiled"):
            launch = self._launches[name] = getattr(self._warp, name)
            setattr(self._warp, name, self._counted(launch))
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # pyright: ignore[reportUnknownMemberType]
        for name, launch in self._launches.items():
            setattr(self._warp, name, launch)

    def _counted(self, launch: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            self.warp_kernels += 1
            return launch(*arguments, **options)

        return counted

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket.__name__)
        indices = args[1] if name in ("index", "index_put_", "index_put") else ()
        if name == "lift_fresh":
            self.uploads.append("".join(traceback.format_stack(limit=4)))
        if name in _WAITS or any(index is not None and index.dtype == torch.bool for index in indices):
            self.waits.append(name)
        elif name not in _NO_KERNEL:
            self.torch_kernels += 1
        return func(*args, **(kwargs or {}))
