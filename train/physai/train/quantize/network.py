"""The network inside an exported graph: its layers, their inputs, and activation smoothing for int8."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from physai.sim.engines.protocol import Array
from physai.train.quantize.states import Arrays, QuantiseError

ACTOR_PREFIX = "actor."
"""Prefix of the names of the network's weights in an exported graph; observation and action terms have others."""

SMOOTHING = 0.7
"""α of `balanced`: 0 leaves the inputs of a layer unscaled, 1 scales all of them to the same range."""

LEAST_SHARE = 0.1
"""Minimum range of a layer's input, as a fraction of the widest range of any input of that layer.

An input that was constant in all episodes, such as a command, may vary on the robot."""


@dataclass(frozen=True)
class Layer:
    """One matrix product of the network with constant weights."""

    name: str
    """Name of its node."""
    data: str
    """Name of its input tensor."""
    weight: str
    bias: str | None
    inputs: int
    outputs: int
    transposed: bool
    """Whether the weights have the shape (outputs, inputs)."""

    @property
    def axis(self) -> int:
        """Output axis of the weights."""
        return 0 if self.transposed else 1


def network_layers(model: onnx.ModelProto, *, source: str) -> tuple[Layer, ...]:
    """The network's MatMul and Gemm nodes in graph order, without those of observation terms.

    Raises:
        QuantiseError: there are none.
    """
    constants = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    layers: list[Layer] = []
    for node in model.graph.node:
        if node.op_type not in ("MatMul", "Gemm") or not node.input[1].startswith(ACTOR_PREFIX):
            continue
        options: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        plain = options.get("alpha", 1.0) == options.get("beta", 1.0) == 1.0 and not options.get("transA", 0)
        sizes = constants.get(node.input[1], [])
        if not plain or len(sizes) != 2:
            continue
        transposed = bool(options.get("transB", 0))
        outputs, inputs = sizes if transposed else reversed(sizes)
        bias = node.input[2] if len(node.input) > 2 else None
        layers.append(Layer(node.name, node.input[0], node.input[1], bias, inputs, outputs, transposed))
    if not layers:
        raise QuantiseError(f"{source}: its network has no MatMul or Gemm with constant weights to quantise")
    return tuple(layers)


def layer_inputs(model: onnx.ModelProto, layers: Collection[Layer], states: Mapping[str, Array]) -> Arrays:
    """Input of each layer in the given states, by the layer's name, shape (n, ..., inputs)."""
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    outputs = {value.name for value in model.graph.output}
    tensors = sorted({layer.data for layer in layers})
    probed.graph.output.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in tensors if name not in outputs
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(probed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    values = dict(zip(tensors, session.run(tensors, {name: states[name] for name in names}), strict=True))
    return {layer.name: values[layer.data] for layer in layers}


def extreme_rows(flows: Mapping[str, Array]) -> Array:
    """Indices of the states in which some input of a layer is at its minimum or maximum; these determine the scales.

    Args:
        flows: see `layer_inputs`.
    """
    rows: list[Array] = [np.zeros(0, np.int64)]
    for flow in flows.values():
        flat = flow.reshape(len(flow), -1)
        rows += [flat.argmin(axis=0), flat.argmax(axis=0)]
    return np.unique(np.concatenate(rows))


def balanced(model: onnx.ModelProto, layers: Collection[Layer], flows: Mapping[str, Array]) -> onnx.ModelProto:
    """An equivalent graph in which layer inputs are centred and scaled to similar ranges, absorbed by the weights.

    A layer y = W x + b becomes y = (W s)·((x - c) / s) + (b + W c), with c_j the middle of the range of x_j and
    s_j = r_j^α / w_j^(1-α), where r_j is half that range and w_j the greatest |W_ij|. One int8 scale for all inputs
    then wastes less of its 256 steps. Scaling: Xiao et al., SmoothQuant, ICML 2023; centring: Wei et al., Outlier
    Suppression+, EMNLP 2023. The difference and the quotient stay in float32, before Q.

    Args:
        model: the float graph; it is not changed.
        layers: which to rewrite.
        flows: see `layer_inputs`.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    constants = {tensor.name: tensor for tensor in result.graph.initializer}
    chosen = {layer.name: layer for layer in layers}
    nodes: list[onnx.NodeProto] = []
    for node in result.graph.node:
        layer = chosen.get(node.name)
        if layer is not None:
            nodes += _balance(result, node, layer, constants, flows[layer.name])
        nodes.append(node)
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


def _balance(
    model: onnx.ModelProto, node: onnx.NodeProto, layer: Layer, constants: dict[str, onnx.TensorProto], flow: Array
) -> list[onnx.NodeProto]:
    """Rewrites one layer; returns the nodes to insert before it."""
    flow = flow.reshape(-1, layer.inputs).astype(np.float64)
    weight = numpy_helper.to_array(constants[layer.weight]).astype(np.float64)
    rows = weight if layer.transposed else weight.T
    lower, upper = flow.min(axis=0), flow.max(axis=0)
    # A MatMul has no bias that could absorb the shift.
    centre = 0.5 * (lower + upper) if node.op_type == "Gemm" else np.zeros_like(lower)
    reach = np.maximum(upper - centre, centre - lower)
    reach = np.maximum(reach, max(LEAST_SHARE * float(reach.max()), np.finfo(np.float32).tiny))
    widest = np.abs(rows).max(axis=0)
    widest = np.maximum(widest, max(1e-6 * float(widest.max()), np.finfo(np.float32).tiny))
    scale = reach**SMOOTHING / widest ** (1.0 - SMOOTHING)

    def constant(label: str, values: Array) -> str:
        name = f"{layer.name}.{label}"
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        return name

    scaled = rows * scale
    inputs = [f"{layer.name}.balanced", constant("weight", scaled if layer.transposed else scaled.T)]
    if node.op_type == "Gemm":
        bias = numpy_helper.to_array(constants[layer.bias]) if layer.bias else np.zeros(layer.outputs)
        inputs.append(constant("bias", bias + rows @ centre))
    node.input[:] = inputs
    centred = f"{layer.name}.centred"
    return [
        helper.make_node("Sub", [layer.data, constant("centre", centre)], [centred], centred),
        helper.make_node("Mul", [centred, constant("inverse_scale", 1.0 / scale)], inputs[:1], inputs[0]),
    ]
