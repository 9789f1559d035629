"""Digital twins: recordings of a robot, and a model calibrated on them with its uncertainty.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.twin.calibration.calibrate import Calibration as Calibration
    from physai.twin.calibration.design import DesignedCommands as DesignedCommands
    from physai.twin.calibration.design import excite as excite
    from physai.twin.calibration.from_recordings import calibrate as calibrate
    from physai.twin.calibration.replay.replay_logs import ReplayComparison as ReplayComparison
    from physai.twin.calibration.replay.replay_logs import replay as replay
    from physai.twin.calibration.stand_in.recordings import StandInRecordings as StandInRecordings
    from physai.twin.calibration.stand_in.recordings import record as record
    from physai.twin.closed_loop.check_closed_loop import ClosedLoopCheck as ClosedLoopCheck
    from physai.twin.closed_loop.check_closed_loop import check_closed_loop as check_closed_loop
    from physai.twin.logs.check_logs import LogsCheck as LogsCheck
    from physai.twin.logs.check_logs import check_logs as check_logs
    from physai.twin.logs.reader import read_log as read_log
    from physai.twin.logs.reader import read_logs as read_logs
    from physai.twin.logs.robot_log import RobotLog as RobotLog
    from physai.twin.model.twin import Twin as Twin
    from physai.twin.model.twin import load_twin as load_twin
    from physai.twin.model.twin import nominal_twin as nominal_twin
    from physai.twin.model.twin import save_twin as save_twin
    from physai.twin.virtual_robot.simulate_robot import SimulatedRun as SimulatedRun
    from physai.twin.virtual_robot.simulate_robot import simulate_robot as simulate_robot

__all__ = [
    "Calibration",
    "ClosedLoopCheck",
    "DesignedCommands",
    "LogsCheck",
    "ReplayComparison",
    "RobotLog",
    "SimulatedRun",
    "StandInRecordings",
    "Twin",
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
