"""Shared memory of the flight recorder: measurements, commands and decisions of the last ticks.

It lies in memory that two processes share. The loop's writes a row a tick, in about two microseconds; the recorder's
makes a file of it when there is reason to, and also when the loop's process is gone.
"""

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from physai.deploy_jetson.ticks.ring import RECORD, TICK_DTYPE, TickRing, Ticks
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import Array, Sample

MAX_BYTES = 256 << 20
"""Most memory that is shared."""

_HEAD = 64
"""Bytes before the first row; the first eight count the rows."""

_ALIGNED = -(-RECORD.size // 8) * 8


@dataclass(frozen=True)
class Layout:
    """Where the numbers of a tick lie in its row, which both processes work out from the contract."""

    fields: Mapping[str, slice]
    """Sensor and command fields."""
    targets: Mapping[str, slice]
    """Joint commands by output name."""
    numbers: int
    """How many numbers a row has."""

    @classmethod
    def of(cls, contract: PolicyContract) -> "Layout":
        """The layout of a contract's rows."""
        fields, start = _slices({f.name: f.size for f in (*contract.robot.sensors, *contract.command.fields)}, 0)
        targets, end = _slices({term.target_name: len(term.joints) for term in contract.action.terms}, start)
        return cls(fields, targets, end)

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return _ALIGNED + 8 * self.numbers

    def memory_size(self, capacity: int) -> int:
        """Bytes that so many rows need."""
        return _HEAD + (capacity + 1) * self.width


def _slices(sizes: Mapping[str, int], start: int) -> tuple[dict[str, slice], int]:
    found: dict[str, slice] = {}
    for name, size in sizes.items():
        found[name] = slice(start, start + size)
        start += size
    return found, start


class FlightRing(TickRing):
    """The loop's end."""

    def __init__(self, contract: PolicyContract, sample: Sample, capacity: int) -> None:
        """Takes the memory.

        Args:
            contract: says what a row holds.
            sample: of the transport; read whenever a tick ends.
            capacity: ticks that can be read.

        Raises:
            OSError: the kernel does not give it.
        """
        layout = Layout.of(contract)
        self.descriptor = os.memfd_create("physai-flight")
        """The memory, for the other process; closed by `close`."""
        size = layout.memory_size(capacity)
        os.ftruncate(self.descriptor, size)
        shared = memoryview(mmap.mmap(self.descriptor, size))
        super().__init__(capacity, memory=shared[_HEAD:], width=layout.width)
        self._shared_count = np.ndarray((1,), np.int64, shared)
        self._rows = _rows(shared, layout, capacity)
        self._fields = [(part, sample.fields[name]) for name, part in layout.fields.items() if name in sample.fields]
        self._targets = list(layout.targets.items())
        self._all_targets = slice(layout.numbers - sum(p.stop - p.start for _, p in self._targets), layout.numbers)

    def push(
        self,
        tick: int,
        deadline_ns: int,
        woke_ns: int,
        sample_stamp_ns: int,
        sensor_age_ns: int,
        inference_ns: int,
        guard_ns: int,
        send_ns: int,
        whole_ns: int,
        state: int,
        reasons: int,
        missed: bool,
        intervened: bool,
        sent: Mapping[str, Array] | None = None,
    ) -> None:
        """See `TickSink`."""
        row = self._rows[self.count % self._slots]
        for part, values in self._fields:
            row[part] = values
        if sent is None:
            row[self._all_targets] = np.nan
        else:
            for name, part in self._targets:
                row[part] = sent[name]
        super().push(
            tick,
            deadline_ns,
            woke_ns,
            sample_stamp_ns,
            sensor_age_ns,
            inference_ns,
            guard_ns,
            send_ns,
            whole_ns,
            state,
            reasons,
            missed,
            intervened,
        )
        self._shared_count[0] = self.count

    def close(self) -> None:
        """Lets go of the memory's name; the memory itself stays as long as either process uses it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@dataclass(frozen=True)
class Flight:
    """The last ticks, oldest first."""

    ticks: Ticks
    rows: Array
    """Numbers of each tick as `Layout` says, shape (ticks, numbers)."""


class FlightView:
    """The recorder's end."""

    def __init__(self, descriptor: int, contract: PolicyContract, capacity: int) -> None:
        """Opens the memory.

        Raises:
            OSError, ValueError: it is not the memory of such a ring.
        """
        self.layout = Layout.of(contract)
        size = self.layout.memory_size(capacity)
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
        """A copy of at most so many of the last ticks."""
        end = self.count
        first = max(0, end - min(most, self._capacity))
        slots = np.arange(first, end) % (self._capacity + 1)
        ticks, rows = self._ticks[slots], self._rows[slots]
        lost = max(0, self.count - self._capacity - first)
        return Flight(ticks[lost:], rows[lost:])


def _rows(shared: memoryview, layout: Layout, capacity: int) -> Array:
    """The numbers in the memory, shape (capacity + 1, numbers)."""
    shape, strides = (capacity + 1, layout.numbers), (layout.width, 8)
    return np.ndarray(shape, np.float64, shared, _HEAD + _ALIGNED, strides)
