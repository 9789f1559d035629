"""What a recording must not have: NaN, a clock that runs back, wrong units."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import LogError, read_log
from physai.twin.logs.quality import check_raw
from physai.twin.logs.reader import read_raw

Motion = dict[str, NDArray[np.float64]]
CsvWriter = Callable[..., Path]
DEGREES = 180.0 / math.pi


def test_nan_is_refused_with_its_place(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["q2"][[7, 9]] = np.nan
    with pytest.raises(
        LogError, match=r"joint_pos of elbow is missing.* 2 of 1000 samples, first in sample 7 at 0.014"
    ):
        read_log(write(motion), arm)
    motion["q2"][[7, 9]] = 0.0
    motion["u1"][3] = np.inf
    with pytest.raises(LogError, match=r"command of shoulder is missing, not finite .* in 1 of 1000"):
        read_log(write(motion), arm)


def test_time_that_runs_back_or_stands_is_refused(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["t"][[10, 11]] = motion["t"][[11, 10]]
    with pytest.raises(LogError, match=r"does not ascend in 1 of 999 steps, first from 0.022000 s to 0.020000 s"):
        read_log(write(motion), arm)
    motion["t"][11] = motion["t"][10]
    with pytest.raises(LogError, match="does not ascend in 1 of 999 steps"):
        read_log(write(motion), arm)
    motion["t"][11] = np.nan
    with pytest.raises(LogError, match="time is not finite in 1 of 1000 samples, first in sample 11"):
        read_log(write(motion), arm)


def test_a_clock_that_was_set_is_to_be_cut_not_sorted(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["t"][500:] -= 0.3
    with pytest.raises(LogError, match="the clock was set: cut the recording there and give one part"):
        read_log(write(motion), arm)
    # The advice, followed.
    log = read_log(write({name: values[500:] for name, values in motion.items()}), arm)
    assert log.joint_pos[:, 0] == pytest.approx(motion["q1"][500:])


SCALES = [
    ({"q1": DEGREES}, "positions are in degrees and speeds in rad/s; set `unit: deg` for joint_pos of shoulder"),
    ({"v1": DEGREES}, "speeds are in degrees per second and positions in rad; set `unit: deg/s` for joint_vel"),
    ({"v1": 60 / (2 * math.pi)}, "speeds are in rpm; set `unit: rpm`"),
    ({"v1": 1 / (2 * math.pi)}, "speeds are in revolutions per second"),
    ({"q1": 1 / (2 * math.pi)}, "positions are in revolutions; set `unit: rev`"),
    ({"v1": -1.0}, "position and speed count in opposite directions; set `sign: -1`"),
    ({"t": 1e3}, "time is in milliseconds; set `unit: ms` for time"),
    ({"t": 1e6}, "time is in microseconds"),
    ({"t": 1e9}, "time is in nanoseconds"),
    (
        {"q1": DEGREES, "v1": DEGREES},
        "limits are -2 and 2.5 rad; read as degrees they are -1 and 1 rad; set .* and `unit: deg/s`",
    ),
]


@pytest.mark.parametrize(("scale", "message"), SCALES)
def test_wrong_units_are_refused(
    write: CsvWriter, motion: Motion, arm: RobotSpec, scale: dict[str, float], message: str
) -> None:
    for name, factor in scale.items():
        motion[name] = motion[name] * factor
    with pytest.raises(LogError, match=message):
        read_log(write(motion), arm)


def test_noise_and_jitter_do_not_pass_for_wrong_units(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    random = np.random.default_rng(0)
    for name in ("q1", "q2"):
        motion[name] = np.round((motion[name] + random.normal(0, 1e-3, 1000)) / 4e-4) * 4e-4
    for name in ("v1", "v2"):
        motion[name] = motion[name] + random.normal(0, 0.5, 1000)
    motion["t"] = motion["t"] + np.abs(random.normal(0, 2e-4, 1000))
    assert len(read_log(write(motion), arm).time) == 1000


def test_degrees_are_known_by_speed_where_there_are_no_position_limits(
    write: CsvWriter, motion: Motion, hinge: RobotSpec
) -> None:
    one = "time: t\ncommand_kind: joint_effort\njoints: {hinge: {joint_pos: q1, joint_vel: v1, command: u1}}\n"
    path = write({**motion, "q1": motion["q1"] * DEGREES, "v1": motion["v1"] * DEGREES}, column_map=one)
    # 99 % of |5·cos| rad/s are below 5.
    with pytest.raises(
        LogError, match=r"hinge reaches 286.\d rad/s, its limit is 20 rad/s; read as degrees it is 4.999 rad"
    ):
        read_log(path, hinge)
    path.with_name("columns.yaml").write_text(one.replace("joint_vel: v1, ", ""))
    with pytest.raises(LogError, match=r"set `unit: deg` for joint_pos in the column map$"):
        read_log(path, hinge)


def test_a_wrong_zero_is_refused(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["q1"] = motion["q1"] + math.pi
    with pytest.raises(
        LogError, match=r"shoulder moves between 2.14\d and 4.14\d rad, its limits are .* give joint_pos an `offset`"
    ):
        read_log(write(motion), arm)


def test_a_scale_that_is_no_unit_is_but_a_warning(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["v1"] = motion["v1"] * 0.5
    (finding,) = [f for f in check_raw(read_raw(write(motion), arm)).findings if f.check == "units"]
    assert (finding.severity, finding.joint) == ("warning", "shoulder")
    assert finding.numbers["ratio"] == pytest.approx(2.0, rel=0.01)


def test_all_defects_are_counted_in_the_error(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["q1"][0], motion["e2"][5] = np.nan, np.nan
    with pytest.raises(LogError, match=r"sample 0 .*; and 1 more: physai logs check "):
        read_log(write(motion), arm)


def test_the_rest_of_a_defective_recording_is_still_judged(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["q1"][5] = np.nan
    motion["t"][20] = 0.0
    report = check_raw(read_raw(write(motion), arm))
    assert not report.usable
    assert {f.check for f in report.findings if f.severity == "defect"} == {"finite", "time"}
    assert report.periods is not None
    assert report.periods.median_s == pytest.approx(0.002)
    assert [round(m.highest, 2) for m in report.motions] == [1.0, 0.6]


MIXED = [
    (1 / (2 * math.pi), 60 / (2 * math.pi), "positions are in revolutions and speeds in rpm", "rev", "rpm"),
    (1 / (2 * math.pi), DEGREES, "positions are in revolutions and speeds in deg/s", "rev", "deg/s"),
    (DEGREES, 60 / (2 * math.pi), "positions are in degrees and speeds in rpm", "deg", "rpm"),
    (DEGREES, 1 / (2 * math.pi), "positions are in degrees and speeds in rev/s", "deg", "rev/s"),
]


@pytest.mark.parametrize(("position", "speed", "meaning", "unit", "speed_unit"), MIXED)
def test_two_units_at_once_are_told_from_one(
    position: float,
    speed: float,
    meaning: str,
    unit: str,
    speed_unit: str,
    write: CsvWriter,
    motion: Motion,
    arm: RobotSpec,
) -> None:
    """Revolutions and rpm differ by 1/60, degrees per second and radians by 1/57.3; degrees and rpm by 6, not by 2π."""
    motion["q1"], motion["v1"] = position * motion["q1"], speed * motion["v1"]
    advice = f"set `unit: {unit}` for joint_pos and `unit: {speed_unit}` for joint_vel of shoulder"
    with pytest.raises(LogError, match=f"{meaning}; {advice}"):
        read_log(write(motion), arm)


def test_a_share_of_a_gripper_is_beyond_the_limits_whatever_its_speed(
    write: CsvWriter, motion: Motion, arm: RobotSpec
) -> None:
    """0 to 100 for -1 to 1 rad is no unit, and no degrees either: the speed says a factor of 50."""
    motion["q2"] = 50.0 + 50.0 * motion["q2"]
    found = [finding for finding in check_raw(read_raw(write(motion), arm)).findings if finding.severity == "defect"]
    assert len(found) == 1
    assert found[0].message.startswith("elbow moves between 20 and 80 rad, its limits are -2 and 2.5 rad")
    assert "degrees" not in found[0].message
    assert "`scale`" in found[0].advice


def test_columns_of_two_joints_that_are_mixed_up_are_refused(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["q1"], motion["q2"] = motion["q2"], motion["q1"]
    with pytest.raises(LogError, match="joint_pos of shoulder changes as joint_vel of elbow says, and not as that of"):
        read_log(write(motion), arm)
    motion["v1"], motion["v2"] = motion["v2"], motion["v1"]
    read_log(write(motion), arm)


class TestTurns:
    """Positions of ±0.6 rad around 0, of an encoder that counts from 0 to a turn."""

    def test_of_radians_that_wrap_only_the_turn_is_named(
        self, write: CsvWriter, motion: Motion, arm: RobotSpec
    ) -> None:
        motion["q2"] = motion["q2"] % (2.0 * math.pi)
        found = [one for one in check_raw(read_raw(write(motion), arm)).findings if one.severity == "defect"]
        assert [one.check for one in found] == ["wrap"]

    def test_a_commanded_angle_that_wraps_is_named_like_the_measured_one(
        self, write: CsvWriter, motion: Motion, arm: RobotSpec
    ) -> None:
        """Unwrapping the positions alone would leave jumps in their commands."""
        motion["q2"] = motion["q2"] % (2.0 * math.pi)
        motion["u2"], motion["u1"] = motion["q2"].copy(), motion["q1"].copy()
        path = write(motion)
        text = (path.parent / "columns.yaml").read_text().replace("joint_effort\n", "joint_pos\n", 1)
        (path.parent / "columns.yaml").write_text(text)
        found = [one for one in check_raw(read_raw(path, arm)).findings if one.check == "wrap"]
        assert sorted(one.channel for one in found) == ["command", "joint_pos"]
        assert any("add `period:` to column 'u2'" in one.advice for one in found)

    def test_degrees_that_wrap_are_named_with_both_settings(
        self, write: CsvWriter, motion: Motion, arm: RobotSpec
    ) -> None:
        motion["q2"] = (DEGREES * motion["q2"]) % 360.0
        with pytest.raises(
            LogError, match=r"jumps by 360 .*; set `unit: deg` and `period: 360` for joint_pos of elbow"
        ):
            read_log(write(motion), arm)

    def test_an_angle_that_was_unwrapped_is_full_turns_off_and_not_in_degrees(
        self, write: CsvWriter, motion: Motion, arm: RobotSpec
    ) -> None:
        """The advice, followed: a turn is 6.283185307 rad."""
        motion["q2"] = (motion["q2"] - 0.1) % (2.0 * math.pi)
        path = write(motion)
        text = (path.parent / "columns.yaml").read_text()
        assert "joint_pos: q2" in text
        period = text.replace("joint_pos: q2", "joint_pos: {column: q2, period: 6.283185307OFFSET}")
        (path.parent / "columns.yaml").write_text(period.replace("OFFSET", ""))
        with pytest.raises(
            LogError, match=r"full turns off, they are -0\.7 and 0\.5 rad; add -6.283185307 to the `offset`"
        ):
            read_log(path, arm)
        (path.parent / "columns.yaml").write_text(period.replace("OFFSET", ", offset: -6.283185307"))
        assert read_log(path, arm).joint_pos[:, 1].max() == pytest.approx(0.5, abs=1e-3)


def test_a_clock_in_milliseconds_is_of_no_joint(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["t"] = 1e3 * motion["t"] * 100.0
    motion["v1"], motion["v2"] = motion["v1"] / 100.0, motion["v2"] / 100.0
    with pytest.raises(LogError, match="time is in milliseconds; set `unit: ms` for time in the column map"):
        read_log(write(motion), arm)
