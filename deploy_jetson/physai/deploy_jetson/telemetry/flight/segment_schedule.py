"""Times of scheduled segments, drawn before the run: one segment at a random time in each interval of driven time.

Driven time is the number of ticks times the period, over all runs; no clock can be set to change it. The times follow
from a secret seed, which is drawn once and kept with the recordings, so a restart neither draws again nor skips an
interval: a segment that the end of a run cuts goes on in the next run. The intervals begin at a random phase, so that
every moment of driven time is recorded with the same probability.
"""

import hashlib
import hmac
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import oserror_as, read_plain, write_atomic
from physai.sdk.base.formats.documents import DocumentKind
from physai.sdk.contract.robot import Frozen, Sha256
from physai.sdk.evidence.requirements import SegmentRules

LEDGER_FILE = "segments.json"
AHEAD_S = 30.0
"""Driven time by which the ledger is ahead of the run, and which a power cut skips at most [s]."""

_MAX_BYTES = 1 << 12
_Count = Annotated[int, Field(ge=0, le=2**53)]


@dataclass(frozen=True)
class SegmentWindow:
    """Driven time of one segment [s]."""

    interval: int
    start_s: float
    end_s: float


class SegmentSchedule:
    """The windows of a seed and its rules."""

    def __init__(self, seed: bytes, rules: SegmentRules) -> None:
        self._seed, self._length_s = seed, rules.seconds
        self._every_s = 3600.0 / rules.per_hour
        # Other rules are another draw.
        self._salt = f"{rules.per_hour!r} {rules.seconds!r}"
        self._phase_s = self._share("phase") * self._every_s

    def window(self, interval: int) -> SegmentWindow:
        """Return the window in an interval; interval 0 begins before driven time does."""
        start_s = interval * self._every_s - self._phase_s
        start_s += self._share(str(interval)) * (self._every_s - self._length_s)
        return SegmentWindow(interval, start_s, start_s + self._length_s)

    def next(self, driven_s: float, after: int = -1) -> SegmentWindow:
        """Return the first window that ends after a time, of those after the interval `after`."""
        interval = max(int((driven_s + self._phase_s) // self._every_s), after + 1)
        window = self.window(interval)
        return window if driven_s < window.end_s else self.window(interval + 1)

    def _share(self, what: str) -> float:
        """Return a number in [0, 1) that cannot be predicted without the seed."""
        digest = hmac.new(self._seed, f"{self._salt} {what}".encode(), hashlib.sha256).digest()
        return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


class SegmentLedgerError(PhysaiError):
    """The ledger of segments cannot be read or written."""


class _Document(Frozen):
    format_version: Literal[1] = 1
    seed: Sha256
    driven_s: Annotated[float, Field(ge=0.0, le=1e12)]
    written: _Count = 0
    lost: _Count = 0
    open: bool = False


_KIND = DocumentKind(
    name="ledger of segments", format_version=1, max_bytes=_MAX_BYTES, max_depth=1, error=SegmentLedgerError
)


@dataclass(frozen=True, kw_only=True)
class SegmentLedger:
    """Seed, driven time and counts of a folder of recordings, `segments.json`."""

    seed: str
    """64 hexadecimal digits; secret while the schedule is used."""
    driven_s: float = 0.0
    """Driven time of all runs, up to `AHEAD_S` more during a run [s]."""
    written: int = 0
    """Files written."""
    lost: int = 0
    """Files that could not be written, or whose recorder was killed."""
    open: bool = False
    """Whether a segment is in memory."""

    @property
    def schedule(self) -> str:
        """Commitment to the seed, its SHA-256: who is told the seed later can repeat the draw."""
        return hashlib.sha256(bytes.fromhex(self.seed)).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> tuple["SegmentLedger", str]:
        """Return a folder's ledger, or a new one, and a problem to report.

        A segment that was in memory when the last recorder ended is counted as lost.
        """
        path, new = folder / LEDGER_FILE, cls(seed=os.urandom(32).hex())
        try:
            with oserror_as(SegmentLedgerError, f"{path}: cannot be read"):
                data = read_plain(path, limit=_MAX_BYTES) if os.path.lexists(path) else None
            if data is None:
                return new, ""
            found = cls(**_KIND.parse(_Document, data, source=str(path)).model_dump(exclude={"format_version"}))
        except SegmentLedgerError as error:
            return new, f"{error}; the times of the segments were drawn anew"
        if not found.open:
            return found, ""
        lost = replace(found, lost=found.lost + 1, open=False)
        return lost, "a scheduled segment is lost: the recorder ended without writing it, by a power cut or a kill"

    def save(self, folder: Path) -> None:
        """Write the ledger atomically, readable by its account only.

        Raises:
            SegmentLedgerError: it cannot be written.
        """
        path = folder / LEDGER_FILE
        before = os.umask(0o077)
        try:
            with oserror_as(SegmentLedgerError, f"{path}: cannot be written"):
                write_atomic(path, json.dumps({"format_version": 1, **vars(self)}, indent=2).encode() + b"\n")
        finally:
            os.umask(before)
