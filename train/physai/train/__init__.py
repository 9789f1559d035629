"""PPO for tasks of physai.sim, and export as one ONNX graph.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.train.adapters.gymnasium import TaskEnv as TaskEnv
    from physai.train.adapters.gymnasium import TaskVectorEnv as TaskVectorEnv
    from physai.train.adapters.pettingzoo import TeamParallelEnv as TeamParallelEnv
    from physai.train.algorithms.ppo import Rollout as Rollout
    from physai.train.algorithms.ppo import UpdateStats as UpdateStats
    from physai.train.api.exporting import export as export
    from physai.train.api.options import RolloutPool as RolloutPool
    from physai.train.api.run_demo import run_demo as run_demo
    from physai.train.api.seeds import SeedRuns as SeedRuns
    from physai.train.api.team_training import TeamRun as TeamRun
    from physai.train.api.team_training import train_team as train_team
    from physai.train.api.training import resolve_config as resolve_config
    from physai.train.api.training import train as train
    from physai.train.api.training import train_seeds as train_seeds
    from physai.train.api.warming import WarmUp as WarmUp
    from physai.train.api.warming import warm_up as warm_up
    from physai.train.collectors.collector import Learner as Learner
    from physai.train.models.policy_graph import PolicyGraph as PolicyGraph
    from physai.train.onnx_export.export import ExportReport as ExportReport
    from physai.train.onnx_export.export import export_policy as export_policy
    from physai.train.onnx_export.wrapped import wrap as wrap
    from physai.train.quantize.choice import Choice as Choice
    from physai.train.quantize.choice import LayerReport as LayerReport
    from physai.train.quantize.paired_evaluation import Pairs as Pairs
    from physai.train.quantize.quantise_api import quantise as quantise
    from physai.train.quantize.quantize import QuantiseReport as QuantiseReport
    from physai.train.quantize.quantize import VariantReport as VariantReport
    from physai.train.runners.runner import IterationStats as IterationStats
    from physai.train.runners.runner import RolloutSource as RolloutSource
    from physai.train.runners.session import TrainingOutcome as TrainingOutcome
    from physai.train.runners.session import TrainingRun as TrainingRun
    from physai.train.runs.run_config import RunTaskSource as RunTaskSource
    from physai.train.runs.run_list import RunGroup as RunGroup
    from physai.train.runs.run_list import compare_runs as compare_runs
    from physai.train.runs.run_list import list_runs as list_runs
    from physai.train.runs.run_list import plot_runs as plot_runs
    from physai.train.runs.summary import Outcome as Outcome
    from physai.train.runs.summary import Progress as Progress
    from physai.train.runs.summary import RunSummary as RunSummary
    from physai.train.settings.config import TrainConfig as TrainConfig
    from physai.train.settings.presets import preset_for as preset_for
    from physai.train.teams.trainer import TeamTrainer as TeamTrainer

__all__ = [
    "Choice",
    "ExportReport",
    "IterationStats",
    "LayerReport",
    "Learner",
    "Outcome",
    "Pairs",
    "PolicyGraph",
    "Progress",
    "QuantiseReport",
    "Rollout",
    "RolloutPool",
    "RolloutSource",
    "RunGroup",
    "RunSummary",
    "RunTaskSource",
    "SeedRuns",
    "TaskEnv",
    "TaskVectorEnv",
    "TeamParallelEnv",
    "TeamRun",
    "TeamTrainer",
    "TrainConfig",
    "TrainingOutcome",
    "TrainingRun",
    "UpdateStats",
    "VariantReport",
    "WarmUp",
    "compare_runs",
    "export",
    "export_policy",
    "list_runs",
    "plot_runs",
    "preset_for",
    "quantise",
    "resolve_config",
    "run_demo",
    "train",
    "train_seeds",
    "train_team",
    "warm_up",
    "wrap",
]

__getattr__ = lazy_exports(
    __name__,
    examples={
        "realaigym/double_pendulum.py": ["board_swing_up"],
        "realaigym/swing_up.py": ["SwingUp", "Totals", "optimised_swing_up"],
        "realaigym/tracking.py": ["Tracker", "Trajectory", "linearised", "lqr", "track", "tvlqr"],
    },
)
