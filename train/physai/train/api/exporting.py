"""`physai export` as a function."""

from pathlib import Path

from physai.sim.policies.resolve import EXPORT_FOLDER
from physai.train.onnx_export.export import ExportReport, export_policy
from physai.train.runners.checkpoint import load_run


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
