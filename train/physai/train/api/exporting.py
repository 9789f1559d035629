"""`physai export` as a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from physai.sdk.base.parameters.option import Option

if TYPE_CHECKING:
    from physai.train.onnx_export.export import ExportReport


def export(
    run: Path | str,
    out: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    *,
    states: int = 1000,
    task: str | Path | None = None,
    model: Annotated[Path | str | None, Option(old=("--robot",))] = None,
    leapp: Annotated[Path | str | None, Option(metavar="DIR")] = None,
    progress: Callable[[float], None] | None = None,
) -> ExportReport:
    """Write the policy of a run as `policy.onnx` with `golden.npz`, checked against the trained network.

    Args:
        run: run folder of `physai train`.
        out: output folder. None for RUN/export.
        states: number of visited states in which trained and exported policy must agree.
        task: task name, Python file, or run folder whose copy is to be run, if the task is not built in.
        model: MJCF or URDF file of the run, if its folder does not keep it.
        leapp: folder for a bundle in NVIDIA's LEAPP format, which is written as well.
        progress: called with the share of the work done, in (0, 1].

    Returns:
        The files, and how closely the exported policy matches the trained one.

    Raises:
        ExportError: ONNX Runtime and the trained network disagree; nothing is written.
        PhysaiError: the run cannot be read.
    """
    from physai.sdk.base.file_names import POLICY_FILE
    from physai.sim.policies.resolve import EXPORT_FOLDER
    from physai.train.onnx_export.export import export_policy
    from physai.train.runners.checkpoint import load_run

    folder = Path(run)
    loaded = load_run(folder, task=task, robot=model)
    target = folder / EXPORT_FOLDER if out is None else Path(out)
    report = export_policy(
        loaded.graph,
        loaded.task,
        target,
        provenance=loaded.provenance,
        key=loaded.key,
        states=states,
        progress=progress,
    )
    if leapp is not None:
        from physai.train.onnx_export.leapp_bundle import write_leapp

        write_leapp((target / POLICY_FILE).read_bytes(), Path(leapp))
    return report
