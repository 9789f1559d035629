"""Random times of scheduled segments, and the ledger that keeps them over restarts."""

import hashlib
import json
import math
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physai.deploy_jetson.telemetry.flight.file import FlightFolder
from physai.deploy_jetson.telemetry.flight.segment_schedule import (
    LEDGER_FILE,
    SegmentLedger,
    SegmentLedgerError,
    SegmentSchedule,
)
from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.requirements import Requirements, SegmentRules

SEED = bytes(range(32))
RULES = SegmentRules(per_hour=6.0, seconds=60.0)
EVERY_S = 600.0


def rules_of(per_hour: float, share: float) -> SegmentRules:
    """Rules that record about this share of the time."""
    return SegmentRules(per_hour=per_hour, seconds=min(600.0, max(1.0, share * 3600.0 / per_hour)))


rules = st.builds(rules_of, st.floats(0.01, 60.0), st.floats(0.001, 0.499))


@given(st.binary(min_size=32, max_size=32), rules, st.integers(0, 1000))
def test_each_interval_has_one_window_within_it(seed: bytes, rules: SegmentRules, interval: int) -> None:
    schedule, every_s = SegmentSchedule(seed, rules), 3600.0 / rules.per_hour
    window, later = schedule.window(interval), schedule.window(interval + 1)
    assert window.end_s - window.start_s == pytest.approx(rules.seconds, abs=1e-6)
    assert window.end_s <= later.start_s + 1e-6
    # The intervals begin at a random phase before driven time does.
    assert (interval - 1) * every_s <= window.start_s < (interval + 1) * every_s
    assert 0.0 < later.start_s - window.start_s < 2.0 * every_s


@given(st.binary(min_size=32, max_size=32), rules, st.floats(0.0, 1e6), st.integers(-1, 3))
def test_the_next_window_is_the_first_that_has_not_ended(
    seed: bytes, rules: SegmentRules, driven_s: float, after: int
) -> None:
    schedule = SegmentSchedule(seed, rules)
    # A search of its own, from an interval that certainly is too early.
    number = max(after + 1, math.floor(driven_s * rules.per_hour / 3600.0) - 2)
    while schedule.window(number).end_s <= driven_s:
        number += 1
    assert schedule.next(driven_s, after) == schedule.window(number)


def test_every_moment_is_recorded_equally_often() -> None:
    """60 s of 600 s are one tenth, at the beginning of driven time, at the border of intervals and anywhere else."""
    moments = (0.0, 5.0, 300.0, 599.9, 600.1, 1234.5)
    count = 6000
    schedules = [SegmentSchedule(number.to_bytes(32, "big"), RULES) for number in range(count)]
    for moment in moments:
        windows = [schedule.next(moment) for schedule in schedules]
        hits = sum(window.start_s <= moment < window.end_s for window in windows)
        assert abs(hits / count - 0.1) < 4.0 * math.sqrt(0.1 * 0.9 / count), moment


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0 - 2.0**-53])
def test_the_extremes_of_the_draw(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    def drawn(_: SegmentSchedule, what: str) -> float:
        return 0.25 if what == "phase" else share

    monkeypatch.setattr(SegmentSchedule, "_share", drawn)
    schedule = SegmentSchedule(SEED, RULES)
    for interval in range(3):
        window = schedule.window(interval)
        assert window.start_s == pytest.approx((interval - 0.25) * EVERY_S + share * 540.0)
        assert window.end_s <= (interval + 0.75) * EVERY_S + 1e-9


def test_the_seed_alone_decides_and_other_rules_draw_anew() -> None:
    times = [SegmentSchedule(SEED, RULES).window(number).start_s for number in range(4)]
    assert [SegmentSchedule(SEED, RULES).window(number).start_s for number in range(4)] == times
    assert [SegmentSchedule(SEED[::-1], RULES).window(number).start_s for number in range(4)] != times
    other = SegmentRules(per_hour=6.0, seconds=59.0)
    assert SegmentSchedule(SEED, other).window(0).start_s != pytest.approx(times[0], abs=1.0)


def test_the_seed_is_new_secret_and_kept(tmp_path: Path) -> None:
    ledger, problem = SegmentLedger.load(tmp_path)
    assert (problem, ledger.driven_s, len(bytes.fromhex(ledger.seed))) == ("", 0.0, 32)
    assert SegmentLedger.load(tmp_path)[0].seed != ledger.seed
    ledger.save(tmp_path)
    assert SegmentLedger.load(tmp_path) == (ledger, "")
    assert (tmp_path / LEDGER_FILE).stat().st_mode & 0o777 == 0o600
    assert ledger.schedule == hashlib.sha256(bytes.fromhex(ledger.seed)).hexdigest()


def test_a_segment_that_was_in_memory_is_counted_as_lost(tmp_path: Path) -> None:
    SegmentLedger(seed="0" * 64, driven_s=12.5, written=3, lost=1, open=True).save(tmp_path)
    ledger, problem = SegmentLedger.load(tmp_path)
    assert ledger == SegmentLedger(seed="0" * 64, driven_s=12.5, written=3, lost=2)
    assert problem.startswith("a scheduled segment is lost: the recorder ended without writing it")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "segments.json"),
        (b'{"format_version": 2}', "format"),
        (b'{"format_version": 1, "seed": "0", "driven_s": 0.0}', "seed"),
        (json.dumps({"format_version": 1, "seed": "0" * 64, "driven_s": -1.0}).encode(), "driven_s"),
        (b"x" * 5000, "larger than the 4096 bytes"),
    ],
)
def test_a_damaged_ledger_is_said_and_drawn_anew(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / LEDGER_FILE).write_bytes(content)
    ledger, problem = SegmentLedger.load(tmp_path)
    assert (ledger.driven_s, ledger.written, ledger.open) == (0.0, 0, False)
    assert said in problem
    assert problem.endswith("the times of the segments were drawn anew")


def test_a_ledger_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    (tmp_path / LEDGER_FILE).mkdir()
    ledger, problem = SegmentLedger.load(tmp_path)
    assert f"{tmp_path / LEDGER_FILE}: cannot be read" in problem
    before = os.umask(0o027)
    try:
        with pytest.raises(SegmentLedgerError, match="cannot be written"):
            ledger.save(tmp_path)
    finally:
        assert os.umask(before) == 0o027


def test_what_a_power_cut_leaves_of_a_ledger_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".segments.json.0123456789abcdef").touch()
    FlightFolder(tmp_path).prepare()
    assert list(tmp_path.iterdir()) == []


def test_the_settings_of_a_robot_name_the_rules() -> None:
    text = '{"format_version": 1, "segments": {"per_hour": 12.0, "seconds": 30.0, "steps": {"joint_pos": 0.0001}}}'
    found = Requirements.parse(text, source="it").segments
    assert found == SegmentRules(per_hour=12.0, seconds=30.0, steps={"joint_pos": 0.0001})
    assert Requirements().segments is None
    assert b"segments" not in Requirements().encode()


def test_the_settings_that_the_guide_shows() -> None:
    page = Path(__file__).parents[4] / "docs" / "how-to" / "record-random-segments.md"
    found = re.search(r"```json\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    segments = Requirements.parse(found[1], source=str(page)).segments
    assert segments == SegmentRules(steps={"joint_pos": 1e-4, "joint_vel": 1e-3})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"per_hour": 60.0, "seconds": 31.0}', "60 segments of 31 s are 1860 s in an hour; at most 1800 s leave"),
        ('{"per_hour": 0.0}', "greater than or equal to 0.01"),
        ('{"per_hour": 61.0}', "less than or equal to 60"),
        ('{"seconds": 0.5}', "greater than or equal to 1"),
        ('{"per_hour": 1.0, "seconds": 601.0}', "less than or equal to 600"),
        ('{"steps": {"joint_pos": 0.0}}', "greater than 0"),
        ('{"steps": {"joint_pos": 1e4}}', "less than or equal to 1000"),
        ('{"every": 6.0}', "every"),
    ],
)
def test_rules_that_make_no_sense_are_refused(text: str, said: str) -> None:
    with pytest.raises(PhysaiError, match=said):
        Requirements.parse(f'{{"format_version": 1, "segments": {text}}}', source="it")
