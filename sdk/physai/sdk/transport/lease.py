"""Lease on a robot among runtimes that share a bus, where the robot itself does not pick its commander.

A pure state machine without threads, clock or I/O. Every runtime publishes its claim every `RENEW_S` and receives the
claims of the others.

- A runtime that asks for the robot gets the lease after `SETTLE_S` without a claim of a holder or of a requester with a
  lower name. The lease has a fencing number higher than any number seen.
- If two runtimes hold a lease because their messages did not reach each other, the higher number wins, and the lower
  name among equal numbers. The other runtime loses its lease.
- A holder may drive the robot only after it has published its lease and received no objection until the next renewal:
  its process may have been suspended in between while another runtime took the lease.
- Claims expire `EXPIRY_S` after they were last received. A holder that fails to publish for `TERM_S`, because its
  process was suspended or the network is down, loses the lease by its own clock before another runtime can get it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

RENEW_S = 0.2
"""Period at which a claim is published [s]."""

SETTLE_S = 0.6
"""Time a request waits for objections [s]: three renewals of another runtime."""

GAP_S = 0.35
"""Maximum time between two renewals for the settling time to continue [s]; after a longer gap it starts again, because
claims of others were not received meanwhile."""

TERM_S = 2.0
"""Time without publishing after which a holder loses its lease [s]."""

EXPIRY_S = 3.0
"""Time after which a received claim expires [s]; longer than `TERM_S` by the maximum transit time of a message."""

MAX_RIVALS = 64
"""Maximum number of other runtimes that are tracked."""

MAX_NUMBER = 1 << 53
"""Highest fencing number: the largest integer that JSON readers represent exactly. It does not increase further."""


class LeaseStage(StrEnum):
    """Stage of a claim."""

    IDLE = "idle"
    ASKS = "asks"
    HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """Message that a runtime publishes to the others."""

    name: str
    """Random name of the runtime."""
    stage: LeaseStage
    number: int
    """Fencing number of the lease it holds; 0 otherwise."""


class Lease:
    """One runtime's view of the lease."""

    def __init__(self, name: str) -> None:
        self.claim = LeaseClaim(name, LeaseStage.IDLE, 0)
        """Claim to publish after each `renew`."""
        self.rival: LeaseClaim | None = None
        """Claim that has precedence over this one; None if there is none."""
        self.lost = ""
        """Why the lease was lost; empty otherwise."""
        self.had = False
        """Whether this runtime may drive the robot: its lease was published and no objection came."""
        self._highest = 0
        self._received: dict[str, tuple[LeaseClaim, float]] = {}
        self._settles_s = 0.0
        self._published_s = self._before_s = 0.0
        self._unpublished = False

    @property
    def holds(self) -> bool:
        """Whether the published claim is a lease."""
        return self.claim.stage is LeaseStage.HOLDS

    def ask(self, now_s: float) -> None:
        """Request the robot; does nothing if it is already requested or held."""
        if self.claim.stage is LeaseStage.IDLE:
            self.lost = ""
            self._become(LeaseStage.ASKS)
            self._settles_s = self._published_s = now_s

    def release(self) -> None:
        """Give up the request or the lease."""
        self._become(LeaseStage.IDLE)

    def hear(self, claim: LeaseClaim, now_s: float) -> None:
        """Process a received claim."""
        if claim.name == self.claim.name:
            return
        self._highest = max(self._highest, claim.number)
        if len(self._received) >= MAX_RIVALS:
            self._received = {name: one for name, one in self._received.items() if now_s - one[1] <= EXPIRY_S}
        if claim.name in self._received or len(self._received) < MAX_RIVALS:
            self._received[claim.name] = claim, now_s
        if self.holds and claim.stage is LeaseStage.HOLDS and _precedes(claim, self.claim):
            self._lose(f"another runtime holds the robot, with lease {claim.number} after {self.claim.number}", claim)

    def renew(self, now_s: float) -> None:
        """Update the claim; call it every `RENEW_S`, after processing received claims and before publishing."""
        if self.overdue(now_s):
            self._lose(f"this process did not publish its claim for more than {TERM_S:g} s", None)
        self.had, self._unpublished = self.holds and not self._unpublished, False
        gap_s, self._before_s, self._published_s = now_s - self._published_s, self._published_s, now_s
        if self.claim.stage is not LeaseStage.ASKS:
            return
        if not gap_s <= GAP_S:
            self._settles_s = now_s
        first = [one for one in self.alive(now_s).values() if self._comes_first(one)]
        self.rival = max(first, key=lambda one: one.number, default=None)
        if first:
            self._settles_s = now_s
        elif now_s - self._settles_s >= SETTLE_S:
            # Others reject a higher number, so they would never learn of the lease.
            self._highest = min(self._highest + 1, MAX_NUMBER)
            self.claim = replace(self.claim, stage=LeaseStage.HOLDS, number=self._highest)

    def unpublished(self) -> None:
        """Report that the claim could not be published after `renew`, which takes the renewal back."""
        self._published_s, self._unpublished = self._before_s, True

    def overdue(self, now_s: float) -> bool:
        """Whether the lease has expired by this runtime's clock; cheap enough for every control period."""
        return self.holds and not now_s - self._published_s <= TERM_S

    def alive(self, now_s: float) -> Mapping[str, LeaseClaim]:
        """Unexpired claims of others by name."""
        return {name: claim for name, (claim, received_s) in self._received.items() if now_s - received_s <= EXPIRY_S}

    def _comes_first(self, other: LeaseClaim) -> bool:
        return other.stage is LeaseStage.HOLDS or (other.stage is LeaseStage.ASKS and other.name < self.claim.name)

    def lose(self, why: str) -> None:
        """Give up the lease for a reason other than another runtime's claim."""
        if self.holds:
            self._lose(why, None)

    def _lose(self, why: str, rival: LeaseClaim | None) -> None:
        self.lost, self.rival = why, rival
        self._become(LeaseStage.IDLE)

    def _become(self, stage: LeaseStage) -> None:
        self.claim, self.had = replace(self.claim, stage=stage, number=0), False


def _precedes(claim: LeaseClaim, other: LeaseClaim) -> bool:
    """Whether the first of two holders keeps the lease."""
    return (-claim.number, claim.name) < (-other.number, other.name)
