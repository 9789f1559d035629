"""Thread that prints messages and polls for problems, so that the control loop never waits for a terminal."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

# Periods of printing, of polling for problems and of publishing diagnostics [s].
_PRINT_S, _POLL_S, _PUBLISH_S = 0.1, 2.0, 1.0

# Bound of the message queue, and of the problems remembered as reported.
_CAPACITY = 256


class Reporter:
    """Prints each message once it is queued, and each problem once per activation."""

    def __init__(
        self,
        show: Callable[[str], None],
        *,
        problems: Callable[[], Iterable[str]],
        publish: Callable[[], None],
    ) -> None:
        """Initialize without starting the thread.

        Args:
            show: prints one message; may block.
            problems: returns the current problems; empty strings are ignored.
            publish: publishes diagnostics.
        """
        self._show, self._problems, self._publish = show, problems, publish
        # Bounded: with a terminal that blocks, the oldest messages are lost rather than the memory.
        self._messages: deque[str] = deque(maxlen=_CAPACITY)
        self._reported: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="physai-news", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; queued messages stay until `flush`."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def report(self, text: str) -> None:
        """Queue a message; never blocks."""
        self._messages.append(text)

    def forget(self) -> None:
        """Report problems again that were reported before."""
        self._reported.clear()

    def flush(self) -> None:
        """Print the queued messages."""
        while self._messages:
            self._show(self._messages.popleft())

    def _run(self) -> None:
        polled_s = published_s = -math.inf
        while not self._ended.wait(_PRINT_S):
            now_s = time.monotonic()
            if now_s - polled_s > _POLL_S:
                polled_s = now_s
                for problem in self._problems():
                    # Each once, as it would otherwise be repeated every two seconds.
                    if problem and problem not in self._reported and len(self._reported) < _CAPACITY:
                        self._reported.add(problem)
                        self.report(problem)
            if now_s - published_s > _PUBLISH_S:
                published_s = now_s
                self._publish()
            self.flush()
