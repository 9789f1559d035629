"""`physai train` and `physai export` as functions."""

from pathlib import Path

import torch

from physai.sdk.base.errors import CheckpointError
from physai.sim.policies.resolve import EXPORT_FOLDER
from physai.train.config import TrainConfig
from physai.train.onnx_export.export import ExportReport, export_policy
from physai.train.presets import preset_for
from physai.train.runners import session
from physai.train.runners.checkpoint import CHECKPOINT_FILE, RunTaskSource, load_run, save_config
from physai.train.runners.runner import Trainer, learner_threads
from physai.train.runners.session import TrainingOutcome


def train(
    task: str,
    folder: str | Path,
    *,
    config: TrainConfig | None = None,
    robot: str | None = None,
    preset: str | None = None,
    twin: str | Path | None = None,
    time_budget_s: float | None = None,
) -> TrainingOutcome:
    """Train a policy and write the run into a folder.

    Ctrl-C saves a checkpoint and returns; `physai train --resume FOLDER` continues from it.

    Args:
        task: name of a built-in task, or path of a task file.
        folder: run folder; created if missing.
        config: training settings; None for the preset of the task.
        robot: MJCF or URDF file of another robot for the task.
        preset: variant of the task, as `--preset`.
        twin: calibrated twin (`twin.json`) to train in; None for the nominal robot.
        time_budget_s: training time after which to stop [s].

    Raises:
        PhysaiError: the task, robot, twin or folder cannot be used.
    """
    folder = Path(folder)
    if (folder / CHECKPOINT_FILE).exists():
        raise CheckpointError(f"{folder} already holds a run; continue it with --resume {folder}, or choose another")
    source = RunTaskSource(
        task=task, robot=robot, preset=preset, twin=None if twin is None else str(Path(twin).resolve())
    )
    return session.run(start(source, config or preset_for(task, preset), folder), folder, time_budget_s=time_budget_s)


def start(source: RunTaskSource, config: TrainConfig, folder: Path) -> Trainer:
    """Load the task, save the configuration of a new run and return its trainer."""
    torch.set_num_threads(learner_threads(config))
    task = source.load()
    save_config(folder, source, config, task.contract)
    return Trainer(task, config)


def export(
    run: str | Path, folder: str | Path | None = None, *, task: str | None = None, robot: str | None = None
) -> ExportReport:
    """Write the policy of a run as `policy.onnx` with `golden.npz`, checked against the trained network.

    Args:
        run: run folder.
        folder: output folder; None for `export` in the run folder.
        task: the run's task, if it was a file.
        robot: the run's robot, if it was a file.

    Raises:
        ExportError: ONNX Runtime and the trained network disagree; nothing is written.
        PhysaiError: the run cannot be read.
    """
    loaded = load_run(Path(run), task=task, robot=robot)
    target = Path(run) / EXPORT_FOLDER if folder is None else Path(folder)
    return export_policy(loaded.graph, loaded.task, target, provenance=loaded.provenance)
