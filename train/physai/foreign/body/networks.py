"""Networks of a policy from elsewhere as one graph, from the observation to the actions."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physai.foreign.body.apart import read_body
from physai.foreign.body.checkpoints.ways_out import WAY_OUT
from physai.foreign.body.checkpoints.weights import (
    ARCHIVE,
    SAFETENSORS,
    convert_weights,
    weights_changes,
)
from physai.foreign.body.torch_files import TORCH_SUFFIXES
from physai.foreign.body.torchscript import convert_torchscript, torchscript_changes
from physai.foreign.errors import ForeignPolicyError
from physai.sdk.base.file_names import MAX_POLICY_BYTES
from physai.sdk.base.files import read_bounded
from physai.train.onnx_export.onnx_graph import IR_VERSION, OPSET
from physai.train.onnx_export.spliced import append_graph, width

OBSERVATION, ACTION, HIDDEN, NEXT = "observation", "action", "hidden", "next"


@dataclass(frozen=True, kw_only=True)
class PolicyBody:
    """A graph that is admitted: an observation and, if it remembers, a memory to actions and the memory after."""

    graph: bytes
    """ONNX of operator set 18."""
    sha256: str
    """Of the files that it was made from, one after the other."""
    changes: tuple[str, ...]
    """What was changed in them to admit it."""


@dataclass(frozen=True, kw_only=True)
class NetworkStage:
    """One of several networks that run in order."""

    file: Path
    reads: tuple[tuple[int | None, tuple[int, ...] | None], ...]
    """Parts of its input, one after the other: the whole output of an earlier network by its index, or these elements
    of the observation."""


def network_body(file: Path, observations: int) -> PolicyBody:
    """Read a network in a child process with limits of time and memory.

    Args:
        file: an ONNX or TorchScript file.
        observations: number of elements of the observation.

    Raises:
        ForeignPolicyError: the file cannot be read, or its graph is not one that a policy may have.
        ApartError: the child process failed.
    """
    data = read_bounded(file, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
    sha256, changes = hashlib.sha256(data).hexdigest(), list[str]()
    if file.suffix.lower() in (ARCHIVE, SAFETENSORS):
        raise ForeignPolicyError(f"{file}: weights alone are read as the one `network` of a physai.yaml; {WAY_OUT}")
    if file.suffix.lower() in TORCH_SUFFIXES:
        facts, data = convert_torchscript(data, source=file.name, width=observations)
        changes = torchscript_changes(facts)
    return _admitted(data, file, sha256, changes)


def weights_body(file: Path, observations: int, actions: int, settings: Mapping[str, Any]) -> PolicyBody:
    """Make a graph of weights alone; see `network_body`.

    Args:
        file: a checkpoint.
        observations: number of elements of the observation.
        actions: number of elements of the action.
        settings: see `convert_weights`.
    """
    data = read_bounded(file, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
    facts, onnx = convert_weights(data, source=file.name, settings=settings)
    for label, wanted in (("observations", observations), ("actions", actions)):
        if facts[label] != wanted:
            raise ForeignPolicyError(f"{file}: its weights have {facts[label]} {label}, and {wanted} are described")
    return _admitted(onnx, file, hashlib.sha256(data).hexdigest(), weights_changes(facts, settings))


def _admitted(data: bytes, file: Path, sha256: str, changes: Sequence[str]) -> PolicyBody:
    facts, graph = read_body(data, source=file.name, folder=file.parent)
    if facts.get("refused"):
        raise ForeignPolicyError(f"{file}: its graph is not one that a policy may have: {facts['refused']}")
    return PolicyBody(graph=graph, sha256=sha256, changes=(*changes, *facts.get("changes", ())))


def joined_body(stages: Sequence[NetworkStage], observations: int) -> PolicyBody:
    """Join several networks, the last of which returns the actions; see `network_body`."""
    joined, bodies = _Joined(observations), list[PolicyBody]()
    for index, stage in enumerate(stages):
        bodies.append(network_body(stage.file, joined.reads(stage)))
        joined.add(index, stage, bodies[-1].graph)
    return PolicyBody(
        graph=joined.graph(),
        sha256=hashlib.sha256("".join(body.sha256 for body in bodies).encode()).hexdigest(),
        changes=tuple(
            f"{stage.file.name}: {change}"
            for stage, body in zip(stages, bodies, strict=True)
            for change in body.changes
        ),
    )


class _Joined:
    """A graph that is put together from networks."""

    def __init__(self, observations: int) -> None:
        import onnx

        self._onnx: Any = onnx
        self._model: Any = onnx.ModelProto()
        self._model.ir_version = IR_VERSION
        self._model.opset_import.add(domain="", version=OPSET)
        self._model.graph.name = "networks"
        self._observations = observations
        self._widths: list[int] = []
        self._hidden: list[int] = []
        """Widths of the memories so far."""
        self._after: list[str] = []

    def reads(self, stage: NetworkStage) -> int:
        """Number of elements of a network's input, after all earlier ones were added."""
        return sum(len(self._elements(source, elements)) for source, elements in stage.reads)

    def _elements(self, source: int | None, elements: tuple[int, ...] | None) -> list[int]:
        if elements is not None:
            return list(elements)
        return list(range(self._observations if source is None else self._widths[source]))

    def add(self, index: int, stage: NetworkStage, network: bytes) -> None:
        """Add a network."""
        part = self._onnx.load_model_from_string(network).graph
        reads = self.reads(stage)
        if width(part.input[0]) != reads:
            raise ForeignPolicyError(
                f"{stage.file.name} reads {width(part.input[0])} numbers, and {reads} are given to it by what "
                "`networks` states"
            )
        kept = {part.input[0].name: self._input(index, stage), part.output[0].name: _output(index)}
        if len(part.input) > 1:
            size = width(part.input[1])
            kept |= {part.input[1].name: self._memory(index, size), part.output[1].name: f"{NEXT}.{index}"}
            self._after.append(f"{NEXT}.{index}")
        append_graph(self._model.graph, part, f"{index}.", kept)
        self._widths.append(width(part.output[0]))

    def graph(self) -> bytes:
        """The whole graph."""
        model, last = self._model, _output(len(self._widths) - 1)
        self._node("Identity", [last], ACTION)
        sizes = {OBSERVATION: self._observations} | ({HIDDEN: sum(self._hidden)} if self._hidden else {})
        results = {ACTION: self._widths[-1]}
        if self._hidden:
            self._node("Concat", self._after, NEXT, axis=1)
            results[NEXT] = sizes[HIDDEN]
        make = self._onnx.helper.make_tensor_value_info
        for values, named in ((model.graph.input, sizes), (model.graph.output, results)):
            values.extend(make(name, self._onnx.TensorProto.FLOAT, ["n", size]) for name, size in named.items())
        return bytes(model.SerializeToString(deterministic=True))

    def _input(self, index: int, stage: NetworkStage) -> str:
        parts = [
            self._chosen(f"{index}.part{at}", source, self._elements(source, elements))
            for at, (source, elements) in enumerate(stage.reads)
        ]
        if len(parts) == 1:
            return parts[0]
        return self._node("Concat", parts, f"{index}.input", axis=1)

    def _chosen(self, name: str, source: int | None, elements: list[int]) -> str:
        of = OBSERVATION if source is None else _output(source)
        size = self._observations if source is None else self._widths[source]
        if elements == list(range(size)):
            return of
        return self._node("Gather", [of, self._constant(f"{name}.elements", elements)], name, axis=1)

    def _memory(self, index: int, size: int) -> str:
        start = sum(self._hidden)
        self._hidden.append(size)
        elements = self._constant(f"{HIDDEN}.{index}.elements", list(range(start, start + size)))
        return self._node("Gather", [HIDDEN, elements], f"{HIDDEN}.{index}", axis=1)

    def _constant(self, name: str, values: list[int]) -> str:
        import numpy as np

        self._model.graph.initializer.append(self._onnx.numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._model.graph.node.append(self._onnx.helper.make_node(operator, inputs, [output], output, **attributes))
        return output


def _output(index: int) -> str:
    return f"output.{index}"
