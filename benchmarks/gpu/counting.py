"""Counts what a step does on its device: kernels it launches, memory it asks for, and values it waits for.

Needs torch and warp, and nothing of physai, so that other libraries' steps are counted by the same file in an
environment of their own.
"""

import importlib
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_WAITS = (
    *("_local_scalar_dense", "nonzero", "masked_select", "equal"),
    *("_unique2", "unique_dim", "unique_consecutive"),
)
"""Operations whose result, or its shape, the host must know before it goes on."""
_READS = ("cpu", "numpy", "tolist")
"""Methods of tensors that bring values to the host; on the CPU they are no operations."""
# Views and new memory, which launch nothing.
_NO_KERNEL = (
    *("view", "_unsafe_view", "slice", "select", "expand", "unsqueeze", "squeeze", "as_strided", "detach", "t"),
    *("permute", "transpose", "reshape", "alias", "unbind", "split", "empty", "empty_like", "lift_fresh"),
    *("split_with_sizes", "unfold", "diagonal", "empty_strided", "new_empty", "_reshape_alias"),
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
        self.allocations = 0
        """Results of torch operations in memory of their own, which torch's allocator gives on a GPU."""
        self._warp: Any = importlib.import_module("warp")
        self._kept: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Self:
        for name in ("launch", "launch_tiled"):
            self._replace(self._warp, name, self._launched)
        for name in _READS:
            self._replace(torch.Tensor, name, lambda name=name: self.waits.append(name))
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # pyright: ignore[reportUnknownMemberType]
        for owner, name, function in self._kept:
            if function is None:
                delattr(owner, name)
            else:
                setattr(owner, name, function)
        self._kept.clear()

    def _replace(self, owner: Any, name: str, count: Callable[[], None]) -> None:
        function = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            count()
            return function(*arguments, **options)

        # What a class inherits, it has again without an attribute of its own.
        self._kept.append((owner, name, cast("dict[str, Any]", vars(owner)).get(name)))
        setattr(owner, name, counted)

    def _launched(self) -> None:
        self.warp_kernels += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket.__name__)
        if name == "lift_fresh":
            self.uploads.append("".join(traceback.format_stack(limit=4)))
        if name in _WAITS or selects_by_mask(name, args):
            self.waits.append(name)
        elif name not in _NO_KERNEL:
            self.torch_kernels += 1
        result = func(*args, **(kwargs or {}))
        known = _memory((args, kwargs))
        self.allocations += len(_memory(result) - known)
        return result


def selects_by_mask(operation: str, arguments: Any) -> bool:
    """Whether a torch operation indexes by a bool tensor, so that the device must count what is set."""
    if operation not in ("index", "index_put_", "index_put"):
        return False
    # One number is put by masking instead.
    if operation != "index" and arguments[2].numel() == 1:
        return False
    return any(index is not None and index.dtype == torch.bool for index in arguments[1])


def _memory(found: Any) -> set[int]:
    """Addresses of the memory that tensors lie in, without empty ones."""
    tensors = (leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor))
    return {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.untyped_storage().nbytes()}
