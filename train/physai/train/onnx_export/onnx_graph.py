"""A policy graph as one ONNX model: standard operators, fixed opset, no traces of training."""

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from physai.sdk.base.errors import ExportError
from physai.sdk.contract.interface import graph_interface
from physai.sdk.policy.header import PolicyHeader
from physai.train.models.policy_graph import PolicyGraph

OPSET = 18
"""Operator set torch's exporter writes without a version conversion; TensorRT for RTX 1.7 builds engines from it."""

IR_VERSION = 8
"""The file format opset 18 came with (https://github.com/onnx/onnx/blob/main/docs/Versioning.md)."""

_EXAMPLE_WORLDS = 3
_exporter: Any = torch.onnx
_checker: Any = onnx.checker
_PREFIX = "policy."


class FlatGraph(nn.Module):
    """The graph with positional inputs and outputs, as in ONNX."""

    def __init__(self, graph: PolicyGraph) -> None:
        """Fixes the order of inputs and outputs."""
        super().__init__()
        self.policy = graph
        interface = graph_interface(graph.contract)
        header = PolicyHeader(graph.contract, graph.state_sizes)
        self.inputs, self.outputs = list(header.inputs), list(header.outputs)
        self._fields = [list(interface.sensors), list(interface.commands), list(graph.state_sizes)]
        self._targets = list(interface.targets)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Outputs in the order of `outputs` for inputs in the order of `inputs`, shape (n, size) each."""
        values = iter(inputs)
        sensors, commands, state = ({name: next(values) for name in names} for names in self._fields)
        targets, after = self.policy(sensors, commands, state)
        return *(targets[name] for name in self._targets), *after.values()


def frozen(graph: PolicyGraph) -> PolicyGraph:
    """A copy in evaluation mode with up-to-date normaliser constants."""
    graph = copy.deepcopy(graph).eval()
    graph.normaliser.refresh()
    return graph


def build_onnx(graph: PolicyGraph, header: PolicyHeader) -> onnx.ModelProto:
    """The graph as an ONNX model with the header's names and metadata; equal input gives equal bytes.

    Raises:
        ExportError: torch cannot export the graph, or it needs non-standard operators.
        PolicyError: the header has more provenance than a reader accepts.
    """
    entries = header.metadata()
    try:
        model = _exported(FlatGraph(frozen(graph)), list(header.inputs.values()))
        _tidy(model, header.inputs, list(header.outputs))
        _describe(model, header)
        onnx.helper.set_model_props(model, entries)
        _checker.check_model(model, full_check=True)
    except Exception as error:  # torch, onnxscript and onnx each raise several types of their own
        raise ExportError(f"the policy graph cannot be written as ONNX: {_reason(error)}") from error
    require_plain(model)
    return model


def export_flat(module: nn.Module, inputs: Mapping[str, int], outputs: Sequence[str]) -> onnx.ModelProto:
    """A module with positional inputs and outputs as an ONNX model without metadata.

    Args:
        module: takes and returns tensors of shape (n, size).
        inputs: sizes of its inputs by the names that they get.
        outputs: names that its outputs get.

    Raises:
        ExportError: torch cannot export it, or it needs non-standard operators.
    """
    try:
        model = _exported(module, list(inputs.values()))
        _tidy(model, inputs, outputs)
    except Exception as error:  # see `build_onnx`
        raise ExportError(f"a part of the policy graph cannot be written as ONNX: {_reason(error)}") from error
    require_plain(model)
    return model


def _reason(error: BaseException) -> str:
    """First line of the root cause of a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0]


def _exported(flat: nn.Module, sizes: list[int]) -> onnx.ModelProto:
    worlds = torch.export.Dim("n")
    example = tuple(torch.zeros(_EXAMPLE_WORLDS, size) for size in sizes)
    with _quiet():
        program = _exporter.export(
            flat,
            example,
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=(tuple({0: worlds} for _ in sizes),),
            verbose=False,
        )
    return program.model_proto


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Silences prints, warnings and logs of torch's exporter."""
    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _tidy(model: onnx.ModelProto, inputs: Mapping[str, int], outputs: Sequence[str]) -> None:
    """Renames inputs and outputs; drops source lines, inferred shapes and other traces of the exporter."""
    graph = model.graph
    names = _new_names(model, [*inputs], [*outputs])
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        node.name = node.output[0]
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
        tensor.ClearField("metadata_props")
        tensor.ClearField("doc_string")
    for value in (*graph.input, *graph.output):
        value.name = names[value.name]
    for label in ("value_info", "metadata_props", "doc_string", "quantization_annotation"):
        graph.ClearField(label)
    graph.name = "policy"
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "physai", ""
    for label in ("doc_string", "domain", "model_version"):
        model.ClearField(label)


def _describe(model: onnx.ModelProto, header: PolicyHeader) -> None:
    """States the header's inputs and outputs."""
    for values, sizes in ((model.graph.input, header.inputs), (model.graph.output, header.outputs)):
        del values[:]
        values.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
            for name, size in sizes.items()
        )


def _new_names(model: onnx.ModelProto, inputs: list[str], outputs: list[str]) -> dict[str, str]:
    """Old to new names: inputs and outputs as wanted, all others unique and without the wrapper's prefix."""
    graph = model.graph
    old_names = [value.name for value in (*graph.input, *graph.output)]
    new_names = [*inputs, *outputs]
    names = dict(zip(old_names, new_names, strict=False))
    if len(graph.input) != len(inputs) or len(names) != len(new_names) or len(old_names) != len(new_names):
        raise ExportError(f"torch exported the inputs and outputs {old_names}, the graph has {new_names}")
    taken = set(names.values())
    inner = [tensor.name for tensor in graph.initializer]
    inner += [name for node in graph.node for name in node.output if name]
    for old in inner:
        if old not in names:
            new = old.removeprefix(_PREFIX)
            while new in taken:
                new += "_"
            taken.add(new)
            names[old] = new
    return names


def require_plain(model: onnx.ModelProto) -> None:
    """Raises ExportError for operators of other domains, local functions, or weights outside the file."""
    foreign = sorted({f"{node.domain}::{node.op_type}" for node in model.graph.node if node.domain})
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    outside = [t.name for t in model.graph.initializer if t.data_location != onnx.TensorProto.DEFAULT]
    if foreign or model.functions or outside or opsets != {"": OPSET}:
        raise ExportError(
            f"the graph does not fit in one file with the standard operators of opset {OPSET}: operators {foreign}, "
            f"{len(model.functions)} local functions, weights outside the file {outside}, operator sets {opsets}"
        )
