"""Connections that send or read nothing, or send too slowly, are closed: uvicorn itself waits for ever."""

import asyncio
import fcntl
import resource
import struct
import termios
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 10.0
"""How long a client may take to send the head of a request, from the connection or the previous answer on [s]."""
BODY_S = 120.0
"""How long a client may take to send the body of a request [s]."""
READ_S = 60.0
"""A client that has read nothing of an answer between two looks, so far apart, is put out [s]."""


class PatientLoop(asyncio.SelectorEventLoop):
    """An event loop whose TLS connections have to be agreed on in time; asyncio itself gives them 60 s."""

    async def create_server(self, *words: Any, **options: Any) -> asyncio.Server:  # type: ignore[override]
        """See asyncio; with the same limit as for the head of a request."""
        limit = {"ssl_handshake_timeout": HEADERS_S} if options.get("ssl") else {}
        return await super().create_server(*words, **options, **limit)


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with these limits for every request of a connection; WebSockets have pings instead.

    uvicorn closes a connection on which nothing at all comes for 5 s after an answer.
    """

    _timer: asyncio.TimerHandle | None = None
    _owed: tuple[object, object] = (None, None)
    """The last request, and what h11 waits for."""
    _reader: asyncio.TimerHandle | None = None
    _unread = 0
    """Bytes of answers that waited for the client at the last look."""
    _moved = False
    """Whether it made room for more since."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the clock."""
        super().connection_made(transport)
        self._watch()
        self._reader = asyncio.get_running_loop().call_later(READ_S, self._look_at_reader)

    def data_received(self, data: bytes) -> None:
        """Starts the clock of what comes next."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Starts the clock of the next request."""
        super().on_response_complete()
        self._watch()

    def resume_writing(self) -> None:
        """Notes that the client reads."""
        super().resume_writing()
        self._moved = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clocks."""
        self._stop()
        if self._reader is not None:
            self._reader.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        # After an upgrade the transport belongs to another protocol.
        if self.transport.get_protocol() is not self:
            self._stop()
            return
        owed = (self.cycle, self.conn.their_state)
        if owed == self._owed:
            return
        self._stop()
        self._owed = owed
        limits = {h11.IDLE: HEADERS_S, h11.SEND_BODY: BODY_S}
        if self.conn.their_state in limits:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits[self.conn.their_state], self.transport.close)

    def _look_at_reader(self) -> None:
        if self.transport.get_protocol() is not self:
            return
        # The kernel holds megabytes of its own, and takes more only when a third of them has been read.
        kernel = self.transport.get_extra_info("socket")
        (sent,) = struct.unpack("i", fcntl.ioctl(kernel.fileno(), termios.TIOCOUTQ, bytes(4)))
        unread = self.transport.get_write_buffer_size() + sent
        if unread >= self._unread > 0 and not self._moved:
            # To close it would be to wait until all is read.
            self.transport.abort()
            return
        self._unread, self._moved = unread, False
        self._reader = asyncio.get_running_loop().call_later(READ_S, self._look_at_reader)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def raise_file_limit() -> None:
    """Lets this process hold as many connections as the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
