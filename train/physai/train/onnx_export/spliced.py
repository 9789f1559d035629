"""Puts somebody else's network between the observation and action terms of a contract, as one ONNX model.

The network keeps its own operators and weights. What stands before and after it is exported from the same modules with
which our own policies are trained.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import onnx
from torch import Tensor, nn

from physai.sdk.base.errors import ExportError
from physai.sdk.contract.interface import graph_interface
from physai.sdk.contract.policy_contract import PolicyContract
from physai.sdk.policy.header import NEXT_PREFIX, STATE_PREFIX, PolicyHeader
from physai.train.models.policy_graph import PolicyGraph, State
from physai.train.onnx_export.onnx_graph import IR_VERSION, OPSET, export_flat, require_plain

OBSERVATION, ACTION, HIDDEN = "observation", "action", "hidden"
_library: Any = onnx


class _Part(nn.Module):
    """A half of a policy graph with positional inputs and outputs, as in ONNX."""

    def __init__(self, graph: PolicyGraph) -> None:
        super().__init__()
        self.policy = graph
        interface = graph_interface(graph.contract)
        self._fields = [list(interface.sensors), list(interface.commands), list(graph.state_sizes)]
        self.histories = list(graph.observation.history_sizes())
        self.memories = [name for name in graph.state_sizes if name not in self.histories]
        self.targets = list(interface.targets)

    def _named(self, values: Iterable[Tensor]) -> list[State]:
        flat = iter(values)
        return [{name: next(flat) for name in names} for names in self._fields]


class _Front(_Part):
    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The observation, then the histories after it."""
        observation, histories = self.policy.observe(*self._named(inputs))
        return observation, *(histories[name] for name in self.histories)


class _Back(_Part):
    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The joint commands, then the memory after them; the network's output is the first input."""
        sensors, _, state = self._named(inputs[1:])
        targets, memory = self.policy.command(inputs[0], sensors, state)
        return *(targets[name] for name in self.targets), *(memory[name] for name in self.memories)


def observation_model(contract: PolicyContract) -> onnx.ModelProto:
    """The observation terms alone, from the graph's inputs to `observation` and the histories after it.

    Raises:
        ExportError: torch cannot export them.
    """
    graph = PolicyGraph(contract, nn.Identity())
    front = _Front(graph.eval())
    header = PolicyHeader(contract, graph.state_sizes)
    return export_flat(front, dict(header.inputs), [OBSERVATION, *(f"{NEXT_PREFIX}{name}" for name in front.histories)])


def splice(contract: PolicyContract, network: bytes, *, provenance: Mapping[str, str]) -> bytes:
    """Join a network with the terms of a contract.

    Args:
        contract: of the policy.
        network: an ONNX model of operator set 18 whose first input has the shape (n, observation_size) and whose first
            output has the shape (n, action.size). A second input is its memory, shape (n, width), which starts at
            zero, and the second output is the memory after the call. Further outputs are dropped.
        provenance: origin of the policy, for the metadata.

    Returns:
        The policy as an ONNX file with the contract's header.

    Raises:
        ExportError: the network does not fit the contract, or a part cannot be exported.
        PolicyError: there is more provenance than a reader accepts.
    """
    body: Any = _library.load_model_from_string(network)
    remembered = _require_fit(body, contract)
    graph = PolicyGraph(contract, nn.Identity()).eval()
    sizes = graph.state_sizes
    back = _Back(graph)
    outputs = [*back.targets, *(f"{NEXT_PREFIX}{name}" for name in back.memories)]
    front_model = observation_model(contract)
    back_inputs = {ACTION: contract.action.size, **PolicyHeader(contract, sizes).inputs}
    back_model = export_flat(back, back_inputs, outputs)
    header = PolicyHeader(contract, {**sizes, **({HIDDEN: remembered} if remembered else {})}, dict(provenance))
    joined: Any = onnx.ModelProto()
    joined.ir_version, joined.producer_name = IR_VERSION, "physai"
    joined.opset_import.add(domain="", version=OPSET)
    count = len(body.graph.input)
    ends = _names(body.graph.input, (OBSERVATION, STATE_PREFIX + HIDDEN))
    ends |= _names(body.graph.output[:count], (ACTION, NEXT_PREFIX + HIDDEN))
    shared = {name: name for name in (*header.inputs, *header.outputs, OBSERVATION, ACTION)}
    for prefix, model, kept in (("before.", front_model, shared), ("net.", body, ends), ("after.", back_model, shared)):
        append_graph(joined.graph, model.graph, prefix, kept)
    make: Any = onnx.helper.make_tensor_value_info
    for values, sizes in ((joined.graph.input, header.inputs), (joined.graph.output, header.outputs)):
        values.extend(make(name, onnx.TensorProto.FLOAT, ["n", size]) for name, size in sizes.items())
    joined.graph.name = "policy"
    onnx.helper.set_model_props(joined, header.metadata())
    try:
        checker: Any = onnx.checker
        checker.check_model(joined, full_check=True)
    except Exception as error:  # onnx raises several types of its own
        raise ExportError(f"the joined graph is not valid: {str(error).splitlines()[0]}") from error
    require_plain(joined)
    return bytes(joined.SerializeToString(deterministic=True))


def _require_fit(body: Any, contract: PolicyContract) -> int:
    """Return the width of the network's memory, 0 for none."""
    version = {entry.domain: entry.version for entry in body.opset_import}.get("", 0)
    if version != OPSET:
        raise ExportError(f"the network has operator set {version}, expected {OPSET}")
    inputs, outputs = [value.name for value in body.graph.input], body.graph.output
    if len(inputs) > 2 or len(outputs) < len(inputs):
        raise ExportError(
            f"the network has the inputs {', '.join(inputs)}; after the observation there may be memories alone, each "
            "with an output of its shape after the action"
        )
    for what, value, expected in (
        ("reads", body.graph.input[0], contract.observation_size),
        ("returns", outputs[0], contract.action.size),
    ):
        if width(value) != expected:
            described = "the observation terms have" if what == "reads" else "the action terms have"
            raise ExportError(f"the network {what} {width(value)} numbers, {described} {expected}")
    if len(inputs) == 1:
        return 0
    remembered = width(body.graph.input[1])
    if width(outputs[1]) != remembered:
        raise ExportError(f"the network's memory has {remembered} numbers, after a call {width(outputs[1])}")
    return remembered


def _names(values: Any, names: tuple[str, ...]) -> dict[str, str]:
    return {value.name: name for value, name in zip(values, names, strict=False)}


def width(value: Any) -> int:
    """Return the size of the last axis of a graph's input or output."""
    return int(value.type.tensor_type.shape.dim[-1].dim_value)


def append_graph(graph: Any, part: Any, prefix: str, kept: Mapping[str, str]) -> None:
    """Add the nodes and weights of a part; tensors get the prefix or, if they are in `kept`, the name there."""

    def renamed(name: str) -> str:
        return kept.get(name, prefix + name) if name else ""

    for tensor in part.initializer:
        added = graph.initializer.add()
        added.CopyFrom(tensor)
        added.name = renamed(tensor.name)
    for node in part.node:
        added = graph.node.add()
        added.CopyFrom(node)
        added.input[:] = [renamed(name) for name in node.input]
        added.output[:] = [renamed(name) for name in node.output]
        added.name = next(name for name in added.output if name)
