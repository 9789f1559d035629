"""Defects put into a sound recording, each found by its check."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import read_log
from physai.twin.logs.findings import LogFinding
from physai.twin.logs.quality import QualityReport, check_log, check_raw
from physai.twin.logs.reader import read_raw

Array = NDArray[np.float64]
Motion = dict[str, Array]
CsvWriter = Callable[..., Path]
Check = Callable[[Motion], QualityReport]


@pytest.fixture
def check(write: CsvWriter, arm: RobotSpec) -> Check:
    return lambda motion: check_raw(read_raw(write(motion), arm))


def only(report: QualityReport, kind: str) -> LogFinding:
    (finding,) = [finding for finding in report.findings if finding.check == kind]
    return finding


def test_a_sound_recording_has_neither_defects_nor_warnings(check: Check, motion: Motion) -> None:
    report = check(motion)
    assert report.usable
    assert [f.message for f in report.findings if f.severity != "note"] == []
    assert all(m.enough for m in report.motions)
    assert report.motions[0].reversals == 3  # 2 s of sin(5·t): turns at π/10, 3π/10, 5π/10 s
    assert report.motions[0].fastest == pytest.approx(5.0, rel=0.01)


def test_a_log_that_was_read_is_judged_alike(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["e1"][500] = 40.0
    path = write(motion)
    read, raw = check_log(read_log(path, arm), arm), check_raw(read_raw(path, arm))
    assert [f.message for f in read.findings] == [f.message for f in raw.findings]


def test_gaps_and_jitter(check: Check, motion: Motion) -> None:
    motion["t"][400:] += 0.1
    motion["t"][800] += 0.001
    report = check(motion)
    gap, jitter = only(report, "gap"), only(report, "jitter")
    assert (gap.severity, gap.samples) == ("warning", (400,))
    assert gap.numbers == {"gaps": 1, "longest_s": pytest.approx(0.102)}
    assert jitter.samples == (400, 800)
    assert jitter.numbers["median_s"] == pytest.approx(0.002)
    assert jitter.numbers["max_s"] == pytest.approx(0.102)
    assert report.usable


def test_slow_logging(check: Check, motion: Motion) -> None:
    slow = {name: values[::15] for name, values in motion.items()}
    slow = {name: np.concatenate([values] * 2) for name, values in slow.items()}
    slow["t"] = np.arange(len(slow["t"])) * 0.03
    found = only(check(slow), "rate")
    assert (found.severity, round(found.numbers["rate_hz"])) == ("warning", 33)


def test_too_few_samples(check: Check, motion: Motion) -> None:
    assert only(check({name: values[:60] for name, values in motion.items()}), "length").severity == "defect"
    report = check({name: values[:10] for name, values in motion.items()})
    assert (report.usable, report.periods, report.motions) == (False, None, ())


def test_wrapped_integers_are_a_defect_until_the_map_undoes_them(
    write: CsvWriter, motion: Motion, arm: RobotSpec
) -> None:
    motion["e1"] = np.asarray(np.round(motion["e1"] * 100) % 65536, np.float64)
    path = write(motion)
    found = only(check_raw(read_raw(path, arm)), "wrap")
    assert (found.severity, found.joint, found.numbers["modulus"]) == ("defect", "shoulder", 65536)
    assert found.advice == "add `wrap: 65536` to this column in the column map"
    column_map = path.with_name("columns.yaml")
    column_map.write_text(
        column_map.read_text().replace("joint_effort: e1", "joint_effort: {column: e1, wrap: 65536, scale: 0.01}")
    )
    report = check_raw(read_raw(path, arm))
    assert only(report, "wrap").severity == "note"
    assert report.usable


def test_large_integers_are_not_taken_for_wrapped_ones(check: Check, motion: Motion) -> None:
    motion["e1"] = np.asarray(np.round(30000 + 20000 * np.sin(motion["t"])), np.float64)
    assert "wrap" not in {f.check for f in check(motion).findings}


def test_turns_that_are_not_counted(write: CsvWriter, hinge: RobotSpec) -> None:
    t = np.arange(1000) * 0.002
    columns = {"t": t, "q": (3.0 + 8.0 * t) % (2 * np.pi), "u": np.sin(t)}
    text = "time: t\ncommand_kind: joint_effort\njoints: {hinge: {joint_pos: q, command: u}}\n"
    found = only(check_raw(read_raw(write(columns, column_map=text), hinge)), "wrap")
    # 3 + 8·t passes 2π and 4π within 2 s, and 6π at 1.98 s.
    assert (found.severity, found.numbers["jumps"]) == ("defect", 3)
    text = text.replace("joint_pos: q", "joint_pos: {column: q, period: 6.283185307179586}")
    report = check_raw(read_raw(write(columns, column_map=text), hinge))
    assert "wrap" not in {f.check for f in report.findings}
    assert report.motions[0].highest == pytest.approx(3.0 + 8.0 * 1.998)


def test_clipped_measurements(check: Check, motion: Motion) -> None:
    motion["v1"] = np.clip(motion["v1"], -4.0, 4.5)
    found = [f for f in check(motion).findings if f.check == "clip"]
    assert [(f.severity, f.channel, f.joint) for f in found] == [("warning", "joint_vel", "shoulder")] * 2
    assert [f.numbers["value"] for f in found] == [4.5, -4.0]
    # 5·cos(5·t) is above 4.5 for 2·arccos(0.9)/5 = 0.18 s of each 1.257 s, and at the start, which is not entered.
    assert found[0].numbers["samples"] == pytest.approx(90, abs=2)


def test_a_saturated_command_is_a_note(check: Check, motion: Motion) -> None:
    motion["u1"] = motion["e1"] = np.clip(motion["u1"], -1.5, 1.5)
    severities = {f.channel: f.severity for f in check(motion).findings if f.check == "clip"}
    assert severities == {"command": "note", "joint_effort": "warning"}


def test_coming_to_rest_is_not_clipping(check: Check, motion: Motion) -> None:
    ramp = np.minimum(motion["t"], 1.0)
    motion["q1"], motion["v1"] = ramp, np.array([float(t < 1.0) for t in motion["t"]])
    assert "joint_pos" not in {f.channel for f in check(motion).findings if f.check == "clip"}


@pytest.mark.parametrize(("name", "size"), [("e1", 9.0), ("v2", 30.0), ("q1", 0.4)])
def test_spikes(check: Check, motion: Motion, name: str, size: float) -> None:
    motion[name][[300, 301, 700]] += size
    found = only(check(motion), "spike")
    assert found.samples == (300, 301, 700)
    assert found.severity == "warning"
    assert found.numbers["worst"] == pytest.approx(motion[name][[300, 301, 700]].max())


def test_a_pulse_that_was_commanded_is_no_spike(check: Check, motion: Motion) -> None:
    motion["u1"][[300, 301]] += 9.0
    motion["e1"][[302, 303]] += 9.0
    assert "spike" not in {f.check for f in check(motion).findings}


def test_many_spikes_forbid_calibration(check: Check, motion: Motion) -> None:
    motion["v1"][::8] += 40.0
    assert not check(motion).usable


def test_sensors_read_more_often_than_they_measure(check: Check, motion: Motion) -> None:
    held = {name: np.repeat(values[::2], 2) if name[0] in "qve" else values for name, values in motion.items()}
    found = only(check(held), "stale")
    assert (found.severity, found.numbers["share"]) == ("warning", pytest.approx(0.5, abs=0.02))


def test_a_dead_sensor(check: Check, motion: Motion) -> None:
    motion["e2"] = np.full(1000, 0.25)
    found = only(check(motion), "constant")
    assert (found.severity, found.joint, found.channel) == ("defect", "elbow", "joint_effort")


def test_a_joint_without_a_motor_has_no_effort(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["u2"], motion["e2"] = np.zeros(1000), np.zeros(1000)
    shoulder, elbow = arm.joints
    passive = arm.model_copy(update={"joints": (shoulder, elbow.model_copy(update={"effort_limit": 0.0}))})
    path = write(motion)
    findings = [check_log(read_log(path, robot), robot).findings for robot in (arm, passive)]
    assert [[f.joint for f in found if f.check == "constant"] for found in findings] == [["elbow"], []]


def test_one_joint_that_hardly_moves_is_a_warning_and_none_a_defect(check: Check, motion: Motion) -> None:
    motion["q2"], motion["v2"] = motion["q2"] * 0.05, motion["v2"] * 0.05
    found = only(check(motion), "motion")
    assert (found.severity, found.joint) == ("warning", "elbow")
    assert found.numbers["range"] == pytest.approx(0.06, rel=0.01)
    motion["q1"], motion["v1"] = motion["q1"] * 0.04, motion["v1"] * 0.04
    report = check(motion)
    assert [(f.severity, f.joint) for f in report.findings if f.check == "motion"] == [
        ("defect", "shoulder"),
        ("defect", "elbow"),
    ]


def test_one_way_motion(check: Check, motion: Motion) -> None:
    motion["q1"], motion["v1"] = motion["t"] * 0.5, np.full(1000, 0.5) + 1e-6 * motion["t"]
    assert "one direction only" in only(check(motion), "motion").message


def test_effort_that_counts_oppositely_or_in_another_unit(check: Check, motion: Motion) -> None:
    motion["e1"] = -motion["u1"]
    found = only(check(motion), "follow")
    assert (found.severity, found.joint, found.numbers["gain"]) == ("defect", "shoulder", pytest.approx(-1.0))
    motion["e1"] = 1000 * motion["u1"]
    found = only(check(motion), "follow")
    assert (found.severity, found.numbers["gain"]) == ("defect", pytest.approx(1000.0))
    motion["e1"] = 3 * motion["u1"]
    found = only(check(motion), "follow")
    assert (found.severity, found.numbers["gain"]) == ("warning", pytest.approx(3.0))
    motion["e1"] = np.random.default_rng(0).normal(size=1000)
    assert "explains 0% of the variance" in only(check(motion), "follow").message


def test_commands_beyond_the_limit_or_none(check: Check, motion: Motion) -> None:
    motion["u1"] = motion["u1"] * 4
    motion["e1"] = motion["u1"]
    found = only(check(motion), "limit")
    assert (found.numbers["greatest"], found.numbers["limit"]) == (pytest.approx(8.0, rel=0.01), 5.0)
    for name in ("u1", "u2"):
        motion[name] = np.zeros(1000)
    assert "no command ever changes" in only(check(motion), "command").message


def test_findings_come_worst_first(check: Check, motion: Motion) -> None:
    motion["t"][400:] += 0.1
    motion["q2"][3] = np.nan
    ranks = [("defect", "warning", "note").index(f.severity) for f in check(motion).findings]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == 3


def test_a_joint_without_a_motor_has_no_dead_sensor(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    """A passive joint has no command in the map, though an effort limit in its URDF, and its effort may be 0."""
    path = write({**motion, "e2": np.zeros(len(motion["t"]))})
    file = path.with_name("columns.yaml")
    file.write_text(file.read_text().replace(", command: u2", ""))
    log = read_log(path, arm)
    assert log.driven == (True, False)
    for report in (check_raw(read_raw(path, arm)), check_log(log, arm)):
        assert report.usable, [finding.message for finding in report.findings]


def test_an_effort_that_is_a_copy_of_its_command(check: Check, motion: Motion) -> None:
    """A copy lags by nothing, which was taken for a measured lag of 0."""
    motion["e2"] = np.round(motion["u2"], 3)
    report = check(motion)
    found = only(report, "follow")
    assert (found.severity, found.joint) == ("warning", "elbow")
    assert (
        found.message == "command and measured effort of elbow are equal but for rounding: one is a copy of the other"
    )
    assert report.lags[0] is not None
    assert report.lags[1] is None
