"""Rewrite an ONNX file into the subset that policies may have: the same operators and weights, in the form we accept.

Everything here runs in a child process: the file is a stranger's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from physai.foreign.body.recurrent import flatten_memory
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.files import read_bounded
from physai.sdk.onnx.graph import IR_VERSIONS
from physai.sdk.policy.header import MAX_POLICY_BYTES

OPSET, IR_VERSION = 18, 8
"""Operator set and file format of a rewritten file, as of our own exports."""
BATCH = "n"
FLOAT = 1
DEFAULT_DOMAINS = ("", "ai.onnx")
RECURRENT = ("LSTM", "GRU", "RNN")
EXTERNAL = 1
"""`TensorProto.DataLocation` of weights in another file."""
MAX_OPSET = 30
"""Newest operator set that is worth a conversion."""


def rewritten(model: Any) -> tuple[Any, list[str]]:
    """Return a model of our subset that computes the same, and what was changed, in words.

    Args:
        model: `onnx.ModelProto` with its weights inside; it is changed.

    Raises:
        ForeignPolicyError: it cannot be converted.
    """
    changes: list[str] = []
    _note(changes, _strip(model), "documentation, shapes of intermediate values and metadata are left out")
    _note(changes, _drop_weights_from_inputs(model), "weights are no inputs")
    model = _converted(model, changes)
    _note(changes, flatten_memory(model), "memories are one input and one output with a row per robot")
    _free_batch(model, changes)
    return model, changes


def _note(changes: list[str], done: bool, text: str) -> None:
    if done:
        changes.append(text)


def require_plain(model: Any) -> None:
    """Refuse functions, subgraphs, sparse weights and operators of other domains.

    Raises:
        ForeignPolicyError: the model has one.
    """
    if model.functions or model.training_info:
        raise ForeignPolicyError("it defines functions or how it is trained, which a policy does not have")
    graph = model.graph
    if graph.sparse_initializer or graph.quantization_annotation:
        raise ForeignPolicyError("it has sparse weights or annotations of a quantisation, which a policy does not have")
    for node in graph.node:
        if node.domain not in DEFAULT_DOMAINS:
            raise ForeignPolicyError(f"operator {node.domain}::{node.op_type} is not one of ONNX itself")
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs:
                raise ForeignPolicyError(f"a {node.op_type} contains a graph: a policy has no branches and no loops")


def embed_weights(model: Any, folder: Path | None) -> bool:
    """Read weights that lie in other files; return whether there are any.

    Args:
        model: `onnx.ModelProto`; it is changed.
        folder: folder of the file, which alone may contain them; None to refuse them.

    Raises:
        ForeignPolicyError: they lie elsewhere, or cannot be read.
    """
    found = False
    for tensor in _tensors(model):
        if tensor.data_location == EXTERNAL:
            tensor.raw_data = _external(tensor, folder)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            found = True
    return found


def _tensors(model: Any) -> list[Any]:
    inside = [a.t for node in model.graph.node for a in node.attribute if a.HasField("t")]
    return [*model.graph.initializer, *inside]


def _external(tensor: Any, folder: Path | None) -> bytes:
    """Return the bytes of weights in another file of the same folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    name = entries.get("location", "")
    if folder is None:
        raise ForeignPolicyError(f"its weights lie in {name!r}; give the file in its folder")
    home = folder.resolve()
    path = (home / name).resolve()
    if not name or not path.is_relative_to(home):
        raise ForeignPolicyError(f"its weights lie in {name!r}, outside the file's folder")
    data = read_bounded(path, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
    try:
        start, length = int(entries.get("offset", "0")), int(entries.get("length", str(len(data))))
    except ValueError:
        raise ForeignPolicyError(f"the weights in {name!r} have an offset or a length that is no number") from None
    if not (0 <= start <= len(data) and 0 <= length <= len(data) - start):
        raise ForeignPolicyError(
            f"weights of {length} bytes at {start} of {name!r} are not in it: it has {len(data)} bytes"
        )
    return data[start : start + length]


def _strip(model: Any) -> bool:
    graph = model.graph
    messages = [model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output]
    messages += [attribute for node in graph.node for attribute in node.attribute]
    messages += [tensor for tensor in _tensors(model) if tensor.doc_string]
    found = bool(graph.value_info or model.metadata_props) or any(message.doc_string for message in messages)
    for message in messages:
        message.ClearField("doc_string")
    for owner, field in ((graph, "value_info"), (model, "metadata_props"), (graph, "metadata_props")):
        if field in owner.DESCRIPTOR.fields_by_name:
            owner.ClearField(field)
    for message in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        for field in ("metadata_props", "overload"):
            if field in message.DESCRIPTOR.fields_by_name:
                message.ClearField(field)
    for node in graph.node:
        node.ClearField("domain")
    model.ClearField("domain")
    return found


def _drop_weights_from_inputs(model: Any) -> bool:
    """Files of before ir version 4 list the weights as inputs, too."""
    names = {tensor.name for tensor in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in names]
    if len(kept) == len(model.graph.input):
        return False
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return True


def _converted(model: Any, changes: list[str]) -> Any:
    """Return the model with an operator set and a file format that we accept."""
    from onnx import version_converter

    sets = {entry.domain: entry.version for entry in model.opset_import}
    version = sets.get("", sets.get("ai.onnx", 0))
    if not 1 <= version <= MAX_OPSET:
        raise ForeignPolicyError(f"operator set {version}, expected 1 to {MAX_OPSET}")
    del model.opset_import[:]
    model.opset_import.add(domain="", version=version)
    # One file has one operator set, and the terms around the network have ours.
    if version != OPSET:
        try:
            model = version_converter.convert_version(model, OPSET)
        except Exception as error:  # the converter raises plain RuntimeErrors and others
            raise ForeignPolicyError(f"operator set {version} cannot be converted to {OPSET}: {_line(error)}") from None
        _strip(model)
        changes.append(f"operator set {version} became {OPSET}")
    if model.ir_version not in IR_VERSIONS:
        changes.append(f"ir version {model.ir_version} became {IR_VERSION}")
        model.ir_version = IR_VERSION
    return model


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _free_batch(model: Any, changes: list[str]) -> None:
    """Give inputs and outputs a first dimension of any size in place of 1."""
    freed = False
    for label, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            shape = value.type.tensor_type.shape
            sizes = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in shape.dim]
            if value.type.tensor_type.elem_type != FLOAT:
                kind = value.type.tensor_type.elem_type
                raise ForeignPolicyError(f"{label} {value.name!r} is of data type {kind}, expected float32 (1)")
            if len(sizes) not in (1, 2) or (len(sizes) == 2 and isinstance(sizes[0], int) and sizes[0] != 1):
                raise ForeignPolicyError(
                    f"{label} {value.name!r} has the shape {sizes}, expected one row per robot: [width], [1, width] or "
                    "[n, width]"
                )
            freed |= len(sizes) == 1 or isinstance(sizes[0], int)
            # Whether the operators compute rows as they compute one is found by running both.
            shape.ClearField("dim")
            shape.dim.add(dim_param=BATCH)
            shape.dim.add(**{"dim_value" if isinstance(sizes[-1], int) else "dim_param": sizes[-1]})
    _note(changes, freed, "one row became a batch of any size")


def free_reshapes(model: Any) -> bool:
    """Have reshapes to one row keep the number of rows; return whether there are any."""
    from onnx import numpy_helper

    targets = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    constants: list[tuple[Any, Callable[[Any], None]]] = [
        (tensor, tensor.CopyFrom) for tensor in model.graph.initializer if tensor.name in targets
    ]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] in targets:
            constants += [(a.t, a.t.CopyFrom) for a in node.attribute if a.name == "value"]
    changed = False
    # Recurrent layers have the rows second, after the steps in time.
    axis = 1 if any(node.op_type in RECURRENT for node in model.graph.node) else 0
    for tensor, write in constants:
        sizes = np.array(numpy_helper.to_array(tensor))
        if sizes.ndim == 1 and len(sizes) > axis + 1 and sizes[axis] == 1 and not (sizes == -1).any():
            sizes[axis] = -1
            write(numpy_helper.from_array(sizes, tensor.name))
            changed = True
    return changed
