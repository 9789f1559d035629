"""The robot's end of the ssh channel: what the other side says and hears, as long as it is there and keeps pace."""

import os
import select
import time
from collections.abc import Callable

from physai.deploy_jetson.flash.protocol import MAX_LINE_BYTES, SILENCE_S, ProtocolError
from physai.sdk.base.errors import PhysaiError

MIN_RATE = 64 << 10
"""While another flash waits, a sender must bring so much on average [bytes/s]."""

PACE_S = 10.0
"""That average is over so much waiting for the sender [s]."""

_LOOK_S = 1.0


class GoneError(PhysaiError):
    """Nobody is at the other end any more."""


class TurnLostError(PhysaiError):
    """The sender is too slow, and another waits; what has arrived stays, and the next flash goes on there."""


class Source:
    """What the other side says: lines, and bytes between them."""

    def __init__(self, descriptor: int, *, idle_s: float = SILENCE_S) -> None:
        """Prepares to read.

        Args:
            descriptor: of standard input.
            idle_s: the longest silence of somebody who is still there [s].
        """
        self._descriptor = descriptor
        self._idle_s = idle_s
        self._buffer = b""
        self._waited_s, self._taken = 0.0, 0
        self.others_wait: Callable[[], bool] = lambda: False
        """Whether somebody else waits for this sender to end."""

    def line(self) -> bytes:
        """The next line; empty at the end.

        Raises:
            ProtocolError: it is too long.
            GoneError: nothing was heard for too long.
        """
        while b"\n" not in self._buffer:
            if not len(self._buffer) <= MAX_LINE_BYTES:
                raise ProtocolError(f"a line of more than {MAX_LINE_BYTES} bytes")
            more = self._read(MAX_LINE_BYTES)
            if not more:
                return b""
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line + b"\n"

    def data(self, limit: int) -> bytes:
        """What is there, from one byte to the limit.

        Raises:
            GoneError: nothing comes any more.
        """
        if self._buffer:
            found, self._buffer = self._buffer[:limit], self._buffer[limit:]
            return found
        found = self._read(limit)
        if not found:
            raise GoneError("the connection was lost")
        return found

    def _read(self, limit: int) -> bytes:
        end = time.monotonic() + self._idle_s
        while True:
            began = time.monotonic()
            ready = select.select([self._descriptor], [], [], max(0.0, min(_LOOK_S, end - began)))[0]
            self._waited_s += time.monotonic() - began
            self._check_pace()
            if ready:
                data = os.read(self._descriptor, limit)
                self._taken += len(data)
                return data
            if not time.monotonic() < end:
                raise GoneError(f"nothing was heard for {self._idle_s:g} s")

    def _check_pace(self) -> None:
        """Puts a slow sender out where another waits; what this side does with the bytes is not the sender's time."""
        if self._waited_s < PACE_S:
            return
        rate = self._taken / self._waited_s
        self._waited_s, self._taken = 0.0, 0
        if rate < MIN_RATE and self.others_wait():
            raise TurnLostError(
                f"{rate / 1024:.3g} KiB/s arrive at the robot, and another flash waits: below {MIN_RATE >> 10} KiB/s "
                "it goes first; what has arrived stays, flash again"
            )


class PeerWriter:
    """Writes to somebody who may not read."""

    def __init__(self, descriptor: int, *, idle_s: float = SILENCE_S) -> None:
        """Prepares to write.

        Args:
            descriptor: of standard output.
            idle_s: how long to wait for one who does not read [s].
        """
        self._descriptor = descriptor
        self._idle_s = idle_s

    def write(self, data: bytes) -> None:
        """Writes all of it.

        Raises:
            OSError: nobody reads.
        """
        while data:
            if not select.select([], [self._descriptor], [], self._idle_s)[1]:
                raise TimeoutError(f"nothing was read for {self._idle_s:g} s")
            # A pipe that is ready takes so much without waiting.
            data = data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]

    def flush(self) -> None:
        """Nothing is held back."""
