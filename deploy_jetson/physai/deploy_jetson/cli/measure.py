"""`physai robot measure`: time a policy's ticks on this machine, as evidence for its latency gate."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.files import read_plain
from physai.sdk.cli.progress import progress

if TYPE_CHECKING:
    from physai.sdk.evidence.origin import Origin

DEFAULT_TICKS = 12_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("policy", type=Path, metavar="POLICY", help="exported policy.onnx, next to its golden.npz")
    parser.add_argument("-o", "--output", type=Path, metavar="JSON", default=Path("latency.json"))
    parser.add_argument("--ticks", type=int, default=DEFAULT_TICKS, metavar="N", help=f"default: {DEFAULT_TICKS}")
    parser.add_argument("--backend", choices=("auto", "onnxruntime", "tensorrt"), default="auto", metavar="NAME")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="tree of slots of this robot (default: its usual place)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(root: Path, arguments: argparse.Namespace) -> int:
    """Measure, write the evidence, and print percentiles."""
    import numpy as np

    from physai.deploy_jetson.inference import backend
    from physai.deploy_jetson.inference.evidence import measure_evidence
    from physai.deploy_jetson.inference.onnx import OnnxEngine
    from physai.sdk.evidence.latency import save_evidence
    from physai.sdk.onnx.trial import try_policy
    from physai.sdk.policy.golden import read_golden
    from physai.sdk.policy.header import GOLDEN_FILE

    path: Path = arguments.policy
    data, golden_data = _read(path), _read(path.parent / GOLDEN_FILE)
    # In another process, because a malformed graph may crash onnxruntime.
    try_policy(data, source=str(path))
    reference = OnnxEngine(data, source=str(path))
    golden = read_golden(golden_data, reference.header)
    built = backend.build(data, reference, source=str(path), choice=arguments.backend)
    origin = _origin(root)
    with progress("measuring", arguments.ticks, sys.stderr) as report:
        evidence = measure_evidence(data, built, golden, ticks=arguments.ticks, origin=origin, progress=report)
    save_evidence(evidence, arguments.output)
    ticks, deadline = np.array(evidence.tick_s), reference.header.contract.timing.deadline_s
    shares = {f"p{100 * q:g}": float(np.quantile(ticks, q)) for q in (0.5, 0.99, 0.999)}
    # Written so that NaN counts as missed.
    missed = int((~(ticks <= deadline)).sum())
    if arguments.json:
        document = {"evidence": str(arguments.output), "ticks": len(ticks), "missed": missed, **shares}
        print(json.dumps({**document, "max": float(ticks.max()), "deadline_s": deadline, "device": evidence.device}))
        return 0
    numbers = ", ".join(f"{name} {1e3 * value:.3g} ms" for name, value in shares.items())
    print(f"{len(ticks)} ticks on {evidence.device} with {evidence.runtime}, from {evidence.origin}")
    print(f"{numbers}, maximum {1e3 * ticks.max():.3g} ms; {missed} beyond the deadline of {1e3 * deadline:g} ms")
    print(f"next: physai sim validate {path} --latency {arguments.output}")
    return 0


def _origin(root: Path) -> Origin | None:
    """Return the origin of this robot; None on a computer that was never set up as one."""
    from physai.deploy_jetson.update.agent.agent import UpdateAgent

    config = UpdateAgent(root=root).config
    return config.identity().origin if config.exists() else None


def _read(path: Path) -> bytes:
    from physai.sdk.policy.header import MAX_POLICY_BYTES

    try:
        return read_plain(path, limit=MAX_POLICY_BYTES)
    except OSError as error:
        raise PhysaiError(f"{path}: cannot be read: {error.strerror}") from None
