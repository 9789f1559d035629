"""Faults of sensors, drivers and exports that leave numbers behind which look like a recording."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.support.bags import EPOCH_NS, Sent, bag, by_time, commands, joint_state

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs import LogError, read_log
from physai.twin.logs.findings import LogFinding
from physai.twin.logs.quality import check_raw
from physai.twin.logs.reader import read_raw

Array = NDArray[np.float64]
Motion = dict[str, Array]
CsvWriter = Callable[..., Path]
NAMES = ["shoulder", "elbow"]
MAP = "command_kind: joint_effort\nros: {command: {topic: /effort/commands, joints: [elbow, shoulder]}}\n"


def findings(path: Path, arm: RobotSpec, check: str) -> list[LogFinding]:
    return [finding for finding in check_raw(read_raw(path, arm)).findings if finding.check == check]


@pytest.fixture
def noisy(motion: Motion) -> Motion:
    random = np.random.default_rng(0)
    for name in ("q1", "q2", "v1", "v2", "e1", "e2"):
        motion[name] = motion[name] + random.normal(0.0, 1e-3, 1000)
    return motion


class TestFrozen:
    """A driver that repeats its last value for 0.32 s."""

    @pytest.mark.parametrize("columns", [("q1",), ("v1",), ("e1",), ("q1", "v1", "e1", "q2", "v2", "e2")])
    def test_each_frozen_channel_is_named(
        self, columns: tuple[str, ...], write: CsvWriter, noisy: Motion, arm: RobotSpec
    ) -> None:
        for column in columns:
            noisy[column][400:560] = noisy[column][400]
        found = findings(write(noisy), arm, "frozen")
        kinds = {"q": "joint_pos", "v": "joint_vel", "e": "joint_effort"}
        assert {(f.channel, f.joint) for f in found} == {(kinds[c[0]], NAMES[int(c[1]) - 1]) for c in columns}
        assert all("in 160 samples in a row, for 0.318 s from 0.800 s" in f.message for f in found)

    def test_rest_is_no_freeze(self, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
        """A simulated robot that rests, moves smoothly, and rests: its numbers repeat exactly."""
        phase = np.clip((motion["t"] - 0.5) / 1.0, 0.0, 1.0)
        for number in "12":
            motion[f"q{number}"] = np.round(0.5 - 0.5 * np.cos(2.0 * np.pi * phase), 12)
            motion[f"v{number}"] = np.where((phase > 0) & (phase < 1), np.pi * np.sin(2.0 * np.pi * phase), 0.0)
        assert findings(write(motion), arm, "frozen") == []

    def test_a_coarse_encoder_is_no_freeze(self, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
        for name in ("q1", "q2"):
            motion[name] = np.round(motion[name] / 0.05) * 0.05
        assert findings(write(motion), arm, "frozen") == []

    def test_an_effort_that_equals_a_constant_command_is_none(
        self, write: CsvWriter, noisy: Motion, arm: RobotSpec
    ) -> None:
        for name in ("u1", "e1"):
            noisy[name][400:560] = 1.25
        assert findings(write(noisy), arm, "frozen") == []


class TestTwoPublishers:
    @pytest.mark.parametrize("every", [2, 5])
    def test_one_of_them_sends_zeros(self, every: int, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
        for name in ("q1", "q2"):
            motion[name] = motion[name] + 1.2
            motion[name][::every] = 0.0
        path = write(motion)
        (found,) = findings(path, arm, "publish")
        assert "all positions are exactly 0 in" in found.message
        assert findings(path, arm, "units") == []
        with pytest.raises(LogError, match="two nodes publish the topic"):
            read_log(path, arm)

    def test_both_send_something(self, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
        for name in ("q1", "q2"):
            motion[name][::2] += 0.5
        assert "positions alternate" in findings(write(motion), arm, "publish")[0].message

    def test_a_motion_through_zero_is_one_publisher(self, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
        # Each joint is at exactly 0 whenever the other is.
        motion["q2"] = motion["q1"].copy()
        motion["v2"] = motion["v1"].copy()
        motion["q1"][np.abs(motion["q1"]) < 0.01] = motion["q2"][np.abs(motion["q2"]) < 0.01] = 0.0
        assert findings(write(motion), arm, "publish") == []


def states(count: int = 300, without: frozenset[int] = frozenset()) -> Sent:
    sent: Sent = []
    for i in range(count):
        pos, vel = np.array([1.0, 0.5]) * np.sin(0.05 * i), np.array([5.0, 2.5]) * np.cos(0.05 * i)
        ns = EPOCH_NS + i * 10**7
        sent.append(("/joint_states", ns, joint_state(ns, NAMES, pos, () if i in without else vel)))
    return sent


class TestMessagesWithoutAField:
    def test_a_few_are_left_out(self, tmp_path: Path, arm: RobotSpec) -> None:
        path = bag(tmp_path / "run", by_time(states(without=frozenset({7})), commands()))
        (tmp_path / "columns.yaml").write_text(MAP)
        log = read_log(path, arm)
        assert log.joint_vel is not None
        assert len(log.time) == 299
        assert log.joint_vel[7] == pytest.approx(np.array([5.0, 2.5]) * np.cos(0.05 * 8))
        notes = [finding.message for finding in findings(path, arm, "rows")]
        assert "left out 1 of 300 messages on /joint_states without velocity" in notes

    def test_many_are_said(self, tmp_path: Path, arm: RobotSpec) -> None:
        path = bag(tmp_path / "run", by_time(states(without=frozenset(range(100))), commands()))
        (tmp_path / "columns.yaml").write_text(MAP)
        assert read_log(path, arm).joint_vel is None
        (found,) = [f for f in findings(path, arm, "rows") if f.severity == "warning"]
        assert found.message == "100 of 300 messages on /joint_states have no velocity: it is not used"


class TestEffortsInAnotherUnit:
    def test_the_check_refuses_newton_millimetres_as_calibrate_does(
        self, write: CsvWriter, motion: Motion, arm: RobotSpec
    ) -> None:
        true = motion["e1"].copy()
        motion["e1"] = 1e3 * true
        path = write(motion)
        (found,) = [f for f in findings(path, arm, "follow") if f.severity == "defect"]
        assert found.advice == "set `unit: mN*m` for joint_effort of shoulder"
        text = (path.parent / "columns.yaml").read_text()
        write(motion, column_map=text.replace("joint_effort: e1", "joint_effort: {column: e1, unit: mN*m}"))
        report = check_raw(read_raw(path, arm))
        assert report.usable
        assert read_log(path, arm).joint_effort[:, 0] == pytest.approx(true)  # type: ignore[index]

    def test_without_effort_commands_the_limit_tells(self, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
        motion["e1"] = 1e3 * motion["e1"]
        for number in "12":
            motion[f"u{number}"] = motion[f"q{number}"]
        path = write(motion)
        text = (path.parent / "columns.yaml").read_text().replace("joint_effort\n", "joint_pos\n", 1)
        write(motion, column_map=text)
        (found,) = [f for f in findings(path, arm, "units") if f.severity == "defect"]
        assert "efforts of shoulder reach 1960, its effort limit is 5" in found.message
        assert found.advice == "set `unit: mN*m` for joint_effort"


class TestTimes:
    def test_bursts_are_no_rate(self, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
        arrived = np.ceil(motion["t"] / 0.05) * 0.05 + 1e-5 * np.arange(1000)
        path = write({**motion, "t": arrived})
        (found,) = findings(path, arm, "burst")
        assert (found.severity, found.numbers["mean_s"]) == ("defect", pytest.approx(0.002, rel=0.02))
        assert "samples come in 40 bursts" in found.message
        assert not check_raw(read_raw(path, arm)).usable

    def test_a_pause_is_a_gap_and_no_burst(self, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
        motion["t"][500:] += 30.0
        path = write(motion)
        assert findings(path, arm, "burst") == []
        assert len(findings(path, arm, "gap")) == 1


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_decimal_comma_is_read(
    separator: str, tmp_path: Path, motion: Motion, arm: RobotSpec, write: CsvWriter
) -> None:
    path = write(motion)
    true = read_log(path, arm)
    path.write_text(path.read_text().replace(",", separator).replace(".", ","))
    log = read_log(path, arm)
    assert (log.joint_pos == true.joint_pos).all()
    assert "numbers have a decimal comma" in [finding.message for finding in findings(path, arm, "rows")]


def test_decimal_commas_between_commas_are_refused(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    path = write(motion)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line.replace(".", ",") for line in lines[1:])]))
    with pytest.raises(LogError, match=r"not a table of .* columns"):
        read_log(path, arm)


def test_the_files_of_a_split_bag_are_read_in_their_order(tmp_path: Path, arm: RobotSpec) -> None:
    whole = by_time(states(), commands())
    (tmp_path / "columns.yaml").write_text(MAP)
    expected = read_log(bag(tmp_path / "whole", whole), arm)
    early, late = bag(tmp_path / "a", whole[:200]), bag(tmp_path / "b", whole[200:])
    (late / "b.mcap").rename(early / "b.mcap")
    metadata = (early / "metadata.yaml").read_text()
    listed = re.sub(r"(\n *- )a\.mcap", r"\1b.mcap\1a.mcap", metadata, count=1)
    assert listed != metadata
    (early / "metadata.yaml").write_text(listed)
    log = read_log(early, arm)
    assert (log.time == expected.time).all()
    assert (log.joint_pos == expected.joint_pos).all()
