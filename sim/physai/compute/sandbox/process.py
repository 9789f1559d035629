"""The parent's end: starts the sandboxed process, asks it within limits of time and size, and ends it."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from physai.compute.sandbox.frames import ERROR, FACTS, NUMBERS, REPLY
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable

MAX_FACTS = 8192
"""Greatest length of a reply that is not numbers."""
MAX_PRINTED = 64 << 10
"""What the user's code may print in one call [bytes]."""
_CHUNK = 1 << 16


class SandboxError(PhysaiError):
    """The process of a user's reward crashed, hung, printed too much, or sent what is no reply."""


class SandboxedProcess:
    """A process that has been started; whatever goes wrong ends it."""

    def __init__(self) -> None:
        """Starts it; it waits for the first request."""
        ours: list[int] = []
        theirs: list[int] = []
        for reading in (False, True, True):
            ends = os.pipe()
            ours.append(ends[0 if reading else 1])
            theirs.append(ends[1 if reading else 0])
        self._requests, self._replies, self._output = ours
        for descriptor in ours:
            os.set_blocking(descriptor, False)
        # The kernel kills the child when the thread that started it ends, so that thread must last as long.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="sandbox")
        try:
            self._process = self._starter.submit(_start, theirs).result()
        except BaseException:
            self._starter.shutdown()
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._open = True

    @property
    def pid(self) -> int:
        """Identifier of the process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._open and self._process.poll() is None

    def ask(self, request: bytes, *, call: int, numbers: int, limit_s: float) -> tuple[int, bytes]:
        """Sends a request and returns kind and bytes of the reply.

        Args:
            request: see `physai.compute.sandbox.frames`.
            call: number of the request, which the reply must repeat.
            numbers: how many numbers a reply of that kind must hold.
            limit_s: greatest time until the reply is complete [s].

        Raises:
            SandboxError: the process crashed, hung, printed too much or sent something else; it has been killed.
        """
        exchange = _Exchange(self._requests, self._replies, self._output, request)
        try:
            problem = exchange.run(limit_s, lambda reply: _complete(reply, call, numbers))
        except BaseException:
            self.close()
            raise
        if problem is None:
            _, kind, _ = REPLY.unpack_from(exchange.reply)
            return kind, bytes(exchange.reply[REPLY.size :])
        if problem == _ENDED:
            problem = self._ending()
        self.close()
        said = _last_line(exchange.printed)
        raise SandboxError(problem + (said and f"; the last that it printed: {said}"))

    def _ending(self) -> str:
        """Description of the end of a process that closed its pipe."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "closed the pipe of its replies and was killed"
        return f"ended its process with {_signal_name(-code) if code < 0 else f'status {code}'}"

    def close(self) -> None:
        """Kills it; may be called again."""
        if self._open:
            self._open = False
            self._process.kill()
            self._process.wait()
            self._starter.shutdown()
            for descriptor in (self._requests, self._replies, self._output):
                os.close(descriptor)


_ENDED = "ended"


class _Exchange:
    """One request and its reply, while what the process prints is read and bounded."""

    def __init__(self, requests: int, replies: int, output: int, request: bytes) -> None:
        self._requests, self._replies, self._output = requests, replies, output
        self._unsent = memoryview(request)
        self.reply = bytearray()
        self.printed = bytearray()

    def run(self, limit_s: float, complete: Callable[[bytearray], bool]) -> str | None:
        """Returns what went wrong, or None."""
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_WRITE)
            selector.register(self._replies, selectors.EVENT_READ)
            selector.register(self._output, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                ready = selector.select(max(0.0, left)) if left > 0.0 else []
                if not ready:
                    return f"took more than {limit_s:g} s and was killed"
                for key, _ in ready:
                    if not self._serve(key.fd):
                        if key.fd == self._replies:
                            # What it printed last was printed before.
                            self._serve(self._output)
                            return _ENDED
                        selector.unregister(key.fd)
                if len(self.printed) > MAX_PRINTED:
                    return f"printed more than {MAX_PRINTED} bytes and was killed"
                try:
                    if complete(self.reply):
                        return None
                except ValueError as error:
                    return f"{error}; it was killed"

    def _serve(self, descriptor: int) -> bool:
        """Sends or receives what is ready; False when there will be no more."""
        try:
            if descriptor == self._requests:
                self._unsent = self._unsent[os.write(descriptor, self._unsent[:_CHUNK]) :]
                return len(self._unsent) > 0
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        (self.reply if descriptor == self._replies else self.printed).extend(data)
        return len(data) > 0


def _complete(reply: bytearray, call: int, numbers: int) -> bool:
    """Whether a reply is complete; raises ValueError if it is none."""
    if len(reply) < REPLY.size:
        return False
    number, kind, length = REPLY.unpack_from(reply)
    fits = length == 8 * numbers if kind == NUMBERS else kind in (FACTS, ERROR) and length <= MAX_FACTS
    if number != call or not fits or len(reply) > REPLY.size + length:
        raise ValueError(
            f"wrote into the pipe of its replies: reply {number} of kind {kind} with {length} bytes, expected reply "
            f"{call} with {8 * numbers} bytes"
        )
    return len(reply) == REPLY.size + length


def _start(descriptors: list[int]) -> "subprocess.Popen[bytes]":
    requests, replies, output = descriptors
    # Nothing of the environment reaches the user's code, apart from where shared libraries lie.
    environment = {"LANG": "C.UTF-8", "HOME": "/nonexistent"}
    environment |= {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    environment |= {n: os.environ[n] for n in ("LD_LIBRARY_PATH",) if n in os.environ}
    module = ["-m", "physai.compute.sandbox.child", str(requests), str(replies)]
    return subprocess.Popen(
        [sys.executable, "-I", "-B", "-u", *module],
        pass_fds=(requests, replies),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        cwd="/",
        # Ctrl-C is for this program, which then ends the child.
        start_new_session=True,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(printed: bytearray) -> str:
    lines = bytes(printed[-1000:]).decode("utf-8", "replace").split("\n")
    return printable(next((line.strip() for line in reversed(lines) if line.strip()), ""))[:200]
