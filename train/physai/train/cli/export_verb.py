"""`physai export`: a trained policy as one ONNX file."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from physai.compute.cli.progress_bars import share_bars
from physai.sdk.base.terminal import printable, table
from physai.sdk.cli.verb import AsJson, verb
from physai.train.api.exporting import export

if TYPE_CHECKING:
    from physai.train.onnx_export.export import ExportReport


@verb(export, summary="write a trained policy as one ONNX file, checked against the trained one")
def command(call: functools.partial[ExportReport], *, as_json: AsJson = False) -> int:
    """Present the report."""
    with share_bars("exporting") as (progress,):
        report = call(progress=progress)
    print(json.dumps(asdict(report), indent=2) if as_json else _text(report))
    return 0


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
