"""Control socket on which an operator requests HOLD, DAMP, a stop, a reset, a start, or the status.

One datagram is one request: a word of `Command`, `heartbeat`, `status` or `record`. Each is answered by one JSON object
if its sender has an address.
"""

import json
import os
import reprlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from physai.deploy_jetson.runtime.commands.queue import Command, CommandError, CommandQueue, Ticket
from physai.sdk.base.errors import PhysaiError, unknown_name

CONTROL_FILE = "control"
MAX_REQUEST_BYTES = 256
MAX_ANSWER_BYTES = 1 << 16
HEARTBEAT, STATUS, RECORD = "heartbeat", "status", "record"

# Longest time in which a reset or a start is answered [s]: the longest control period is 1 s.
ANSWER_S = 2.0

# Requests that are withdrawn when their sender disconnects.
_TIMELY = (Command.ACTIVATE, Command.RESET, Command.START)

# asm-generic/socket.h; Python has no name for it. In microseconds: user-mode emulators know no other stamp.
_SO_TIMESTAMP = 29

_TIMEVAL = struct.Struct("@ll")
_STAMP_ROOM = socket.CMSG_SPACE(_TIMEVAL.size)
_POLL_S = 0.2
_POLL_ANSWER_S = 0.002


class ControlError(PhysaiError):
    """The control socket cannot be made or reached, or the runtime refuses a request."""


class ControlSocket:
    """The runtime's end, served by a thread of its own."""

    def __init__(
        self,
        path: Path,
        commands: CommandQueue,
        status: Callable[[], dict[str, Any]],
        *,
        record: Callable[[], str] = lambda: "there is no flight recorder",
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create the socket; replaces one of a runtime that is gone.

        Args:
            path: in a folder that exists.
            commands: receives the requests.
            status: returns the status.
            record: requests a flight recording; returns where it is written.
            clock_ns: CLOCK_MONOTONIC [ns].

        Raises:
            ControlError: it cannot be created, or another runtime listens there.
        """
        self._path, self._commands, self._status, self._record = path, commands, status, record
        self._clock_ns = clock_ns
        self._socket = _bound(path)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="physai-control", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and remove the socket."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        waiting: list[tuple[Ticket, Any, int]] = []
        while not self._ended.is_set():
            # Shorter while an answer is awaited, so that an operator does not wait for the next poll.
            self._socket.settimeout(_POLL_ANSWER_S if waiting else _POLL_S)
            try:
                data, stamps, _, sender = self._socket.recvmsg(MAX_REQUEST_BYTES, _STAMP_ROOM)
            except TimeoutError:
                pass
            except OSError:
                # Without memory, say. The next request may be a stop, so this goes on.
                self._ended.wait(_POLL_S)
            else:
                answer = self._answer(data.decode("ascii", "replace").strip(), _age_ns(stamps))
                if isinstance(answer, Ticket):
                    # Answered later, so that it does not hold up the requests behind it.
                    waiting.append((answer, sender, self._clock_ns()))
                else:
                    self._send(answer, sender)
            waiting = [one for one in waiting if not self._told(*one)]

    def _told(self, ticket: Ticket, sender: Any, asked_ns: int) -> bool:
        """Send the answer to a ticket, if there is one or its time is over; return whether it was sent."""
        if ticket.answered:
            answer = {"accepted": ticket.command.value, "answer": ticket.text}
            self._send(answer if ticket.obeyed else {"error": f"{ticket.command}: {ticket.text}"}, sender)
        elif self._clock_ns() - asked_ns > ANSWER_S * 1e9:
            ticket.withdraw()
            self._send({"error": f"{ticket.command}: the control loop did not answer within {ANSWER_S:g} s"}, sender)
        else:
            return False
        return True

    def _send(self, answer: dict[str, Any], sender: Any) -> None:
        if sender:
            # The caller is gone, or does not read.
            with suppress(OSError):
                self._socket.sendto(json.dumps(answer).encode()[:MAX_ANSWER_BYTES], socket.MSG_DONTWAIT, sender)

    def _answer(self, word: str, age_ns: int) -> dict[str, Any] | Ticket:
        if word == HEARTBEAT:
            # Counted from when it was sent: a heartbeat that waited in the socket proves nothing about now.
            self._commands.heartbeat_ns = self._clock_ns() - age_ns
            return {}
        if word in (STATUS, RECORD):
            return self._told_of(word)
        if word not in tuple(Command):
            return {"error": str(unknown_name("request", word, (*Command, HEARTBEAT, STATUS, RECORD)))}
        # A stop is obeyed however old it is. What makes the robot less safe is refused, because its sender may have
        # seen another state.
        if word in _TIMELY and age_ns > ANSWER_S * 1e9:
            return {"error": f"{word}: refused: it was sent {age_ns * 1e-9:.0f} s ago; ask again"}
        try:
            return self._commands.put(Command(word)) or {"accepted": word}
        except CommandError as error:
            return {"error": str(error)}

    def _told_of(self, word: str) -> dict[str, Any]:
        try:
            return self._status() if word == STATUS else {"record": self._record()}
        except Exception as error:
            # Whatever fails in them, the thread has to take the next stop.
            return {"error": f"{word}: {type(error).__name__}: {error}"}


def _bound(path: Path) -> socket.socket:
    """Return a datagram socket at that path, for this user alone."""
    if path.is_socket():
        if listens(path):
            raise ControlError(f"{path}: another runtime listens there; end it first")
        # Left by a runtime that was killed.
        path.unlink(missing_ok=True)
    # Datagrams, because a caller that does not read, or dies half-way, cannot delay a stop.
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    # The file belongs to the user who runs the policy, and no other may write to it, from the moment it exists.
    before = os.umask(0o177)
    try:
        # The kernel then says when each request was sent, which a runtime that was suspended could not know.
        made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMP, 1)
        made.bind(str(path))
    except OSError as error:
        made.close()
        raise ControlError(
            f"{path}: no control socket can be made there: {error.strerror or error}; run it as a user who may write "
            "to that folder"
        ) from None
    finally:
        os.umask(before)
    return made


def listens(path: Path) -> bool:
    """Whether a runtime has the socket open, even if it does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _age_ns(stamps: list[tuple[int, int, bytes]]) -> int:
    """Return how long ago a datagram was sent [ns]; 0 if unknown."""
    # By CLOCK_REALTIME, the only clock with which the kernel stamps.
    for level, kind, data in stamps:
        if (level, kind, len(data)) == (socket.SOL_SOCKET, _SO_TIMESTAMP, _TIMEVAL.size):
            seconds, microseconds = _TIMEVAL.unpack(data)
            return max(0, time.time_ns() - seconds * 1_000_000_000 - microseconds * 1000)
    return 0


def tell(path: Path, word: str, *, timeout_s: float = ANSWER_S + 1.0) -> dict[str, Any]:
    """Send one request to the runtime; return its answer.

    Raises:
        ControlError: no runtime listens or answers, or the request is rejected.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        # Linux chooses a free abstract address to answer to.
        caller.bind("")
        caller.settimeout(timeout_s)
        try:
            caller.connect(str(path))
            caller.send(word.encode())
            answer: Any = json.loads(caller.recv(MAX_ANSWER_BYTES))
        except TimeoutError:
            raise ControlError(f"{path}: the runtime did not answer within {timeout_s:g} s") from None
        except PermissionError:
            raise ControlError(f"{path}: only the user who runs the policy, and root, may access it") from None
        except (OSError, ValueError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ControlError(f"{path}: no runtime to talk to: {reason}; start it with `physai robot run`") from None
    if not isinstance(answer, dict):
        raise ControlError(f"{path}: the answer is no JSON object, got {reprlib.repr(answer)}")
    told = cast("dict[str, Any]", answer)
    if "error" in told:
        raise ControlError(str(told["error"]))
    return told
