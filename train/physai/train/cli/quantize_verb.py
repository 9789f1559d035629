"""`physai policy quantize`: an exported policy in int8, FP8 or FP16."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from physai.compute.cli.progress_bars import share_bars
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb
from physai.train.quantize.quantise_api import STEPS, quantise

if TYPE_CHECKING:
    from physai.train.quantize.quantize import QuantiseReport, VariantReport


@verb(quantise, summary="write an exported policy in int8, FP8 or FP16, within its contract's bound")
def command(call: functools.partial[QuantiseReport], *, as_json: AsJson = False) -> int:
    """Present the report.

    exit code: 0 every variant is written, 1 one is refused
    """
    with share_bars(*STEPS) as bars:

        def progress(step: str, share: float) -> None:
            bars[STEPS.index(step)](share)

        report = call(progress=progress)
    print(json.dumps(asdict(report), indent=2) if as_json else printable(report_text(report)))
    return 1 if report.refused else 0


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
