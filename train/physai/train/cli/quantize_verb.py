"""`physai policy quantize`: an exported policy in int8, FP8 or FP16."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.command import CliCommand

if TYPE_CHECKING:
    from physai.train.quantize.quantize import QuantiseReport, VariantReport

VARIANTS = ("int8", "fp8", "fp16")
STATES, EPISODES = 65536, 96
MAX_SEED = 2**20 - 1


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("policy", metavar="RUN_OR_EXPORT", type=Path, help="run folder or exported policy.onnx")
    parser.add_argument(
        "--variant",
        nargs="+",
        choices=VARIANTS,
        default=["int8"],
        help="precisions (default: int8); fp8 needs an Ada or newer GPU, such as Thor's",
    )
    parser.add_argument(
        "--twin", metavar="TWIN", type=Path, help="twin.json of `physai sim calibrate` (default: the nominal robot)"
    )
    parser.add_argument(
        "--task", help="task name, Python file, or run folder whose copy is to be run, if the task is not built in"
    )
    parser.add_argument(
        "--robot", help="MJCF or URDF file that the policy was trained with, if its run folder does not keep it"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, help="output folder (default: that of the policy)")
    parser.add_argument(
        "--states",
        metavar="N",
        type=int,
        default=STATES,
        help=f"number of visited states to calibrate with, and of others to compare in (default: {STATES})",
    )
    parser.add_argument(
        "--episodes",
        metavar="N",
        type=int,
        default=EPISODES,
        help=f"number of episodes for each set of states (default: {EPISODES})",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the episodes (default: 0)")
    parser.add_argument(
        "--skip-paired-evaluation",
        "--skip-rehearsal",
        action="store_true",
        help="do not compare float and quantised policy in paired episodes; the gates do so later",
    )
    parser.add_argument(
        "--skip-tensorrt", action="store_true", help="do not build engines with TensorRT for RTX, if installed"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")


def _run(arguments: argparse.Namespace) -> int:
    if not 0 <= arguments.seed <= MAX_SEED:
        raise PhysaiError(f"--seed must lie in 0 … {MAX_SEED}, got {arguments.seed}")
    report = _quantise(arguments)
    print(json.dumps(asdict(report), indent=2) if arguments.json else printable(report_text(report)))
    return 1 if report.refused else 0


def _quantise(arguments: argparse.Namespace) -> QuantiseReport:
    from rich.console import Console
    from rich.progress import Progress

    from physai.sdk.onnx.trial import try_policy
    from physai.sim.policies.resolve import find_origin, find_policy
    from physai.train.quantize.paired_evaluation import PairedEvaluation
    from physai.train.quantize.quantize import quantise_policy, read_original
    from physai.train.quantize.states import record_states
    from physai.twin.model.twin import load_twin, nominal_twin

    path = find_policy(arguments.policy)
    task = find_origin(path, task=arguments.task, robot=arguments.robot).load()
    twin = nominal_twin(task.robot) if arguments.twin is None else load_twin(arguments.twin)
    original = read_original(path)
    try_policy(original.data, source=str(path))
    # Progress goes to stderr, and only on a terminal: the report on stdout may be piped.
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        playing = bar.add_task(f"playing {task.name}", total=1.0)
        making = bar.add_task("quantising", total=1.0)
        pairing = bar.add_task("comparing episodes", total=1.0, visible=not arguments.skip_paired_evaluation)
        states = record_states(
            original.data,
            task,
            twin,
            source=str(path),
            states=arguments.states,
            episodes=arguments.episodes,
            seed=arguments.seed,
            progress=lambda share: bar.update(playing, completed=share),
        )
        evaluation = PairedEvaluation(
            original.data,
            task,
            twin,
            seed=arguments.seed,
            progress=lambda share: bar.update(pairing, completed=share),
        )
        return quantise_policy(
            original,
            states,
            arguments.out or path.parent,
            variants=tuple(dict.fromkeys(arguments.variant)),
            tensorrt=not arguments.skip_tensorrt,
            compare=None if arguments.skip_paired_evaluation else evaluation.compare,
            progress=lambda share: bar.update(making, completed=share),
        )


def report_text(report: QuantiseReport) -> str:
    """The report for a terminal."""
    lines = [
        f"policy   {report.policy}",
        f"states   {report.states} to calibrate, from {report.episodes} episodes; the same number to compare",
        f"sha256   {report.states_sha256} (calibration states)",
    ]
    for variant in report.variants:
        lines += ["", *_variant_lines(variant)]
    if report.unbuilt:
        lines += ["", f"no engine was built with TensorRT: {report.unbuilt}"]
    return "\n".join(lines)


def _variant_lines(report: VariantReport) -> list[str]:
    choice = report.choice
    if choice.refused:
        lines = [f"{report.variant}: refused, not written: {choice.refused}"]
    else:
        lines = [f"{report.variant}: {report.file} ({report.size} bytes)"]
        if report.tensorrt:
            lines.append(f"  builds with {report.tensorrt}")
    layers = [
        (layer.name, f"{layer.inputs} → {layer.outputs}", f"{layer.error_alone:.2g}", layer.precision)
        for layer in choice.layers
    ]
    joints = [
        (joint.joint, f"{joint.max:.2g}", f"{joint.p99:.2g}", f"{joint.mean:.2g}", joint.unit)
        for joint in choice.joints
    ]
    lines += [table(("layer", "size", "error alone", "precision"), layers, indent="  ")]
    lines += [table(("joint", "greatest error", "p99", "mean", "unit"), joints, indent="  ")]
    golden = "" if report.golden_error is None else f"; in the golden states {report.golden_error:.2g}"
    lines.append(f"  allowed here {choice.allowed:g}, by the contract {choice.bound:g}{golden}")
    if choice.pairs is not None and not choice.refused:
        pairs = choice.pairs
        lines.append(
            f"  {pairs.pairs} paired episodes: {pairs.worse} succeed only with the float graph, {pairs.better} only "
            "with this one"
        )
    return lines


command = CliCommand(
    summary="write an exported policy in int8, FP8 or FP16, within its contract's bound",
    add_arguments=_add_arguments,
    run=_run,
)
