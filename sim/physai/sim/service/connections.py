"""Connections that send nothing, or too slowly, are closed: uvicorn itself waits for a request for ever."""

import asyncio
import resource

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 10.0
"""How long a new connection may take to send the head of its first request [s]."""
BODY_S = 120.0
"""How long a client may take to send the body of its first request [s]."""


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with these two limits; WebSockets have pings instead."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the clock."""
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._timers = [loop.call_later(HEADERS_S, self._check_head), loop.call_later(BODY_S, self._check_body)]

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        for timer in self._timers:
            timer.cancel()
        super().connection_lost(exc)

    def _check_head(self) -> None:
        if self._is_http() and not self.cycle:
            self.transport.close()

    def _check_body(self) -> None:
        if self._is_http() and self.cycle and self.cycle.more_body:
            self.transport.close()

    def _is_http(self) -> bool:
        # After an upgrade the transport belongs to another protocol.
        return self.transport.get_protocol() is self


def raise_file_limit() -> None:
    """Lets this process hold as many connections as the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
