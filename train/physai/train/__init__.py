"""PPO for tasks of physai.sim, and export as one ONNX graph.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.train.adapters.gymnasium import TaskEnv as TaskEnv
    from physai.train.adapters.gymnasium import TaskVectorEnv as TaskVectorEnv
    from physai.train.adapters.pettingzoo import TeamParallelEnv as TeamParallelEnv
    from physai.train.api.exporting import export as export
    from physai.train.api.options import RolloutPool as RolloutPool
    from physai.train.api.seeds import SeedRuns as SeedRuns
    from physai.train.api.training import resolve_config as resolve_config
    from physai.train.api.training import train as train
    from physai.train.api.training import train_seeds as train_seeds
    from physai.train.api.training_run import TrainingRun as TrainingRun
    from physai.train.onnx_export.export import ExportReport as ExportReport
    from physai.train.onnx_export.export import export_policy as export_policy
    from physai.train.onnx_export.wrapped import wrap as wrap
    from physai.train.runners.session import TrainingOutcome as TrainingOutcome
    from physai.train.settings.config import TrainConfig as TrainConfig
    from physai.train.settings.presets import preset_for as preset_for
    from physai.train.teams.trainer import TeamTrainer as TeamTrainer

__all__ = [
    "ExportReport",
    "RolloutPool",
    "SeedRuns",
    "TaskEnv",
    "TaskVectorEnv",
    "TeamParallelEnv",
    "TeamTrainer",
    "TrainConfig",
    "TrainingOutcome",
    "TrainingRun",
    "export",
    "export_policy",
    "preset_for",
    "resolve_config",
    "train",
    "train_seeds",
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
