"""`physai train` and `physai export` as functions."""

import logging
from dataclasses import asdict
from pathlib import Path

import torch

from physai.sim.policies.resolve import EXPORT_FOLDER, named_source
from physai.train.onnx_export.export import ExportReport, export_policy
from physai.train.runners import session
from physai.train.runners.checkpoint import load_run
from physai.train.runners.initial_weights import load_initial_weights, require_same_network
from physai.train.runners.runner import Trainer, learner_threads
from physai.train.runners.session import TrainingOutcome
from physai.train.runs.run_config import RunTaskSource, begin_run, require_no_run
from physai.train.settings.config import TrainConfig
from physai.train.settings.presets import settings_of

logger = logging.getLogger(__name__)


def train(
    task: str,
    folder: str | Path,
    *,
    config: TrainConfig | None = None,
    robot: str | None = None,
    preset: str | None = None,
    twin: str | Path | None = None,
    time_budget_s: float | None = None,
    init_from: str | Path | None = None,
) -> TrainingOutcome:
    """Train a policy and write the run into a folder.

    Ctrl-C saves a checkpoint and returns; `physai train --resume FOLDER` continues from it.

    Args:
        task: name of a built-in task, path of a task file, or run folder whose copy of the task is to be run.
        folder: run folder; created if missing.
        config: training settings; None for those of the task.
        robot: MJCF or URDF file of another robot for the task.
        preset: variant of the task, as `--preset`.
        twin: calibrated twin (`twin.json`) to train in; None for the nominal robot.
        time_budget_s: training time after which to stop [s].
        init_from: run folder whose weights to start from; its network must be that of `config`.

    Raises:
        PhysaiError: the task, robot, twin or folder cannot be used.
    """
    folder = Path(folder)
    require_no_run(folder, resumable=True)
    named = named_source(str(task), robot=robot, preset=preset)
    source = RunTaskSource(**asdict(named), twin=None if twin is None else str(Path(twin).resolve()))
    return session.run(start(source, config, folder, init_from=init_from), folder, time_budget_s=time_budget_s)


def start(
    source: RunTaskSource, config: TrainConfig | None, folder: Path, *, init_from: str | Path | None = None
) -> Trainer:
    """Load the task, save the configuration of a new run and return its trainer; see `train`."""
    task = source.load()
    config = config or settings_of(task, source.task, source.preset)
    origin: dict[str, str] = {}
    if init_from is not None:
        require_same_network(config, Path(init_from))
        origin = {"init_from": str(init_from)}
    torch.set_num_threads(learner_threads(config))
    trainer = Trainer(task, config)
    if init_from is not None:
        load_initial_weights(trainer, Path(init_from))
    # Only now, so that what was refused leaves no run.
    for note in begin_run(folder, source, config, task, origin=origin):
        logger.warning(note)
    return trainer


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
    return export_policy(loaded.graph, loaded.task, target, provenance=loaded.provenance, key=loaded.key)
