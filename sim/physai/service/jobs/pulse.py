"""The pulse of a worker process: bytes on its standard output, by which its parent hears that it works."""

import contextlib
import os
import time
from typing import IO


def beat() -> None:
    """Tells the parent of this worker process that it works; costs nothing if nobody listens."""
    with contextlib.suppress(OSError):
        os.set_blocking(1, False)
        os.write(1, b".")


class Pulse:
    """Signs of life of a worker process, for its parent."""

    def __init__(self, stream: IO[bytes]) -> None:
        """Listens to the worker's standard output."""
        os.set_blocking(stream.fileno(), False)
        self._stream = stream
        self._began = False
        self._heard = time.monotonic()

    def listen(self) -> tuple[bool, float]:
        """Whether the worker has ever been heard, and how long it has been silent [s]."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._stream.fileno(), 2**16):
                self._began, self._heard = True, time.monotonic()
        return self._began, time.monotonic() - self._heard
