"""A small socket beside the counters, through which an operator asks for HOLD, DAMP, a stop, a reset, or the status.

One datagram is one request: a word of `Order`, `heartbeat`, `status` or `record`. Each is answered by one JSON object,
to whoever has an address to answer to. Datagrams, because a caller that does not read, or dies half-way, cannot keep an
emergency stop waiting. The socket's file belongs to the user who runs the policy, and no other may write to it.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from physai.deploy_jetson.runtime.orders import Mailbox, Order
from physai.sdk.errors import PhysaiError, unknown_name

CONTROL_FILE = "control"
MAX_REQUEST_BYTES = 256
MAX_ANSWER_BYTES = 1 << 16
HEARTBEAT, STATUS, RECORD = "heartbeat", "status", "record"

_POLL_S = 0.2


class ControlError(PhysaiError):
    """The control socket cannot be made or reached, or the runtime refuses a request."""


class ControlSocket:
    """The runtime's end, served by a thread of its own."""

    def __init__(
        self,
        path: Path,
        mailbox: Mailbox,
        status: Callable[[], dict[str, Any]],
        *,
        record: Callable[[], str] = lambda: "there is no flight recorder",
        clock_ns: Callable[[], int] = time.monotonic_ns,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Makes the socket; an old one of a runtime that is gone is replaced.

        Args:
            path: where, in a folder that exists.
            mailbox: gets the requests.
            status: what to answer.
            record: has the last seconds written down; says where.
            clock_ns: CLOCK_MONOTONIC [ns].
            prepare: called first in the thread.

        Raises:
            ControlError: it cannot be made, or another runtime listens there.
        """
        self._path, self._mailbox, self._status, self._record = path, mailbox, status, record
        self._clock_ns, self._prepare = clock_ns, prepare
        self._socket = _bound(path)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="physai-control", daemon=True)

    def start(self) -> None:
        """Begins to answer."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and removes the socket."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self) -> None:
        self._prepare()
        self._socket.settimeout(_POLL_S)
        while not self._ended.is_set():
            try:
                data, sender = self._socket.recvfrom(MAX_REQUEST_BYTES)
            except TimeoutError:
                continue
            except OSError:
                return
            answer = self._answer(data.decode("ascii", "replace").strip())
            if sender:
                with suppress(OSError):  # whoever asked is gone, or does not read
                    self._socket.sendto(json.dumps(answer).encode()[:MAX_ANSWER_BYTES], socket.MSG_DONTWAIT, sender)

    def _answer(self, word: str) -> dict[str, Any]:
        if word == HEARTBEAT:
            self._mailbox.heartbeat_ns = self._clock_ns()
            return {}
        if word == STATUS:
            return self._status()
        if word == RECORD:
            return {"record": self._record()}
        try:
            self._mailbox.put(Order(word))
        except ValueError:
            return {"error": str(unknown_name("request", word, (*Order, HEARTBEAT, STATUS, RECORD)))}
        return {"accepted": word}


def _bound(path: Path) -> socket.socket:
    """A datagram socket at that path, for this user alone."""
    if path.is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                path.unlink(missing_ok=True)
            else:
                raise ControlError(f"{path}: another runtime listens there; end it first")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
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


def tell(path: Path, word: str, *, timeout_s: float = 1.0) -> dict[str, Any]:
    """Sends one request to the runtime, and returns its answer.

    Raises:
        ControlError: nobody listens or answers, or the request is refused.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as caller:
        caller.bind("")  # Linux chooses a free abstract address to answer to
        caller.settimeout(timeout_s)
        try:
            caller.connect(str(path))
            caller.send(word.encode())
            answer: dict[str, Any] = json.loads(caller.recv(MAX_ANSWER_BYTES))
        except TimeoutError:
            raise ControlError(f"{path}: the runtime did not answer within {timeout_s:g} s") from None
        except PermissionError:
            raise ControlError(f"{path}: only the user who runs the policy, and root, may speak to it") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ControlError(f"{path}: no runtime to talk to: {reason}; start it with `physai robot run`") from None
    if "error" in answer:
        raise ControlError(str(answer["error"]))
    return answer
