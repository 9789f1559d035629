"""The promise: no excursion of a clock ends a robot's updates for good, and none brings an expired verdict back."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.harness.fixtures.sample import ROBOT
from tests.harness.fixtures.site import Site

from physai.deploy_jetson.update.slots.slot_records import State
from physai.deploy_jetson.update.slots.tree import time_floor
from physai.sdk.evidence.verdict import utc_text
from physai.sdk.signing.ed25519 import SigningKey
from physai.sdk.signing.time_statement import CLOCK_STEP, TimeStatementError, sign_time
from physai.sdk.signing.verify import Rule, VerificationError

FAR = timedelta(days=365 * 70)


def floor(site: Site) -> datetime:
    return time_floor(site.agent.store.state())


def test_an_excursion_of_the_clock_is_over_when_it_is_over(site: Site, now: datetime) -> None:
    site.run(1)
    wild = site.on(clock=lambda: now + FAR)
    with pytest.raises(VerificationError) as refused:
        wild.install(site.bundles[2])
    assert refused.value.rule is Rule.EXPIRED
    wild.gc(idle=True)
    wild.recover()
    site.agent.install(site.bundles[2])
    site.agent.activate()


def test_the_clock_moves_the_floor_by_a_day_at_most(site: Site, now: datetime) -> None:
    site.run(1)
    before = floor(site)
    wild = site.on(clock=lambda: now + FAR)
    wild.store.save(wild.store.state(), now + FAR)
    assert floor(site) == before + CLOCK_STEP


def test_a_verdict_that_is_believed_was_made_in_the_past(site: Site, now: datetime) -> None:
    """On a robot that never had a clock: 1970 is far below the floor that the first signed verdict gives it."""
    assert floor(site).year == 1970
    site.run(1)
    assert floor(site) >= site.workshop.created
    late = replace(site.workshop, created=now + timedelta(days=40)).bundle(8)
    with pytest.raises(VerificationError) as refused:
        site.on(clock=lambda: datetime(1970, 1, 1, tzinfo=UTC)).install(late)
    assert refused.value.rule is Rule.CLOCK


def test_a_signed_time_lets_a_robot_without_a_clock_install(site: Site, now: datetime) -> None:
    lost = site.on(clock=lambda: datetime(1970, 1, 1, tzinfo=UTC))
    with pytest.raises(VerificationError, match="clock: the clock shows 1970"):
        lost.install(site.bundles[1])
    assert lost.set_time(sign_time([site.workshop.validator], ROBOT, now)) == utc_text(now)
    lost.install(site.bundles[1])


def test_an_old_statement_changes_nothing(site: Site, now: datetime) -> None:
    site.agent.set_time(sign_time([site.workshop.validator], ROBOT, now))
    assert site.agent.set_time(sign_time([site.workshop.validator], ROBOT, now - timedelta(days=9))) == utc_text(now)


def test_who_may_say_what_time_it_is(site: Site, now: datetime) -> None:
    shop = site.workshop
    for keys, robot, replaces, message in (
        ([SigningKey.generate()], ROBOT, None, "not signed by a validator or owner that this robot trusts"),
        ([shop.publisher], ROBOT, None, "not signed by a validator or owner that this robot trusts"),
        ([shop.validator], "go2", None, f"is for go2, this robot is {ROBOT}"),
        ([shop.validator], f"{ROBOT}/other", None, f"is for {ROBOT}/other, this robot is {ROBOT}"),
        ([shop.validator], ROBOT, now, "time back needs 1 owner signatures, got 0"),
        ([shop.owner], ROBOT, now, "sets the time back from .*, this robot's floor is 1970"),
    ):
        with pytest.raises(TimeStatementError, match=message):
            site.agent.set_time(sign_time(keys, robot, now + FAR, replaces=replaces))
    assert floor(site).year == 1970


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 100, b"x" * 20_000])
def test_statements_that_are_none(site: Site, data: bytes) -> None:
    with pytest.raises(TimeStatementError):
        site.agent.set_time(data)


def test_a_verdict_is_no_statement_of_the_time_and_the_other_way_round(site: Site, now: datetime) -> None:
    from physai.sdk.bundle.manifest import attach, read_bundle

    bundle = read_bundle(site.bundles[1])
    with pytest.raises(TimeStatementError):
        site.agent.set_time(bundle.members["verdict.dsse"])
    told = attach(bundle, {"verdict.dsse": sign_time([site.workshop.validator], ROBOT, now)})
    with pytest.raises(VerificationError, match="statement"):
        site.agent.install(told)


def test_the_way_back_after_a_statement_that_was_wrong(site: Site, now: datetime) -> None:
    """Somebody with a validator's key says 2096: the owner sets it back, once."""
    site.agent.set_time(sign_time([site.workshop.validator], ROBOT, now + FAR))
    with pytest.raises(VerificationError, match="expired"):
        site.agent.install(site.bundles[1])
    back = sign_time([site.workshop.owner], ROBOT, now, replaces=floor(site))
    assert site.agent.set_time(back) == utc_text(now)
    with pytest.raises(TimeStatementError, match=r"set back 0 times, this one's was 1 times.*--corrections 1"):
        site.agent.set_time(back)
    site.agent.install(site.bundles[1])


def test_a_wrong_time_and_its_correction_replayed_in_turn_bring_no_expired_verdict_back(
    site: Site, now: datetime
) -> None:
    """Both are signed and both are old: whoever kept them must not be able to go through them again."""
    shop = site.workshop
    wrong = sign_time([shop.validator], ROBOT, now + FAR)
    site.agent.set_time(wrong)
    back = sign_time([shop.owner], ROBOT, now, replaces=floor(site))
    site.agent.set_time(back)
    late = now + timedelta(days=400)
    assert site.agent.set_time(sign_time([shop.validator], ROBOT, late, corrections=1)) == utc_text(late)
    for statement in (wrong, back, wrong):
        with pytest.raises(TimeStatementError, match="was set back 0 times, this one's was 1 times"):
            site.agent.set_time(statement)
    assert floor(site) == late
    with pytest.raises(VerificationError) as refused:
        site.agent.install(site.bundles[1])
    assert refused.value.rule is Rule.EXPIRED
    # The way back stays open, each time once.
    site.agent.set_time(sign_time([shop.validator], ROBOT, now + FAR, corrections=1))
    again = sign_time([shop.owner], ROBOT, late, replaces=floor(site), corrections=1)
    assert site.agent.set_time(again) == utc_text(late)
    assert site.agent.store.state().corrections == 2


@pytest.mark.parametrize("corrections", [-1, 10**10])
def test_counts_that_are_none(now: datetime, corrections: int) -> None:
    with pytest.raises(TimeStatementError, match="corrections"):
        sign_time([SigningKey.generate()], ROBOT, now, corrections=corrections)


class Clocks(RuleBasedStateMachine):
    """A clock that jumps anywhere while the state is written: the floor rises by steps and never falls."""

    start = datetime(2026, 11, 21, tzinfo=UTC)

    def __init__(self) -> None:
        super().__init__()
        self.state = State(latest_time=utc_text(self.start))
        self.writes = 0
        self.floors = [self.start]

    @rule(offset=st.integers(-(10**9), 10**9))
    def write(self, offset: int) -> None:
        site = _Memory(self.state)
        self.state = site.save(self.start + timedelta(seconds=offset))
        self.writes += 1
        self.floors.append(time_floor(self.state))

    @invariant()
    def it_never_falls_nor_runs_away(self) -> None:
        assert self.floors == sorted(self.floors)
        assert self.floors[-1] <= self.start + self.writes * CLOCK_STEP


class _Memory:
    """A tree in memory of which only the state counts."""

    def __init__(self, state: State) -> None:
        from pathlib import Path
        from tempfile import TemporaryDirectory

        from physai.deploy_jetson.update.slots.filesystem import PosixFileSystem
        from physai.deploy_jetson.update.slots.store import SlotStore

        self._folder = TemporaryDirectory()
        self._store = SlotStore(PosixFileSystem(Path(self._folder.name)))
        self._store.create()
        self._state = state

    def save(self, now: datetime) -> State:
        with self._folder:
            return self._store.save(self._state, now)


Clocks.TestCase.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
TestClocks = Clocks.TestCase
