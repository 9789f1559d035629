"""Ring buffer of tick records."""

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
"""`TICK_DTYPE` as a struct, which packs one record faster than numpy."""

Ticks = npt.NDArray[np.void]
"""Tick records, of `TICK_DTYPE`."""


class TickSink(Protocol):
    """Receives one record per tick; must not block, make a system call or raise."""

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
        """Record one tick.

        Args:
            tick: number of the control period; a skipped one leaves a gap.
            deadline_ns: CLOCK_MONOTONIC by which the command had to be sent [ns].
            woke_ns: CLOCK_MONOTONIC at which the tick began; it was due one `deadline_s` before `deadline_ns` [ns].
            sample_stamp_ns: the sensor's stamp of the sample, CLOCK_REALTIME [ns].
            sensor_age_ns: age of the sample when the guard decided [ns].
            inference_ns: time in the graph, 0 if it was not run [ns].
            guard_ns: time in the guard [ns].
            send_ns: time in the transport's `send`, 0 if nothing was sent [ns].
            whole_ns: from the due time of the tick until its command was sent [ns].
            state: `GuardState`.
            reasons: bits of `Reason` and `RuntimeFault`.
            missed: whether the command came after its deadline.
            intervened: whether the policy's command was changed or withheld.
            sent: joint commands by output name, None if none were sent; only valid during the call.
        """
        ...


class TickRing:
    """The last `capacity` ticks in preallocated memory; one thread writes, any thread may copy."""

    def __init__(self, capacity: int, *, memory: memoryview | None = None, width: int = RECORD.size) -> None:
        """Allocate the buffer.

        Args:
            capacity: number of ticks.
            memory: buffer of (capacity + 1) * width bytes; None to allocate one.
            width: stride of the records [bytes].
        """
        self.capacity = capacity
        self.count = 0
        """Records pushed so far."""
        self._pack, self._width = RECORD.pack_into, width
        # One extra slot for the record that is being written.
        self._slots = capacity + 1
        self._buffer = memoryview(bytearray(self._slots * width)) if memory is None else memory
        # Touch every page, so that no tick causes a page fault.
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
        """Return a copy of records `first` to `end` (exclusive), without those overwritten in the meantime.

        Args:
            first: number of a record, counted from 0.
            end: at most `count`.
        """
        first = max(first, end - self.capacity)
        start, stop = first % self._slots, end % self._slots
        if first >= end:
            ticks = self._ticks[:0].copy()
        elif start < stop:
            ticks = self._ticks[start:stop].copy()
        else:
            ticks = np.concatenate((self._ticks[start:], self._ticks[:stop]))
        return ticks[max(0, self.count - self.capacity - first) :]

    def last(self) -> Ticks:
        """Return a copy of all records, oldest first."""
        return self.between(0, self.count)
