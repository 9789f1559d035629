"""Packets of one kind from one peer: sequence check, and measurement times on this computer's clock.

Stamps of a microcontroller's own clock are shifted to this computer's clock by the smallest difference between arrival
and stamp in the last seconds. Delay beyond that of the fastest packet counts as age; the delay of the fastest packet is
unknown and does not (a fraction of a millisecond on a direct cable).
"""

import time

from physai.transport.notices import Notices
from physai.transport.stamps import NANOSECONDS, StampCheck
from physai.transport.udp.packet import Clock, Header, is_newer


class ClockOffset:
    """Offset of a sender's clock to this computer's: the smallest difference in two windows of `WINDOW_NS`."""

    WINDOW_NS = 5 * NANOSECONDS

    def __init__(self) -> None:
        """Initialize without packets."""
        self._now: int | None = None
        self._before: int | None = None
        self._since_ns = 0

    def moved(self, stamp_ns: int, arrival_ns: int) -> int:
        """Convert a stamp to this computer's clock [ns]; `arrival_ns` is CLOCK_REALTIME."""
        difference = arrival_ns - stamp_ns
        # Two windows bound the age of the offset: a drift of 100 ppm amounts to 1 ms in 10 s.
        if self._now is None or arrival_ns - self._since_ns > self.WINDOW_NS:
            self._before, self._now, self._since_ns = self._now, difference, arrival_ns
        # The fastest packet has the least delay in its difference.
        self._now = min(self._now, difference)
        return stamp_ns + (self._now if self._before is None else min(self._now, self._before))


class PacketSource:
    """Packets of one kind from one peer: their order and their stamps."""

    def __init__(self, label: str, ahead_s: float, notices: Notices) -> None:
        """Initialize without packets.

        Args:
            label: name for notices.
            ahead_s: see `StampCheck`.
            notices: receives rejections.
        """
        self._label, self._ahead_s, self._notices = label, ahead_s, notices
        self._sequence: int | None = None
        self._raw_ns = 0
        self._begin()

    def _begin(self) -> None:
        self._offset = ClockOffset()
        self._stamps = StampCheck(self._label, self._ahead_s, self._notices)

    def stamp(self, header: Header) -> int:
        """Return the packet's stamp on CLOCK_REALTIME [ns], or 0 if the packet is rejected."""
        now_ns = time.time_ns()
        if self._sequence is not None and not is_newer(header.sequence, self._sequence):
            # A reordered packet is older by less than a second. A restarted sender counts from 0 again, and so does its
            # own clock.
            if self._raw_ns - NANOSECONDS <= header.stamp_ns <= self._raw_ns:
                return 0
            self._notices.add(f"{self._label}: the sender started anew")
            self._begin()
        self._sequence, self._raw_ns = header.sequence, header.stamp_ns
        # Reported as an empty stamp; shifted to this computer's clock it would look plausible.
        if header.stamp_ns == 0:
            self._stamps.accepts(0, now_ns)
            return 0
        stamp_ns = header.stamp_ns if header.clock is Clock.REALTIME else self._offset.moved(header.stamp_ns, now_ns)
        return stamp_ns if self._stamps.accepts(stamp_ns, now_ns) else 0
