"""The child process that reads, rewrites and tries a stranger's ONNX file."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from physai.foreign.body import probe
from physai.foreign.body.rewrite import embed_weights, free_reshapes, require_plain, rewritten
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.errors import MissingExtraError
from physai.sdk.base.process.isolation import JsonFacts, ReportProgress, call_apart, serve
from physai.sdk.onnx.graph import check_graph

STEP_S = 10.0
"""Maximum time of each step in the child [s]."""
PARITY = 1e-5
"""Greatest difference of the rewritten graph's outputs."""
MAX_METADATA = 256
MAX_NODES = 100_000
_END = b"\0"


def require_onnx() -> None:
    """Check that other people's policies can be read here.

    Raises:
        MissingExtraError: the package `onnx` is not installed.
    """
    if find_spec("onnx") is None:
        raise MissingExtraError("reading other people's policies needs onnx: pip install 'physai-sdk[train]'")


def read_body(data: bytes, *, source: str, folder: Path | None) -> tuple[JsonFacts, bytes]:
    """Read an ONNX file in a child process with limits of time and memory.

    Args:
        data: the file.
        source: its name, for messages.
        folder: its folder, for weights in other files.

    Returns:
        Facts about it (see `_work`), and the rewritten file, empty if it cannot be admitted.

    Raises:
        ApartError: it is no ONNX file, or the child hung, crashed or used too much memory.
    """
    request = json.dumps({"source": source, "folder": None if folder is None else str(folder)}).encode() + _END + data
    facts, blobs = call_apart(__name__, request, what=f"reading {source}", limit_s=lambda _: STEP_S)
    return facts, blobs[0]


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    import onnx

    head, _, data = request.partition(_END)
    named = json.loads(head)
    source, folder = named["source"], None if named["folder"] is None else Path(named["folder"])
    report({"stage": "parsing"})
    library: Any = onnx
    try:
        model = library.load_model_from_string(data)
    except Exception:  # protobuf's own errors, which name bytes
        raise ForeignPolicyError(f"{source}: not an ONNX file") from None
    if not model.graph.output or len(model.graph.node) > MAX_NODES:
        raise ForeignPolicyError(f"{source}: not an ONNX file of a policy: {len(model.graph.node)} operators")
    facts = _facts(model)
    report({"stage": "rewriting"})
    try:
        admitted = _admit(model, folder, facts, report, source)
    except ForeignPolicyError as error:
        return {**facts, "refused": str(error)}, [b""]
    except Exception as error:  # MalformedError and onnx's own
        return {**facts, "refused": probe.first_line(error).removeprefix(f"{source}: ")}, [b""]
    return facts, [admitted]


def _facts(model: Any) -> JsonFacts:
    def tensors(values: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": value.name[:256],
                "shape": [
                    dim.dim_value if dim.HasField("dim_value") else dim.dim_param[:64] or "?"
                    for dim in value.type.tensor_type.shape.dim[:8]
                ],
                "kind": value.type.tensor_type.elem_type,
            }
            for value in values[:64]
        ]

    weights = {tensor.name for tensor in model.graph.initializer}
    operators = (f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in model.graph.node)
    return {
        "ir_version": model.ir_version,
        "opset": [[entry.domain, entry.version] for entry in model.opset_import[:8]],
        "producer": f"{model.producer_name} {model.producer_version}".strip()[:128],
        "inputs": tensors([value for value in model.graph.input if value.name not in weights]),
        "outputs": tensors(model.graph.output),
        "operators": Counter(name[:128] for name in operators),
        "last_operator": _last(model),
        "metadata": {entry.key[:128]: entry.value[:100_000] for entry in model.metadata_props[:MAX_METADATA]},
    }


def _last(model: Any) -> str:
    """Return the operator that makes the first output, before its shape, constant factors and offsets."""
    made = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    name = model.graph.output[0].name
    for _ in range(len(model.graph.node)):
        node = made.get(name)
        if node is None:
            return ""
        varying = [read for read in node.input if read not in constants]
        scaled = node.op_type in ("Add", "Sub", "Mul", "Div") and len(varying) == 1
        if not scaled and node.op_type not in ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast"):
            return str(node.op_type)
        name = varying[0] if varying else ""
    return ""


def _admit(model: Any, folder: Path | None, facts: JsonFacts, report: ReportProgress, source: str) -> bytes:
    require_plain(model)
    outside = embed_weights(model, folder)
    before = _serialised(model)
    changed, changes = rewritten(model)
    facts["changes"] = changes
    if outside:
        changes.insert(0, "weights from other files are inside")
    data = _serialised(changed)
    widths = check_graph(data, source=source).inputs
    report({"stage": "computing"})
    inputs = probe.states(widths)
    graph = probe.session(data)
    alone = probe.row_by_row(graph, inputs)
    try:
        together = probe.run(graph, inputs)
    except ForeignPolicyError:
        together = []
    apart = probe.difference(alone, together)
    if apart > PARITY and free_reshapes(changed):
        changes.append("reshapes to one row keep the number of rows")
        data = _serialised(changed)
        check_graph(data, source=source)
        graph = probe.session(data)
        together = probe.run(graph, inputs)
        apart = probe.difference(alone, together)
    if not apart <= PARITY:
        raise ForeignPolicyError(f"rows of a batch are not computed as each by itself: they differ by {apart:.2g}")
    apart = probe.difference(probe.row_by_row(probe.session(before), inputs), together)
    if not apart <= PARITY:
        raise ForeignPolicyError(
            f"the rewritten graph differs from the file by {apart:.2g}, at most {PARITY:g} is right"
        )
    facts["parity"] = apart
    report({"stage": "moving each input"})
    facts["unused"] = probe.unused_columns(graph, inputs)
    return data


def _serialised(model: Any) -> bytes:
    return bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
