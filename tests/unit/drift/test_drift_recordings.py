"""Recordings for a drift monitor: whose they are, that each counts once, and their order."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from physai.drift import DriftError, drift
from physai.drift.monitor.recordings import read_recordings
from physai.sdk.base.errors import PhysaiError
from physai.sdk.evidence.origin import Origin
from physai.sim.robots import load_robot
from physai.twin.logs import LogError, RobotLog
from physai.twin.model.twin import Twin, nominal_twin
from physai.twin.model.twin_file import LogRecord, Logs

WriteLog = Callable[..., Path]


def read(twin: Twin, *paths: Path) -> list[str]:
    found, _ = read_recordings(paths, load_robot("double_pendulum"), twin, None)
    return [one.log.name for one in found]


def test_recordings_are_in_the_order_of_their_clocks(pendulum_twin: Twin, write_log: WriteLog) -> None:
    later = write_log("later", seed=1, start=1.7e9 + 100.0)
    earlier = write_log("earlier", seed=2, start=1.7e9)
    assert read(pendulum_twin, later, earlier) == ["earlier", "later"]


def test_recordings_without_a_clock_stay_as_given(pendulum_twin: Twin, write_log: WriteLog) -> None:
    paths = [write_log("second", seed=1), write_log("first", seed=2)]
    assert read(pendulum_twin, *paths) == ["second", "first"]


def test_recordings_that_overlap_in_time_are_refused(pendulum_twin: Twin, write_log: WriteLog) -> None:
    paths = [write_log("one", seed=1, start=1.7e9), write_log("two", seed=2, start=1.7e9 + 0.3)]
    with pytest.raises(DriftError, match=r"two.csv begins 0.1 s before the end of .*one.csv: a robot makes one"):
        read(pendulum_twin, *paths)


def test_a_copy_under_another_name_is_refused(pendulum_twin: Twin, write_log: WriteLog) -> None:
    one = write_log("one", seed=1)
    copy = one.with_name("copy.csv")
    copy.write_bytes(one.read_bytes())
    with pytest.raises(DriftError, match=r"copy.csv: the same recording as .*one.csv; give each once"):
        read(pendulum_twin, one, copy)


def test_a_part_of_another_recording_is_refused(pendulum_twin: Twin, write_log: WriteLog) -> None:
    one = write_log("one", seed=1, count=3000)
    lines = one.read_text(encoding="utf-8").splitlines()
    part = one.with_name("part.csv")
    part.write_text("\n".join([lines[0], *lines[500:]]) + "\n", encoding="utf-8")
    with pytest.raises(DriftError, match=r"part.csv: 100% of its samples are those of"):
        read(pendulum_twin, one, part)


def test_a_recording_of_another_unit_is_refused_with_both(pendulum_twin: Twin, write_log: WriteLog) -> None:
    stated = LogRecord(name="a", sha256="1" * 64, origin=Origin(kind="robot", robot="double_pendulum/lab-1"))
    twin = replace(pendulum_twin, logs=Logs(train=(stated,)))
    with pytest.raises(DriftError, match=r"double_pendulum/lab-2, and the twin of double_pendulum/lab-1"):
        read(twin, write_log("one", mark="robot double_pendulum/lab-2"))
    assert read(twin, write_log("two", mark="robot double_pendulum/lab-1")) == ["two"]


def test_a_recording_of_another_robot_is_refused_with_both(still_log: RobotLog) -> None:
    with pytest.raises(LogError, match=r"has the joints joint1, joint2, robot ur10e has shoulder_pan_joint"):
        drift([still_log], twin=nominal_twin(load_robot("ur10e")))


def test_a_recording_of_the_calibration_is_no_evidence_of_its_own(pendulum_twin: Twin, still_log: RobotLog) -> None:
    twin = replace(pendulum_twin, logs=Logs(train=(LogRecord(name="a", sha256=still_log.sha256),)))
    with pytest.raises(DriftError, match="the twin was calibrated on all 1 recordings; give others"):
        drift([still_log], twin=twin)
    other = replace(still_log, sha256="2" * 64, joint_pos=still_log.joint_pos[::-1].copy(), source="other")
    found = drift([still_log, other], twin=twin)
    assert found.remarks[0] == "what 1 recordings of the calibration differ by from the twin counts as usual"
    assert found.recordings == ("other",)


def test_a_robot_with_constraints_is_refused(tmp_path: Path, still_log: RobotLog) -> None:
    text = load_robot("double_pendulum").path.read_text(encoding="utf-8")
    tied = "<equality><joint joint1='joint1' joint2='joint2'/></equality></mujoco>"
    path = tmp_path / "tied.xml"
    path.write_text(text.replace("</mujoco>", tied), encoding="utf-8")
    with pytest.raises(DriftError, match="robot tied has 1 equality constraints and 0 tendons: their forces are not"):
        drift([still_log], twin=nominal_twin(load_robot(path)))


def test_missing_values_are_refused(pendulum_twin: Twin, write_log: WriteLog) -> None:
    with pytest.raises(LogError, match="joint_pos"):
        read(pendulum_twin, write_log("holed", hole=7))


def test_a_truncated_recording_is_refused_in_one_line(pendulum_twin: Twin, write_log: WriteLog) -> None:
    path = write_log("cut")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(LogError) as refused:
        read(pendulum_twin, path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("share", [0.0, float("nan"), 0.9])
def test_a_share_of_false_alarms_out_of_range_is_refused(
    still_log: RobotLog, pendulum_twin: Twin, share: float
) -> None:
    with pytest.raises(PhysaiError, match=r"`alarm_share` must lie in 1e-06 … 0\.5, got"):
        drift([still_log], twin=pendulum_twin, alarm_share=share)


def test_a_robot_that_hangs_still_is_no_evidence(still_log: RobotLog, pendulum_twin: Twin) -> None:
    found = drift([still_log], twin=pendulum_twin)
    assert found.outcome == "NO EVIDENCE"
    assert found.unusable_s == {"no motion commanded": 10.0}
    assert found.reason.startswith("0 s of 10 s are usable, and a change takes at least ")
