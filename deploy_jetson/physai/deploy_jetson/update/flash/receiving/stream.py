"""The robot's end of the ssh channel, with timeouts and a minimum rate for slow senders."""

import os
import select
import time
from collections.abc import Callable

from physai.deploy_jetson.update.flash.protocol import MAX_LINE_BYTES, SILENCE_S, ProtocolError
from physai.sdk.base.errors import PhysaiError

MIN_RATE = 64 << 10
"""Minimum average rate of a sender while another flash is waiting [bytes/s]."""

PACE_S = 10.0
"""Averaging period, counting only time spent waiting for the sender [s]."""

_LOOK_S = 1.0


class GoneError(PhysaiError):
    """The peer is gone."""


class TurnLostError(PhysaiError):
    """The sender is too slow while another waits; the partial upload is kept for the next flash."""


class PeerStream:
    """Reads lines and raw bytes from the peer."""

    def __init__(self, descriptor: int, *, idle_s: float = SILENCE_S) -> None:
        """Initialises the reader.

        Args:
            descriptor: of standard input.
            idle_s: timeout after which a silent peer counts as gone [s].
        """
        self._descriptor = descriptor
        self._idle_s = idle_s
        self._buffer = b""
        self._waited_s, self._taken = 0.0, 0
        self.others_wait: Callable[[], bool] = lambda: False
        """Whether another flash is waiting."""

    def line(self) -> bytes:
        """The next line; empty at end of file.

        Raises:
            ProtocolError: the line is too long.
            GoneError: the timeout expired.
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
        """Available bytes, at least one and at most `limit`.

        Raises:
            GoneError: the connection was lost or the timeout expired.
        """
        if self._buffer:
            data, self._buffer = self._buffer[:limit], self._buffer[limit:]
            return data
        data = self._read(limit)
        if not data:
            raise GoneError("the connection was lost")
        return data

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
                raise GoneError(f"nothing was received for {self._idle_s:g} s")

    def _check_pace(self) -> None:
        """Ends the turn of a slow sender if another flash is waiting."""
        if self._waited_s < PACE_S:
            return
        rate = self._taken / self._waited_s
        self._waited_s, self._taken = 0.0, 0
        if rate < MIN_RATE and self.others_wait():
            raise TurnLostError(
                f"the robot receives {rate / 1024:.3g} KiB/s while another flash is waiting: "
                f"below {MIN_RATE >> 10} KiB/s it goes first; the partial upload is kept, flash again"
            )


class PeerWriter:
    """Writes to a peer that may stop reading."""

    def __init__(self, descriptor: int, *, idle_s: float = SILENCE_S) -> None:
        """Initialises the writer.

        Args:
            descriptor: of standard output.
            idle_s: timeout for a peer that does not read [s].
        """
        self._descriptor = descriptor
        self._idle_s = idle_s

    def write(self, data: bytes) -> None:
        """Writes all data.

        Raises:
            OSError: the peer does not read.
        """
        while data:
            if not select.select([], [self._descriptor], [], self._idle_s)[1]:
                raise TimeoutError(f"nothing was read for {self._idle_s:g} s")
            # A pipe that is ready accepts PIPE_BUF bytes without blocking.
            data = data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]

    def flush(self) -> None:
        """Does nothing: writes are unbuffered."""
