"""Quantities that a driver publishes as NaN because nothing measures them."""

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


def notes(path: Path, arm: RobotSpec) -> list[str]:
    report = check_raw(read_raw(path, arm))
    assert report.usable, [finding.message for finding in report.findings]
    return [finding.message for finding in report.findings if finding.check == "rows"]


def test_speeds_and_efforts_that_are_nan_throughout_are_not_measured(
    write: CsvWriter, motion: Motion, arm: RobotSpec
) -> None:
    for column in ("v1", "v2", "e1", "e2"):
        motion[column][:] = np.nan
    path = write(motion)
    log = read_log(path, arm)
    assert (log.joint_vel, log.joint_effort) == (None, None)
    assert notes(path, arm) == [
        "joint_vel has no number in any sample: taken as not measured",
        "joint_effort has no number in any sample: taken as not measured",
    ]


def test_one_joint_without_speed_and_effort(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["v2"][:] = motion["e2"][:] = np.nan
    path = write(motion)
    log = read_log(path, arm)
    # The elbow is driven, so its effort is not 0.
    assert (log.joint_vel, log.joint_effort) == (None, None)
    assert notes(path, arm) == [
        "joint_vel of elbow has no number in any sample: taken as not measured; that of the other joints is of no use "
        "without it",
        "joint_effort of elbow has no number in any sample: taken as not measured; that of the other joints is of no "
        "use without it",
    ]


def test_a_joint_that_is_not_driven_has_no_effort_to_lack(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["e2"][:] = np.nan
    passive = (write(motion).parent / "columns.yaml").read_text().replace(", command: u2", "")
    log = read_log(write(motion, column_map=passive), arm)
    assert log.joint_effort is not None
    assert log.joint_effort[:, 0] == pytest.approx(motion["e1"])
    assert not log.joint_effort[:, 1].any()


@pytest.mark.parametrize("column", ["q1", "u1"])
def test_positions_and_commands_are_needed(column: str, write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion[column][:] = np.nan
    with pytest.raises(LogError, match=r"of shoulder is missing, .* in 1000 of 1000 samples"):
        read_log(write(motion), arm)


def test_one_number_makes_it_a_measurement_with_holes(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["v1"][1:] = np.nan
    with pytest.raises(LogError, match=r"joint_vel of shoulder is missing, .* in 999 of 1000 samples"):
        read_log(write(motion), arm)


def test_without_commands_efforts_are_needed(write: CsvWriter, motion: Motion, arm: RobotSpec) -> None:
    motion["e1"][:] = motion["e2"][:] = np.nan
    uncommanded = (write(motion).parent / "columns.yaml").read_text().replace(", command: u2", "")
    with pytest.raises(LogError, match="no joint has a command column; a replay needs the commands, or the measured"):
        read_log(write(motion, column_map=uncommanded.replace(", command: u1", "")), arm)
