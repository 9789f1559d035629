"""Detects faults in the tick records that trigger a flight recording."""

from collections import deque

import numpy as np

from physai.deploy_jetson.ticks.reasons import RuntimeFault, describe
from physai.deploy_jetson.ticks.tick_ring import Ticks
from physai.sdk.safety import GuardState

# Missed control periods within `BURST_S` that count as one fault.
BURST = 5

BURST_S = 1.0
# Time without a missed period after which the next burst counts as a new fault, so that a machine that is always too
# slow does not fill the folder [s].
QUIET_S = 30.0

_REQUESTED = int(RuntimeFault.HOLD_REQUESTED | RuntimeFault.DAMP_REQUESTED)
_NOTHING_SENT = int(RuntimeFault.GUARD_FAILED | RuntimeFault.NOT_SENT)


class FaultWatch:
    """Detects faults; reads every record of a run once, in order."""

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._state = int(GuardState.RUN)
        self._silent = False
        self._number: int | None = None
        self._missed: deque[int] = deque(maxlen=BURST)
        self._last_missed_ns: int | None = None
        self._armed = True

    def look(self, ticks: Ticks) -> list[str]:
        """Return a short description of each fault that began in these ticks."""
        if not self._may_have_fault(ticks):
            if len(ticks):
                self._number = int(ticks["tick"][-1])
            return []
        return [cause for tick in ticks for cause in self._causes(tick)]

    def _may_have_fault(self, ticks: Ticks) -> bool:
        """Whether any tick needs a closer look; a fast check, since faults are rare."""
        if not len(ticks):
            return False
        numbers = ticks["tick"]
        # The number of the last tick seen; before the first look, the one before these.
        first = numbers[0] - 1 if self._number is None else self._number
        return bool(
            ticks["missed"].any()
            or (ticks["reasons"] & _NOTHING_SENT).any()
            or self._silent
            or (ticks["state"] != self._state).any()
            or numbers[-1] - first != len(ticks)
        )

    def _causes(self, tick: np.void) -> list[str]:
        causes: list[str] = []
        state, reasons, number = int(tick["state"]), int(tick["reasons"]), int(tick["tick"])
        # STANDSTILL is no fault, and a state that an operator requested is none either.
        if state > max(self._state, GuardState.STANDSTILL) and not reasons & _REQUESTED:
            causes.append(f"{GuardState(state).name}: {describe(reasons)}")
        self._state = state
        silent = bool(reasons & _NOTHING_SENT)
        # Reported once per silence, not with every tick of it.
        if silent and not self._silent:
            causes.append(f"nothing sent: {describe(reasons & _NOTHING_SENT)}")
        self._silent = silent
        # A gap in the numbers is a run of periods without a tick; each counts as missed.
        skipped = 0 if self._number is None else number - self._number - 1
        self._number = number
        if self._is_burst(int(tick["deadline_ns"]), skipped + int(tick["missed"])):
            causes.append(f"{BURST} deadlines missed within {BURST_S:g} s")
        return causes

    def _is_burst(self, now_ns: int, missed: int) -> bool:
        """Whether a burst of missed periods begins here."""
        if not missed:
            return False
        before, self._last_missed_ns = self._last_missed_ns, now_ns
        if before is not None and now_ns - before > QUIET_S * 1e9:
            self._armed = True
        # More than BURST at once are as good as BURST, and the list stays bounded.
        self._missed.extend([now_ns] * min(missed, BURST))
        full = len(self._missed) == BURST and now_ns - self._missed[0] <= BURST_S * 1e9
        if not (full and self._armed):
            return False
        self._armed = False
        return True
