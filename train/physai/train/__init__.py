"""PPO for tasks of physai.sim, and export as one ONNX graph.

These names are the public API and follow semantic versioning; everything below is internal.
"""

from typing import TYPE_CHECKING

from physai.sdk.base.lazy import lazy_exports

if TYPE_CHECKING:
    from physai.train.adapters.gymnasium import TaskEnv as TaskEnv
    from physai.train.adapters.gymnasium import TaskVectorEnv as TaskVectorEnv
    from physai.train.config import TrainConfig as TrainConfig
    from physai.train.graph import wrap as wrap
    from physai.train.onnx_export.export import ExportReport as ExportReport
    from physai.train.presets import preset_for as preset_for
    from physai.train.runners.session import TrainingOutcome as TrainingOutcome
    from physai.train.workflow import export as export
    from physai.train.workflow import train as train

__all__ = [
    "ExportReport",
    "TaskEnv",
    "TaskVectorEnv",
    "TrainConfig",
    "TrainingOutcome",
    "export",
    "preset_for",
    "train",
    "wrap",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "adapters.gymnasium": ["TaskEnv", "TaskVectorEnv"],
        "config": ["TrainConfig"],
        "graph": ["wrap"],
        "onnx_export.export": ["ExportReport"],
        "presets": ["preset_for"],
        "runners.session": ["TrainingOutcome"],
        "workflow": ["export", "train"],
    },
)
