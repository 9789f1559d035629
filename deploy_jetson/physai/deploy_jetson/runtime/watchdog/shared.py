"""Shared memory of the control loop and its watchdog: a few words and two kinds of records.

Every word and every record has one writer; there are no locks and no system calls. A word is 8 aligned bytes and is
read and written atomically. Records are double-buffered with a CRC, so that a process that is killed or stopped while
it writes leaves the previous record intact.

Two words decide who may command the robot. The loop writes a new `CLAIM` before each decision, and reads `FIRED` right
before it sends. The watchdog writes the claim it saw into `FIRED`, decides, and right before it sends reads `CLAIM`
again and checks for a newer record than the one it continues from: a loop that read `FIRED` before it was written has
sent. Each writes its own word first and reads the other's after the time of a guard's decision, so at most one of them
may send; if neither does, one period is lost. From then on the watchdog commands the robot, until it has seen a newer
claim, has sent its last command, and confirms that in `YIELDED`.
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
# Bytes of a cache line; a shared line would slow both writers down (false sharing).
_LINE = 64
_HEAD = struct.Struct("<QqQq")
_CRC = struct.Struct("<I")
_READS = 8


class Word(IntEnum):
    """Index of each word; the loop's word is in one cache line, the watchdog's are in the next."""

    CLAIM = 0
    """Of the loop: incremented before each decision."""
    READY = _LINE // _WORD
    """Of the watchdog: 1 once it can reach the robot."""
    FIRED = READY + 1
    """Of the watchdog: the claim at which it last took over."""
    YIELDED = READY + 2
    """Of the watchdog: the claim for which it last yielded."""


_WORDS_BYTES = 2 * _LINE


@dataclass(frozen=True, slots=True)
class SentCommand:
    """A command that was sent, and when."""

    number: int
    """Incremented with each record."""
    time_ns: int
    """CLOCK_MONOTONIC [ns]."""
    flag: int
    """Of the loop: whether it drives. Of the watchdog: number of commands sent since it took over."""
    last: Array
    """The command, shape (A,)."""
    step: Array
    """Its change from the previous one, shape (A,)."""
    silence: int
    """`Guard.silence` of its writer: a robot that fell silent and came back elsewhere is not driven by the other."""


class SharedMemory:
    """One mapping of the memory; each process has its own."""

    def __init__(self, descriptor: int, count: int) -> None:
        """Map the memory.

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
        # Each record in cache lines of its own, for the same reason as the words.
        places = [self._memory[_WORDS_BYTES + i * length : _WORDS_BYTES + (i + 1) * length] for i in range(4)]
        self.loop = Records(places[0], places[1], count)
        """Commands of the loop."""
        self.watchdog = Records(places[2], places[3], count)
        """Commands of the watchdog."""


class Records:
    """The newest record of one writer."""

    def __init__(self, even: memoryview, odd: memoryview, count: int) -> None:
        self._places = tuple(_Place(memory, count) for memory in (even, odd))
        self._number = 0

    def write(self, time_ns: int, flag: int, last: Array, step: Array, silence: int = 0) -> None:
        """Write a record over the older of the two; only for the writer."""
        self._number = number = self._number + 1
        # The newer record stays intact if the writer dies in the middle.
        self._places[number & 1].write(number, time_ns, flag, last, step, silence)

    def read(self) -> SentCommand | None:
        """Return the newest record, or None before the first."""
        # Both may be invalid for a moment: a reader that was preempted between them sees each being written.
        for _ in range(_READS):
            records = [record for place in self._places if (record := place.read()) is not None]
            if records:
                return max(records, key=lambda record: record.number)
        return None


class _Place:
    """Memory of one record."""

    def __init__(self, memory: memoryview, count: int) -> None:
        end = _HEAD.size + 2 * count * 8
        self._memory, self._body = memory, memory[:end]
        self._end = end
        values: Array = np.frombuffer(memory, np.float64, 2 * count, _HEAD.size)
        self._last, self._step = values[:count], values[count:]

    def write(self, number: int, time_ns: int, flag: int, last: Array, step: Array, silence: int) -> None:
        _HEAD.pack_into(self._memory, 0, number, time_ns, flag, silence)
        self._last[...] = last
        self._step[...] = step
        _CRC.pack_into(self._memory, self._end, zlib.crc32(self._body))

    def read(self) -> SentCommand | None:
        """Return the record, or None if there is none or it is being written."""
        data = bytes(self._memory)
        # Checked on a copy, because the writer may go on meanwhile.
        if _CRC.unpack_from(data, self._end)[0] != zlib.crc32(data[: self._end]):
            return None
        number, time_ns, flag, silence = _HEAD.unpack_from(data)
        last, step = np.frombuffer(data, np.float64, 2 * len(self._last), _HEAD.size).reshape(2, -1)
        return SentCommand(number, time_ns, flag, last, step, silence)


def size(count: int) -> int:
    """Return the size of the memory for that many commanded joints [bytes]."""
    return _WORDS_BYTES + 4 * _record_bytes(count)


def _record_bytes(count: int) -> int:
    return -(-(_HEAD.size + 2 * count * 8 + _CRC.size) // _LINE) * _LINE


def allocate(count: int) -> int:
    """Allocate an anonymous file for that many commanded joints; return its descriptor."""
    descriptor = os.memfd_create("physai-watchdog")
    os.ftruncate(descriptor, size(count))
    return descriptor
