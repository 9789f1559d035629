"""The memory that the loop and its watchdog share, and the loop's end of it."""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.fixtures.sample import sample_contract
from tests.support.patience import until

from physai.deploy_jetson.runtime.system.realtime import Realtime
from physai.deploy_jetson.runtime.watchdog import client
from physai.deploy_jetson.runtime.watchdog import watchdog_process as process
from physai.deploy_jetson.runtime.watchdog.client import Watchdog
from physai.deploy_jetson.runtime.watchdog.plan import WatchdogPlan, bound_s, silence_s
from physai.deploy_jetson.runtime.watchdog.shared import Array, SentCommand, SharedMemory, Word, allocate
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.transport.protocol import WatchdogEndpoint

JOINTS = 5


def shared(count: int = JOINTS) -> tuple[SharedMemory, SharedMemory]:
    """Two mappings of one memory."""
    descriptor = allocate(count)
    try:
        return SharedMemory(descriptor, count), SharedMemory(descriptor, count)
    finally:
        os.close(descriptor)


def test_the_newest_record_is_read() -> None:
    ours, theirs = shared()
    assert theirs.loop.read() is None
    for number in range(1, 6):
        ours.loop.write(10 * number, number % 2, np.full((1, JOINTS), float(number)), np.full(JOINTS, -1.0 * number))
        record = theirs.loop.read()
        assert record is not None
        assert (record.number, record.time_ns, record.flag) == (number, 10 * number, number % 2)
        assert record.last.tolist() == [number] * JOINTS
        assert record.step.tolist() == [-number] * JOINTS
        assert theirs.watchdog.read() is None


@given(st.data())
def test_a_writer_that_stops_half_way_leaves_the_record_before(data: st.DataObject) -> None:
    ours, theirs = shared()
    count = data.draw(st.integers(1, 4))
    for number in range(1, count + 1):
        ours.loop.write(number, 1, np.full(JOINTS, float(number)), np.zeros(JOINTS))
    before = bytes(ours._memory)  # pyright: ignore[reportPrivateUsage]
    ours.loop.write(99, 1, np.full(JOINTS, 99.0), np.ones(JOINTS))
    after = bytes(ours._memory)  # pyright: ignore[reportPrivateUsage]
    changed = [index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    written = data.draw(st.sets(st.sampled_from(changed), max_size=len(changed) - 1))
    for index in set(changed) - written:
        ours._memory[index] = before[index]  # pyright: ignore[reportPrivateUsage]
    record = theirs.loop.read()
    assert record is not None
    assert record.time_ns == count
    assert record.last.tolist() == [count] * JOINTS


def hammer(descriptor: int, count: int, stop_ns: int) -> None:
    memory, value = SharedMemory(descriptor, count), 0.0
    while time.monotonic_ns() < stop_ns:
        value += 1.0
        memory.loop.write(int(value), 1, np.full(count, value), np.full(count, -value))


def test_no_record_is_torn() -> None:
    descriptor, count = allocate(30), 30
    ours = SharedMemory(descriptor, count)
    # The descriptor is inherited under its number.
    writer = get_context("fork").Process(target=hammer, args=(descriptor, count, time.monotonic_ns() + 10**9))
    writer.start()
    seen = 0
    while writer.is_alive():
        record = ours.loop.read()
        if record is None:
            continue
        # While a record is being written, the one before is the newest.
        assert record.number >= seen - 1
        assert record.last.tolist() == [record.time_ns] * count
        assert record.step.tolist() == [-record.time_ns] * count
        seen = max(seen, record.number)
    os.close(descriptor)
    assert seen > 1000


def test_times_and_plan_of_a_contract() -> None:
    quick, slow = sample_contract(), sample_contract(slower=4.0)
    assert (silence_s(quick), bound_s(quick)) == (0.025, 0.05)
    assert (silence_s(slow), bound_s(slow)) == pytest.approx((0.1, 0.12))
    companion = WatchdogEndpoint("udp", {"robot": "127.0.0.1:1"}, (7,))
    plan = WatchdogPlan(quick, companion, Realtime(priority=80, cpu=1), os.getpid())
    read = WatchdogPlan.read(plan.write())
    assert (read.contract, read.realtime, read.runtime) == (plan.contract, plan.realtime, plan.runtime)
    assert (read.companion.transport, read.companion.options) == ("udp", {"robot": "127.0.0.1:1"})


class Nowhere:
    """A transport whose companion cannot be had."""

    def companion(self) -> WatchdogEndpoint:
        return WatchdogEndpoint("nowhere", {})


@pytest.fixture
def contract() -> PolicyContract:
    return sample_contract()


@pytest.fixture
def watchdog(contract: PolicyContract) -> Iterator[Watchdog]:
    made = Watchdog(contract, Nowhere(), Realtime(lock_memory=False))
    yield made
    made.close()


def words(of: Watchdog) -> memoryview:
    return of._words  # pyright: ignore[reportPrivateUsage]


def test_one_that_does_not_start_is_in_the_way(capfd: pytest.CaptureFixture[str], contract: PolicyContract) -> None:
    ended, told = "the watchdog, which ended with status 1 and is started again", list[str]()
    watchdog = Watchdog(contract, Nowhere(), Realtime(lock_memory=False))
    assert watchdog.obstacle() == "the watchdog, which starts"
    until(lambda: watchdog.obstacle() == ended)
    until(lambda: watchdog.obstacle() == "the watchdog, which starts")
    until(
        lambda: told.append(capfd.readouterr().err) or "does not start: no transport named 'nowhere'" in "".join(told)
    )
    watchdog.close()


def test_a_command_that_did_not_leave_is_taken_back(watchdog: Watchdog) -> None:
    """The robot has the one before it, and has heard nothing since."""
    read = watchdog._loop.read  # pyright: ignore[reportPrivateUsage]
    watchdog.begin()
    watchdog.sends(np.array([[0.5]]), np.array([[0.5]]))
    watchdog.takes_back(np.array([[0.0]]))
    record = read()
    assert record is not None
    assert (record.flag, record.time_ns) == (0, 0)
    watchdog.sends(np.array([[0.5]]), np.array([[0.5]]))
    before = read()
    watchdog.sends(np.array([[0.9]]), np.array([[0.4]]))
    watchdog.takes_back(np.array([[0.5]]))
    after = read()
    assert before is not None
    assert after is not None
    assert (after.time_ns, after.flag, after.last.tolist(), after.step.tolist()) == (before.time_ns, 1, [0.5], [0.0])


def test_the_loop_goes_on_from_what_the_watchdog_sent(watchdog: Watchdog) -> None:
    last, step = np.array([[0.5]]), np.array([[0.1]])
    watchdog.begin()
    watchdog.claim()
    assert watchdog.may_send()
    watchdog.sends(last, step)
    assert watchdog.taken_over() is None
    words(watchdog)[Word.FIRED] = words(watchdog)[Word.CLAIM]
    watchdog._other.write(1, 3, np.array([0.7]), np.array([0.05]), -1)  # pyright: ignore[reportPrivateUsage]
    watchdog.claim()
    assert not watchdog.may_send()
    # It still speaks.
    assert watchdog.taken_over() is None
    words(watchdog)[Word.YIELDED] = words(watchdog)[Word.CLAIM]
    found = watchdog.taken_over()
    assert found is not None
    assert [values.tolist() for values in found[:2]] == [[0.7], [0.05]]
    assert found[2] == -1
    assert watchdog.taken_over() is None
    watchdog.claim()
    assert watchdog.may_send()
    watchdog.end()


def test_one_that_fired_and_said_nothing_leaves_nothing_to_take_over(watchdog: Watchdog) -> None:
    watchdog.begin()
    watchdog.claim()
    words(watchdog)[Word.FIRED] = words(watchdog)[Word.CLAIM]
    watchdog._other.write(1, 0, np.zeros(1), np.zeros(1))  # pyright: ignore[reportPrivateUsage]
    watchdog.claim()
    words(watchdog)[Word.YIELDED] = words(watchdog)[Word.CLAIM]
    assert watchdog.taken_over() is None
    assert watchdog.may_send()
    watchdog.end()


def test_one_that_died_while_it_spoke_does_not_keep_the_wire(
    watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchdog.begin()
    watchdog.claim()
    words(watchdog)[Word.FIRED] = words(watchdog)[Word.CLAIM]
    watchdog._other.write(1, 1, np.array([0.7]), np.array([0.0]))  # pyright: ignore[reportPrivateUsage]
    assert watchdog.taken_over() is None
    assert not watchdog.may_send()
    monkeypatch.setattr(client, "YIELD_NS", -1)
    found = watchdog.taken_over()
    assert found is not None
    assert found[0].tolist() == [0.7]
    assert watchdog.may_send()
    watchdog.end()


class Spy:
    """In the place of the watchdog's body: what it would send, and what the loop does meanwhile."""

    def __init__(self, *_: object) -> None:
        self.sent: list[float] = []
        self.last, self.step = np.zeros(1), np.zeros(1)
        self.at_rest, self.silence = False, 0
        self.resumes: Callable[[], object] = lambda: None
        self.decides: Callable[[], object] = lambda: None

    def resume_from(self, record: SentCommand) -> None:
        self.last = record.last
        self.resumes()

    def decide(self) -> dict[str, Array]:
        self.decides()
        return {"joint_pos_target": self.last}

    def send(self, targets: dict[str, Array]) -> bool:
        self.sent.extend(values.item() for values in targets.values())
        return True


class Duel:
    """A loop and its watchdog's process, in one thread: the test says who acts when."""

    def __init__(self, contract: PolicyContract, watchdog: Watchdog, pipe: int) -> None:
        self.loop, ours = watchdog, allocate(1)
        theirs, mine = SharedMemory(ours, 1), SharedMemory(ours, 1)
        os.close(ours)
        for name, part in (("_words", mine.words), ("_loop", mine.loop), ("_other", mine.watchdog)):
            setattr(watchdog, name, part)
        plan = WatchdogPlan(contract, WatchdogEndpoint("nowhere", {}), Realtime(), os.getpid())
        self.process = process.WatchdogProcess(plan, theirs, pipe)
        body: object = self.process._body  # pyright: ignore[reportPrivateUsage]
        assert isinstance(body, Spy)
        self.spy = body
        watchdog.begin()

    def sends(self, value: float) -> bool:
        """Whether the loop may send, and does."""
        if not self.loop.may_send():
            return False
        self.loop.sends(np.array([value]), np.zeros(1))
        return True

    def newest(self) -> SentCommand:
        record = self.process._shared.loop.read()  # pyright: ignore[reportPrivateUsage]
        assert record is not None
        return record

    def takes_over(self, record: SentCommand) -> None:
        self.process._take_over(record)  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def duel(contract: PolicyContract, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duel]:
    monkeypatch.setattr(process, "Body", Spy)
    reading, writing = os.pipe()
    yield Duel(contract, watchdog, reading)
    os.close(reading)
    os.close(writing)


def test_a_watchdog_that_was_held_up_does_not_speak_from_an_old_record(duel: Duel) -> None:
    """It read the record, did not run for a while, and then found it old; the loop had sent all the time."""
    duel.loop.claim()
    assert duel.sends(0.1)
    old = duel.newest()
    duel.loop.claim()
    assert duel.sends(0.9)
    duel.spy.decides = lambda: duel.loop.claim() if duel.spy.sent else None
    duel.takes_over(old)
    assert duel.spy.sent == []


def test_a_loop_that_has_just_sent_is_not_contradicted(duel: Duel) -> None:
    """It looks whether the watchdog has spoken up right before that writes that it will."""
    duel.loop.claim()
    assert duel.sends(0.1)
    old = duel.newest()
    duel.loop.claim()
    duel.spy.resumes = lambda: duel.sends(0.9)
    duel.spy.decides = lambda: duel.loop.claim() if duel.spy.sent else None
    duel.takes_over(old)
    assert duel.newest().last == 0.9
    assert duel.spy.sent == []


@pytest.mark.parametrize("late", [False, True])
def test_a_watchdog_that_spoke_up_for_nothing_gives_the_wire_back(duel: Duel, late: bool) -> None:
    duel.loop.claim()
    assert duel.sends(0.1)
    old = duel.newest()
    assert duel.sends(0.9)
    looks = itertools.count()
    wait = duel.process._wait  # pyright: ignore[reportPrivateUsage]

    def waits(for_ns: int | None) -> None:
        if not late and next(looks) == 1:
            assert duel.loop.taken_over() is None
        wait(for_ns)

    duel.process._wait = waits  # pyright: ignore[reportPrivateUsage]
    duel.takes_over(old)
    assert not duel.loop.may_send()
    if late:
        # It has been silent since; the watchdog speaks up again, and yields when it is back.
        duel.spy.decides = lambda: duel.loop.taken_over() if duel.spy.sent else None
        duel.takes_over(duel.newest())
        assert duel.spy.sent == [0.9]
    assert (duel.loop.taken_over() is not None) == late
    assert duel.loop.may_send()
