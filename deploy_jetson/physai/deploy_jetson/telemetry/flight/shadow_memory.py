"""Memory into which the shadow writes its answers; the runtime and the flight recorder read it.

It has one row per row of the flight recorder's ring, in the same place, with the number of the row that it answers.
"""

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Array

_HEAD = 64
_ANSWER = np.dtype(
    [("row", "<i8"), ("compute_ns", "<i8"), ("reasons", "<u4"), ("state", "u1"), ("intervened", "?"), ("pad", "V2")]
)
# One more than the row, so that memory that was never written answers no row.
_UNWRITTEN = 0


@dataclass(frozen=True, slots=True)
class ShadowTick:
    """Answer of the shadow in one control period."""

    targets: Mapping[str, Array]
    """Its commands before its guard, by output name, shape (joints of the term,); NaN if it computed none."""
    reasons: int
    """Bits of `Reason` and `RuntimeFault`."""
    intervened: bool
    """Whether its guard would have changed or replaced its commands."""
    state: int
    """`GuardState` to which its guard would have risen; RUN if it would not."""
    compute_ns: int
    """Time from the sample to the decision of its guard [ns]."""


class ShadowWord(IntEnum):
    """Index of each word of the head; the shadow writes them."""

    READY = 0
    """1 once it follows the rows."""
    DONE = 1
    """Rows that it has dealt with, counted as `FlightView.count`."""


@dataclass(frozen=True)
class ShadowAnswers:
    """Answers to consecutive rows."""

    answered: npt.NDArray[np.bool_]
    """Whether there is an answer, shape (rows,)."""
    records: npt.NDArray[np.void]
    """`compute_ns`, `reasons`, `state` and `intervened`, shape (rows,); only valid where answered."""
    targets: Array
    """Commands, shape (rows, A); NaN where there are none."""


class ShadowMemory:
    """One mapping of the memory; each process has its own."""

    def __init__(self, descriptor: int, contract: PolicyContract, capacity: int, *, writes: bool) -> None:
        """Map the memory.

        Args:
            descriptor: of a file of `memory_size` bytes.
            contract: of the shadow; it defines the commands.
            capacity: of the flight recorder's ring.
            writes: whether this process writes to it.

        Raises:
            OSError, ValueError: the descriptor does not match.
        """
        size = memory_size(contract, capacity)
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writes else 0)
        shared = memoryview(mmap.mmap(descriptor, size, prot=protection))
        self._slots = capacity + 1
        self._capacity = capacity
        self.words = shared[:_HEAD].cast("q")
        """See `ShadowWord`."""
        width, count = _width(contract), _count(contract)
        self._records = np.ndarray((self._slots,), _ANSWER, shared, _HEAD, (width,))
        self._targets = np.ndarray((self._slots, count), np.float64, shared, _HEAD + _ANSWER.itemsize, (width, 8))

    def write(self, row: int, answer: ShadowTick) -> None:
        """Store the answer to a row."""
        slot = row % self._slots
        record = self._records[slot]
        # Marked as unwritten meanwhile: a reader never sees half an answer.
        record["row"] = _UNWRITTEN
        self._targets[slot] = _flat(answer.targets)
        record["compute_ns"], record["reasons"] = answer.compute_ns, answer.reasons
        record["state"], record["intervened"] = answer.state, answer.intervened
        record["row"] = row + 1

    def between(self, first: int, end: int) -> ShadowAnswers:
        """Return copies of the answers to rows `first` to `end` (exclusive)."""
        numbers = np.arange(first, end)
        slots = numbers % self._slots
        records, targets = self._records[slots].copy(), self._targets[slots].copy()
        answered = records["row"] == numbers + 1
        targets[~answered] = np.nan
        return ShadowAnswers(answered, records, targets)


def _flat(targets: Mapping[str, Array]) -> Array:
    return np.concatenate(list(targets.values()))


def _count(contract: PolicyContract) -> int:
    return sum(len(term.joints) for term in contract.action.terms)


def _width(contract: PolicyContract) -> int:
    return _ANSWER.itemsize + 8 * _count(contract)


def memory_size(contract: PolicyContract, capacity: int) -> int:
    """Return the size of the memory [bytes]."""
    return _HEAD + (capacity + 1) * _width(contract)


def allocate(contract: PolicyContract, capacity: int) -> int:
    """Allocate an anonymous file for it; return its descriptor."""
    descriptor = os.memfd_create("physai-shadow")
    os.ftruncate(descriptor, memory_size(contract, capacity))
    return descriptor
