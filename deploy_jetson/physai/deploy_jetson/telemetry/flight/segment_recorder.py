"""Scheduled segments in the recorder's process: follows the memory and writes what the schedule has drawn.

The loop does nothing for it. Ticks that were overwritten before they were read are counted in the file.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from physai.deploy_jetson.telemetry.flight.file import SCHEDULED, FlightError, FlightFolder, file_name
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightView
from physai.deploy_jetson.telemetry.flight.segment_file import SegmentFile
from physai.deploy_jetson.telemetry.flight.segment_schedule import (
    AHEAD_S,
    SegmentLedger,
    SegmentLedgerError,
    SegmentSchedule,
    SegmentWindow,
)
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.evidence.requirements import SegmentRules

LOOK_S = 4.0
"""Longest period of reading the memory [s]."""
CLOCK_SET_NS = 50_000_000
"""Change of CLOCK_REALTIME against CLOCK_MONOTONIC between two looks that means that it was set [ns]."""

MAX_FILE_BYTES = 64 << 20
"""Size from which a segment goes on in another file, so that the memory stays bounded."""

# Metadata of the origin that tells policies apart.
_POLICY = ("bundle_sha256", "contract")


@dataclass
class _Open:
    """A segment in memory."""

    window: SegmentWindow
    file: SegmentFile
    origin: dict[str, str]
    began: datetime
    driven_s: float
    lost: int = 0


class SegmentRecorder:
    """Records the segments of one run."""

    def __init__(
        self,
        view: FlightView,
        folder: FlightFolder,
        contract: PolicyContract,
        rules: SegmentRules,
        origin: Mapping[str, str],
        capacity: int,
    ) -> None:
        """Load the folder's ledger and continue its driven time.

        Args:
            view: the memory.
            folder: where the files are kept.
            contract: of the policy.
            rules: of the segments.
            origin: metadata of the files.
            capacity: ticks in the memory.
        """
        self._view, self._folder, self._contract, self._rules = view, folder, contract, rules
        self._origin = dict(origin)
        self._period_s = contract.timing.control_dt
        self.look_s = min(LOOK_S, 0.25 * capacity * self._period_s)
        """Period in which to call `look` [s]."""
        self._ledger, self._problem = SegmentLedger.load(folder.path)
        self._told: tuple[object, ...] = ()
        self._base_s = self._ledger.driven_s
        self._schedule = SegmentSchedule(bytes.fromhex(self._ledger.seed), rules)
        self._open: _Open | None = None
        self._seen = 0
        self._closed = -1
        self._lost_ticks = 0
        self._last = ""
        self._offset_ns = _clock_offset_ns()
        self._keep(self._base_s + AHEAD_S)

    def look(self) -> dict[str, Any] | None:
        """Take the ticks since the last look; return news for the runtime, None without any."""
        self._follow()
        return self._news()

    def set_origin(self, origin: Mapping[str, str]) -> dict[str, Any] | None:
        """Set the origin of later ticks; a file shows one policy. Returns as `look` does."""
        self._follow()
        before, self._origin = self._origin, dict(origin)
        if self._open is not None and any(origin.get(key) != before.get(key) for key in _POLICY):
            if any(key in before for key in _POLICY):
                self._close("the policy changed")
            else:
                # The first ticks of a run come before the runtime says which policy it is.
                self._open.origin = self._origin
        return self._news()

    def finish(self, cause: str) -> dict[str, Any] | None:
        """Write the open segment as far as it goes, and the ledger; returns as `look` does."""
        self._follow()
        self._close(cause)
        self._keep(self._base_s + self._seen * self._period_s)
        return self._news()

    def _follow(self) -> None:
        """Take the ticks since the last time."""
        count = self._view.count
        self._pass_over_set_clock(count)
        while self._seen < count:
            window = self._schedule.next(self._driven_s(self._seen), self._closed)
            start, last = max(self._seen, self._row(window.start_s)), self._row(window.end_s)
            if start >= count:
                self._seen = count
                break
            end = max(start, min(count, last))
            self._take(window, start, end)
            self._seen = end
            if last <= count:
                self._closed = window.interval
                self._close("")
        # Before the next look could pass it.
        if self._driven_s(count) + 2.0 * self.look_s > self._ledger.driven_s:
            self._keep(self._driven_s(count) + AHEAD_S)

    def _pass_over_set_clock(self, count: int) -> None:
        """Leave out the ticks in which the wall clock was set: no one clock stamps all of them rightly."""
        before_ns, self._offset_ns = self._offset_ns, _clock_offset_ns()
        if abs(self._offset_ns - before_ns) <= CLOCK_SET_NS:
            return
        start = self._row(self._schedule.next(self._driven_s(self._seen), self._closed).start_s)
        lost = max(0, count - max(start, self._seen))
        if self._open is None:
            self._lost_ticks += lost
        else:
            self._open.lost += lost
            self._close("the clock was set")
        self._seen = count

    def _driven_s(self, row: int) -> float:
        """Driven time in the middle of a tick [s]."""
        return self._base_s + (row + 0.5) * self._period_s

    def _row(self, driven_s: float) -> int:
        """Return the first tick at or after a driven time."""
        return max(0, round((driven_s - self._base_s) / self._period_s))

    def _take(self, window: SegmentWindow, first: int, end: int) -> None:
        opened = self._open
        if opened is None:
            try:
                file = SegmentFile(self._contract, self._offset_ns, self._rules.steps)
            except ImportError as error:
                self._lost_ticks += end - first
                self._problem = f"a scheduled segment is lost: {error}"
                return
            driven_s = self._base_s + first * self._period_s
            began_s = time.time() - (self._view.count - first) * self._period_s
            began = datetime.fromtimestamp(began_s, UTC)
            opened = self._open = _Open(window, file, self._origin, began, driven_s)
            self._keep(self._ledger.driven_s, open=True)
        flight = self._view.between(first, end)
        opened.lost += end - first - len(flight.ticks)
        opened.file.add(flight)
        if opened.file.size > MAX_FILE_BYTES:
            self._close("the file is full")

    def _close(self, ended: str) -> None:
        """Write the open segment, if there is one; `ended` is why it ends before its window."""
        opened, self._open = self._open, None
        if opened is None:
            return
        self._lost_ticks += opened.lost
        written, lost = self._ledger.written, self._ledger.lost
        try:
            if opened.file.ticks:
                version = int(opened.origin["version"])
                name = file_name(self._folder.next_number(), opened.began, version, SCHEDULED)
                self._last = str(self._folder.store(name, opened.file.finish(self._metadata(opened, ended))))
                written += 1
        except (FlightError, OSError, ImportError) as error:
            lost += 1
            self._problem = f"a scheduled segment is lost: {error}"
        self._ledger = replace(self._ledger, written=written, lost=lost)
        self._keep(self._ledger.driven_s)

    def _metadata(self, opened: _Open, ended: str) -> dict[str, str]:
        return {
            **opened.origin,
            "causes": SCHEDULED,
            "segment": SCHEDULED,
            "schedule": self._ledger.schedule,
            "interval": str(opened.window.interval),
            "per_hour": str(self._rules.per_hour),
            "seconds": str(self._rules.seconds),
            "drawn_s": f"{opened.window.start_s:.3f}",
            "driven_s": f"{opened.driven_s:.3f}",
            "ticks": str(opened.file.ticks),
            "lost_ticks": str(opened.lost),
            "ended": ended or "complete",
        }

    def _keep(self, driven_s: float, *, open: bool = False) -> None:
        """Write the ledger with this driven time."""
        self._ledger = replace(self._ledger, driven_s=driven_s, open=open or self._open is not None)
        try:
            self._ledger.save(self._folder.path)
        except SegmentLedgerError as error:
            # The segments go on; a restart would repeat their driven time.
            self._problem = self._problem or str(error)

    def _news(self) -> dict[str, Any] | None:
        """Return the counts, if they or the problem have changed."""
        problem, self._problem = self._problem, ""
        counts = (self._ledger.written, self._ledger.lost, self._lost_ticks, self._last)
        if counts == self._told and not problem:
            return None
        self._told = counts
        names = ("written", "lost", "lost_ticks", "last")
        return {"segments": dict(zip(names, counts, strict=True)), "problem": problem}


def _clock_offset_ns() -> int:
    return time.time_ns() - time.monotonic_ns()
