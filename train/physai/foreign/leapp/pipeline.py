"""The models of a bundle as one graph, and the child process that joins them.

An exported model computes one robot: each tensor has an axis of size 1 for it, the first or, in recurrent layers, the
second. Tensors from and to the robot, and feedback, become parts of vectors, of which the graph computes any number.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from physai.foreign.body.apart import read_body
from physai.foreign.body.networks import ACTION, HIDDEN, NEXT, OBSERVATION
from physai.foreign.body.rewrite import IR_VERSION, OPSET, embed_weights, require_plain
from physai.foreign.errors import ForeignPolicyError
from physai.foreign.leapp.bundle import LeappBundle
from physai.foreign.leapp.document import LeappTensor
from physai.foreign.leapp.program import vector_program
from physai.sdk.base.errors import PhysaiError
from physai.sdk.base.file_names import MAX_POLICY_BYTES
from physai.sdk.base.files import read_bounded
from physai.sdk.base.process.isolation import JsonFacts, ReportProgress, call_apart, serve

STEP_S = 20.0
WARP = "com.nvidia.warp"
TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9}
"""`TensorProto.DataType`; as parts of a vector, whole numbers are exact below 2^24."""
_END = b"\0"

_Stated = dict[str, list[dict[str, Any]]]
"""Inputs and outputs of a model."""


def joined_models(bundle: LeappBundle, places: Mapping[str, int], results: Sequence[str]) -> tuple[bytes, list[str]]:
    """Join the models of a bundle in child processes with limits of time and memory.

    Args:
        bundle: the bundle.
        places: first element of the observation that each of its inputs is.
        results: outputs of it that the graph returns, one after the other.

    Returns:
        ONNX of operator set 18 that policies may have, from the observation and, if there is feedback, the memory, to
        the results and the memory after; and what was changed. The memory is the feedback less its initial value.

    Raises:
        PhysaiError: a model is not as the bundle states it, the graph is not one that a policy may have, or a child
            process failed.
    """
    problems: list[PhysaiError] = []
    tried: list[dict[str, _Stated]] = []
    for axis in (1, 0):
        tensors = {
            name: {label: [_stated(one, axis) for one in getattr(model, label)] for label in ("inputs", "outputs")}
            for name, model in bundle.models.items()
        }
        if tensors in tried:
            continue
        try:
            return _admitted(bundle, tensors, places, results)
        except PhysaiError as error:  # the other axis may be right
            problems.append(error)
            tried.append(tensors)
    raise problems[0]


def _admitted(
    bundle: LeappBundle, tensors: Mapping[str, _Stated], places: Mapping[str, int], results: Sequence[str]
) -> tuple[bytes, list[str]]:
    blobs: list[bytes] = []
    changes: list[str] = []
    models: list[dict[str, Any]] = []
    for name, model in bundle.models.items():
        file = bundle.networks[name]
        data = read_bounded(file, limit=MAX_POLICY_BYTES, error=ForeignPolicyError)
        script = model.parameters.backend == "jit"
        if script:
            data, made = vector_program(data, file.name, **tensors[name])
            changes += [f"{file.name}: {change}" for change in made]
        models.append({"name": name, "file": str(file), "size": len(data), "script": script, **tensors[name]})
        blobs.append(data)
    size = max(start + bundle.inputs[key].width for key, start in places.items())
    shared = {
        "places": dict(places),
        "size": size,
        "results": list(results),
        "flow": bundle.flow,
        "feedback": bundle.feedback,
    }
    shared |= {"initial": {key: value.tolist() for key, value in bundle.initial.items()}, "models": models}
    request = json.dumps(shared).encode() + _END + b"".join(blobs)
    converted, (joined,) = call_apart(__name__, request, what=f"reading {bundle.file.name}", limit_s=lambda _: STEP_S)
    facts, graph = read_body(joined, source=bundle.file.name, folder=None)
    if facts.get("refused"):
        raise ForeignPolicyError(f"{bundle.file}: its graph is not one that a policy may have: {facts['refused']}")
    count = f"{len(models)} models" if len(models) > 1 else "the model"
    changes += [*converted["changes"], f"{count} became one graph, with feedback as its memory"]
    return graph, [*changes, *facts.get("changes", ())]


def _stated(one: LeappTensor, preferred: int) -> dict[str, Any]:
    """Describe a tensor for the child; the axis of the robots is the preferred one if that has size 1."""
    axes = [axis for axis, size in enumerate(one.shape) if size == 1]
    if not axes:
        raise ForeignPolicyError(f"{one.name} has the shape {list(one.shape)}, without an axis of one robot")
    axis = preferred if preferred in axes and len(one.shape) > 2 else axes[0]
    return {"name": one.name, "shape": one.shape, "type": TYPES[one.dtype], "axis": axis, "width": one.width}


def _work(request: bytes, report: ReportProgress) -> tuple[JsonFacts, Sequence[bytes]]:
    head, _, data = request.partition(_END)
    shared = json.loads(head)
    report({"stage": "joining"})
    joined, changes = _Joined(shared), list[str]()
    for model in shared["models"]:
        part, data = data[: model["size"]], data[model["size"] :]
        try:
            joined.add(model, _loaded(part, model, changes))
        except ForeignPolicyError as error:
            raise ForeignPolicyError(f"{model['file']}: {error}") from None
    return {"changes": changes}, [joined.finished()]


def _loaded(data: bytes, model: dict[str, Any], changes: list[str]) -> Any:
    """A model of our operator set, with its weights inside."""
    import onnx
    from onnx import version_converter

    library: Any = onnx
    try:
        loaded = library.load_model_from_string(data)
    except Exception:  # protobuf's own errors, which name bytes
        raise ForeignPolicyError("not an ONNX file") from None
    native = [node.op_type for node in loaded.graph.node if node.domain == WARP]
    if native:
        raise ForeignPolicyError(f"it has a Warp segment ({native[0]}), which is native code and no graph")
    require_plain(loaded)
    embed_weights(loaded, Path(model["file"]).parent)
    weights = {tensor.name for tensor in loaded.graph.initializer}
    read = [value for value in loaded.graph.input if value.name not in weights]
    for values, label in ((read, "inputs"), (loaded.graph.output, "outputs")):
        found, stated = [(value.name, _sizes(value)) for value in values], model[label]
        if not model["script"] and (len(found) != len(stated) or not all(map(_fits, found, stated))):
            names = [(one["name"], one["shape"]) for one in stated]
            raise ForeignPolicyError(f"its {label} are {found}, and the bundle states {names}")
    version = max((entry.version for entry in loaded.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    del loaded.opset_import[:]
    loaded.opset_import.add(domain="", version=version)
    if version == OPSET:
        return loaded
    changes.append(f"{Path(model['file']).name}: operator set {version} became {OPSET}")
    try:
        return version_converter.convert_version(loaded, OPSET)
    except Exception as error:  # the converter raises plain RuntimeErrors and others
        raise ForeignPolicyError(f"operator set {version} cannot become {OPSET}: {str(error)[:200]}") from None


def _sizes(value: Any) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _fits(found: tuple[str, list[int]], one: dict[str, Any]) -> bool:
    """Whether a tensor has this name and this shape, in which sizes may be open."""
    name, sizes = found
    same = len(sizes) == len(one["shape"]) and all(a in (0, b) for a, b in zip(sizes, one["shape"], strict=True))
    return name == one["name"] and same


class _Joined:
    """A graph that is put together from models."""

    def __init__(self, shared: dict[str, Any]) -> None:
        import onnx

        self._onnx: Any = onnx
        self._shared = shared
        self._model: Any = onnx.ModelProto(ir_version=IR_VERSION)
        self._model.opset_import.add(domain="", version=OPSET)
        self._made: dict[str, tuple[str, dict[str, Any]]] = {}
        """Tensors of the graph by the bundle's outputs that they are."""
        self._memory: list[tuple[str, dict[str, Any], list[float]]] = []
        """Outputs that the memory holds, one after the other, and their initial values."""
        # Added to outputs, of which those that depend on no input have one row.
        self._zero = self._node("Mul", [self._part(OBSERVATION, 0, 1), np.float32(0.0)])

    def add(self, model: dict[str, Any], loaded: Any) -> None:
        """Add a model; those before it were added."""
        graph = self._onnx.compose.add_prefix(loaded, f"{model['name']}.").graph
        values = [self._input(f"{model['name']}/{one['name']}", one) for one in model["inputs"]]
        results = [value.name for value in graph.output]
        if model["script"]:
            rows = [self._row(value, one) for value, one in zip(values, model["inputs"], strict=True)]
            values = [self._node("Concat", rows, axis=1)]
            for read in graph.input[1:]:
                # A program may remember by itself.
                own = {"shape": [1, 1], "width": _sizes(read)[-1], "type": 1, "axis": 0}
                values.append(self._held(model["name"], own, []))
                self._made[model["name"]] = (results[1], own)
        for value, read in zip(values, graph.input, strict=True):
            self._node("Identity", [value], read.name)
        self._model.graph.node.extend(graph.node)
        self._model.graph.initializer.extend(graph.initializer)
        start = 0
        for index, one in enumerate(model["outputs"]):
            if model["script"]:
                value = self._shaped(self._part(results[0], start, one["width"]), one)
            else:
                value = results[index]
            self._made[f"{model['name']}/{one['name']}"] = (value, one)
            start += one["width"]

    def finished(self) -> bytes:
        """The whole graph."""
        graph, make = self._model.graph, self._onnx.helper.make_tensor_value_info
        wanted = [self._row(*self._made[key]) for key in self._shared["results"]]
        sizes = {OBSERVATION: self._shared["size"]}
        self._node("Concat", wanted, ACTION, axis=1)
        graph.output.append(make(ACTION, 1, [1, sum(self._made[key][1]["width"] for key in self._shared["results"])]))
        if self._memory:
            after = [self._row(*self._made[holds]) for holds, _, _ in self._memory]
            initial = np.concatenate([value or np.zeros(one["width"]) for _, one, value in self._memory])
            self._node("Sub", [self._node("Concat", after, axis=1), initial.astype(np.float32)[None]], NEXT)
            sizes[HIDDEN] = len(initial)
            graph.output.append(make(NEXT, 1, [1, len(initial)]))
        graph.input.extend(make(name, 1, [1, size]) for name, size in sizes.items())
        _free_rows(self._model)
        return bytes(self._model.SerializeToString(deterministic=True))

    def _input(self, key: str, one: dict[str, Any]) -> str:
        shared = self._shared
        if key in shared["flow"]:
            return self._made[shared["flow"][key]][0]
        if key in shared["feedback"]:
            return self._held(shared["feedback"][key], one, shared["initial"].get(key, []))
        return self._shaped(self._part(OBSERVATION, shared["places"][key], one["width"]), one)

    def _held(self, holds: str, one: dict[str, Any], initial: list[float]) -> str:
        start = sum(held["width"] for _, held, _ in self._memory)
        self._memory.append((holds, one, initial))
        part = self._part(HIDDEN, start, one["width"])
        return self._shaped(self._node("Add", [part, np.array([initial], np.float32)]) if initial else part, one)

    def _part(self, vector: str, start: int, width: int) -> str:
        return self._node("Gather", [vector, np.arange(start, start + width)], axis=1)

    def _shaped(self, value: str, one: dict[str, Any]) -> str:
        """A tensor as the model has it, from rows."""
        sizes, axis = list(one["shape"]), one["axis"]
        if len(sizes) > 2:
            order = list(range(len(sizes)))
            order.insert(axis, order.pop(0))
            shape = np.array([-1, *sizes[:axis], *sizes[axis + 1 :]])
            value = self._node("Transpose", [self._node("Reshape", [value, shape])], perm=order)
        return self._node("Cast", [value], to=one["type"]) if one["type"] != 1 else value

    def _row(self, value: str, one: dict[str, Any]) -> str:
        """The rows of a tensor."""
        value = self._node("Cast", [value], to=1) if one["type"] != 1 else value
        if len(one["shape"]) > 2:
            order = list(range(len(one["shape"])))
            order.insert(0, order.pop(one["axis"]))
            moved = self._node("Transpose", [value], perm=order)
            value = self._node("Reshape", [moved, np.array([-1, one["width"]])])
        return self._node("Add", [value, self._zero])

    def _node(self, operator: str, reads: Sequence[Any], made: str = "", **attributes: Any) -> str:
        """Add an operator, which reads tensors and constants."""
        made = made or f"joined.{len(self._model.graph.node)}"
        names: list[str] = []
        for value in reads:
            names.append(value if isinstance(value, str) else f"{made}.{len(names)}")
            if not isinstance(value, str):
                self._model.graph.initializer.append(self._onnx.numpy_helper.from_array(np.asarray(value), names[-1]))
        self._model.graph.node.append(self._onnx.helper.make_node(operator, names, [made], **attributes))
        return made


def _free_rows(model: Any) -> None:
    """Have reshapes to one row, such as [1, -1], take any number of them."""
    from onnx import numpy_helper, shape_inference

    graph = model.graph
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: _sizes(value) for value in (*inferred.value_info, *graph.output)}
    for index, node in enumerate(node for node in graph.node if node.op_type == "Reshape"):
        shape = shapes.get(node.output[0], [])
        if shape.count(1) == 1 and 0 not in shape:
            node.input[1] = f"free.{index}"
            free = np.array([-1 if size == 1 else size for size in shape], np.int64)
            graph.initializer.append(numpy_helper.from_array(free, node.input[1]))
    read = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


if __name__ == "__main__":
    serve(_work, sys.argv[1:])
