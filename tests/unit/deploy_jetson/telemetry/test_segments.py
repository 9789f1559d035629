"""Scheduled segments of a memory that ticks are pushed to: what was drawn is recorded, and losses are counted."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.segments import CONTRACT, DEADLINE_NS, EPOCH_NS, PERIOD_NS, PERIOD_S, Read, read

from physai.deploy_jetson.telemetry.flight import segment_recorder
from physai.deploy_jetson.telemetry.flight.file import TICK_TOPIC, FlightFolder, file_name, is_scheduled
from physai.deploy_jetson.telemetry.flight.flight_ring import FlightRing, FlightView
from physai.deploy_jetson.telemetry.flight.segment_recorder import SegmentRecorder
from physai.deploy_jetson.telemetry.flight.segment_schedule import AHEAD_S, SegmentLedger, SegmentSchedule
from physai.sdk.contract.io import parse_contract
from physai.sdk.evidence.requirements import SegmentRules
from physai.sdk.safety import GuardState, Reason
from physai.sdk.transport.protocol import empty_sample

RULES = SegmentRules(per_hour=60.0, seconds=2.0)
"""One of 200 ticks in each 6,000."""
EVERY, LENGTH = 6000, 200
ORIGIN = {"version": "3", "bundle_sha256": "a", "recorded_on": "robot pendulum/one"}


class Run:
    """One run of a runtime: ticks, and the recorder that follows them."""

    def __init__(
        self, folder: Path, *, capacity: int = 1000, rules: SegmentRules = RULES, origin: Any = ORIGIN
    ) -> None:
        self.sample = empty_sample(CONTRACT)
        self.ring = FlightRing(CONTRACT, self.sample, capacity)
        self.view = FlightView(os.dup(self.ring.descriptor), CONTRACT, capacity)
        self.ring.close()
        self.recorder = SegmentRecorder(self.view, FlightFolder(folder), CONTRACT, rules, origin, capacity)
        self.news: list[dict[str, Any]] = []

    def ticks(self, count: int, *, look: bool = True, **more: Any) -> None:
        """Push ticks, and let the recorder look afterwards; the number of each is its position."""
        for number in range(self.ring.count, self.ring.count + count):
            self.sample.fields["joint_pos"][:] = number
            due = number * PERIOD_NS
            self.sample.stamp_ns = EPOCH_NS + due - 3000
            state, reasons = more.get("state", 0), more.get("reasons", 0)
            stages = (1000, 1000, 1000, 1000, 7000)
            record = (number, due + DEADLINE_NS, due, self.sample.stamp_ns, *stages, state, reasons, False, False)
            self.ring.push(record, {"joint_effort_target": np.array([[-number]])} if more.get("sent", True) else None)
        if look:
            self.take(self.recorder.look())

    def take(self, news: dict[str, Any] | None) -> None:
        self.news += [] if news is None else [news]

    def end(self) -> None:
        self.take(self.recorder.finish("the run ended"))


def files(folder: Path) -> list[Read]:
    return [read(path.read_bytes()) for path in FlightFolder(folder).recordings() if is_scheduled(path.name)]


def drawn(folder: Path, first: int, end: int) -> list[int]:
    """Ticks of driven time that the schedule of a folder has drawn."""
    schedule = SegmentSchedule(bytes.fromhex(SegmentLedger.load(folder)[0].seed), RULES)
    windows = [schedule.window(number) for number in range(end // EVERY + 2)]
    middles = [(tick + 0.5) * PERIOD_S for tick in range(first, end)]
    inside = [any(one.start_s <= middle < one.end_s for one in windows) for middle in middles]
    return [tick for tick, drawn in zip(range(first, end), inside, strict=True) if drawn]


def recorded(folder: Path) -> list[int]:
    return sorted(tick for one in files(folder) for tick in one.driven)


def seeded(folder: Path, number: int, driven_s: float = 0.0) -> None:
    SegmentLedger(seed=number.to_bytes(32, "big").hex(), driven_s=driven_s).save(folder)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_recorded_is_what_was_drawn(tmp_path: Path, seed: int) -> None:
    seeded(tmp_path, seed)
    run = Run(tmp_path)
    for _ in range(2 * EVERY // 250):
        run.ticks(250)
    run.end()
    expected = drawn(tmp_path, 0, 2 * EVERY)
    assert recorded(tmp_path) == expected
    assert len(expected) >= LENGTH
    for one in files(tmp_path):
        ticks = one.columns[TICK_TOPIC]["tick"]
        assert one.columns["/joint_states"]["position.pivot"].tolist() == ticks.tolist()
        assert one.columns["/targets/joint_effort_target"]["effort.pivot"].tolist() == (-ticks).tolist()
        assert (one.metadata["segment"], one.metadata["lost_ticks"]) == ("scheduled", "0")


def test_a_segment_says_which_one_it_is(tmp_path: Path) -> None:
    seeded(tmp_path, 1, driven_s=3.0 * EVERY * PERIOD_S)
    run = Run(tmp_path)
    for _ in range(EVERY // 500):
        run.ticks(500)
    run.end()
    (one, *_) = files(tmp_path)
    ledger = SegmentLedger.load(tmp_path)[0]
    window = SegmentSchedule(bytes.fromhex(ledger.seed), RULES).window(int(one.metadata["interval"]))
    assert one.metadata | {"contract": "", "fingerprint": ""} == ORIGIN | {
        "causes": "scheduled",
        "segment": "scheduled",
        "schedule": ledger.schedule,
        "interval": one.metadata["interval"],
        "per_hour": "60.0",
        "seconds": "2.0",
        "drawn_s": f"{window.start_s:.3f}",
        "driven_s": one.metadata["driven_s"],
        "ticks": one.metadata["ticks"],
        "lost_ticks": "0",
        "ended": "complete",
        "format": "1",
        "contract": "",
        "fingerprint": "",
    }
    assert float(one.metadata["driven_s"]) == pytest.approx(window.start_s, abs=PERIOD_S)
    assert parse_contract(one.metadata["contract"], source="it").fingerprint == CONTRACT.fingerprint
    (path, *_) = FlightFolder(tmp_path).recordings()
    assert path.name.endswith("-v3-scheduled.mcap")


@pytest.mark.parametrize("run_ticks", [37, 150, 1000])
def test_a_robot_that_restarts_again_and_again_gives_what_was_drawn(tmp_path: Path, run_ticks: int) -> None:
    """A window that the end of a run cuts goes on in the next run: driven time knows no restart."""
    begin = EVERY - 1000
    seeded(tmp_path, 5, driven_s=begin * PERIOD_S)
    first = drawn(tmp_path, begin, begin + EVERY)[0]
    seeded(tmp_path, 5, driven_s=(first - 60) * PERIOD_S)
    driven = 0
    while driven < 400:
        run = Run(tmp_path)
        run.ticks(run_ticks)
        run.end()
        driven += run_ticks
    assert recorded(tmp_path) == drawn(tmp_path, first - 60, first - 60 + driven)
    ends = [one.metadata["ended"] for one in files(tmp_path)]
    assert ends.count("complete") == 1
    assert set(ends) <= {"complete", "the run ended"}
    assert len({one.metadata["interval"] for one in files(tmp_path)}) == 1


def test_a_kill_skips_a_little_driven_time_and_repeats_none(tmp_path: Path) -> None:
    """A robot whose power is cut in each run gets through its intervals all the same."""
    seeded(tmp_path, 2)
    starts: list[float] = []
    for _ in range(3):
        run = Run(tmp_path)
        starts.append(SegmentLedger.load(tmp_path)[0].driven_s - AHEAD_S)
        run.ticks(100)
    assert starts == pytest.approx([0.0, AHEAD_S, 2.0 * AHEAD_S])


def test_the_ledger_stays_ahead_of_the_run(tmp_path: Path) -> None:
    seeded(tmp_path, 2)
    run = Run(tmp_path)
    for number in range(1, 41):
        run.ticks(240)
        # Until the next look, and not by more than a kill may skip.
        ahead_s = SegmentLedger.load(tmp_path)[0].driven_s - 240 * number * PERIOD_S
        assert 2.4 <= ahead_s <= AHEAD_S + PERIOD_S


def test_a_recorder_that_is_killed_in_a_segment_is_missed(tmp_path: Path) -> None:
    run = run_at_a_window(tmp_path)
    run.ticks(100)
    assert files(tmp_path) == []
    after = Run(tmp_path)
    after.ticks(1)
    assert after.news[0]["segments"]["lost"] == 1
    assert after.news[0]["problem"].startswith("a scheduled segment is lost: the recorder ended without writing it")
    after.ticks(1)
    assert len(after.news) == 1


def run_at_a_window(folder: Path, before: int = 0, **more: Any) -> Run:
    """A run that begins so many ticks before a window of 200."""
    seeded(folder, 3)
    first = drawn(folder, EVERY, 2 * EVERY)[0]
    seeded(folder, 3, driven_s=(first - before) * PERIOD_S)
    return Run(folder, **more)


def test_a_hold_within_a_segment_is_in_it(tmp_path: Path) -> None:
    run = run_at_a_window(tmp_path)
    run.ticks(50)
    run.ticks(60, sent=False, state=int(GuardState.HOLD), reasons=int(Reason.SENSOR_STALE))
    run.ticks(200)
    (one,) = files(tmp_path)
    states = one.columns[TICK_TOPIC]["state"]
    assert np.flatnonzero(states == int(GuardState.HOLD)).tolist() == list(range(50, 110))
    assert set(one.columns[TICK_TOPIC]["reasons"][50:110].tolist()) == {int(Reason.SENSOR_STALE)}
    # Nothing was sent in these ticks, so there are no targets; the rest is whole.
    sent = one.columns["/targets/joint_effort_target"]["effort.pivot"].tolist()
    assert sent == [-tick for tick in range(LENGTH) if not 50 <= tick < 110]
    assert one.columns["/joint_states"]["position.pivot"].tolist() == list(range(LENGTH))


def test_ticks_that_were_overwritten_are_counted(tmp_path: Path) -> None:
    """A disk that hangs for longer than the memory lasts."""
    run = run_at_a_window(tmp_path, capacity=100)
    run.ticks(20)
    run.ticks(150, look=False)
    run.ticks(100)
    (one,) = files(tmp_path)
    # Of 270 ticks the last 100 were there, of which the window has those up to 200.
    assert one.columns[TICK_TOPIC]["tick"].tolist() == [*range(20), *range(170, LENGTH)]
    assert (one.metadata["ticks"], one.metadata["lost_ticks"], one.metadata["ended"]) == ("50", "150", "complete")
    assert run.news[-1]["segments"]["lost_ticks"] == 150


def test_a_segment_of_which_nothing_is_left_is_no_file(tmp_path: Path) -> None:
    run = run_at_a_window(tmp_path, capacity=100)
    run.ticks(500)
    assert files(tmp_path) == []
    assert run.news[-1]["segments"] == {"written": 0, "lost": 0, "lost_ticks": LENGTH, "last": ""}


def test_a_full_disk_is_said_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = run_at_a_window(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        run.ticks(300)
    assert run.news[-1]["segments"] == {"written": 0, "lost": 1, "lost_ticks": 0, "last": ""}
    assert "a scheduled segment is lost: " in run.news[-1]["problem"]
    assert "cannot be written: No space left on device" in run.news[-1]["problem"]
    assert files(tmp_path) == []
    run.ticks(100)
    run.end()
    assert SegmentLedger.load(tmp_path)[0].lost == 1


def test_a_clock_that_is_set_ends_the_file_and_costs_the_ticks_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offset = EPOCH_NS
    monkeypatch.setattr(segment_recorder, "_clock_offset_ns", lambda: offset)
    run = run_at_a_window(tmp_path)
    run.ticks(50)
    offset += 3600 * 10**9
    run.ticks(30)
    run.ticks(200)
    one, other = files(tmp_path)
    assert (one.metadata["ended"], one.metadata["lost_ticks"]) == ("the clock was set", "30")
    assert one.columns[TICK_TOPIC]["tick"].tolist() == list(range(50))
    assert other.columns[TICK_TOPIC]["tick"].tolist() == list(range(80, LENGTH))
    assert one.metadata["interval"] == other.metadata["interval"]
    step_ns = other.columns[TICK_TOPIC]["log_ns"][0] - one.columns[TICK_TOPIC]["log_ns"][0]
    assert step_ns == 3600 * 10**9 + 80 * PERIOD_NS


@pytest.mark.parametrize(("before", "ticks", "lost"), [(10, 30, 20), (100, 30, 0)])
def test_a_clock_that_is_set_where_a_segment_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, ticks: int, lost: int
) -> None:
    offset = EPOCH_NS
    monkeypatch.setattr(segment_recorder, "_clock_offset_ns", lambda: offset)
    run = run_at_a_window(tmp_path, before=before)
    offset -= 10**9
    run.ticks(ticks)
    assert run.news[-1]["segments"]["lost_ticks"] == lost
    run.ticks(before + LENGTH)
    assert sum(len(one.driven) for one in files(tmp_path)) == LENGTH - lost


def test_a_clock_that_is_slewed_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offset = EPOCH_NS
    monkeypatch.setattr(segment_recorder, "_clock_offset_ns", lambda: offset)
    run = run_at_a_window(tmp_path)
    for _ in range(10):
        run.ticks(30)
        offset += 2_000_000
    assert [one.metadata["ended"] for one in files(tmp_path)] == ["complete"]


def test_a_file_shows_one_policy(tmp_path: Path) -> None:
    run = run_at_a_window(tmp_path)
    run.ticks(50)
    run.take(run.recorder.set_origin({**ORIGIN, "version": "4", "bundle_sha256": "b"}))
    run.ticks(200)
    one, other = files(tmp_path)
    assert [(one.metadata["bundle_sha256"], one.metadata["ended"], one.metadata["ticks"])] == [
        ("a", "the policy changed", "50")
    ]
    assert (other.metadata["bundle_sha256"], other.metadata["version"], other.metadata["ticks"]) == ("b", "4", "150")


def test_the_first_ticks_belong_to_the_policy_that_is_named_after_them(tmp_path: Path) -> None:
    run = run_at_a_window(tmp_path, origin={"version": "0"})
    run.ticks(50)
    run.take(run.recorder.set_origin(ORIGIN))
    run.ticks(200)
    (one,) = files(tmp_path)
    assert (one.metadata["bundle_sha256"], one.metadata["version"], one.metadata["ticks"]) == ("a", "3", "200")


def test_a_file_that_grows_too_large_goes_on_in_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_recorder, "MAX_FILE_BYTES", 0)
    run = run_at_a_window(tmp_path)
    run.ticks(120)
    run.ticks(120)
    assert [(one.metadata["ended"], one.metadata["ticks"]) for one in files(tmp_path)] == [
        ("the file is full", "120"),
        ("the file is full", "80"),
    ]


def test_segments_and_incidents_do_not_delete_each_other(tmp_path: Path) -> None:
    folder = FlightFolder(tmp_path, max_files=2, max_segments=3)
    now = segment_recorder.datetime(2026, 11, 30, tzinfo=segment_recorder.UTC)
    for number in range(10):
        cause = "scheduled" if number % 2 else "hold"
        folder.store(file_name(number, now, 1, cause), b"x")
    assert [int(path.name[:8]) for path in folder.recordings()] == [5, 6, 7, 8, 9]
    # An incident with that name is none.
    assert not is_scheduled(file_name(1, now, 1, "Scheduled!"))
    assert is_scheduled(file_name(1, now, 1, "scheduled"))


def test_the_recorder_looks_often_enough_for_its_memory(tmp_path: Path) -> None:
    looks = [Run(tmp_path, capacity=capacity).recorder.look_s for capacity in (40, 100_000)]
    assert looks == pytest.approx([0.1, 4.0])


def test_without_the_library_a_segment_is_said_to_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ImportError("no module named mcap; install physai-sdk[robot]")

    run = run_at_a_window(tmp_path)
    monkeypatch.setattr(segment_recorder, "SegmentFile", missing)
    run.ticks(50)
    assert run.news[-1]["problem"] == ("a scheduled segment is lost: no module named mcap; install physai-sdk[robot]")
    assert run.news[-1]["segments"]["lost_ticks"] == 50
