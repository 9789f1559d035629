"""What may be in a policy: one check of an ONNX file's every byte, before anything computes it.

A policy comes from elsewhere and decides how a robot moves. onnxruntime and TensorRT read much more than a policy
needs: weights from other files, graphs inside graphs, custom operators, loops that end when the data says so. Here a
file is accepted only if it is one graph of plain operators whose every weight lies in the file itself, and so under its
hash and signature; and only if no tensor's size depends on a value, so that what the graph costs depends on the number
of states it is given and on nothing in them.
"""

import math
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from physai.sdk.base.onnx_metadata import metadata_entries
from physai.sdk.base.protobuf import MalformedError
from physai.sdk.onnx.file import Found, read_model
from physai.sdk.onnx.operators import KIND_NUMBERS, OPERATORS
from physai.sdk.policy.header import MAX_POLICY_BYTES, MAX_STATE_SIZE, PolicyError, PolicyHeader, parse_header

IR_VERSIONS = range(7, 11)
OPSETS = range(13, 21)
"""Versions of the file format and of the operators that are accepted; the exporter writes 8 and 18, fp8 is 9 and 19."""

MAX_NODES = 4096
MAX_TENSORS = 4096
"""Most initialisers."""
MAX_DIMS = 8

ELEMENT_BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 17: 1}
"""Bytes of an element by TensorProto.DataType: float32, uint8, int8, int32, int64, bool, float16, float8 E4M3FN."""

_FLOAT, _INT64 = 1, 7
_TYPED = {"float_data": {_FLOAT}, "int32_data": {2, 3, 6, 9, 10, 17}, "int64_data": {_INT64}}
"""Fields of typed data, and the data types that they may hold."""


class GraphError(PolicyError):
    """A policy's file holds something that a policy may not have."""


@dataclass(frozen=True)
class GraphFacts:
    """What an accepted file is."""

    ir_version: int
    opset: int
    inputs: dict[str, int]
    """Width of each input by name, in order; all are float32 of shape (n, width)."""
    outputs: dict[str, int]
    nodes: int
    parameters: int
    """Numbers in all initialisers together."""
    metadata: dict[str, str]


def check_policy(data: bytes | memoryview, *, source: str) -> PolicyHeader:
    """The header of a policy whose every byte is accounted for, and whose inputs and outputs are the header's.

    Raises:
        GraphError: the file holds something that a policy may not have, or has other inputs or outputs.
        PolicyError: its metadata are missing or malformed.
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
    return header


def _widths(tensors: dict[str, int]) -> str:
    return ", ".join(f"{name} [n, {width}]" for name, width in tensors.items())


def check_graph(data: bytes | memoryview, *, source: str) -> GraphFacts:
    """Reads a whole ONNX file, weights aside, and refuses what a policy may not have; time grows with the file's size.

    Args:
        data: the file; no copy is made.
        source: where it came from, for messages.

    Raises:
        GraphError: it is no ONNX file, or holds something that a policy may not have.
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
    """Width of each input or output, all of which are float32 [n, width]."""
    widths: dict[str, int] = {}
    for value in values:
        name = _name(value)
        kind: Found = value.get("type", {}).get("tensor_type", {})
        dims: list[Found] = kind.get("shape", {}).get("dim", [])
        sizes = [dim.get("dim_value", 0) for dim in dims]
        is_batch = len(dims) == 2 and set(dims[0]) == {"dim_param"} and set(dims[1]) == {"dim_value"}
        if kind.get("elem_type") != _FLOAT or not is_batch or not 1 <= sizes[1] <= MAX_STATE_SIZE:
            shape = [dim.get("dim_param", dim.get("dim_value", "?")) for dim in dims]
            told = f"type {kind.get('elem_type')} of shape {reprlib.repr(shape)}"
            raise MalformedError(f"{label} {name!r} is {told}, expected float32 (1) of shape ['n', size]")
        if name in widths:
            raise MalformedError(f"two {label}s are named {name!r}")
        widths[name] = sizes[1]
    if len(widths) > MAX_TENSORS:
        raise MalformedError(f"{len(widths)} {label}s, at most {MAX_TENSORS} are allowed")
    return widths


def _initialisers(tensors: Sequence[Found]) -> int:
    """Numbers in all of them, each of which has a name and as many bytes as its shape asks for."""
    if len(tensors) > MAX_TENSORS:
        raise MalformedError(f"{len(tensors)} initialisers, at most {MAX_TENSORS} are allowed")
    return sum(_check_tensor(tensor, _name(tensor)) for tensor in tensors)


def _check_tensor(tensor: Found, name: str) -> int:
    """Number of elements of a tensor whose data lie in this file."""
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
    # At most MAX_DIMS sizes of MAX_POLICY_BYTES: a number of a few hundred bits, compared and never allocated.
    count = math.prod(dims)
    held = [label for label in ("raw_data", *_TYPED) if label in tensor]
    if len(held) > 1 or (not held and count):
        raise MalformedError(f"tensor {name!r} of {count} elements has data in {len(held)} fields, expected one")
    for label in held:
        found = _elements(tensor[label], label, kind, name)
        if found != count:
            raise MalformedError(f"tensor {name!r} of shape {dims} has {count} elements, its {label} holds {found:g}")
    return count


def _elements(data: memoryview, label: str, kind: int, name: str) -> float:
    """How many elements a field of data holds; not a whole number where the last one is cut off."""
    if label == "raw_data":
        return len(data) / ELEMENT_BYTES[kind]
    if kind not in _TYPED[label]:
        raise MalformedError(f"tensor {name!r} of data type {kind} has its data in {label}")
    if label == "float_data":
        return len(data) / 4
    # Each number ends with a byte below 128.
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
    """Refuses operators that are not allowed, names that occur twice, and reading what is not made before."""
    if len(nodes) > MAX_NODES:
        raise MalformedError(f"{len(nodes)} nodes, at most {MAX_NODES} are allowed")
    made: set[str] = set()
    labels: set[str] = set()
    _add(made, inputs, "tensors")
    _add(made, initialisers, "tensors")
    for node in nodes:
        label: str = node.get("name", "")
        _add(labels, [label] if label else [], "nodes")
        _check_operator(node)
        for name in node.get("input", []):
            if name and name not in made:
                raise MalformedError(f"node {label!r} reads {name!r}, which nothing before it makes")
        _add(made, (name for name in node.get("output", []) if name), "tensors")
    missing = [name for name in outputs if name not in made]
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
        held = set(attribute) - {"name", "type"}
        if attribute.get("type") != KIND_NUMBERS[wanted] or held - {wanted}:
            raise MalformedError(f"attribute {name!r} of a {kind} is not of type {wanted}")
        if wanted == "t":
            if "t" not in attribute:
                raise MalformedError(f"attribute {name!r} of a {kind} is empty")
            _check_tensor(attribute["t"], name)


def require_static_sizes(nodes: Sequence[Found], inputs: Iterable[str]) -> None:
    """Refuses a graph in which a tensor's size depends on a value; its sizes then depend on the number of states only.

    Raises:
        MalformedError: an input that decides a size is computed from the graph's inputs.
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
