"""`physai export`: a trained policy as one ONNX file."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.train.onnx_export.export import ExportReport
    from physai.train.runners.checkpoint import LoadedRun


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", type=Path, help="run folder of `physai train`")
    parser.add_argument("--out", metavar="DIR", type=Path, help="output folder (default: RUN/export)")
    parser.add_argument(
        "--states",
        metavar="N",
        type=int,
        default=1000,
        help="number of visited states in which trained and exported policy must agree (default: 1000)",
    )
    parser.add_argument(
        "--task", help="task name, Python file, or run folder whose copy is to be run, if the task is not built in"
    )
    parser.add_argument("--robot", help="MJCF or URDF file of the run, if its folder does not keep it")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def _run(arguments: argparse.Namespace) -> int:
    from physai.sim.policies.resolve import EXPORT_FOLDER
    from physai.train.runners.checkpoint import load_run

    run = load_run(arguments.run_folder, task=arguments.task, robot=arguments.robot)
    report = export_run(run, arguments.out or arguments.run_folder / EXPORT_FOLDER, arguments.states)
    print(json.dumps(asdict(report), indent=2) if arguments.json else _text(report))
    return 0


def export_run(run: LoadedRun, folder: Path, states: int) -> ExportReport:
    """Exports a run's policy and checks it, with progress on a terminal; see `export_policy`."""
    from rich.console import Console
    from rich.progress import Progress

    from physai.train.onnx_export.export import export_policy

    # Progress goes to stderr, and only on a terminal: the report on stdout may be piped.
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        work = bar.add_task(f"exporting {run.task.name}", total=1.0)
        return export_policy(
            run.graph,
            run.task,
            folder,
            provenance=run.provenance,
            key=run.key,
            states=states,
            progress=lambda share: bar.update(work, completed=share),
        )


def _text(report: ExportReport) -> str:
    from physai.sdk.policy.header import GOLDEN_FILE, POLICY_FILE
    from physai.train.onnx_export.parity import ROUNDINGS, SEQUENCE_TOLERANCE, TOLERANCE

    facts = [
        ("policy", f"{Path(report.folder) / POLICY_FILE} ({report.policy_bytes} bytes, {report.operators} operators)"),
        ("golden", f"{Path(report.folder) / GOLDEN_FILE} ({report.golden_states} states)"),
        ("fingerprint", report.fingerprint),
        ("sha256", report.policy_sha256),
        ("opset", str(report.opset)),
    ]
    rows = [
        (name, f"{value:.1e}", f"{report.sequence_differences[name]:.1e}", f"{report.rounding[name]:.1e}")
        for name, value in report.differences.items()
    ]
    header = ("output", f"{report.states} states", "own state", "float32")
    lines = [printable(f"{name:<12} {value}") for name, value in facts]
    lines += ["", "maximum relative difference to the trained policy:", table(header, rows)]
    lines += [
        f"  allowed: {TOLERANCE:g} in one state, or {ROUNDINGS:g} times what float32 rounds; {SEQUENCE_TOLERANCE:g} "
        "over periods with its own state; float32: rounding of the trained policy"
    ]
    return "\n".join(lines)


command = CliCommand(
    summary="write a trained policy as one ONNX file, checked against the trained one",
    add_arguments=_add_arguments,
    run=_run,
)
