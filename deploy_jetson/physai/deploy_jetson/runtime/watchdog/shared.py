"""Shared memory of the control loop and its watchdog: a few words and two kinds of records in shared memory.

Every word and every record has one writer; no lock, no system call. A word is 8 bytes, aligned, and is read and written
whole. A record is written to one of two places in turn, with a CRC, so that a process that is killed or stopped while
it writes leaves the record before it behind.

Who may speak to the robot is decided by two words. The loop writes a new `CLAIM` before each decision, and looks at
`FIRED` right before it sends. The watchdog writes the claim it saw into `FIRED`, decides, and looks at `CLAIM` again
right before it sends, and whether there is a newer record than the one that it goes on from: a loop that had looked
before `FIRED` was written has sent. Each writes its own word first and reads the other's after, the time of a guard's
decision later, so at most one of them finds that it may send; that neither does costs one period. From then on the wire
is the watchdog's, until it has seen a newer claim, has spoken for the last time, and says so in `YIELDED`.
"""

import os
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from mmap import mmap

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_WORD = 8
_LINE = 64
"""Bytes of a cache line: two processes that write to one slow each other down."""
_HEAD = struct.Struct("<QqQ")
_CRC = struct.Struct("<I")
_READS = 8


class Word(IntEnum):
    """Where each word lies; the loop's own in one cache line, the watchdog's in the next."""

    CLAIM = 0
    """Of the loop: a new number before each decision."""
    READY = _LINE // _WORD
    """Of the watchdog: 1 once it can reach the robot."""
    FIRED = READY + 1
    """The claim at which it took over last."""
    YIELDED = READY + 2
    """The claim for which it fell silent last."""


_WORDS_BYTES = 2 * _LINE


@dataclass(frozen=True, slots=True)
class Record:
    """A command that was sent, and when."""

    number: int
    """One more than that of the record before."""
    time_ns: int
    """CLOCK_MONOTONIC [ns]."""
    flag: int
    """Of the loop: whether it drives. Of the watchdog: commands that it sent since it took over."""
    last: Array
    """The command, shape (A,)."""
    step: Array
    """Its change from the one before, shape (A,)."""


class SharedMemory:
    """One mapping of the memory; each process has its own."""

    def __init__(self, descriptor: int, count: int) -> None:
        """Maps it.

        Args:
            descriptor: of a file of `size(count)` bytes.
            count: commanded joints A.
        """
        self.count = count
        self._map = mmap(descriptor, size(count))
        self._memory = memoryview(self._map)
        self.words = self._memory[:_WORDS_BYTES].cast("Q")
        """See `Word`."""
        length = _record_bytes(count)
        places = [self._memory[_WORDS_BYTES + i * length : _WORDS_BYTES + (i + 1) * length] for i in range(4)]
        self.loop = Records(places[0], places[1], count)
        """What the loop sent."""
        self.watchdog = Records(places[2], places[3], count)
        """What the watchdog sent."""


class Records:
    """The newest record of one writer."""

    def __init__(self, even: memoryview, odd: memoryview, count: int) -> None:
        self._places = tuple(_Place(memory, count) for memory in (even, odd))
        self._number = 0

    def write(self, time_ns: int, flag: int, last: Array, step: Array) -> None:
        """Replaces the record before the last one; for the one writer."""
        self._number = number = self._number + 1
        self._places[number & 1].write(number, time_ns, flag, last, step)

    def read(self) -> Record | None:
        """The newest record; None as long as there is none."""
        for _ in range(_READS):
            found = [record for place in self._places if (record := place.read()) is not None]
            if found:
                return max(found, key=lambda record: record.number)
        return None


class _Place:
    """Room for one record."""

    def __init__(self, memory: memoryview, count: int) -> None:
        end = _HEAD.size + 2 * count * 8
        self._memory, self._body = memory, memory[:end]
        self._end = end
        values: Array = np.frombuffer(memory, np.float64, 2 * count, _HEAD.size)
        self._last, self._step = values[:count], values[count:]

    def write(self, number: int, time_ns: int, flag: int, last: Array, step: Array) -> None:
        _HEAD.pack_into(self._memory, 0, number, time_ns, flag)
        self._last[...] = last
        self._step[...] = step
        _CRC.pack_into(self._memory, self._end, zlib.crc32(self._body))

    def read(self) -> Record | None:
        """None where there is none, or it is being written."""
        data = bytes(self._memory)
        if _CRC.unpack_from(data, self._end)[0] != zlib.crc32(data[: self._end]):
            return None
        number, time_ns, flag = _HEAD.unpack_from(data)
        last, step = np.frombuffer(data, np.float64, 2 * len(self._last), _HEAD.size).reshape(2, -1)
        return Record(number, time_ns, flag, last, step)


def size(count: int) -> int:
    """Bytes for so many commanded joints."""
    return _WORDS_BYTES + 4 * _record_bytes(count)


def _record_bytes(count: int) -> int:
    return -(-(_HEAD.size + 2 * count * 8 + _CRC.size) // _LINE) * _LINE


def allocate(count: int) -> int:
    """A file without a name, for so many commanded joints; its descriptor."""
    descriptor = os.memfd_create("physai-watchdog")
    os.ftruncate(descriptor, size(count))
    return descriptor
