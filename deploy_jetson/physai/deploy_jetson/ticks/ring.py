"""Record of each tick in a ring buffer."""

import struct
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from physai.sdk.transport.protocol import Array

TICK_FIELDS = (
    ("tick", "<i8"),
    ("deadline_ns", "<i8"),
    ("woke_ns", "<i8"),
    ("sample_stamp_ns", "<i8"),
    ("sensor_age_ns", "<i8"),
    ("inference_ns", "<i8"),
    ("guard_ns", "<i8"),
    ("send_ns", "<i8"),
    ("whole_ns", "<i8"),
    ("state", "<i4"),
    ("reasons", "<u4"),
    ("missed", "?"),
    ("intervened", "?"),
)
TICK_DTYPE = np.dtype(list(TICK_FIELDS))
RECORD = struct.Struct("<9qiI??")
"""The same as `TICK_DTYPE`."""

Ticks = npt.NDArray[np.void]
"""Tick records, of `TICK_DTYPE`."""


class TickSink(Protocol):
    """Takes one record a tick, without a system call, without waiting, and without raising."""

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
        """Takes the record of one tick.

        Args:
            tick: number of the control period; one that was skipped leaves a gap.
            deadline_ns: CLOCK_MONOTONIC by which the command had to be out [ns].
            woke_ns: CLOCK_MONOTONIC at which the tick began; it was due one `deadline_s` before `deadline_ns` [ns].
            sample_stamp_ns: when the sample was measured, by the sensor's own stamp, CLOCK_REALTIME [ns].
            sensor_age_ns: its age when the guard decided [ns].
            inference_ns: time in the graph, 0 where it was not asked [ns].
            guard_ns: time in the guard [ns].
            send_ns: time in the transport's `send`, 0 where nothing was sent [ns].
            whole_ns: from when the tick was due until its command was out [ns].
            state: `GuardState`.
            reasons: bits of `Reason` and `Trouble`.
            missed: whether the command came after its deadline.
            intervened: whether the policy's command was changed or withheld.
            sent: joint commands that left, by output name; None where none did. Only valid during the call.
        """
        ...


class TickRing:
    """The last so many ticks, in memory taken once; one thread writes, any may copy."""

    def __init__(self, capacity: int, *, memory: memoryview | None = None, width: int = RECORD.size) -> None:
        """Room for that many ticks.

        Args:
            capacity: how many.
            memory: (capacity + 1) * width bytes to keep them in; None for memory of its own.
            width: bytes from one record to the next.
        """
        self.capacity = capacity
        """Ticks that can be read."""
        self.count = 0
        """Records taken so far."""
        self._pack, self._width = RECORD.pack_into, width
        # One more than can be read: the one that the loop may be writing at this moment.
        self._slots = capacity + 1
        self._buffer = memoryview(bytearray(self._slots * width)) if memory is None else memory
        # Written to once, so that no tick has to wait for a page.
        self._buffer[:] = b"\0" * len(self._buffer)
        self._ticks = np.ndarray((self._slots,), TICK_DTYPE, self._buffer, strides=(width,))

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
        del sent
        self._pack(
            self._buffer,
            self.count % self._slots * self._width,
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
        self.count += 1

    def between(self, first: int, end: int) -> Ticks:
        """A copy of the records from `first` to before `end`, without those that were overwritten meanwhile.

        Args:
            first: number of a record, counted from 0.
            end: at most `count`.
        """
        first = max(first, end - self.capacity)
        start, stop = first % self._slots, end % self._slots
        if first >= end:
            found = self._ticks[:0].copy()
        elif start < stop:
            found = self._ticks[start:stop].copy()
        else:
            found = np.concatenate((self._ticks[start:], self._ticks[:stop]))
        return found[max(0, self.count - self.capacity - first) :]

    def last(self) -> Ticks:
        """A copy of what is there, oldest first."""
        return self.between(0, self.count)
