"""Shared parts of both ends of a UDP link: the socket with its peer, and the state of the link."""

import select
import socket
import time
from collections.abc import Callable
from typing import Literal

from physai.sdk.transport.protocol import TransportError
from physai.transport.notices import Notices
from physai.transport.udp.packet import Header, PacketReader

DEFAULT_PORT = 47808
# Bound of the packets read per poll, so that a flood cannot delay the tick.
MAX_PER_POLL = 256
# Silence since the start after which it is reported [s].
MEETING_S = 1.0

Address = tuple[str, int]


def address(text: str) -> Address:
    """Parse and resolve `HOST:PORT`.

    Raises:
        TransportError: the text is malformed or the host unknown.
    """
    host, colon, port = text.rpartition(":")
    # `isdigit` alone accepts digits that `int` does not, such as superscripts.
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise TransportError(f"{text!r} is no address, expected HOST:PORT such as 192.168.1.20:{DEFAULT_PORT}")
    try:
        return socket.gethostbyname(host), int(port)
    except OSError as error:
        raise TransportError(f"host {host!r} is not known: {error.strerror or error}") from None


def bound_socket(bind: Address) -> socket.socket:
    """Bind a non-blocking UDP socket.

    Raises:
        TransportError: the address is taken, or not this machine's.
    """
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # The control loop polls it and must never wait.
    bound.setblocking(False)
    try:
        bound.bind(bind)
    except OSError as error:
        bound.close()
        raise TransportError(f"UDP: cannot listen on {bind[0]}:{bind[1]}: {error.strerror}") from None
    return bound


class PeerSocket:
    """A UDP socket and its peer."""

    def __init__(self, own: socket.socket, robot: Address | None, reader: PacketReader, notices: Notices) -> None:
        """Wrap a bound socket.

        Args:
            own: the socket.
            robot: the only accepted sender; None at the robot's end, which accepts any.
            reader: of the packets.
            notices: receives rejections.
        """
        self._socket = own
        self.peer: Address | None = robot
        self._only = robot
        self.heard = False
        """Whether a valid packet was ever received."""
        self._reader, self._notices = reader, notices

    def packets(self, take: Callable[[Header, Address], bool]) -> bool:
        """Pass every valid packet that has arrived to `take`; return whether that returned True for any."""
        found = False
        for _ in range(MAX_PER_POLL):
            try:
                # Into the reader's buffer, without an allocation per packet.
                size, origin = self._socket.recvfrom_into(self._reader.room)
            except BlockingIOError:
                break
            sender: Address = origin
            # The sender's address can be forged; this keeps out strays, not attackers.
            if self._only is not None and sender != self._only:
                host, port = self._only
                self._notices.add(f"UDP: packets from {sender[0]}, only {host}:{port} is heard")
                continue
            try:
                header = self._reader.read(size)
            except TransportError as error:
                self._notices.add(f"UDP: refused: {error}")
                continue
            self.heard = True
            found |= take(header, sender)
        return found

    def wait(self, timeout_s: float) -> None:
        """Block until a packet arrives or the timeout."""
        select.select([self._socket], [], [], timeout_s)

    def send(self, data: memoryview, to: Address | None = None) -> None:
        """Send a packet to the peer or to a given address; without a peer nothing is sent.

        Raises:
            TransportError: it could not be sent.
        """
        to = to or self.peer
        if to is None:
            return
        try:
            self._socket.sendto(data, to)
        except OSError as error:
            raise TransportError(f"UDP: cannot send to {to[0]}:{to[1]}: {error.strerror}") from None

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class UdpEnd:
    """Base of both ends."""

    name: Literal["udp"] = "udp"

    def __init__(self) -> None:
        """Initialize without a link."""
        self._notices = Notices()
        self._link: PeerSocket | None = None
        self._opened_s = 0.0
        # Reported while nothing is received.
        self._silence = ""

    def _require_closed(self) -> None:
        if self._link is not None:
            raise TransportError("the transport udp is open already")

    def _opened(self) -> PeerSocket:
        if self._link is None:
            raise TransportError("the transport udp is not open")
        return self._link

    def problems(self) -> tuple[str, ...]:
        """See `Transport.problems`."""
        link, told = self._link, self._notices.told()
        silent = link is not None and not link.heard and time.monotonic() - self._opened_s > MEETING_S
        return (*told, self._silence) if silent else told

    def forget(self) -> None:
        """See `SupportsReset`."""
        self._notices.forget()

    def close(self) -> None:
        """Close the link; may be called twice."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
