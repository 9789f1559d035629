"""Pauses of the policy node's process (SIGSTOP, a busy computer), after which it reads requests that waited."""

# Gap between two looks after which requests may have waited [s].
GAP_S = 1.0

# Time until they are read after the gap [s]: the middleware repeats what it could not deliver.
DRAIN_S = 5.0


class Pauses:
    """Newest pause, as seen by a timer that looks many times per `GAP_S`."""

    def __init__(self, now_ns: int) -> None:
        """Start without a pause.

        Args:
            now_ns: monotonic time [ns].
        """
        self._looked_ns = now_ns
        # Monotonic times before and after the newest pause [ns].
        self._before_ns = self._after_ns = 0

    def look(self, now_ns: int) -> None:
        """Notice a pause since the last look."""
        looked_ns, self._looked_ns = self._looked_ns, now_ns
        if now_ns - looked_ns <= GAP_S * 1e9:
            return
        # What waited in an earlier pause may still be unread, as on a computer that is busy for a while.
        if not self._drains(looked_ns):
            self._before_ns = looked_ns
        self._after_ns = now_ns

    def read_since_ns(self, now_ns: int) -> int:
        """Return the earliest monotonic time at which a request that is read now can have arrived [ns]."""
        return self._before_ns if self._drains(now_ns) else self._looked_ns

    def late(self, now_ns: int, patience_s: float) -> str:
        """Return why a request that is read now may be older than its sender waits; empty if it is not.

        Args:
            now_ns: monotonic time [ns].
            patience_s: how long a sender waits for an answer [s].
        """
        since_ns = self.read_since_ns(now_ns)
        if (now_ns - since_ns) * 1e-9 <= patience_s:
            return ""
        # Requests may come before the timer's look.
        after_ns = self._after_ns if self._drains(now_ns) else now_ns
        return (
            f"this node stood still for {(after_ns - since_ns) * 1e-9:.0f} s, so the request may be an old one; ask "
            f"again {DRAIN_S:g} s later"
        )

    def _drains(self, now_ns: int) -> bool:
        return bool(self._after_ns) and now_ns - self._after_ns < DRAIN_S * 1e9
