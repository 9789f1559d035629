"""Connections that send nothing, or too slowly, are closed: uvicorn itself waits for a request for ever."""

import asyncio
import resource

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 10.0
"""How long a client may take to send the head of a request, from the connection or the previous answer on [s]."""
BODY_S = 120.0
"""How long a client may take to send the body of a request [s]."""


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with these two limits for every request of a connection; WebSockets have pings instead.

    uvicorn closes a connection on which nothing at all comes for 5 s after an answer.
    """

    _timer: asyncio.TimerHandle | None = None
    _owed: tuple[object, object] = (None, None)
    """The last request, and what h11 waits for."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the clock."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Starts the clock of what comes next."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Starts the clock of the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        self._stop()
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

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def raise_file_limit() -> None:
    """Lets this process hold as many connections as the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
