"""The real recordings, and the defects that are known of them (PROVENANCE.md beside them)."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.real_recordings import of_double_pendulum

from physai.sdk.contract.robot import RobotSpec
from physai.sim.robots import load_robot
from physai.twin.logs import lag_summary, read_log, read_logs, sensor_noise
from physai.twin.logs.findings import LogFinding
from physai.twin.logs.quality import QualityReport, check_raw
from physai.twin.logs.reader import read_raw

SYS_ID = "dfki_double_pendulum/data/experiment_records/design_C.1/sys_id/20230629"
HARDWARE = "dfki_double_pendulum/leaderboard/pendubot/real_hardware_v2/src_data"
STATIC = "dfki_double_pendulum/data/experiment_records/design_A.0/20220815/noise/velocity_measurement"
SIMPLE = "dfki_simple_pendulum/results"


@pytest.fixture(scope="module")
def pendulum() -> RobotSpec:
    return load_robot("double_pendulum").spec


def check(path: Path, robot: RobotSpec) -> QualityReport:
    return check_raw(read_raw(path, robot))


def found(report: QualityReport, kind: str) -> list[LogFinding]:
    return [finding for finding in report.findings if finding.check == kind]


def test_all_recordings_of_the_double_pendulum_are_read_as_they_are(recordings: Path, pendulum: RobotSpec) -> None:
    paths = of_double_pendulum(recordings)
    logs = read_logs(paths, pendulum)
    assert len(logs) == 16
    names = [log.name for log in logs]
    assert {"20230629-143339", "ilqr_tvlqr_lqr/experiment01", "mcpilco/experiment05"} <= set(names)
    for log in logs:
        assert log.command_kind == "joint_effort"
        assert log.joint_vel is not None
        assert log.joint_effort is not None
    first = logs[names.index("20230629-143339")]
    assert first.time.shape == (4998,)
    # From the file's second row.
    assert first.time[1] == pytest.approx(3.511905670166015625e-03)
    assert first.command[1] == pytest.approx([8.622925936094764238e-03, 7.945013893123523685e-01])


@pytest.mark.parametrize(
    ("name", "median_ms", "most_ms"),
    [("143339", 2.0, 3.5), ("143747", 2.0, 3.6), ("144003", 2.0, 3.4), ("154220", 2.0, 3.6)],
)
def test_the_loops_jitter_is_reported(
    recordings: Path, pendulum: RobotSpec, name: str, median_ms: float, most_ms: float
) -> None:
    report = check(recordings / SYS_ID / f"20230629-{name}" / "trajectory.csv.gz", pendulum)
    (jitter,) = found(report, "jitter")
    assert jitter.severity == "warning"
    assert 1e3 * jitter.numbers["median_s"] == pytest.approx(median_ms, abs=0.01)
    assert 1e3 * jitter.numbers["max_s"] == pytest.approx(most_ms, abs=0.05)
    assert report.usable


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_closed_loop_runs_jitter_and_lag(recordings: Path, pendulum: RobotSpec, number: int) -> None:
    report = check(recordings / HARDWARE / "ilqr_tvlqr_lqr" / f"experiment0{number}" / "trajectory.csv.gz", pendulum)
    (jitter,) = found(report, "jitter")
    assert 1e3 * jitter.numbers["median_s"] == pytest.approx(2.5, abs=0.01)
    assert 5.7 < 1e3 * jitter.numbers["max_s"] < 7.6
    lag = report.lags[0]
    assert lag is not None
    assert lag.identified
    # The two series as logged are 6.5 to 7 ms apart; behind a held command it is a little less.
    assert 6.5e-3 < lag.shift_s < 7.0e-3
    assert 5.8e-3 < lag.lag_s < 6.8e-3


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_slow_logs_are_reported(recordings: Path, pendulum: RobotSpec, number: int) -> None:
    report = check(recordings / HARDWARE / "mcpilco" / f"experiment0{number}" / "trajectory.csv.gz", pendulum)
    (rate,) = found(report, "rate")
    assert rate.severity == "warning"
    assert round(rate.numbers["rate_hz"]) == 33
    assert report.usable


def test_the_lag_of_the_system_identification(recordings: Path, pendulum: RobotSpec) -> None:
    paths = sorted((recordings / SYS_ID).rglob("*.csv.gz"))
    lags = {path.parent.name: check(path, pendulum).lags for path in paths}
    quick = lags.pop("20230629-154220")
    # Slow sines tell no lag: torque follows the motion there as much as the command.
    assert not any(lag.identified for pair in lags.values() for lag in pair if lag is not None)
    assert all(lag is not None and lag.identified for lag in quick)
    first = quick[0]
    assert first is not None
    assert first.lag_s == pytest.approx(6.5e-3, abs=0.5e-3)
    assert first.lower_s < 6.5e-3 < first.upper_s
    summary = lag_summary(quick)
    assert summary is not None
    assert 5.0e-3 < summary.mean_s < 6.9e-3 < summary.p99_s + 1e-3


def test_static_noise(recordings: Path, pendulum: RobotSpec) -> None:
    path = recordings / STATIC / "trajectory.csv.gz"
    noise = sensor_noise(read_log(path, pendulum))
    assert noise.joint_vel_std is not None
    assert noise.joint_effort_std is not None
    assert noise.joint_pos_std == pytest.approx([1e-4, 0.55e-4], abs=0.05e-4)
    assert noise.joint_vel_std == pytest.approx([0.060, 0.044], abs=0.001)
    assert noise.joint_effort_std == pytest.approx([0.003, 0.003], abs=0.0002)
    # It is no recording to calibrate with.
    report = check(path, pendulum)
    assert not report.usable
    assert {finding.joint for finding in found(report, "motion")} == {"joint1", "joint2"}


def test_simple_pendulum_joins_what_was_sent_and_measured(recordings: Path, hinge: RobotSpec) -> None:
    folder = recordings / SIMPLE / "control_method_gravity_compensation"
    log = read_log(folder / "data_measured.csv.gz", hinge)
    assert log.time.shape == (30000,)
    assert log.joint_effort is not None
    assert np.corrcoef(log.command[:, 0], log.joint_effort[:, 0])[0, 1] ** 2 > 0.999


def test_the_torque_spike(recordings: Path, hinge: RobotSpec) -> None:
    path = recordings / SIMPLE / "control_method_pd" / "system_identification" / "data_measured.csv.gz"
    report = check(path, hinge)
    spike = next(finding for finding in found(report, "spike") if finding.channel == "joint_effort")
    assert spike.severity == "warning"
    assert spike.numbers["worst"] == pytest.approx(-17.6, abs=0.02)
    assert "the joint's limit is 12" in spike.message
    # The motor's own servo adds to what was sent, so measured effort is not the command's.
    assert found(report, "follow")[0].severity == "warning"


def test_the_servos_wrapped_load(recordings: Path, hinge: RobotSpec) -> None:
    reports = [check(path, hinge) for path in sorted((recordings / "bam_xl330" / "raw").glob("*.json.gz"))]
    assert len(reports) == 8
    wrapped = [found(report, "wrap") for report in reports]
    # The load of the runs that move one way only never turns negative.
    assert [len(findings) for findings in wrapped] == [1, 0] * 4
    assert "65535 means -1" in wrapped[0][0].message
    assert wrapped[0][0].numbers["samples"] == 531
    duty = next(channel for channel in reports[0].log.channels if channel.label == "duty")
    assert np.abs(duty.values).max() < 1.0
    assert all(report.usable for report in reports)


def test_the_servos_logs(recordings: Path, hinge: RobotSpec) -> None:
    log = read_log(recordings / "bam_xl330" / "raw" / "2026-01-15_10h29m14.json.gz", hinge)
    assert log.command_kind == "joint_pos"
    assert log.joint_effort is None
    assert log.notes == {"kp": 400.0, "vin": 7.4, "mass": 0.49, "length": 0.1}
    assert np.abs(log.command).max() == pytest.approx(1.7592, abs=1e-4)


def test_saturated_duty_is_reported(recordings: Path, hinge: RobotSpec) -> None:
    report = check(recordings / "bam_xl330" / "raw" / "2026-01-15_10h29m47.json.gz", hinge)
    assert sorted(finding.numbers["value"] for finding in found(report, "clip")) == pytest.approx([-1.0, 1.0])
