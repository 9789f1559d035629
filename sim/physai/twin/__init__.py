"""Digital twins: recordings of a robot, and a model calibrated on them with its uncertainty.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.twin.calibration.calibrate import Calibration as Calibration
    from physai.twin.calibration.design import DesignedCommands as DesignedCommands
    from physai.twin.calibration.design import excite as excite
    from physai.twin.calibration.fit.fit import Fit as Fit
    from physai.twin.calibration.fit.fit import FitProgress as FitProgress
    from physai.twin.calibration.from_recordings import calibrate as calibrate
    from physai.twin.calibration.replay.pose import BasePath as BasePath
    from physai.twin.calibration.replay.random_effects import OffsetFit as OffsetFit
    from physai.twin.calibration.replay.random_effects import RandomEffects as RandomEffects
    from physai.twin.calibration.replay.replay import ReplayScore as ReplayScore
    from physai.twin.calibration.replay.replay_logs import ReplayComparison as ReplayComparison
    from physai.twin.calibration.replay.replay_logs import replay as replay
    from physai.twin.calibration.replay.windows import Windows as Windows
    from physai.twin.calibration.stand_in.excitation import Excitation as Excitation
    from physai.twin.calibration.stand_in.recordings import StandInRecordings as StandInRecordings
    from physai.twin.calibration.stand_in.recordings import record as record
    from physai.twin.calibration.stand_in.synthetic_robot import SyntheticRecording as SyntheticRecording
    from physai.twin.closed_loop.check_closed_loop import ClosedLoopCheck as ClosedLoopCheck
    from physai.twin.closed_loop.check_closed_loop import check_closed_loop as check_closed_loop
    from physai.twin.closed_loop.closed_loop import ClosedLoopResult as ClosedLoopResult
    from physai.twin.closed_loop.commands import CommandCheck as CommandCheck
    from physai.twin.closed_loop.compare import RunComparison as RunComparison
    from physai.twin.closed_loop.runs import Runs as Runs
    from physai.twin.logs.check_logs import LogsCheck as LogsCheck
    from physai.twin.logs.check_logs import check_logs as check_logs
    from physai.twin.logs.checks.motion import Motion as Motion
    from physai.twin.logs.comparison.still_zero import ZeroShift as ZeroShift
    from physai.twin.logs.findings import LogFinding as LogFinding
    from physai.twin.logs.quality import QualityReport as QualityReport
    from physai.twin.logs.raw_log import RawColumn as RawColumn
    from physai.twin.logs.raw_log import RawLog as RawLog
    from physai.twin.logs.reader import read_log as read_log
    from physai.twin.logs.reader import read_logs as read_logs
    from physai.twin.logs.robot_log import BasePose as BasePose
    from physai.twin.logs.robot_log import RobotLog as RobotLog
    from physai.twin.logs.signals.lag_fit import LagEstimate as LagEstimate
    from physai.twin.logs.signals.noise import NoiseEstimate as NoiseEstimate
    from physai.twin.logs.signals.timing import PeriodStatistics as PeriodStatistics
    from physai.twin.model.closed_loop_evidence import ClosedLoop as ClosedLoop
    from physai.twin.model.closed_loop_evidence import ClosedLoopTest as ClosedLoopTest
    from physai.twin.model.conditions import Condition as Condition
    from physai.twin.model.interval import Interval as Interval
    from physai.twin.model.twin import Twin as Twin
    from physai.twin.model.twin import load_twin as load_twin
    from physai.twin.model.twin import nominal_twin as nominal_twin
    from physai.twin.model.twin import save_twin as save_twin
    from physai.twin.model.twin_file import ActuatorResponse as ActuatorResponse
    from physai.twin.model.twin_file import Alternative as Alternative
    from physai.twin.model.twin_file import Credibility as Credibility
    from physai.twin.model.twin_file import FittedParameter as FittedParameter
    from physai.twin.model.twin_file import JointReading as JointReading
    from physai.twin.model.twin_file import LogRecord as LogRecord
    from physai.twin.model.twin_file import Logs as Logs
    from physai.twin.model.twin_file import ReplaySample as ReplaySample
    from physai.twin.model.twin_file import Residuals as Residuals
    from physai.twin.model.twin_file import SensorNoise as SensorNoise
    from physai.twin.model.twin_file import Timing as Timing
    from physai.twin.rollouts.batch import Batch as Batch
    from physai.twin.rollouts.batch import BatchResult as BatchResult
    from physai.twin.virtual_robot.paced_twin import RuntimeTally as RuntimeTally
    from physai.twin.virtual_robot.paced_twin import TwinEvent as TwinEvent
    from physai.twin.virtual_robot.simulate_robot import SimulatedRun as SimulatedRun
    from physai.twin.virtual_robot.simulate_robot import simulate_robot as simulate_robot

__all__ = [
    "ActuatorResponse",
    "Alternative",
    "BasePath",
    "BasePose",
    "Batch",
    "BatchResult",
    "Calibration",
    "ClosedLoop",
    "ClosedLoopCheck",
    "ClosedLoopResult",
    "ClosedLoopTest",
    "CommandCheck",
    "Condition",
    "Credibility",
    "DesignedCommands",
    "Excitation",
    "Fit",
    "FitProgress",
    "FittedParameter",
    "Interval",
    "JointReading",
    "LagEstimate",
    "LogFinding",
    "LogRecord",
    "Logs",
    "LogsCheck",
    "Motion",
    "NoiseEstimate",
    "OffsetFit",
    "PeriodStatistics",
    "QualityReport",
    "RandomEffects",
    "RawColumn",
    "RawLog",
    "ReplayComparison",
    "ReplaySample",
    "ReplayScore",
    "Residuals",
    "RobotLog",
    "RunComparison",
    "Runs",
    "RuntimeTally",
    "SensorNoise",
    "SimulatedRun",
    "StandInRecordings",
    "SyntheticRecording",
    "Timing",
    "Twin",
    "TwinEvent",
    "Windows",
    "ZeroShift",
    "calibrate",
    "check_closed_loop",
    "check_logs",
    "excite",
    "load_twin",
    "nominal_twin",
    "read_log",
    "read_logs",
    "record",
    "replay",
    "save_twin",
    "simulate_robot",
]

__getattr__ = lazy_exports(__name__)
