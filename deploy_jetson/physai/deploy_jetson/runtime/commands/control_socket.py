"""Control sockets on which an operator requests HOLD, DAMP, a stop, a reset, a start, or the status.

One datagram is one request: a word of `Command`, `heartbeat`, `status`, `record`, or `shadow` and a path. Each is
answered by one JSON object if its sender has an address. What makes the robot safer has a second socket and thread of
its own (`stop_path`), so that it waits for nothing else.

Ages of requests count by the monotonic clock of this process, from the last moment at which nothing waited in the
socket: the sender's clock may be wrong, and the wall clock may be set.
"""

import json
import os
import reprlib
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from physai.deploy_jetson.runtime.commands.queue import Command, CommandError, CommandQueue, RequestTicket
from physai.sdk.base.errors import PhysaiError, unknown_name

CONTROL_FILE = "control"
MAX_REQUEST_BYTES = 1 << 13
MAX_ANSWER_BYTES = 1 << 16
HEARTBEAT, STATUS, RECORD, SHADOW = "heartbeat", "status", "record", "shadow"

# Longest time in which a reset or a start is answered [s]: the longest control period is 1 s.
ANSWER_S = 2.0

# Requests that are withdrawn when their sender disconnects.
_TIMELY = (Command.ACTIVATE, Command.RESET, Command.START)

# Requests that make the robot safer.
_URGENT = (Command.STOP, Command.HOLD, Command.DAMP, Command.DEACTIVATE, Command.SHUTDOWN)

# Also the greatest error of an age, towards older [s].
_POLL_S = 0.05
_POLL_ANSWER_S = 0.002

# Requests that wait for their answer at once; the answers of further ones do not say whether a stop is durable.
_MAX_PENDING = 256

# Requests of one sender that are answered per second; the rest is dropped, so that it cannot keep others waiting.
_MAX_PER_S = 200
_MAX_SENDERS = 64

# Asks for the answer to a request: None while there is none.
_Pending = Callable[[int], "dict[str, Any] | None"]


class ControlError(PhysaiError):
    """The control socket cannot be made or reached, or the runtime refuses a request."""


def stop_path(path: Path) -> Path:
    """Path of the second socket, for requests that make the robot safer."""
    return path.with_name(f"{path.name}.{Command.STOP}")


class ControlSocket:
    """The runtime's end, served by two threads of its own."""

    def __init__(
        self,
        path: Path,
        commands: CommandQueue,
        status: Callable[[], dict[str, Any]],
        *,
        record: Callable[[], str] = lambda: "there is no flight recorder",
        shadow: Callable[[str], dict[str, Any]] = lambda what: {},
        settled: Callable[[int], str | None] = lambda number: "",
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create the sockets; replaces those of a runtime that is gone.

        Args:
            path: in a folder that exists.
            commands: receives the requests.
            status: returns the status.
            record: requests a flight recording; returns where it is written.
            shadow: starts the shadow of a bundle, or ends it; see `Shadows.ask`.
            settled: returns whether the stop of a number is durable, see `StopKeeper.settled`.
            clock_ns: CLOCK_MONOTONIC [ns].

        Raises:
            ControlError: they cannot be created, or another runtime listens there.
        """
        self._commands, self._status, self._record, self._settled = commands, status, record, settled
        self._shadow = shadow
        self._clock_ns = clock_ns
        self._channels = [_Channel(path, self._answer, clock_ns)]
        try:
            self._channels.append(_Channel(stop_path(path), self._answer_urgent, clock_ns))
        except ControlError:
            self._channels[0].close()
            raise

    def start(self) -> None:
        """Start the threads."""
        for channel in self._channels:
            channel.start()

    def close(self) -> None:
        """Stop the threads and remove the sockets."""
        for channel in self._channels:
            channel.close()

    def _answer_urgent(self, word: str, age_ns: int) -> "dict[str, Any] | _Pending":
        if word not in _URGENT:
            return {"error": f"{word}: refused: this socket takes {', '.join(_URGENT)} only"}
        return self._answer(word, age_ns)

    def _answer(self, word: str, age_ns: int) -> "dict[str, Any] | _Pending":
        if word == HEARTBEAT:
            # Counted from when it was sent at the earliest: one that waited in the socket proves nothing about now.
            self._commands.heartbeat_ns = self._clock_ns() - age_ns
            return {}
        if word in (STATUS, RECORD):
            return self._told_of(word, "")
        if word.startswith(f"{SHADOW} "):
            return self._told_of(SHADOW, word.partition(" ")[2])
        if word not in tuple(Command):
            return {"error": str(unknown_name("request", word, (*Command, HEARTBEAT, STATUS, RECORD)))}
        # A stop is obeyed however old it is. What makes the robot less safe is refused, because its sender may have
        # seen another state.
        if word in _TIMELY and age_ns > ANSWER_S * 1e9:
            return {"error": f"{word}: refused: it may have been sent {age_ns * 1e-9:.0f} s ago; ask again"}
        try:
            ticket = self._commands.put(Command(word))
        except CommandError as error:
            return {"error": str(error)}
        if ticket is not None:
            return self._answer_of(ticket, self._clock_ns() - age_ns)
        return self._durable(self._commands.stop) if word == Command.STOP else {"accepted": word}

    def _answer_of(self, ticket: RequestTicket, asked_ns: int) -> _Pending:
        """Return the loop's answer, or an error once its sender has given up."""

        def pending(now_ns: int) -> dict[str, Any] | None:
            if ticket.answered:
                answer = {"accepted": ticket.command.value, "answer": ticket.text}
                return answer if ticket.obeyed else {"error": f"{ticket.command}: {ticket.text}"}
            if now_ns - asked_ns <= ANSWER_S * 1e9:
                return None
            ticket.withdraw()
            return {"error": f"{ticket.command}: the control loop did not answer within {ANSWER_S:g} s"}

        return pending

    def _durable(self, number: int) -> _Pending:
        """Return the answer to a stop, which acts already, once it is recorded."""
        asked_ns = self._clock_ns()

        def pending(now_ns: int) -> dict[str, Any] | None:
            settled = self._settled(number)
            if settled is None and now_ns - asked_ns > ANSWER_S * 1e9:
                settled = f"NOT DURABLE: not recorded within {ANSWER_S:g} s"
            if settled is None:
                return None
            answer = {"accepted": Command.STOP.value, "durable": not settled}
            return answer | ({"warning": f"the stop acts, but is {settled}"} if settled else {})

        return pending

    def _told_of(self, word: str, rest: str) -> dict[str, Any]:
        try:
            if word == SHADOW:
                return self._shadow(rest)
            return self._status() if word == STATUS else {"record": self._record()}
        except PhysaiError as error:
            return {"error": f"{word}: {error}"}
        except Exception as error:
            # Whatever fails in them, the thread has to take the next stop.
            return {"error": f"{word}: {type(error).__name__}: {error}"}


class _Channel:
    """One socket and its thread."""

    def __init__(
        self,
        path: Path,
        answer: Callable[[str, int], "dict[str, Any] | _Pending"],
        clock_ns: Callable[[], int],
    ) -> None:
        self._path, self._answer, self._clock_ns = path, answer, clock_ns
        self._socket = _bound(path)
        self._socket.setblocking(False)
        # Not `select`, which refuses descriptors above 1023.
        self._poll = select.poll()
        self._poll.register(self._socket.fileno(), select.POLLIN)
        self._pending: list[tuple[_Pending, Any]] = []
        # Time at which nothing waited in the socket, so that whatever is read later was sent after it [ns].
        self._empty_ns = clock_ns()
        self._senders: dict[Any, deque[int]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"physai-{path.name}"[:15], daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._ended.is_set():
            if not self._take():
                # Shorter while an answer is awaited, so that an operator does not wait for the next poll.
                self._poll.poll(1000.0 * (_POLL_ANSWER_S if self._pending else _POLL_S))
            self._pending = [one for one in self._pending if not self._told(*one)]

    def _take(self) -> bool:
        """Process one request; return whether there was one."""
        try:
            data, sender = self._socket.recvfrom(MAX_REQUEST_BYTES)
        except BlockingIOError:
            self._empty_ns = self._clock_ns()
            return False
        except OSError:
            # Without memory, say. The next request may be a stop, so this goes on.
            self._ended.wait(_POLL_S)
            return False
        word = data.decode("utf-8", "replace").strip()
        if word not in _URGENT and self._floods(sender):
            return True
        answer = self._answer(word, self._clock_ns() - self._empty_ns)
        if not callable(answer):
            self._send(answer, sender)
        elif len(self._pending) < _MAX_PENDING:
            # Answered later, so that it does not hold up the requests behind it.
            self._pending.append((answer, sender))
        else:
            self._send({"accepted": word, "warning": "too many requests wait for their answers"}, sender)
        return True

    def _floods(self, sender: Any) -> bool:
        """Whether a sender asks too often."""
        now_ns = self._clock_ns()
        times = self._senders.setdefault(sender, deque(maxlen=_MAX_PER_S))
        floods = len(times) == _MAX_PER_S and now_ns - times[0] < 1_000_000_000
        if not floods:
            times.append(now_ns)
        if len(self._senders) > _MAX_SENDERS:
            del self._senders[next(iter(self._senders))]
        return floods

    def _told(self, pending: _Pending, sender: Any) -> bool:
        answer = pending(self._clock_ns())
        if answer is None:
            return False
        self._send(answer, sender)
        return True

    def _send(self, answer: dict[str, Any], sender: Any) -> None:
        if sender:
            data = json.dumps(answer).encode()
            if len(data) > MAX_ANSWER_BYTES:
                data = json.dumps({"error": f"the answer has {len(data)} bytes, above {MAX_ANSWER_BYTES}"}).encode()
            # The caller is gone, or does not read.
            with suppress(OSError):
                self._socket.sendto(data, socket.MSG_DONTWAIT, sender)


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


def tell(path: Path, word: str, *, timeout_s: float = ANSWER_S + 1.0) -> dict[str, Any]:
    """Send one request to the runtime; return its answer.

    Raises:
        ControlError: no runtime listens or answers, or the request is rejected.
    """
    if word in _URGENT and stop_path(path).is_socket():
        path = stop_path(path)
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
