"""Ring buffer of tick records."""

import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from physai.sdk.transport.protocol import Array

TICK_FIELDS = (
    # Number of the control period; a skipped one leaves a gap.
    ("tick", "<i8"),
    # CLOCK_MONOTONIC by which the command had to be sent.
    ("deadline_ns", "<i8"),
    # CLOCK_MONOTONIC at which the tick began; it was due one `deadline_s` before `deadline_ns`.
    ("woke_ns", "<i8"),
    # The sensor's stamp of the sample, CLOCK_REALTIME.
    ("sample_stamp_ns", "<i8"),
    # Age of the sample when the guard decided.
    ("sensor_age_ns", "<i8"),
    # Time in the graph, 0 if it was not run.
    ("inference_ns", "<i8"),
    # Time in the guard.
    ("guard_ns", "<i8"),
    # Time in the transport's `send`, 0 if nothing was sent.
    ("send_ns", "<i8"),
    # From the due time of the tick until its command was sent.
    ("whole_ns", "<i8"),
    # `GuardState`.
    ("state", "<i4"),
    # Bits of `Reason` and `RuntimeFault`.
    ("reasons", "<u4"),
    # Whether the command came after its deadline.
    ("missed", "?"),
    # Whether the policy's command was changed or withheld.
    ("intervened", "?"),
)
TICK_DTYPE = np.dtype(list(TICK_FIELDS))
# `TICK_DTYPE` as a struct, which packs one record faster than numpy.
RECORD = struct.Struct("<9qiI??")

# One tick in the order of `TICK_FIELDS`: a plain tuple, because a tick has no time for an object of its own.
TickRecord = tuple[int, ...]
# Tick records, of `TICK_DTYPE`.
Ticks = npt.NDArray[np.void]


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

    def push(self, record: TickRecord, sent: Mapping[str, Array] | None = None) -> None:
        """Store one tick without blocking.

        Args:
            record: the numbers of the tick.
            sent: joint commands by output name, None if none were sent; only valid during the call.
        """
        self._pack(self._buffer, self.count % self._slots * self._width, *record)
        # Counted last: a reader never sees a record that is only half written.
        self.count += 1

    def between(self, first: int, end: int) -> Ticks:
        """Return a copy of records `first` to `end` (exclusive), without those overwritten in the meantime.

        Args:
            first: number of a record, counted from 0.
            end: at most `count`.
        """
        # Older records have been overwritten.
        first = max(first, end - self.capacity)
        start, stop = first % self._slots, end % self._slots
        if first >= end:
            ticks = self._ticks[:0].copy()
        elif start < stop:
            ticks = self._ticks[start:stop].copy()
        else:
            # The records wrap around the end of the buffer.
            ticks = np.concatenate((self._ticks[start:], self._ticks[:stop]))
        # The writer may have overwritten the oldest of them during the copy, so these are left out.
        return ticks[max(0, self.count - self.capacity - first) :]

    def last(self) -> Ticks:
        """Return a copy of all records, oldest first."""
        return self.between(0, self.count)
