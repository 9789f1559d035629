"""Check whether a recording is suitable for calibration, and estimate the robot's timing and noise from it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from physai.sdk.contract.robot import RobotSpec
from physai.twin.logs.checks.base import base_findings
from physai.twin.logs.checks.channels import channel_findings
from physai.twin.logs.checks.derived import derived_findings
from physai.twin.logs.checks.frozen import frozen_findings
from physai.twin.logs.checks.motion import Motion, command_findings, joint_motion, motion_findings
from physai.twin.logs.checks.reading import reading_findings, sound_rows
from physai.twin.logs.checks.timing_check import timing_findings
from physai.twin.logs.checks.tracking import tracking_findings
from physai.twin.logs.findings import SEVERITIES, LogFinding, Severity
from physai.twin.logs.raw_log import RawColumn, RawLog
from physai.twin.logs.robot_log import RobotLog
from physai.twin.logs.signals.lag import command_lag
from physai.twin.logs.signals.lag_fit import LagEstimate
from physai.twin.logs.signals.noise import NoiseEstimate, sensor_noise
from physai.twin.logs.signals.timing import PeriodStatistics, period_statistics

_MIN_ROWS = 20
"""Minimum number of valid samples for the checks of the content."""


@dataclass(frozen=True)
class QualityReport:
    """Result of all checks of one recording."""

    log: RawLog
    """The complete recording."""
    findings: tuple[LogFinding, ...]
    """Worst first."""
    periods: PeriodStatistics | None
    """None, like the next three fields are None or empty, if too few samples are valid."""
    noise: NoiseEstimate | None
    motions: tuple[Motion, ...]
    """One per joint."""
    lags: tuple[LagEstimate | None, ...]
    """One per joint."""

    @property
    def usable(self) -> bool:
        """Whether the recording has no defect."""
        return self.count("defect") == 0

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)


def check_log(log: RobotLog, robot: RobotSpec) -> QualityReport:
    """Check a recording after conversion; checks of the raw columns see converted values."""
    return check_raw(
        RawLog(
            name=log.name,
            joints=robot.joints,
            limits_known=True,
            time=log.time,
            joint_pos=log.joint_pos,
            joint_vel=log.joint_vel,
            joint_effort=log.joint_effort,
            command=log.command,
            command_kind=log.command_kind,
            driven=log.driven or tuple(joint.effort_limit > 0.0 for joint in robot.joints),
            # A converted log no longer has its raw columns, so these checks see converted values twice.
            channels=tuple(_channels(log)),
            source=log.source,
            sha256=log.sha256,
            notes=log.notes,
            origin=log.origin,
            base=log.base,
        )
    )


def check_raw(log: RawLog) -> QualityReport:
    """Check a recording from `physai.twin.logs.reader.read_raw`."""
    findings = [*log.findings, *reading_findings(log)]
    # The content is checked in the sound rows only: one NaN would otherwise hide every other finding.
    sound = sound_rows(log)
    if len(sound.time) < _MIN_ROWS:
        findings.append(
            LogFinding(
                severity="defect",
                check="length",
                message=f"only {len(sound.time)} of {len(log.time)} samples are valid, too few for further checks",
                advice="record longer",
                numbers={"samples": len(sound.time)},
            )
        )
        return QualityReport(log, _worst_first(findings), None, None, (), ())
    robot_log = sound.log()
    periods, lags = period_statistics(robot_log.time), command_lag(robot_log)
    motions = tuple(joint_motion(sound, j) for j in range(len(log.joints)))
    findings += timing_findings(sound, periods)
    findings += channel_findings(sound)
    findings += frozen_findings(sound)
    findings += motion_findings(sound, motions)
    findings += command_findings(sound, lags)
    if not any(finding.check == "units" and finding.severity == "defect" for finding in findings):
        # A wrong unit of the positions would be reported of their commands again.
        findings += tracking_findings(sound)
    findings += derived_findings(sound)
    findings += base_findings(sound)
    return QualityReport(log, _worst_first(findings), periods, sensor_noise(robot_log), motions, lags)


def _worst_first(findings: Iterable[LogFinding]) -> tuple[LogFinding, ...]:
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _channels(log: RobotLog) -> Iterator[RawColumn]:
    """Yield the series of a converted log as file columns."""
    for name, values in log.series():
        for j, joint in enumerate(log.joint_names):
            column = np.ascontiguousarray(values[:, j])
            yield RawColumn(f"{name} of {joint}", name, joint, column, column)
