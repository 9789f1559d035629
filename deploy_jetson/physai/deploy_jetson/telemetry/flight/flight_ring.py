"""Shared memory of the flight recorder: measurements, commands and decisions of the last ticks.

The loop writes one row per tick, in about 2 µs. The recorder process makes a file of the rows on request, and also when
the loop's process has died.
"""

import fcntl
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from physai.deploy_jetson.ticks.tick_ring import RECORD, TICK_DTYPE, TickRecord, TickRing, Ticks
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Array, Sample

# Bound of the shared memory.
MAX_BYTES = 256 << 20

# Bytes before the first row; the first eight count the rows.
_HEAD = 64

# No other size, and no other writer than the mappings that exist (F_SEAL_FUTURE_WRITE, which Python does not name).
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | 0x0010

# Numbers follow the record at a multiple of 8 bytes, so that numpy can view them in place.
_ALIGNED = -(-RECORD.size // 8) * 8


@dataclass(frozen=True)
class RowLayout:
    """Layout of a tick's row, which both processes derive from the contract."""

    fields: Mapping[str, slice]
    """Sensor and command fields."""
    targets: Mapping[str, slice]
    """Joint commands by output name."""
    numbers: int
    """Length of a row."""

    @classmethod
    def of(cls, contract: PolicyContract) -> "RowLayout":
        """Return the layout for a contract."""
        sizes = {field.name: field.size for field in (*contract.robot.sensors, *contract.command.fields)}
        targets = {term.target_name: len(term.joints) for term in contract.action.terms}
        bounds = list(accumulate((*sizes.values(), *targets.values()), initial=0))
        slices = [slice(*pair) for pair in pairwise(bounds)]
        count = len(sizes)
        fields, commands = zip(sizes, slices[:count], strict=True), zip(targets, slices[count:], strict=True)
        return cls(dict(fields), dict(commands), bounds[-1])

    @property
    def width(self) -> int:
        """Size of a row [bytes]."""
        return _ALIGNED + 8 * self.numbers

    def memory_size(self, capacity: int) -> int:
        """Return the size of the memory for that many rows [bytes]."""
        return _HEAD + (capacity + 1) * self.width


class FlightRing(TickRing):
    """The loop's side of the memory."""

    def __init__(self, contract: PolicyContract, sample: Sample, capacity: int) -> None:
        """Allocate the memory.

        Args:
            contract: determines the layout.
            sample: of the transport; read at the end of each tick.
            capacity: number of ticks.

        Raises:
            OSError: the memory cannot be allocated.
        """
        layout = RowLayout.of(contract)
        self.descriptor = os.memfd_create("physai-flight", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        """File descriptor of the memory, for processes that read it; closed by `close`."""
        size = layout.memory_size(capacity)
        os.ftruncate(self.descriptor, size)
        shared = memoryview(mmap.mmap(self.descriptor, size))
        # From now on no process can map it for writing, whatever it does with the descriptor.
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEALS)
        super().__init__(capacity, memory=shared[_HEAD:], width=layout.width)
        self._shared_count = np.ndarray((1,), np.int64, shared)
        self._rows = _rows(shared, layout, capacity)
        self._fields = [(part, sample.fields[name]) for name, part in layout.fields.items() if name in sample.fields]
        self._targets = list(layout.targets.items())
        self._all_targets = slice(layout.numbers - sum(p.stop - p.start for _, p in self._targets), layout.numbers)

    def push(self, record: TickRecord, sent: Mapping[str, Array] | None = None) -> None:
        """See `TickRing`."""
        slot = self.count % self._slots
        row = self._rows[slot]
        for part, values in self._fields:
            row[part] = values
        if sent is None:
            # The slot holds the commands of an older tick.
            row[self._all_targets] = np.nan
        else:
            for name, part in self._targets:
                row[part] = sent[name]
        self._pack(self._buffer, slot * self._width, *record)
        # Shared last: the recorder process reads the rows below this count.
        self.count = self._shared_count[0] = self.count + 1

    def share(self) -> int:
        """Return a descriptor of the memory for another process, which the caller closes; it can only be read."""
        return os.dup(self.descriptor)

    def close(self) -> None:
        """Close the descriptor; the mapping stays."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True)
class Flight:
    """The last ticks, oldest first."""

    ticks: Ticks
    rows: Array
    """Values of each tick as in `RowLayout`, shape (ticks, numbers)."""
    first: int = 0
    """Number of the first row, counted from the start of the run."""


class FlightView:
    """The recorder's read-only side of the memory."""

    def __init__(self, descriptor: int, contract: PolicyContract, capacity: int) -> None:
        """Map the memory.

        Raises:
            OSError, ValueError: the descriptor does not match the layout.
        """
        self.layout = RowLayout.of(contract)
        size = self.layout.memory_size(capacity)
        # Read-only: a fault in the recorder cannot damage the loop's memory.
        shared = memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ))
        self._capacity = capacity
        self._count = np.ndarray((1,), np.int64, shared)
        self._ticks = np.ndarray((capacity + 1,), TICK_DTYPE, shared, _HEAD, (self.layout.width,))
        self._rows = _rows(shared, self.layout, capacity)

    @property
    def count(self) -> int:
        """Ticks recorded so far."""
        return int(self._count[0])

    def last(self, most: int) -> Flight:
        """Return a copy of at most `most` last ticks."""
        end = self.count
        return self.between(end - most, end)

    def between(self, first: int, end: int) -> Flight:
        """Return a copy of ticks `first` to `end` (exclusive), without those overwritten in the meantime."""
        first = max(0, first, end - self._capacity)
        slots = np.arange(first, end) % (self._capacity + 1)
        ticks, rows = self._ticks[slots], self._rows[slots]
        # Overwritten by the loop during the copy.
        lost = max(0, self.count - self._capacity - first)
        return Flight(ticks[lost:], rows[lost:], first + lost)


def _rows(shared: memoryview, layout: RowLayout, capacity: int) -> Array:
    """Return a view of the rows, shape (capacity + 1, numbers)."""
    shape, strides = (capacity + 1, layout.numbers), (layout.width, 8)
    return np.ndarray(shape, np.float64, shared, _HEAD + _ALIGNED, strides)
