"""The child process that gives a TorchScript model one vector of all its inputs, and one of all its outputs."""

import io
import json
import sys
from collections.abc import Sequence
from typing import Any

from physai.foreign.body.torchscript import convert_torchscript, torchscript_changes
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.process.isolation import JsonFacts, ReportProgress, call_apart, serve

STEP_S = 20.0
TYPES = {1: "float", 6: "int", 7: "long", 9: "bool"}
"""Torch's name of a type by `TensorProto.DataType`."""
_END = b"\0"


def vector_program(
    data: bytes, source: str, inputs: Sequence[dict[str, Any]], outputs: Sequence[dict[str, Any]]
) -> tuple[bytes, list[str]]:
    """Return a program as ONNX from one vector to one, perhaps with a memory, and what was changed.

    Args:
        data: the TorchScript file.
        source: its name, for messages.
        inputs: its tensors, each with `shape`, `axis` of the robots, `width` and `type`.
        outputs: the same.

    Raises:
        ApartError: it is no TorchScript file, has other inputs, or cannot be converted.
    """
    request = json.dumps({"source": source, "inputs": inputs, "outputs": outputs}).encode() + _END + data
    _, (program,) = call_apart(__name__, request, what=f"reading {source}", limit_s=lambda _: STEP_S)
    facts, graph = convert_torchscript(program, source=source, width=sum(one["width"] for one in inputs))
    return graph, torchscript_changes(facts)


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    """Put vectors around a program; nothing of it is run."""
    import torch

    head, _, data = request.partition(_END)
    named = json.loads(head)
    report({"stage": "loading the program"})
    library: Any = torch.jit
    holder = torch.nn.Module()
    try:
        holder.net = library.load(io.BytesIO(data), map_location="cpu")
        made: Any = library.script(holder)
        takes = len(made.net.forward.schema.arguments) - 1
    except Exception as error:  # plain RuntimeErrors with a trace
        raise ForeignPolicyError(f"{named['source']}: not a TorchScript file ({type(error).__name__})") from None
    if takes != len(named["inputs"]):
        raise ForeignPolicyError(
            f"{named['source']}: the program takes {takes} inputs, the bundle states {len(named['inputs'])}"
        )
    # The text has numbers alone, no names of the file.
    parts: list[str] = []
    start = 0
    for one in named["inputs"]:
        shape = [-1, *(size for axis, size in enumerate(one["shape"]) if axis != one["axis"])]
        part = f"x[:, {start}:{start + one['width']}].reshape({shape}).movedim(0, {one['axis']})"
        parts.append(f"{part}.to(torch.{TYPES[one['type']]})")
        start += one["width"]
    rows = [
        f"y{f'[{index}]' if len(named['outputs']) > 1 else ''}.movedim({one['axis']}, 0).reshape([-1, {one['width']}])"
        ".to(torch.float) + zero"
        for index, one in enumerate(named["outputs"])
    ]
    made.define(
        f"def forward(self, x):\n  zero = 0.0 * x[:, :1]\n  y = self.net({', '.join(parts)})\n"
        f"  return torch.cat([{', '.join(rows)}], dim=1)\n"
    )
    written = io.BytesIO()
    library.save(made.eval(), written)
    return {}, [written.getvalue()]


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
