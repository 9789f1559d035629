"""A run of several processes, one per GPU: what they exchange, and nothing where one process is alone.

Every rank has worlds of its own and the same weights. The processes are started by `physai train --gpus`
(`physai.train.runners.launch`) or by torchrun, which set the environment variables that `joined` reads.
"""

import importlib
import io
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch
import torch.distributed
from torch import Tensor, nn

from physai.sdk.base.errors import DeviceError, PhysaiError
from physai.sdk.base.process.isolation import die_with_parent

T = TypeVar("T")

dist: Any = torch.distributed
"""Any, because its functions have no complete types."""

State = dict[str, Any]
"""What a checkpoint holds: tensors, numbers, text, and lists and dictionaries of them."""

STORE = "PHYSAI_RANKS_STORE"
"""File through which the ranks that `physai train --gpus` starts find each other."""
PARENT = "PHYSAI_RANKS_PARENT"
"""Process whose end ends the ranks that it started."""

_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
MAX_RANKS = 1 << 16
MAX_LOCAL_RANKS = 64
MAX_PROCESS = 1 << 22
"""Greatest number of a process in Linux."""


class RanksError(PhysaiError):
    """The ranks of a run cannot be started or do not fit together."""


class PeerLostError(PhysaiError):
    """Another rank of the run ended or cannot be reached."""


class Ranks:
    """The processes of one run, seen from one of them. All of them call the same methods in the same order."""

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0) -> None:
        """One of `size` processes, by default a process alone; `local_rank` is its number on its computer."""
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self._group: Any = None
        self._others: list[Ranks] = []

    @property
    def leads(self) -> bool:
        """Whether this process writes the run folder and reports."""
        return self.rank == 0

    @property
    def peers(self) -> "Ranks | None":
        """These ranks if they are several, else None."""
        return self if self.size > 1 else None

    def beside(self) -> "Ranks":
        """The same ranks for another thread, whose exchanges do not mix with those of this one."""
        other = Ranks(self.rank, self.size, self.local_rank)
        if self.size > 1:
            other._group = self._exchange(dist.new_group)
            self._others.append(other)
        return other

    def device(self, chosen: str) -> str:
        """This rank's device, given the one that the user chose: on GPUs each rank has its own.

        Args:
            chosen: `cpu` or `cuda:N`; N counts only for a process alone.

        Raises:
            DeviceError: the computer has fewer GPUs than ranks.
        """
        if self.size == 1 or chosen == "cpu":
            return chosen
        count = torch.cuda.device_count()
        if self.local_rank >= count:
            raise DeviceError(
                f"{self.local_rank + 1} ranks on this computer need as many GPUs, torch finds {count}; start fewer, "
                "or learn with `device` cpu"
            )
        torch.cuda.set_device(self.local_rank)
        return f"cuda:{self.local_rank}"

    def average(self, values: Tensor) -> None:
        """Replaces the values with their mean over the ranks, the same bits on each; shape and device are kept."""
        if self.size > 1:
            self._exchange(dist.all_reduce, values, group=self._group)
            values /= self.size

    def means(self, numbers: Sequence[float]) -> list[float]:
        """The means of numbers over the ranks."""
        values = torch.tensor(numbers, dtype=torch.float64)
        self.average(values)
        return [float(value) for value in values]

    def stack(self, values: Tensor) -> Tensor:
        """The values of all ranks, in their order, shape (size, *values.shape)."""
        if self.size == 1:
            return values[None]
        parts = [torch.empty_like(values) for _ in range(self.size)]
        self._exchange(dist.all_gather, parts, values.contiguous(), group=self._group)
        return torch.stack(parts)

    @torch.no_grad()
    def follow_first(self, module: nn.Module) -> None:
        """Gives a module the first rank's weights and buffers; another processor may round initial ones differently."""
        if self.size > 1:
            for tensor in (*module.parameters(), *module.buffers()):
                self._exchange(dist.broadcast, tensor, src=0, group=self._group)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return bool(self.stack(torch.tensor(flag)).any())

    def first(self, compute: Callable[[], T]) -> T:
        """Result of the first rank; the others wait for it. If it fails, it alone says why."""
        value = [compute()] if self.leads else [None]
        if self.size > 1:
            self._exchange(dist.broadcast_object_list, value, src=0, group=self._group)
        return cast(T, value[0])

    def first_here_first(self, build: Callable[[], T]) -> T:
        """Result of each rank, the first one of each computer before the others, which find what it left on disk."""
        built = build() if self.local_rank == 0 else None
        self.any(False)
        return build() if built is None else built

    def gather(self, state: State) -> list[State] | None:
        """The states of all ranks, in their order, on the first rank; None on the others."""
        if self.size == 1:
            return [state]
        parts: list[Any] | None = [None] * self.size if self.leads else None
        self._exchange(dist.gather_object, _packed(state), parts, dst=0, group=self._group)
        return [_unpacked(part) for part in parts] if parts else None

    def scatter(self, states: Sequence[State]) -> State:
        """This rank's one of the states that the first rank gives, one for each; the others give none."""
        if self.size == 1:
            return states[0]
        received: list[Any] = [None]
        given = [_packed(state) for state in states] if self.leads else None
        self._exchange(dist.scatter_object_list, received, given, src=0, group=self._group)
        return _unpacked(received[0])

    def _end(self) -> None:
        for other in self._others:
            other._group = None
        dist.destroy_process_group()

    def _exchange(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        # torch raises plain RuntimeErrors when a connection breaks.
        try:
            return call(*arguments, **options)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0][:200]
            raise PeerLostError(f"rank {self.rank} of {self.size} lost contact with another one: {reason}") from error


def _packed(state: State) -> bytes:
    # As a checkpoint: pickle cannot carry tensors of all types.
    data = io.BytesIO()
    torch.save(state, data)
    return data.getvalue()


def _unpacked(data: bytes) -> State:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def started() -> dict[str, int] | None:
    """This process's rank, the number of ranks and both on its computer, as torchrun sets them; None if it is alone.

    Raises:
        RanksError: a variable is missing or out of range.
    """
    given = {name: os.environ[name] for name in _NUMBERS if name in os.environ}
    if "RANK" not in given and "WORLD_SIZE" not in given:
        return None
    missing = [name for name in _NUMBERS[:3] if name not in given]
    if STORE not in os.environ:
        missing += [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise RanksError(
            f"{' and '.join(given)} are set, but not {', '.join(missing)}; start with torchrun or `gpus`, or unset them"
        )
    if STORE not in os.environ:
        _number("MASTER_PORT", (1 << 16) - 1)
    values = {name: _number(name, MAX_RANKS) for name in given}
    values.setdefault("LOCAL_WORLD_SIZE", values["LOCAL_RANK"] + 1)
    for number, size in (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
        if not values[number] < values[size]:
            raise RanksError(
                f"{number} {values[number]} must be less than {size} {values[size]}; start with torchrun or `gpus`"
            )
    return values


def _number(name: str, most: int) -> int:
    """An environment variable's number.

    Raises:
        RanksError: it is none, or out of range.
    """
    text = os.environ[name]
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
        raise RanksError(
            f"{name} must be a number from 0 to {most}, got {text[:20]!r}; start with torchrun or `gpus`, or unset it"
        )
    return int(text)


def local_size() -> int:
    """Ranks that share this computer's processors."""
    values = started()
    return values["LOCAL_WORLD_SIZE"] if values else 1


@contextmanager
def joined() -> Generator[Ranks]:
    """Connects this process with the other ranks while the block runs.

    Raises:
        RanksError: the environment variables of a rank do not fit together, or the process that started it has ended.
        PeerLostError: the other ranks cannot be reached.
    """
    values = started()
    if values is None or values["WORLD_SIZE"] == 1:
        yield Ranks()
        return
    if PARENT in os.environ and not die_with_parent(_number(PARENT, MAX_PROCESS)):
        raise RanksError("the process that started the ranks has ended; start again")
    ranks = Ranks(values["RANK"], values["WORLD_SIZE"], values["LOCAL_RANK"])
    # Its functions have the group of the moment as a default, so an import that comes later keeps the group alive. A
    # group's threads that outlive it abort the process when they wait for an interpreter that has ended.
    importlib.import_module("torch.distributed.nn")
    # NCCL connects at the first exchange of tensors on a GPU, so a run on CPUs never does.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    store = os.environ.get(STORE)
    options: dict[str, Any] = {"rank": ranks.rank, "world_size": ranks.size}
    options["init_method"] = f"file://{store}" if store else "env://"
    ranks._exchange(dist.init_process_group, backend, **options)  # pyright: ignore[reportPrivateUsage]
    yield ranks
    # Not after an error: the other ranks would have to take part.
    ranks._end()  # pyright: ignore[reportPrivateUsage]
