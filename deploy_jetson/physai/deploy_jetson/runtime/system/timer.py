"""Deadline timer on CLOCK_MONOTONIC with microsecond precision."""

import ctypes
import time
from collections.abc import Callable

SPIN_NS = 100_000
"""Time before the moment from which the clock is watched instead of slept on [ns]. A kernel without real-time patches
wakes a sleeper some 60 µs late (p50) to 100 µs (p99); watching costs that share of one core and ends within 1 µs."""

_CLOCK_MONOTONIC = 1
_TIMER_ABSTIME = 1
_NS = 1_000_000_000


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


WARM_UP_SHARE = 0.25
"""Longest a warm-up may take, as a share of the period that it is part of."""

_REST_WAITS, _LONGEST_REST = 16, 1024
"""Waits for which nothing is warmed up after one that took longer: doubled from the first to the second as long as the
next one takes longer, too."""

_MOST_REHEARSALS = 3


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
        """Nothing is waited for yet.

        Args:
            spin_ns: time before the moment from which the clock is watched [ns].
            clock_ns: CLOCK_MONOTONIC [ns].
            warm_up: done up to three times shortly before the moment, where it takes little of a period.
            period_ns: from one moment to the next [ns].
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
        # A CDLL function, unlike a PyDLL one, lets other threads run while it sleeps.
        self._sleep = ctypes.CDLL(None).clock_nanosleep

    def wait(self, due_ns: int) -> int:
        """Returns at the given time of CLOCK_MONOTONIC [ns], or at once if it has passed; the time it is now [ns].

        A signal does not shorten it: its handler runs, and the wait goes on.
        """
        clock = self._clock_ns
        until, moment = due_ns - self._spin_ns - self._lead_ns, self._moment
        now = clock()
        while now < until:
            moment.seconds, moment.nanoseconds = divmod(until, _NS)
            self._sleep(_CLOCK_MONOTONIC, _TIMER_ABSTIME, self._reference, None)
            now = clock()
        if self._most_ns:
            now = self._prepare(now, due_ns)
        while now < due_ns:
            now = clock()
        return now

    def _prepare(self, now: int, due_ns: int) -> int:
        """Rehearses as long as there is time for it; the time it is then [ns]."""
        if self._rest or self._warm_up is None:
            self._rest -= 1
            self._lead_ns = 0 if self._rest else self._most_ns
            return now
        clock, lead = self._clock_ns, self._lead_ns
        needed = lead - lead // 3
        for index in range(_MOST_REHEARSALS):
            # One that ends after the moment does more harm than good.
            if now + needed > due_ns:
                break
            self._warm_up()
            before, now = now, clock()
            took = now - before
            enough = took + (took >> 1)
            # What is reserved falls slowly, and rises at once. The first one finds cold caches and takes longer.
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
