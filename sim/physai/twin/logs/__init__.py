"""Read recordings of real robots and check whether they are suitable for calibrating a twin."""

from physai.twin.logs.reader import read_log, read_logs
from physai.twin.logs.robot_log import BasePose, CommandKind, LogError, RobotLog
from physai.twin.logs.signals.lag import LagSummary, command_lag, estimate_lag, lag_summary
from physai.twin.logs.signals.lag_fit import LagEstimate
from physai.twin.logs.signals.noise import NoiseEstimate, sensor_noise
from physai.twin.logs.signals.timing import PeriodStatistics, period_statistics

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
