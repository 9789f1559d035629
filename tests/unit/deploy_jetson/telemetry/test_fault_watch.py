"""What is worth a recording, and that it is worth one only."""

from collections.abc import Callable

from physai.deploy_jetson.telemetry.fault_watch import FaultWatch
from physai.deploy_jetson.ticks.reasons import RuntimeFault
from physai.deploy_jetson.ticks.tick_ring import Ticks
from physai.sdk.safety import GuardState, Reason

MakeTicks = Callable[..., Ticks]

PERIOD_NS = 10_000_000
RUN, STANDSTILL, HOLD, DAMP, STOPPED = (int(state) for state in GuardState)
STALE, STOP = int(Reason.SENSOR_STALE), int(Reason.STOP_REQUESTED)
ASKED = int(RuntimeFault.HOLD_REQUESTED)


def look(*parts: Ticks) -> list[str]:
    watch = FaultWatch(PERIOD_NS)
    return [cause for part in parts for cause in watch.look(part)]


def test_a_sound_run_has_no_faults(make_ticks: MakeTicks) -> None:
    assert look(make_ticks(300), make_ticks(300, first=300), make_ticks(0)) == []


def test_the_guard_takes_over_step_by_step(make_ticks: MakeTicks) -> None:
    first = make_ticks(3, state=[RUN, HOLD, HOLD], reasons=STALE)
    second = make_ticks(3, first=3, state=[HOLD, DAMP, DAMP], reasons=STALE)
    assert look(first, second) == ["HOLD: sensor stale", "DAMP: sensor stale"]


def test_who_asks_for_hold_gets_no_recording_and_for_a_stop_one(make_ticks: MakeTicks) -> None:
    assert look(make_ticks(3, state=[RUN, HOLD, HOLD], reasons=ASKED)) == []
    assert look(make_ticks(3, state=[RUN, STOPPED, STOPPED], reasons=STOP)) == ["PROTECTIVE_STOP: stop requested"]


def test_after_a_reset_the_next_fault_counts_again(make_ticks: MakeTicks) -> None:
    assert len(look(make_ticks(5, state=[HOLD, HOLD, RUN, RUN, HOLD], reasons=STALE))) == 2


def test_nothing_sent_is_told_once(make_ticks: MakeTicks) -> None:
    not_sent = int(RuntimeFault.NOT_SENT)
    ticks = make_ticks(6, reasons=[0, not_sent, not_sent, 0, 0, not_sent])
    assert look(ticks[:2], ticks[2:]) == ["nothing sent: not sent", "nothing sent: not sent"]


def test_five_misses_in_a_second_are_one_fault(make_ticks: MakeTicks) -> None:
    every_tenth = [number % 10 == 0 for number in range(100)]
    assert look(make_ticks(100, missed=every_tenth)) == ["5 deadlines missed within 1 s"]
    every_thirtieth = [number % 30 == 0 for number in range(1000)]
    assert look(make_ticks(1000, missed=every_thirtieth)) == []


def test_skipped_periods_are_misses(make_ticks: MakeTicks) -> None:
    assert look(make_ticks(2), make_ticks(2, first=7)) == ["5 deadlines missed within 1 s"]
    assert look(make_ticks(2), make_ticks(2, first=6)) == []


def test_a_machine_that_is_always_too_slow_is_recorded_once(make_ticks: MakeTicks) -> None:
    slow = make_ticks(5000, missed=True)
    assert len(look(slow)) == 1
    # After 29 quiet seconds it is the same fault, after 31 another one.
    recovered = make_ticks(3000, first=100)
    assert len(look(slow[:100], recovered[:2900], make_ticks(9, first=3000, missed=True))) == 1
    assert len(look(slow[:100], recovered, make_ticks(100, first=3100), make_ticks(9, first=3200, missed=True))) == 2
