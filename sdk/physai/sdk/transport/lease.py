"""Who commands a robot, where no robot's end decides it: a lease that the runtimes agree on by telling each other.

A pure state machine: no threads, no clock, no I/O. Each runtime tells its claim every `RENEW_S` and hears the others'.

- Who wants the robot asks, and has it after `SETTLE_S` in which nobody who holds it, or asked with a lower name, was
  heard. The lease gets a fencing number above every number that was heard.
- Of two holders, who cannot have heard each other, the one with the higher number keeps it, and of equal numbers the
  lower name. The other has lost it.
- It has the robot once it has told the others that it holds it, and heard no objection until the next telling: its
  process may have stood still in between, and another may hold the robot that never heard of it.
- A claim that was not heard for `EXPIRY_S` counts no more. A holder who was not able to tell his for `TERM_S`, because
  his process stood still or nothing left it, has lost it by his own clock before another can have it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

RENEW_S = 0.2
"""Time between two tellings of a claim [s]."""

SETTLE_S = 0.6
"""Time that a claim waits for objections [s]: three tellings of another's."""

GAP_S = 0.35
"""Longest time between two renewals for which a claim goes on settling [s]: others were not heard meanwhile."""

TERM_S = 2.0
"""Silence of one's own after which a lease is lost [s]."""

EXPIRY_S = 3.0
"""Silence of another after which its claim counts no more [s]; more than `TERM_S` by what a message may take."""

MAX_RIVALS = 64
"""Other runtimes that are remembered."""

MAX_NUMBER = 1 << 53
"""Highest number of a lease: every reader of JSON has it exactly. Leases after it have the same one."""


class LeaseStage(StrEnum):
    """How far a claim has come."""

    IDLE = "idle"
    ASKS = "asks"
    HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """What a runtime tells the others."""

    name: str
    """Drawn at random by each runtime."""
    stage: LeaseStage
    number: int
    """Fencing number of the lease that it holds; 0 otherwise."""


class Lease:
    """One runtime's part in it."""

    def __init__(self, name: str) -> None:
        """Wants nothing yet."""
        self.claim = LeaseClaim(name, LeaseStage.IDLE, 0)
        """To be told to the others whenever `renew` returns, and every `RENEW_S`."""
        self.rival: LeaseClaim | None = None
        """Who has the robot instead; None for nobody known."""
        self.lost = ""
        """Why a lease that was held is held no more, in words; empty otherwise."""
        self.had = False
        """Whether the robot is this runtime's to drive: it holds it, has said so, and nobody has objected."""
        self._highest = 0
        self._heard: dict[str, tuple[LeaseClaim, float]] = {}
        self._settles_s = 0.0
        self._told_s = self._before_s = 0.0
        self._untold = False

    @property
    def holds(self) -> bool:
        """Whether it tells the others that the robot is this runtime's."""
        return self.claim.stage is LeaseStage.HOLDS

    def ask(self, now_s: float) -> None:
        """Wants the robot; nothing new for one who asks or holds."""
        if self.claim.stage is LeaseStage.IDLE:
            self.lost = ""
            self._become(LeaseStage.ASKS)
            self._settles_s = self._told_s = now_s

    def release(self) -> None:
        """Wants it no more."""
        self._become(LeaseStage.IDLE)

    def hear(self, claim: LeaseClaim, now_s: float) -> None:
        """Takes in what another has told."""
        if claim.name == self.claim.name:
            return
        self._highest = max(self._highest, claim.number)
        if len(self._heard) >= MAX_RIVALS:
            self._heard = {name: one for name, one in self._heard.items() if now_s - one[1] <= EXPIRY_S}
        if claim.name in self._heard or len(self._heard) < MAX_RIVALS:
            self._heard[claim.name] = claim, now_s
        if self.holds and claim.stage is LeaseStage.HOLDS and _precedes(claim, self.claim):
            self._lose(f"another runtime holds the robot, with lease {claim.number} after {self.claim.number}", claim)

    def renew(self, now_s: float) -> None:
        """To be called every `RENEW_S`, after what was told has been heard and before the own claim is told."""
        if self.overdue(now_s):
            self._lose(f"this process did not tell its claim for more than {TERM_S:g} s", None)
        self.had, self._untold = self.holds and not self._untold, False
        gap_s, self._before_s, self._told_s = now_s - self._told_s, self._told_s, now_s
        if self.claim.stage is not LeaseStage.ASKS:
            return
        if not gap_s <= GAP_S:
            self._settles_s = now_s
        first = [one for one in self.alive(now_s).values() if self._comes_first(one)]
        self.rival = max(first, key=lambda one: one.number, default=None)
        if first:
            self._settles_s = now_s
        elif now_s - self._settles_s >= SETTLE_S:
            # A higher one than others take in would be a lease that nobody hears of.
            self._highest = min(self._highest + 1, MAX_NUMBER)
            self.claim = replace(self.claim, stage=LeaseStage.HOLDS, number=self._highest)

    def untold(self) -> None:
        """The claim could not be told after `renew`, which then did not renew it."""
        self._told_s, self._untold = self._before_s, True

    def overdue(self, now_s: float) -> bool:
        """Whether a lease was not renewed for so long that another may have it; cheap, for every control period."""
        return self.holds and not now_s - self._told_s <= TERM_S

    def alive(self, now_s: float) -> Mapping[str, LeaseClaim]:
        """Claims of others that count, by name."""
        return {name: claim for name, (claim, heard_s) in self._heard.items() if now_s - heard_s <= EXPIRY_S}

    def _comes_first(self, other: LeaseClaim) -> bool:
        return other.stage is LeaseStage.HOLDS or (other.stage is LeaseStage.ASKS and other.name < self.claim.name)

    def lose(self, why: str) -> None:
        """Gives up a lease that is held, for a reason that is not another's claim."""
        if self.holds:
            self._lose(why, None)

    def _lose(self, why: str, rival: LeaseClaim | None) -> None:
        self.lost, self.rival = why, rival
        self._become(LeaseStage.IDLE)

    def _become(self, stage: LeaseStage) -> None:
        self.claim, self.had = replace(self.claim, stage=stage, number=0), False


def _precedes(claim: LeaseClaim, other: LeaseClaim) -> bool:
    """Whether of two holders the first one keeps the robot."""
    return (-claim.number, claim.name) < (-other.number, other.name)
