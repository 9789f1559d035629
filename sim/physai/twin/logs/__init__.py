"""Read recordings of real robots and check whether they are suitable for calibrating a twin."""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.twin.logs.reader import read_log as read_log
    from physai.twin.logs.reader import read_logs as read_logs
    from physai.twin.logs.robot_log import BasePose as BasePose
    from physai.twin.logs.robot_log import CommandKind as CommandKind
    from physai.twin.logs.robot_log import LogError as LogError
    from physai.twin.logs.robot_log import RobotLog as RobotLog
    from physai.twin.logs.signals.lag import LagSummary as LagSummary
    from physai.twin.logs.signals.lag import command_lag as command_lag
    from physai.twin.logs.signals.lag import estimate_lag as estimate_lag
    from physai.twin.logs.signals.lag import lag_summary as lag_summary
    from physai.twin.logs.signals.lag_fit import LagEstimate as LagEstimate
    from physai.twin.logs.signals.noise import NoiseEstimate as NoiseEstimate
    from physai.twin.logs.signals.noise import sensor_noise as sensor_noise
    from physai.twin.logs.signals.timing import PeriodStatistics as PeriodStatistics
    from physai.twin.logs.signals.timing import period_statistics as period_statistics

__all__ = [
    "BasePose",
    "CommandKind",
    "LagEstimate",
    "LagSummary",
    "LogError",
    "NoiseEstimate",
    "PeriodStatistics",
    "RobotLog",
    "command_lag",
    "estimate_lag",
    "lag_summary",
    "period_statistics",
    "read_log",
    "read_logs",
    "sensor_noise",
]

__getattr__ = lazy_exports(__name__)
