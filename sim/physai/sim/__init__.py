"""Tasks, digital twins calibrated on recordings, and the gates that judge a policy in them.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.sim.calibration.calibrate import Calibration as Calibration
    from physai.sim.calibration.calibrate import calibrate as calibrate
    from physai.sim.engines.protocol import Engine as Engine
    from physai.sim.envs.environment import Environment as Environment
    from physai.sim.logs.reader import read_log as read_log
    from physai.sim.logs.reader import read_logs as read_logs
    from physai.sim.logs.robot_log import RobotLog as RobotLog
    from physai.sim.policies.evaluate import Episodes as Episodes
    from physai.sim.policies.evaluate import Policy as Policy
    from physai.sim.policies.evaluate import play_episodes as play_episodes
    from physai.sim.policies.onnx import OnnxPolicy as OnnxPolicy
    from physai.sim.report.validation import ValidationOptions as ValidationOptions
    from physai.sim.report.validation import validate as validate
    from physai.sim.robots import Robot as Robot
    from physai.sim.robots import load_robot as load_robot
    from physai.sim.tasks.common import compiled as compiled
    from physai.sim.tasks.common import envelope as envelope
    from physai.sim.tasks.registry import load_task as load_task
    from physai.sim.tasks.registry import task_names as task_names
    from physai.sim.tasks.task import Delay as Delay
    from physai.sim.tasks.task import Randomise as Randomise
    from physai.sim.tasks.task import RewardTerm as RewardTerm
    from physai.sim.tasks.task import SensorModel as SensorModel
    from physai.sim.tasks.task import Success as Success
    from physai.sim.tasks.task import Task as Task
    from physai.sim.teams.environment import TeamEnvironment as TeamEnvironment
    from physai.sim.teams.evaluate import play_team as play_team
    from physai.sim.teams.registry import load_team as load_team
    from physai.sim.teams.team import Team as Team
    from physai.sim.teams.team import team_model as team_model
    from physai.sim.twin.twin import Twin as Twin
    from physai.sim.twin.twin import load_twin as load_twin
    from physai.sim.twin.twin import nominal_twin as nominal_twin
    from physai.sim.twin.twin import save_twin as save_twin

__all__ = [
    "Calibration",
    "Delay",
    "Engine",
    "Environment",
    "Episodes",
    "OnnxPolicy",
    "Policy",
    "Randomise",
    "RewardTerm",
    "Robot",
    "RobotLog",
    "SensorModel",
    "Success",
    "Task",
    "Team",
    "TeamEnvironment",
    "Twin",
    "ValidationOptions",
    "calibrate",
    "compiled",
    "envelope",
    "load_robot",
    "load_task",
    "load_team",
    "load_twin",
    "nominal_twin",
    "play_episodes",
    "play_team",
    "read_log",
    "read_logs",
    "save_twin",
    "task_names",
    "team_model",
    "validate",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "calibration.calibrate": ["Calibration", "calibrate"],
        "engines.protocol": ["Engine"],
        "envs.environment": ["Environment"],
        "logs.reader": ["read_log", "read_logs"],
        "logs.robot_log": ["RobotLog"],
        "policies.evaluate": ["Episodes", "Policy", "play_episodes"],
        "policies.onnx": ["OnnxPolicy"],
        "report.validation": ["ValidationOptions", "validate"],
        "robots": ["Robot", "load_robot"],
        "tasks.common": ["compiled", "envelope"],
        "tasks.registry": ["load_task", "task_names"],
        "tasks.task": ["Delay", "Randomise", "RewardTerm", "SensorModel", "Success", "Task"],
        "teams.environment": ["TeamEnvironment"],
        "teams.evaluate": ["play_team"],
        "teams.registry": ["load_team"],
        "teams.team": ["Team", "team_model"],
        "twin.twin": ["Twin", "load_twin", "nominal_twin", "save_twin"],
    },
)
