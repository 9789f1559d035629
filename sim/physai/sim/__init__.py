"""Robots, tasks, environments and the engines that step them.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.sdk.base.errors import ModelError as ModelError
    from physai.sim.engines.named import load_engine as load_engine
    from physai.sim.engines.protocol import AnyEngine as AnyEngine
    from physai.sim.engines.protocol import Array as Array
    from physai.sim.engines.protocol import CapacityError as CapacityError
    from physai.sim.engines.protocol import Engine as Engine
    from physai.sim.engines.protocol import EngineMaker as EngineMaker
    from physai.sim.engines.protocol import RolloutEngine as RolloutEngine
    from physai.sim.engines.protocol import Stage as Stage
    from physai.sim.envs.device.capacity import Capacities as Capacities
    from physai.sim.envs.divergence import DivergedEpisode as DivergedEpisode
    from physai.sim.envs.environment import Environment as Environment
    from physai.sim.envs.step_result import StepResult as StepResult
    from physai.sim.playback.moment import EpisodeOutcome as EpisodeOutcome
    from physai.sim.playback.player import EpisodePlayer as EpisodePlayer
    from physai.sim.playback.robot_import.import_files import RobotImport as RobotImport
    from physai.sim.playback.robot_import.import_files import draw_robot as draw_robot
    from physai.sim.playback.robot_import.import_files import import_robot as import_robot
    from physai.sim.playback.robot_import.import_files import import_robots as import_robots
    from physai.sim.playback.robot_import.import_settings import ImportSettings as ImportSettings
    from physai.sim.policies.device_policy import DevicePolicy as DevicePolicy
    from physai.sim.policies.evaluate import Episodes as Episodes
    from physai.sim.policies.evaluate import Policy as Policy
    from physai.sim.policies.evaluate import Worlds as Worlds
    from physai.sim.policies.evaluate import play_episodes as play_episodes
    from physai.sim.policies.onnx import OnnxPolicy as OnnxPolicy
    from physai.sim.policies.resolve import TaskSource as TaskSource
    from physai.sim.robots import Robot as Robot
    from physai.sim.robots import load_robot as load_robot
    from physai.sim.robots.checks.check import RobotCheck as RobotCheck
    from physai.sim.robots.checks.check import check_robot as check_robot
    from physai.sim.robots.checks.findings import Finding as Finding
    from physai.sim.robots.importing.actuation import Servos as Servos
    from physai.sim.robots.importing.decisions import Decision as Decision
    from physai.sim.robots.importing.decisions import Decisions as Decisions
    from physai.sim.robots.importing.importer import ImportOptions as ImportOptions
    from physai.sim.robots.objects import Box as Box
    from physai.sim.robots.objects import with_objects as with_objects
    from physai.sim.tasks.common import compiled as compiled
    from physai.sim.tasks.common import envelope as envelope
    from physai.sim.tasks.common import timing as timing
    from physai.sim.tasks.new_task import new_task as new_task
    from physai.sim.tasks.registry import load_task as load_task
    from physai.sim.tasks.registry import task_names as task_names
    from physai.sim.tasks.task import Delay as Delay
    from physai.sim.tasks.task import Push as Push
    from physai.sim.tasks.task import Randomise as Randomise
    from physai.sim.tasks.task import RewardTerm as RewardTerm
    from physai.sim.tasks.task import SensorModel as SensorModel
    from physai.sim.tasks.task import Success as Success
    from physai.sim.tasks.task import Task as Task
    from physai.sim.tasks.task import Uniforms as Uniforms
    from physai.sim.tasks.task import WorldView as WorldView
    from physai.sim.teams.evaluation import PolicyEvaluation as PolicyEvaluation
    from physai.sim.teams.evaluation import TeamEvaluation as TeamEvaluation
    from physai.sim.teams.evaluation import evaluate as evaluate
    from physai.sim.teams.team import Team as Team
    from physai.sim.teams.team import team_model as team_model
    from physai.sim.teams.team_environment import TeamEnvironment as TeamEnvironment
    from physai.sim.teams.team_evaluate import TeamEpisodes as TeamEpisodes
    from physai.sim.teams.team_evaluate import play_team as play_team
    from physai.sim.teams.team_registry import load_team as load_team

__all__ = [
    "AnyEngine",
    "Array",
    "Box",
    "Capacities",
    "CapacityError",
    "Decision",
    "Decisions",
    "Delay",
    "DevicePolicy",
    "DivergedEpisode",
    "Engine",
    "EngineMaker",
    "Environment",
    "EpisodeOutcome",
    "EpisodePlayer",
    "Episodes",
    "Finding",
    "ImportOptions",
    "ImportSettings",
    "ModelError",
    "OnnxPolicy",
    "Policy",
    "PolicyEvaluation",
    "Push",
    "Randomise",
    "RewardTerm",
    "Robot",
    "RobotCheck",
    "RobotImport",
    "RolloutEngine",
    "SensorModel",
    "Servos",
    "Stage",
    "StepResult",
    "Success",
    "Task",
    "TaskSource",
    "Team",
    "TeamEnvironment",
    "TeamEpisodes",
    "TeamEvaluation",
    "Uniforms",
    "WorldView",
    "Worlds",
    "check_robot",
    "compiled",
    "draw_robot",
    "envelope",
    "evaluate",
    "import_robot",
    "import_robots",
    "load_engine",
    "load_robot",
    "load_task",
    "load_team",
    "new_task",
    "play_episodes",
    "play_team",
    "task_names",
    "team_model",
    "timing",
    "with_objects",
]

__getattr__ = lazy_exports(
    __name__,
    moved={
        "physai.gates": ["ScoreComparison", "ValidationOptions", "rank", "validate"],
        "physai.twin": [
            "Calibration",
            "RobotLog",
            "Twin",
            "calibrate",
            "load_twin",
            "nominal_twin",
            "read_log",
            "read_logs",
            "save_twin",
        ],
    },
)
