"""Plausibility check of message time stamps, shared by DDS and UDP."""

from physai.transport.notices import Notices

NANOSECONDS = 1_000_000_000
# A stamp this far before its predecessor means that the clock was set back, not that messages were reordered.
STEP_NS = NANOSECONDS


class StampCheck:
    """Checks the stamps of one source, in the order in which its messages arrive."""

    def __init__(self, source: str, ahead_s: float, notices: Notices) -> None:
        """Initialize without a stamp.

        Args:
            source: name for notices.
            ahead_s: tolerance for stamps ahead of this computer's clock [s]; the guard checks those within.
            notices: receives rejections.
        """
        self._source = source
        self._ahead_ns = round(ahead_s * NANOSECONDS)
        self._notices = notices
        self._last_ns = 0

    def accepts(self, stamp_ns: int, now_ns: int) -> bool:
        """Whether a message with this stamp is new and plausible; both are CLOCK_REALTIME [ns]."""
        # The usual case is one comparison; everything else is explained below.
        if self._last_ns < stamp_ns <= now_ns + self._ahead_ns:
            self._last_ns = stamp_ns
            return True
        return self._accepts_step(stamp_ns, now_ns)

    def _accepts_step(self, stamp_ns: int, now_ns: int) -> bool:
        # Drivers that leave the header empty send 0.
        if stamp_ns <= 0:
            self._notices.add(
                f"{self._source}: its stamp is {stamp_ns / NANOSECONDS:g} s, expected when it was measured, as seconds "
                "since 1970; let the driver fill it in, or bind it with `stamp: source`"
            )
            return False
        if not stamp_ns <= now_ns + self._ahead_ns:
            self._notices.add(
                f"{self._source}: stamps are {(stamp_ns - now_ns) / NANOSECONDS:.1g} s ahead of this clock; at most "
                f"{self._ahead_ns / NANOSECONDS:g} s are taken; synchronise the clocks (chrony, PTP)"
            )
            return False
        # A jump this far back is a clock that was set, and the robot must not stay silent until it has caught up.
        if self._last_ns - stamp_ns > STEP_NS:
            self._notices.add(f"{self._source}: its clock was set back by more than {STEP_NS / NANOSECONDS:g} s")
            self._last_ns = stamp_ns
            return True
        return False
