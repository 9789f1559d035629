"""Whether the Ray cluster that this process is connected with still answers."""

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from physai.compute.ray.cluster import ClusterError, answers
from physai.sdk.base.process.ending import leave

PATIENCE_S = 20.0
"""How long the head may not answer before the run ends [s]; less than the 60 s after which Ray ends this process."""
PAUSE_S = 2.0
"""Between two looks at it, and how long one may take [s]."""
STUCK_S = 10.0
"""How much longer Ray's process on this computer may not answer before this process ends at once [s]."""

_OPEN, _CLOSED = b"+", b"."
# Reads until the process that it watches has ended. Then it speaks if Ray has ended, too, and a `Head` was open: one
# that an interrupt kept from being made is never closed.
_WITNESS = """
import socket, sys
if sys.stdin.read() == "+":
    try:
        socket.socket(socket.AF_UNIX).connect(sys.argv[1])
    except OSError:
        sys.exit(sys.argv[2])
"""

logger = logging.getLogger(__name__)


class Head:
    """Looks at Ray's process on this computer (the raylet), and at the port of the cluster's head.

    Ray's own calls wait for a lost head, so ask here before. If the raylet ends meanwhile, they raise OSError, which
    `says_whether_lost` makes a ClusterError; if they were using the object store, Ray ends this process with code 1,
    and another process says why. If the raylet is stopped during a call, the call waits for it with no limit and cannot
    be interrupted; a thread then ends the process.
    """

    def __init__(self, ray: Any, *, way_out: str) -> None:
        """Of the cluster that the module `ray` is connected with; `way_out` says what to do once it is there again."""
        self._way_out = way_out
        about = ray.get_runtime_context()
        self.address: str = about.gcs_address
        """HOST:PORT."""
        mine = next(node for node in ray.nodes() if node["NodeID"] == about.get_node_id())
        self._raylet = socket.socket(socket.AF_UNIX)
        self._raylet.connect(mine["RayletSocketName"])
        words = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            _WITNESS,
            mine["RayletSocketName"],
            f"physai: error: {self._ended()}",
        ]
        # In a session of its own, so that Ctrl-C leaves it.
        self._witness = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        self._raylet.setblocking(False)
        self._local = f"{mine['NodeManagerAddress']}:{mine['NodeManagerPort']}"
        self._looked_s = -PAUSE_S
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="raylet", daemon=True).start()
        self._tell_witness(_OPEN)

    def _watch(self) -> None:
        # Not by the clock: this process may have been stopped, too.
        silent_s = 0.0
        while not self._closed.wait(PAUSE_S):
            # If it has ended, Ray ends this process or `require` raises.
            if not self._raylet_lives() or answers(self._local, timeout_s=PAUSE_S):
                silent_s = 0.0
                continue
            silent_s += 2.0 * PAUSE_S
            if silent_s > PATIENCE_S + STUCK_S and not self._closed.is_set():
                logger.error("%s", self._lost("Ray's process on this computer", silent_s))
                leave(2)

    def _lost(self, who: str, silent_s: float) -> str:
        return (
            f"of the cluster {self.address}, {who} has not answered for {silent_s:.0f} s: it ended or is stopped, or "
            "the network between it and this computer is down; start it again with `ray start --head`, and the other "
            f"computers with `ray start --address`, then {self._way_out}"
        )

    def _ended(self) -> str:
        return (
            f"Ray's process on this computer ended, and with it the connection to the cluster {self.address}; start it "
            f"again with `ray start`, then {self._way_out}"
        )

    def _raylet_lives(self) -> bool:
        try:
            return bool(self._raylet.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _silent(self) -> str:
        """The process that does not answer; empty if all do."""
        if not answers(self._local, timeout_s=PAUSE_S):
            return "Ray's process on this computer"
        return "" if answers(self.address, timeout_s=PAUSE_S) else "its head"

    @property
    def usable(self) -> bool:
        """Whether calls of Ray can be made now."""
        return self._raylet_lives() and not self._silent()

    def require(self) -> None:
        """Returns when Ray's process here and the head answer; waits `PATIENCE_S` for them.

        Raises:
            ClusterError: one does not answer, or Ray ended on this computer.
        """
        begun = time.monotonic()
        while True:
            if not self._raylet_lives():
                raise ClusterError(self._ended())
            if time.monotonic() - self._looked_s < PAUSE_S:
                return
            silent = self._silent()
            if not silent:
                self._looked_s = time.monotonic()
                return
            silent_s = time.monotonic() - begun
            if not silent_s <= PATIENCE_S:
                raise ClusterError(self._lost(silent, silent_s))
            time.sleep(0.2)

    def close(self) -> None:
        """Does not look any more."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._raylet.close()
        self._tell_witness(_CLOSED)
        self._witness.communicate()

    def _tell_witness(self, word: bytes) -> None:
        assert self._witness.stdin is not None
        # Somebody may have killed it.
        with suppress(BrokenPipeError):
            self._witness.stdin.write(word)
            self._witness.stdin.flush()


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def says_whether_lost(
    call: Callable[Concatenate[Any, _Given], _Result],
) -> Callable[Concatenate[Any, _Given], _Result]:
    """Has a method that calls Ray raise ClusterError, with the way out, when Ray ends on this computer meanwhile.

    Its object has a `head`.
    """

    @wraps(call)
    def checked(self: Any, *args: _Given.args, **kwargs: _Given.kwargs) -> _Result:
        try:
            return call(self, *args, **kwargs)
        except OSError:
            self.head.require()
            raise

    return checked
