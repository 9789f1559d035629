"""`python -m benchmarks leapp`: bundles that are read as their own programs compute, and ours in leapp's own program.

Bundles have 1, 4, 12, 33 and 88 joints, with a history or recurrent, and feedback by either of its two names; and that
of Isaac ROS Deploy's own test, whose results are 1, 4, 12, 33 and 88. The other way needs leapp installed, or its wheel
in LEAPP_WHEEL.
"""

import importlib.util
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import yaml
from tests.integration.foreign.test_leapp import (
    FIVE,
    exported,
    five_numbers,
    five_results,
    model,
    reading,
    tensor,
    write,
)
from tests.integration.train import test_leapp_bundle as ours
from torch import Tensor, nn

from benchmarks.measure import BenchmarkOptions, BenchmarkResult, ProgressCallback, WorkloadError
from physai.foreign import ForeignPolicyError
from physai.train.onnx_export.leapp_bundle import write_leapp

WIDTHS = (1, 4, 12, 33, 88)
"""Numbers of joints."""
FEEDBACK = ("feedback_flow", "feedback_connections")
"""Names of the feedback in versions of the format."""
PERIODS, HISTORY = 20, 3
PARITY = 1e-5
"""Greatest difference from a bundle's own program."""
Document = dict[str, Any]


class Remembering(nn.Module):
    """Targets of joints from their positions, the last targets, and a history or a recurrent layer."""

    def __init__(self, width: int, *, recurrent: bool) -> None:
        super().__init__()
        self.shape = (1, 1, 8) if recurrent else (1, HISTORY, width)
        self.recurrent = nn.GRU(width, 8) if recurrent else None
        self.layer = nn.Linear((8 if recurrent else HISTORY * width) + width, width)
        generator = torch.Generator().manual_seed(width)
        for weights in self.parameters():
            # Errors of a greater gain grow from period to period.
            nn.init.normal_(weights, 0.0, 0.5 / (HISTORY * width) ** 0.5, generator)

    def forward(self, q: Tensor, last: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        if self.recurrent is None:
            past = torch.cat([past[:, 1:], q.unsqueeze(1)], dim=1)
            seen = past.flatten(1)
        else:
            seen, past = self.recurrent(q.unsqueeze(0), past)
            seen = seen[0]
        return torch.tanh(self.layer(torch.cat([seen, last], dim=1))), past


def run(options: BenchmarkOptions, report: ProgressCallback) -> Sequence[BenchmarkResult]:
    """Reads each bundle and plays it, and plays exported policies in leapp's own program."""
    admitted, refused, of, parity = 0, 0, 0, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for width in WIDTHS[:2] if options.quick else WIDTHS:
            for recurrent, feedback in ((False, FEEDBACK[0]), (True, FEEDBACK[1])):
                of += 1
                difference = _difference(folder / f"{width}-{feedback}", width, feedback, recurrent=recurrent)
                admitted += difference <= PARITY
                parity = max(parity, difference)
                report(f"{width} joints, {feedback}: {difference:.2g}")
            refused += _refuses(folder / f"{width}-names", width)
        of += 1
        admitted += five_results(reading(five_numbers(folder))) == FIVE
        here = importlib.util.find_spec("leapp") is not None or "LEAPP_WHEEL" in os.environ
        leapp = [_exported(folder / kind, kind, report) for kind in ours.POLICIES] if here else []
    count = 2 if options.quick else len(WIDTHS)
    if admitted < of or refused < count or max(parity, *leapp, 0.0) > PARITY:
        raise WorkloadError(f"{admitted} of {of} bundles were read right, {refused} of {count} wrong ones refused")
    unknown = None if here else "leapp is not installed, and LEAPP_WHEEL names no wheel of it"
    return [
        BenchmarkResult(name="admitted", unit="bundles", runs=(float(admitted),)),
        BenchmarkResult(name="of", unit="bundles", runs=(float(of),)),
        BenchmarkResult(name="parity_max", unit="rad", runs=(parity,)),
        BenchmarkResult(name="refused", unit="bundles", runs=(float(refused),)),
        BenchmarkResult(name="export_parity_max", unit="rad", runs=tuple(leapp), missing=unknown),
    ]


def _bundle(folder: Path, width: int, feedback: str, *, recurrent: bool) -> tuple[Path, Remembering]:
    """A bundle for so many joints."""
    joints = [f"joint_{number}" for number in range(width)]
    program = Remembering(width, recurrent=recurrent).eval()
    inputs = [
        tensor("q", 1, width, kind="state/joint/position", names=[joints]),
        tensor("last", 1, width),
        tensor("past", *program.shape),
    ]
    outputs = [
        tensor("targets", 1, width, kind="target/joint/position", names=[joints]),
        tensor("past_out", *program.shape),
    ]
    data = exported(program, inputs, outputs)
    pipeline: Document = {"inputs": {"policy": ["q"]}, "outputs": {"policy": ["targets"]}}
    pipeline[feedback] = {"policy/targets": ["policy/last"], "policy/past_out": ["policy/past"]}
    document = {"models": {"policy": model("policy", data, inputs, outputs)}, "pipeline": pipeline}
    return write(folder, json.loads(json.dumps(document)), policy__onnx=data), program


def _difference(folder: Path, width: int, feedback: str, *, recurrent: bool) -> float:
    """Greatest difference of the targets from those of the bundle's own program, over periods."""
    path, program = _bundle(folder, width, feedback, recurrent=recurrent)
    library: Any = onnxruntime
    graph = library.InferenceSession(reading(path).graph)
    seen, memory = (value.name for value in graph.get_inputs())
    hidden = np.zeros((1, graph.get_inputs()[1].shape[1]), np.float32)
    last, past = torch.zeros(1, width), torch.zeros(program.shape)
    greatest, random = 0.0, np.random.default_rng(0)
    for _ in range(PERIODS):
        q = random.standard_normal((1, width)).astype(np.float32)
        targets, hidden = graph.run(None, {seen: q, memory: hidden})
        with torch.no_grad():
            last, past = program(torch.tensor(q), last, past)
        greatest = max(greatest, float(np.abs(targets - last.numpy()).max()))
    return greatest


def _refuses(folder: Path, width: int) -> bool:
    """Whether a bundle with a name too few for its width is refused with both numbers."""
    few = width - 1 if width > 1 else 2
    joints = [f"joint_{number}" for number in range(few)]
    path, _ = _bundle(folder, width, FEEDBACK[0], recurrent=False)
    models, pipeline = path.read_text(encoding="utf-8").split("\n\n", 1)
    document: Document = yaml.safe_load(models)
    document["models"]["policy"]["inputs"][0]["element_names"] = [joints]
    path.write_text(f"{yaml.safe_dump(document, sort_keys=False)}\n{pipeline}", encoding="utf-8")
    try:
        reading(path)
    except ForeignPolicyError as error:
        return f"has {few} element_names for {width} elements" in str(error)
    return False


def _exported(folder: Path, kind: str, report: ProgressCallback) -> float:
    """Greatest difference of an exported policy's bundle in leapp's own program from the policy."""
    folder.mkdir()
    policy = ours.exported(kind)
    inputs, wanted = ours.expected(policy)
    bundle = write_leapp(policy, folder / "bundle").bundle
    given = [ours.as_bundle(fields) for fields in inputs]
    stacked: Document = {key: np.stack([row[key] for row in given]) for key in given[0]}
    np.savez(folder / "given.npz", **stacked)
    ours.with_leapp(folder, "played(*sys.argv[2:])", bundle, folder / "given.npz")
    found = dict(np.load(folder / "given.npz.out.npz"))
    greatest = max(
        float(np.abs(found[f"policy/{name}"][period] - value).max())
        for period, row in enumerate(wanted)
        for name, value in row.items()
    )
    report(f"{kind}: {greatest:.2g} in leapp's own program")
    return greatest
