"""Validation of untrusted ONNX policies, before any runtime loads them.

onnxruntime and TensorRT support far more than a policy needs: external weights, subgraphs, custom operators,
data-dependent loops. A policy is accepted only if it is a single graph of allowed operators with all weights inside
the file, where its hash and signature cover them, and if no tensor's size depends on a value, so that the cost of the
graph depends on the batch size only.
"""

import math
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from physai.sdk.base.formats.onnx_metadata import metadata_entries
from physai.sdk.base.formats.protobuf import MalformedError
from physai.sdk.evidence.preferences import StatedPreferencesError, require_as_started
from physai.sdk.onnx.file import Found, read_model
from physai.sdk.onnx.operators import KIND_NUMBERS, OPERATORS
from physai.sdk.policy.header import MAX_POLICY_BYTES, MAX_STATE_SIZE, PolicyError, PolicyHeader, parse_header
from physai.sdk.policy.run_identity import verify_run

IR_VERSIONS = range(7, 11)
OPSETS = range(13, 21)
"""Accepted versions of the file format and of the operator set; the exporter writes 8 and 18, for fp8 9 and 19."""

MAX_NODES = 4096
MAX_TENSORS = 4096
"""Maximum number of initialisers, of inputs, and of outputs."""
MAX_DIMS = 8

ELEMENT_BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 17: 1}
"""Element size [B] by TensorProto.DataType: float32, uint8, int8, int32, int64, bool, float16, float8 E4M3FN."""

_FLOAT, _INT64 = 1, 7
_TYPED = {"float_data": {_FLOAT}, "int32_data": {2, 3, 6, 9, 10, 17}, "int64_data": {_INT64}}
"""Typed data fields and the data types that they may hold."""


class GraphError(PolicyError):
    """An ONNX file has content that is not allowed in a policy."""


@dataclass(frozen=True)
class GraphFacts:
    """Summary of an accepted file."""

    ir_version: int
    opset: int
    inputs: dict[str, int]
    """Width of each input by name, in order; all are float32 of shape (n, width)."""
    outputs: dict[str, int]
    nodes: int
    parameters: int
    """Total number of elements of the initialisers."""
    metadata: dict[str, str]


def check_policy(data: bytes | memoryview, *, source: str) -> PolicyHeader:
    """Check a policy and return its header.

    Raises:
        GraphError: the file has disallowed content, or its inputs or outputs differ from those of its contract.
        PolicyError: its metadata is missing or malformed.
        ContractError: its contract is malformed.
    """
    facts = check_graph(data, source=source)
    header = parse_header(facts.metadata, source=source)
    for label, found, wanted in (
        ("inputs", facts.inputs, header.inputs),
        ("outputs", facts.outputs, header.outputs),
    ):
        if list(found.items()) != list(wanted.items()):
            raise GraphError(f"{source}: {label} are {_widths(found)}; its contract asks for {_widths(wanted)}")
    run = verify_run(data, header, source=source)
    try:
        if run is not None:
            require_as_started(header.provenance, run.facts.files, source=source)
    except StatedPreferencesError as error:
        raise PolicyError(str(error)) from None
    return header


def _widths(tensors: dict[str, int]) -> str:
    return ", ".join(f"{name} [n, {width}]" for name, width in tensors.items())


def check_graph(data: bytes | memoryview, *, source: str) -> GraphFacts:
    """Check an ONNX file except for the values of its weights; the run time is linear in the file's size.

    Args:
        data: the file; no copy is made.
        source: origin of the file, for messages.

    Raises:
        GraphError: it is not an ONNX file, or has content that is not allowed in a policy.
    """
    if not len(data) <= MAX_POLICY_BYTES:
        raise GraphError(f"{source}: {len(data)} bytes, a policy has at most {MAX_POLICY_BYTES}")
    try:
        return _checked(read_model(memoryview(data)))
    except (MalformedError, UnicodeDecodeError) as error:
        raise GraphError(f"{source}: not an ONNX model that may be a policy: {error}") from None


def _checked(model: Found) -> GraphFacts:
    if "ir_version" not in model:
        raise MalformedError("no ir_version")
    ir_version = _within(model["ir_version"], IR_VERSIONS, "ir_version")
    opsets = [(entry.get("domain", ""), entry.get("version", 0)) for entry in model.get("opset_import", [])]
    if len(opsets) != 1 or opsets[0][0]:
        raise MalformedError(f"operator sets {opsets}, expected that of the default domain alone")
    opset = _within(opsets[0][1], OPSETS, "operator set")
    if model.get("domain"):
        raise MalformedError(f"domain {model['domain']!r}, expected none")
    graph: Found = model.get("graph", {})
    inputs, outputs = _interface(graph.get("input", []), "input"), _interface(graph.get("output", []), "output")
    parameters = _initialisers(graph.get("initializer", []))
    nodes: list[Found] = graph.get("node", [])
    _check_nodes(nodes, inputs, (tensor["name"] for tensor in graph.get("initializer", [])), outputs)
    require_static_sizes(nodes, inputs)
    return GraphFacts(
        ir_version=ir_version,
        opset=opset,
        inputs=inputs,
        outputs=outputs,
        nodes=len(nodes),
        parameters=parameters,
        metadata=metadata_entries(model.get("metadata_props", [])),
    )


def _within(value: int, allowed: range, what: str) -> int:
    if value not in allowed:
        raise MalformedError(f"{what} {value}, expected {allowed[0]} to {allowed[-1]}")
    return value


def _interface(values: Sequence[Found], label: str) -> dict[str, int]:
    """Return the width of each input or output; all must be float32 of shape [n, width]."""
    widths: dict[str, int] = {}
    for value in values:
        name = _name(value)
        kind: Found = value.get("type", {}).get("tensor_type", {})
        dims: list[Found] = kind.get("shape", {}).get("dim", [])
        sizes = [dim.get("dim_value", 0) for dim in dims]
        is_batch = len(dims) == 2 and set(dims[0]) == {"dim_param"} and set(dims[1]) == {"dim_value"}
        if kind.get("elem_type") != _FLOAT or not is_batch or not 1 <= sizes[1] <= MAX_STATE_SIZE:
            shape = [dim.get("dim_param", dim.get("dim_value", "?")) for dim in dims]
            raise MalformedError(
                f"{label} {name!r} is type {kind.get('elem_type')} of shape {reprlib.repr(shape)}, expected float32 "
                "(1) of shape ['n', size]"
            )
        if name in widths:
            raise MalformedError(f"two {label}s are named {name!r}")
        widths[name] = sizes[1]
    if len(widths) > MAX_TENSORS:
        raise MalformedError(f"{len(widths)} {label}s, at most {MAX_TENSORS} are allowed")
    return widths


def _initialisers(tensors: Sequence[Found]) -> int:
    """Check the initialisers; return their total number of elements."""
    if len(tensors) > MAX_TENSORS:
        raise MalformedError(f"{len(tensors)} initialisers, at most {MAX_TENSORS} are allowed")
    return sum(_check_tensor(tensor, _name(tensor)) for tensor in tensors)


def _check_tensor(tensor: Found, name: str) -> int:
    """Check that a tensor's data is in the file and matches its shape; return its number of elements."""
    if tensor.get("data_location", 0):
        raise MalformedError(f"the data of tensor {name!r} lie in another file")
    kind = tensor.get("data_type", 0)
    if kind not in ELEMENT_BYTES:
        raise MalformedError(
            f"tensor {name!r} has the data type {kind}, allowed are {', '.join(map(str, ELEMENT_BYTES))}"
        )
    dims: list[int] = tensor.get("dims", [])
    if len(dims) > MAX_DIMS or any(not 0 <= size <= MAX_POLICY_BYTES for size in dims):
        raise MalformedError(f"tensor {name!r} has the shape {reprlib.repr(dims)}")
    # An integer of a few hundred bits at most; it is only compared, never used to allocate.
    count = math.prod(dims)
    labels = [label for label in ("raw_data", *_TYPED) if label in tensor]
    if len(labels) > 1 or (not labels and count):
        raise MalformedError(f"tensor {name!r} of {count} elements has data in {len(labels)} fields, expected one")
    for label in labels:
        found = _elements(tensor[label], label, kind, name)
        if found != count:
            raise MalformedError(f"tensor {name!r} of shape {dims} has {count} elements, its {label} holds {found:g}")
    return count


def _elements(data: memoryview, label: str, kind: int, name: str) -> float:
    """Return the number of elements in a data field; fractional or NaN if the last one is truncated."""
    if label == "raw_data":
        return len(data) / ELEMENT_BYTES[kind]
    if kind not in _TYPED[label]:
        raise MalformedError(f"tensor {name!r} of data type {kind} has its data in {label}")
    if label == "float_data":
        return len(data) / 4
    # Varints: the last byte of each is below 128.
    ends = np.frombuffer(data, np.uint8) < 0x80
    return float(np.count_nonzero(ends)) if not len(ends) or ends[-1] else math.nan


def _name(value: Found) -> str:
    name: str = value.get("name", "")
    if not name:
        raise MalformedError("an input, output or initialiser has no name")
    return name


def _check_nodes(
    nodes: Sequence[Found], inputs: Iterable[str], initialisers: Iterable[str], outputs: Iterable[str]
) -> None:
    """Check operators, unique names and topological order."""
    if len(nodes) > MAX_NODES:
        raise MalformedError(f"{len(nodes)} nodes, at most {MAX_NODES} are allowed")
    defined: set[str] = set()
    labels: set[str] = set()
    _add(defined, inputs, "tensors")
    _add(defined, initialisers, "tensors")
    for node in nodes:
        label: str = node.get("name", "")
        _add(labels, [label] if label else [], "nodes")
        _check_operator(node)
        for name in node.get("input", []):
            if name and name not in defined:
                raise MalformedError(f"node {label!r} reads {name!r}, which nothing before it makes")
        _add(defined, (name for name in node.get("output", []) if name), "tensors")
    missing = [name for name in outputs if name not in defined]
    if missing:
        raise MalformedError(f"nothing makes the output {missing[0]!r}")


def _add(taken: set[str], names: Iterable[str], what: str) -> None:
    for name in names:
        if name in taken:
            raise MalformedError(f"two {what} are named {name!r}")
        taken.add(name)


def _check_operator(node: Found) -> None:
    kind: str = node.get("op_type", "")
    operator = OPERATORS.get(kind)
    if operator is None or node.get("domain"):
        raise MalformedError(f"operator {node.get('domain', '')}::{kind} is not one that a policy may have")
    for label, allowed in (("input", operator.inputs), ("output", operator.outputs)):
        count = len(node.get(label, []))
        if not allowed[0] <= count <= allowed[1]:
            raise MalformedError(f"a {kind} has {count} {label}s, expected {allowed[0]} to {allowed[1]}")
    seen: set[str] = set()
    for attribute in node.get("attribute", []):
        name: str = attribute.get("name", "")
        wanted = operator.attributes.get(name)
        if wanted is None or name in seen:
            raise MalformedError(
                f"a {kind} has the attribute {name!r}, or has it twice; known: {', '.join(operator.attributes)}"
            )
        seen.add(name)
        if attribute.get("type") != KIND_NUMBERS[wanted] or set(attribute) - {"name", "type", wanted}:
            raise MalformedError(f"attribute {name!r} of a {kind} is not of type {wanted}")
        if wanted == "t":
            if "t" not in attribute:
                raise MalformedError(f"attribute {name!r} of a {kind} is empty")
            _check_tensor(attribute["t"], name)


def require_static_sizes(nodes: Sequence[Found], inputs: Iterable[str]) -> None:
    """Check that no tensor's size depends on a value, but at most on the batch size.

    Raises:
        MalformedError: an input that determines a size is computed from the graph's inputs.
    """
    varying = set(inputs)
    for node in nodes:
        read: list[str] = node.get("input", [])
        kind: str = node["op_type"]
        for index in OPERATORS[kind].sizes:
            if index < len(read) and read[index] in varying:
                raise MalformedError(f"the size of what a {kind} makes depends on the value of {read[index]!r}")
        # The shape of a tensor of static size is static.
        if kind != "Shape" and not varying.isdisjoint(read):
            varying.update(node.get("output", []))
