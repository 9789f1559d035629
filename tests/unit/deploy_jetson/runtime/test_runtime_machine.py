"""What is asked of the kernel, waiting for a moment, and the ring of ticks."""

import gc
import os
import resource
import sys
import threading
import time

import pytest

from physai.deploy_jetson.runtime.loop.loop import Counts
from physai.deploy_jetson.runtime.loop.summary import Summary, stages_us, summary_text
from physai.deploy_jetson.runtime.system import realtime
from physai.deploy_jetson.runtime.system.realtime import (
    SWITCH_INTERVAL_S,
    Realtime,
    acquire,
    become_helper,
    undisturbed,
)
from physai.deploy_jetson.runtime.system.timer import DeadlineTimer
from physai.deploy_jetson.telemetry.histogram import RELATIVE_ERROR
from physai.deploy_jetson.telemetry.meter import Meter
from physai.deploy_jetson.ticks.tick_ring import TickRing


def test_a_core_that_is_not_there_is_refused_with_those_that_are() -> None:
    (warning,) = acquire(Realtime(cpu=4000, priority=None, lock_memory=False))[:1]
    allowed = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
    assert "core 4000 refused" in warning
    assert warning.endswith(f"this process may use {allowed}")


def refuse(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_without_permission_the_warning_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    (warning,) = acquire(Realtime(priority=80, lock_memory=False))
    assert "SCHED_FIFO 80 refused (Operation not permitted)" in warning
    assert "LimitRTPRIO=80" in warning


def no_capability(_: int) -> bool:
    return False


def little(_: int) -> tuple[int, int]:
    return 8 << 20, 8 << 20


def test_memory_is_not_locked_under_a_limit_that_later_allocations_would_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "_has_capability", no_capability)
    monkeypatch.setattr(resource, "getrlimit", little)
    warnings = acquire(Realtime(lock_memory=True))
    assert any("memory not locked: the limit is 8192 KiB" in warning for warning in warnings)


def test_threads_of_others_come_next_after_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, int] = {}

    def note(thread: int, policy: int, priority: os.sched_param) -> None:
        assert policy == os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        asked[thread] = priority.sched_priority

    monkeypatch.setattr(os, "sched_setscheduler", note)
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    acquire(Realtime(priority=80, lock_memory=False))
    done.set()
    other.join()
    assert other.native_id is not None
    assert asked[0] == 80
    assert asked[other.native_id] == 79
    assert threading.get_native_id() not in asked


def test_a_helper_that_may_nothing_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    become_helper(Realtime(priority=80, cpu=0))


def test_nothing_disturbs_and_all_is_as_before_afterwards() -> None:
    interval, enabled = sys.getswitchinterval(), gc.isenabled()
    with undisturbed():
        assert not gc.isenabled()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    assert (sys.getswitchinterval(), gc.isenabled()) == (interval, enabled)


@pytest.mark.parametrize("spin_ns", [0, 100_000, 10**9])
def test_an_alarm_is_never_early(spin_ns: int) -> None:
    alarm = DeadlineTimer(spin_ns=spin_ns)
    for _ in range(3):
        due = time.monotonic_ns() + 300_000
        assert due <= alarm.wait(due) <= time.monotonic_ns()
    past = time.monotonic_ns() - 10**9
    assert alarm.wait(past) > past


class Clock:
    """Virtual time that passes while something is warmed_up, and a microsecond at every look."""

    def __init__(self, *took_ns: int) -> None:
        self.now_ns, self.took_ns = 0, list(took_ns)
        self.begun_ns: list[int] = []

    def look(self) -> int:
        self.now_ns += 1000
        return self.now_ns

    def warm_up(self) -> None:
        self.begun_ns.append(self.now_ns)
        self.now_ns += self.took_ns.pop(0) if self.took_ns else 20_000


PERIOD_NS = 2_000_000


def test_what_is_warmed_up_ends_before_the_moment() -> None:
    clock = Clock(300_000, 60_000, 50_000)
    alarm = DeadlineTimer(clock_ns=clock.look, warm_up=clock.warm_up, period_ns=PERIOD_NS)
    for moment in range(1, 50):
        due = moment * PERIOD_NS
        clock.now_ns = due - 650_000  # the real sleep, on which virtual time does not wait
        assert due <= alarm.wait(due) <= due + 2000
        assert clock.begun_ns
        assert len(clock.begun_ns) <= 3
        clock.begun_ns.clear()


def test_no_warm_up_where_there_is_no_time_for_it() -> None:
    clock = Clock()
    alarm = DeadlineTimer(clock_ns=clock.look, warm_up=clock.warm_up, period_ns=PERIOD_NS)
    clock.now_ns = 10**9
    assert alarm.wait(10**9 - 5) == 10**9 + 1000
    assert alarm.wait(10**9 + 100_000) >= 10**9 + 100_000
    assert not clock.begun_ns


def test_a_warm_up_that_takes_too_long_is_left_for_a_while() -> None:
    clock = Clock(PERIOD_NS, PERIOD_NS)
    alarm = DeadlineTimer(clock_ns=clock.look, warm_up=clock.warm_up, period_ns=PERIOD_NS)
    played: list[int] = []
    for moment in range(1, 300):
        clock.now_ns = max(clock.now_ns, moment * PERIOD_NS - 650_000)
        alarm.wait(moment * PERIOD_NS)
        if clock.begun_ns:
            played.append(moment)
            clock.begun_ns.clear()
    # A quarter of a period is the limit; after the one that broke it there is none in 16 waits, and then in 32.
    assert played[:4] == [1, 1 + 17, 18 + 33, 52]


def push(ring: TickRing, tick: int, *, late_ns: int = 0, whole_ns: int = 0) -> None:
    due = tick * 1000
    ring.push((tick, due + 900, due + late_ns, 1, 2, 3, 4, 5, whole_ns, 1, 1 << 26, True, False))


def test_the_ring_keeps_the_last_ticks_in_their_order() -> None:
    ring = TickRing(4)
    assert ring.last().tolist() == []
    for tick in range(3):
        push(ring, tick)
    assert ring.last()["tick"].tolist() == [0, 1, 2]
    for tick in range(3, 11):
        push(ring, tick, late_ns=7, whole_ns=8)
    last = ring.last()
    assert last["tick"].tolist() == [7, 8, 9, 10]
    names = ("deadline_ns", "woke_ns", "sample_stamp_ns", "sensor_age_ns", "inference_ns", "guard_ns", "send_ns")
    assert [int(last[0][name]) for name in names] == [7900, 7007, 1, 2, 3, 4, 5]
    names = ("whole_ns", "state", "reasons", "missed", "intervened")
    assert [int(last[0][name]) for name in names] == [8, 1, 1 << 26, 1, 0]


def test_what_a_run_came_to() -> None:
    ring, meter = TickRing(200), Meter(900)
    for tick in range(101):
        push(ring, tick, late_ns=1000 * tick, whole_ns=2000 * tick)
    meter.read(ring)
    counts = Counts(ticks=990, missed=20, skipped=10)
    found = Summary(stages_us(meter), counts, 1.5)
    assert found.missed_per_million == pytest.approx(20_000)
    shares = {"p50": 50.0, "p99": 99.0, "p99.9": 100.0, "max": 100.0}
    assert found.stages_us["wake-up"] == pytest.approx(shares, rel=RELATIVE_ERROR)
    assert found.stages_us["whole"]["max"] == 200.0
    text = summary_text(found)
    assert "990 ticks, 20 missed (2e+04 per million), of these 10 skipped" in text
    assert "1.50 s" in text


def test_a_run_without_ticks() -> None:
    found = Summary(stages_us(Meter(0)), Counts(), None)
    assert found.stages_us == {}
    assert "0 ticks" in summary_text(found)
