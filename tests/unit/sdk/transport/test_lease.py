"""The lease between runtimes that tell each other: random messages, delays, silences and processes that stand still."""

import math
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from physai.sdk.transport.lease import EXPIRY_S, MAX_RIVALS, RENEW_S, SETTLE_S, TERM_S, Lease, LeaseClaim, LeaseStage

DELAYS_S = (0.0, 0.03, 0.15)
"""What a message may take; the sum of the longest and `RENEW_S` is less than `SETTLE_S`."""


@dataclass
class Member:
    """A runtime: it renews and tells every `RENEW_S`, unless its process stands still."""

    lease: Lease
    next_s: float = 0.0
    stands: bool = False
    halts: bool = False
    """Whether it stands still as soon as it has renewed its claim, before it tells it."""
    untold: LeaseClaim | None = None
    inbox: list[tuple[float, LeaseClaim]] = field(default_factory=list[tuple[float, LeaseClaim]])

    def drives(self, now_s: float) -> bool:
        """Whether it would send a command now."""
        return not self.stands and self.lease.had and not self.lease.overdue(now_s)


class Fleet(RuleBasedStateMachine):
    """Four runtimes and one robot; messages arrive late, and processes stand still for any time."""

    @initialize(names=st.permutations("abcd"))
    def begin(self, names: list[str]) -> None:
        self.now_s = 100.0
        self.members = [Member(Lease(name)) for name in names]
        self.numbers: dict[int, str] = {}

    @rule(who=st.integers(0, 3))
    def ask(self, who: int) -> None:
        if not self.members[who].stands:
            self.members[who].lease.ask(self.now_s)

    @rule(who=st.integers(0, 3))
    def release(self, who: int) -> None:
        if not self.members[who].stands:
            self.members[who].lease.release()

    @rule(who=st.integers(0, 3))
    def stand_still_or_go_on(self, who: int) -> None:
        self.members[who].stands ^= True

    @rule(who=st.integers(0, 3))
    def stand_still_before_it_tells(self, who: int) -> None:
        self.members[who].halts = True

    @rule(seconds=st.sampled_from((0.05, 0.3, 1.0, TERM_S, 5.0)), delay=st.sampled_from(DELAYS_S))
    def pass_time(self, seconds: float, delay: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now_s += 0.05
            for member in self.members:
                self.live(member, delay)
            self.one_drives()

    def live(self, member: Member, delay: float) -> None:
        if member.stands:
            return
        if member.untold is not None:
            self.tell(member, member.untold, delay)
            member.untold = None
        if self.now_s < member.next_s:
            return
        member.next_s = self.now_s + RENEW_S
        arrived = [claim for at, claim in member.inbox if at <= self.now_s]
        member.inbox = [(at, claim) for at, claim in member.inbox if at > self.now_s]
        for claim in arrived:
            member.lease.hear(claim, self.now_s)
        member.lease.renew(self.now_s)
        if member.lease.had:
            # A fencing number is one holder's.
            claim = member.lease.claim
            assert self.numbers.setdefault(claim.number, claim.name) == claim.name
        if member.halts:
            member.halts, member.stands, member.untold = False, True, member.lease.claim
        else:
            self.tell(member, member.lease.claim, delay)

    def tell(self, member: Member, claim: LeaseClaim, delay: float) -> None:
        for other in self.members:
            if other is not member:
                other.inbox.append((self.now_s + delay, claim))

    @invariant()
    def one_drives(self) -> None:
        assert sum(member.drives(self.now_s) for member in self.members) <= 1


class TestFleet(Fleet.TestCase):
    settings = settings(deadline=None, max_examples=150, stateful_step_count=30)


def alone(seconds: float, lease: Lease, now_s: float = 0.0) -> float:
    """Lets time pass for a runtime that hears nobody; the time after it."""
    for _ in range(round(seconds / RENEW_S)):
        now_s += RENEW_S
        lease.renew(now_s)
    return now_s


def test_it_is_had_after_a_while_and_numbered() -> None:
    lease = Lease("m")
    lease.ask(0.0)
    alone(SETTLE_S - RENEW_S, lease)
    assert not lease.holds
    now_s = alone(RENEW_S, lease, SETTLE_S - RENEW_S)
    now_s = now_s if lease.holds else alone(RENEW_S, lease, now_s)
    assert lease.claim == LeaseClaim("m", LeaseStage.HOLDS, 1)
    assert not lease.had
    alone(RENEW_S, lease, now_s)
    assert lease.had


def test_a_holder_is_waited_for_until_it_is_silent() -> None:
    lease = Lease("a")
    lease.hear(LeaseClaim("z", LeaseStage.HOLDS, 7), 0.0)
    lease.ask(0.0)
    now_s = alone(EXPIRY_S - RENEW_S, lease)
    assert lease.rival == LeaseClaim("z", LeaseStage.HOLDS, 7)
    assert not lease.holds
    alone(1.0, lease, now_s)
    assert lease.claim == LeaseClaim("a", LeaseStage.HOLDS, 8)


def test_of_two_holders_the_higher_number_keeps_the_robot() -> None:
    lease = Lease("m")
    lease.ask(0.0)
    now_s = alone(1.0, lease)
    lease.hear(LeaseClaim("z", LeaseStage.HOLDS, 1), now_s)
    assert lease.holds
    lease.hear(LeaseClaim("a", LeaseStage.HOLDS, 1), now_s)
    assert (lease.holds, lease.lost) == (False, "another runtime holds the robot, with lease 1 after 1")


def test_who_stood_still_has_lost_it() -> None:
    lease = Lease("m")
    lease.ask(0.0)
    now_s = alone(1.0, lease)
    assert not lease.overdue(now_s + TERM_S)
    assert lease.overdue(now_s + TERM_S + 0.01)
    assert lease.overdue(math.nan)
    lease.renew(now_s + 2.5)
    assert lease.lost == "this process did not publish its claim for more than 2 s"
    lease.ask(now_s + 3.0)
    assert lease.lost == ""


def test_strangers_without_number_do_not_fill_the_memory() -> None:
    lease = Lease("m")
    for number in range(10 * MAX_RIVALS):
        lease.hear(LeaseClaim(f"z{number}", LeaseStage.IDLE, 0), 0.0)
    assert len(lease.alive(0.0)) == MAX_RIVALS
    lease.hear(LeaseClaim("late", LeaseStage.HOLDS, 3), EXPIRY_S + 1.0)
    assert set(lease.alive(EXPIRY_S + 1.0)) == {"late"}


def test_what_cannot_be_told_is_not_renewed() -> None:
    lease = Lease("m")
    lease.ask(0.0)
    now_s = 0.0
    for _ in range(20):
        now_s += RENEW_S
        lease.renew(now_s)
        lease.unpublished()
    assert not lease.holds
    now_s = alone(1.2, lease, now_s)
    assert lease.had
    for _ in range(round(TERM_S / RENEW_S)):
        now_s += RENEW_S
        lease.renew(now_s)
        lease.unpublished()
    lease.renew(now_s + RENEW_S)
    assert lease.lost == "this process did not publish its claim for more than 2 s"


def test_who_stood_still_before_it_told_its_decision_does_not_drive_on_it() -> None:
    """Meanwhile another has the robot, who comes first and was not heard in time."""
    late, early = Lease("z"), Lease("a")
    late.ask(0.0)
    now_s = 0.0
    while not late.holds:
        now_s = alone(RENEW_S, late, now_s)
    early.ask(now_s)
    early.hear(LeaseClaim("z", LeaseStage.ASKS, 0), now_s)
    now_s = alone(1.2, early, now_s)
    assert early.had
    assert not late.overdue(now_s)
    assert not late.had
    late.hear(early.claim, now_s)
    late.renew(now_s)
    assert not late.holds
