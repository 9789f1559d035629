"""Deadline timer on CLOCK_MONOTONIC with microsecond precision."""

import ctypes
import time
from collections.abc import Callable

# Time before the deadline from which to busy-wait [ns]. A kernel without real-time patches wakes a sleeping thread
# about 60 µs (p50) to 100 µs (p99) late; busy-waiting ends within 1 µs.
SPIN_NS = 100_000

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_NS = 1_000_000_000


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


# Longest warm-up, as a share of the period.
WARM_UP_SHARE = 0.25

# Waits without a warm-up after one that took too long: exponential backoff from the first to the second.
_REST_WAITS, _LONGEST_REST = 16, 1024

_MAX_WARM_UPS = 3


class DeadlineTimer:
    """Sleeps until absolute deadlines, so that errors do not accumulate."""

    def __init__(
        self,
        *,
        spin_ns: int = SPIN_NS,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        warm_up: Callable[[], object] | None = None,
        period_ns: int = 0,
    ) -> None:
        """Initialize without waiting.

        Args:
            spin_ns: time before the deadline from which to busy-wait [ns].
            clock_ns: CLOCK_MONOTONIC [ns].
            warm_up: called up to three times shortly before the deadline, if it takes at most `WARM_UP_SHARE`.
            period_ns: time between deadlines [ns].
        """
        self._spin_ns = spin_ns
        self._clock_ns = clock_ns
        self._warm_up = warm_up
        self._most_ns = round(WARM_UP_SHARE * period_ns) if warm_up is not None else 0
        self._lead_ns = self._most_ns
        self._again_ns = self._most_ns >> 1
        self._rest, self._next_rest = 0, _REST_WAITS
        self._moment = _TimeSpec()
        self._reference = ctypes.byref(self._moment)
        # CDLL, unlike PyDLL, releases the interpreter lock during the call.
        self._sleep = ctypes.CDLL(None).clock_nanosleep

    def wait(self, due_ns: int) -> int:
        """Wait until a time of CLOCK_MONOTONIC [ns]; return the time at the end [ns].

        Returns at once if it has passed. A signal does not shorten the wait: its handler runs, then the wait goes on.
        """
        clock = self._clock_ns
        until, moment = due_ns - self._spin_ns - self._lead_ns, self._moment
        now = clock()
        # In a loop, because a signal ends the call early.
        while now < until:
            moment.seconds, moment.nanoseconds = divmod(until, _NS)
            self._sleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, self._reference, None)
            now = clock()
        if self._most_ns:
            now = self._prepare(now, due_ns)
        # Busy-waits the rest, without the scheduler's latency.
        while now < due_ns:
            now = clock()
        return now

    def _prepare(self, now: int, due_ns: int) -> int:
        """Warm up while there is time; return the time at the end [ns]."""
        # The last warm-up took too long: this machine has no time for it at present.
        if self._rest or self._warm_up is None:
            self._rest -= 1
            self._lead_ns = 0 if self._rest else self._most_ns
            return now
        clock, lead = self._clock_ns, self._lead_ns
        # The reserved time holds half as much again as the warm-up took; two thirds of it are the warm-up.
        needed = lead - lead // 3
        for index in range(_MAX_WARM_UPS):
            # A warm-up that ends after the deadline would delay the tick.
            if now + needed > due_ns:
                break
            self._warm_up()
            before, now = now, clock()
            took = now - before
            enough = took + (took >> 1)
            # The reserved time rises at once and decays slowly. The first warm-up finds cold caches and takes longer.
            if index:
                self._again_ns = max(enough, self._again_ns)
            elif took > self._most_ns:
                self._lead_ns, self._rest = 0, self._next_rest
                self._next_rest = min(2 * self._next_rest, _LONGEST_REST)
                break
            else:
                self._lead_ns, self._next_rest = max(enough, lead - (lead >> 8)), _REST_WAITS
                self._again_ns -= self._again_ns >> 8
            needed = self._again_ns
        return now
