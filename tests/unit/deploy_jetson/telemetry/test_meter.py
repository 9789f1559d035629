"""What is counted of a run, and that every tick is counted once."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.deploy_jetson.telemetry.meter import Meter
from physai.deploy_jetson.telemetry.tick_log import TickLog
from physai.deploy_jetson.ticks.reasons import RuntimeFault
from physai.deploy_jetson.ticks.tick_ring import TickRing, Ticks
from physai.sdk.safety import GuardState, Reason

MakeTicks = Callable[..., Ticks]

PERIOD_NS = 10_000_000
DEADLINE_NS = 5_000_000


def push(ring: TickRing, ticks: Ticks) -> None:
    for tick in ticks:
        ring.push(tick.tolist())


def read(*parts: Ticks) -> Meter:
    ring, meter = TickRing(1000), Meter(DEADLINE_NS)
    for part in parts:
        push(ring, part)
        meter.read(ring)
    return meter


def test_every_stage_is_counted(make_ticks: MakeTicks) -> None:
    columns = {"sensor_age_ns": 10, "inference_ns": 20, "guard_ns": 30, "send_ns": 40, "whole_ns": 50}
    meter = read(make_ticks(7, late_ns=60, **columns))
    found = {stage: (histogram.count, histogram.max_ns) for stage, histogram in meter.stages.items()}
    expected = {"sensor age": 10, "wake-up": 60, "inference": 20, "guard": 30, "send": 40, "whole": 50}
    assert found == {stage: (7, value) for stage, value in expected.items()}


def test_a_graph_that_was_not_asked_took_no_time(make_ticks: MakeTicks) -> None:
    meter = read(make_ticks(4, inference_ns=[5, 0, 0, 7], send_ns=[0, 1, 1, 1]))
    assert (meter.stages["inference"].count, meter.stages["send"].count, meter.stages["whole"].count) == (2, 3, 4)


def test_reasons_and_changes_of_state(make_ticks: MakeTicks) -> None:
    run, hold, damp = GuardState.RUN, GuardState.HOLD, GuardState.DAMP
    stale, cut = int(Reason.SENSOR_STALE), int(RuntimeFault.COMMAND_CUT)
    first = make_ticks(3, state=[run, hold, hold], reasons=[cut, stale, stale])
    second = make_ticks(3, first=3, state=[hold, damp, run], reasons=[stale | cut, 0, 0])
    meter = read(first, second)
    assert {name: count for name, count in meter.reasons.items() if count} == {"sensor_stale": 3, "command_cut": 2}
    assert meter.rises == {"RUN": 1, "STANDSTILL": 0, "HOLD": 1, "DAMP": 1, "PROTECTIVE_STOP": 0}


@given(st.lists(st.integers(0, 30), max_size=30))
def test_every_tick_is_counted_once_or_known_to_be_lost(bursts: list[int]) -> None:
    ring, meter = TickRing(16), Meter(0)
    for burst in bursts:
        for _ in range(burst):
            ring.push((ring.count, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, False, False))
        ticks = meter.read(ring)
        assert ticks["tick"].tolist() == list(range(ring.count - min(burst, 16), ring.count))
    assert meter.ticks + meter.lost == sum(bursts)
    assert meter.lost == sum(max(0, burst - 16) for burst in bursts)


def test_durations_of_ticks_in_which_the_policy_was_asked(make_ticks: MakeTicks) -> None:
    log = TickLog(PERIOD_NS)
    log.add(make_ticks(4, whole_ns=[1000, 2000, 3000, 4000], inference_ns=[1, 0, 0, 1], missed=[0, 0, 1, 0]))
    assert log.seconds() == pytest.approx((1e-6, 3e-6, 4e-6))


def test_a_skipped_period_lasted_until_the_next_command(make_ticks: MakeTicks) -> None:
    """Periods 2 and 3 were skipped; 4 began late itself, and its command came 1 ms after it was due."""
    log = TickLog(PERIOD_NS)
    log.add(make_ticks(2, whole_ns=1000))
    log.add(make_ticks(2, first=4, whole_ns=[1_000_000, 1000], inference_ns=[0, 1]))
    assert log.seconds() == pytest.approx((1e-6, 1e-6, 21e-3, 11e-3, 1e-6))


@given(st.lists(st.integers(1, 25), max_size=10))
def test_the_last_durations_are_kept_in_their_order(bursts: list[int]) -> None:
    log, count = TickLog(PERIOD_NS, capacity=10), 0
    for burst in bursts:
        ticks = np.zeros(burst, [("tick", "i8"), ("whole_ns", "i8"), ("inference_ns", "i8"), ("missed", "?")])
        ticks["tick"] = ticks["whole_ns"] = np.arange(count + 1, count + 1 + burst)
        ticks["inference_ns"] = 1
        log.add(ticks)
        count += burst
    expected = range(max(0, count - 10) + 1, count + 1)
    assert log.seconds() == pytest.approx([1e-9 * number for number in expected])
