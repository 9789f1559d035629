"""A float graph with some of its network's layers in int8, FP8 or FP16; everything else stays float32.

The precision is explicit in the graph (Q/DQ pairs or casts), which is the only kind TensorRT 11 accepts. Only the
inputs and weights of the chosen layers are quantised: outputs are not, so that activations see float32, nor are
biases, whose int32 DequantizeLinear TensorRT refuses.
"""

import contextlib
import logging
import tempfile
from collections.abc import Collection, Generator, Mapping
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime import quantization

from physai.sdk.policy.header import PROVENANCE_PREFIX, PolicyHeader
from physai.sim.engines.protocol import Array
from physai.train.quantize.network import Layer, balanced, extreme_rows, layer_inputs, network_layers
from physai.train.quantize.states import Arrays, QuantiseError

Variant = Literal["int8", "fp8", "fp16"]
VARIANTS: tuple[Variant, ...] = ("int8", "fp8", "fp16")

INT8_LIMIT, FP8_LIMIT = 127.0, 448.0
"""Greatest int8 of a symmetric scale; greatest E4M3 (Micikevicius et al., FP8 formats for deep learning, 2022)."""

RANGE_MARGIN = 1.2
"""Scales of a layer's input reach so much further than the calibration states: what lies beyond is cut off.

Rare states go further than any that were recorded; an ur10e's 36,000 states reached 36 % further in single inputs than
36,000 others, at new commands, and cost twice its contract's bound there."""

KEY_PREFIX = "physai."
"""What the metadata entries begin with that a policy says of itself."""

FP8_OPSET, FP8_IR = 19, 9
"""Operator set and file format that float8 came with; the other operators of a policy only gained types in it."""

_onnx: Any = onnx


def file_name(variant: Variant) -> str:
    """File name of a variant, next to `policy.onnx`."""
    return f"policy.{variant}.onnx"


class Quantiser:
    """Makes the variants of one float graph."""

    def __init__(self, data: bytes, calibration: Arrays, *, source: str) -> None:
        """Finds the layers and what flows into them.

        Args:
            data: the float graph's ONNX file.
            calibration: its inputs in visited states, shape (n, size).
            source: where it came from, for messages.

        Raises:
            QuantiseError: it has no layer to quantise.
        """
        self._model = onnx.load_from_string(data)
        self._source = source
        self.layers = network_layers(self._model, source=source)
        self._flows = layer_inputs(self._model, self.layers, calibration)
        # Least and greatest values are all that is asked of the states, so these few give the very same scales.
        rows = extreme_rows(self._flows)
        self._extremes = {name: values[rows] for name, values in calibration.items()}

    def make(self, variant: Variant, layers: Collection[Layer], header: PolicyHeader) -> bytes:
        """The policy file with the given layers in the variant's precision; equal input gives equal bytes.

        Raises:
            QuantiseError: a weight does not fit the variant's range.
            PolicyError: the header has more provenance than a reader accepts.
        """
        if variant == "fp16":
            model = _to_fp16(self._model, layers, self._source)
        else:
            even = balanced(self._model, layers, self._flows)
            _drop_unused(even)
            model = _to_int8(even, layers, self._extremes)
            if variant == "fp8":
                _to_fp8(model, even)
        return _finished(model, {**_said(self._model), **header.metadata()})


class _Reader:
    """Hands onnxruntime's calibrator all states at once; the counterpart of its `CalibrationDataReader`."""

    def __init__(self, states: Mapping[str, Array]) -> None:
        self._left: list[Mapping[str, Array]] = [states]

    def get_next(self) -> Mapping[str, Array] | None:
        """The next batch; None after the last."""
        return self._left.pop() if self._left else None


def _to_int8(model: onnx.ModelProto, layers: Collection[Layer], states: Mapping[str, Array]) -> onnx.ModelProto:
    """Static quantisation by onnxruntime: symmetric, one scale for a layer's input, one for each row of its weights."""
    # The quantiser changes what it is given.
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        path = Path(folder) / "int8.onnx"
        quantization.quantize_static(
            copy,
            str(path),
            _Reader(states),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=["MatMul", "Gemm"],
            nodes_to_quantize=[layer.name for layer in layers],
            per_channel=True,
            activation_type=quantization.QuantType.QInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod.MinMax,
            extra_options={
                "ActivationSymmetric": True,
                "WeightSymmetric": True,
                "QuantizeBias": False,
                "OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"],
            },
        )
        made: onnx.ModelProto = _onnx.load(str(path))
    _widen(made)
    return made


def _widen(model: onnx.ModelProto) -> None:
    """Applies the margin to the scales of all inputs of layers."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            scale = constants[node.input[1]]
            wider = numpy_helper.to_array(scale) * np.float32(RANGE_MARGIN)
            scale.CopyFrom(numpy_helper.from_array(np.asarray(wider, np.float32), scale.name))


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Silences the advice that onnxruntime's quantiser logs."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)


def _to_fp8(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Turns the int8 Q/DQ pairs of a graph into E4M3 ones that reach as far; weights are rounded anew."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in original.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear":
            continue
        data, scale, zero = node.input
        scales = (numpy_helper.to_array(constants[scale]) * np.float32(INT8_LIMIT / FP8_LIMIT)).astype(np.float32)
        constants[scale].CopyFrom(numpy_helper.from_array(scales, scale))
        constants[zero].CopyFrom(_fp8_tensor(zero, np.zeros_like(scales)))
        if data in constants:
            values = weights[data.removesuffix("_quantized")]
            axis = next(attribute.i for attribute in node.attribute if attribute.name == "axis")
            constants[data].CopyFrom(_fp8_tensor(data, values / np.expand_dims(scales, 1 - axis)))
    model.opset_import[0].version, model.ir_version = FP8_OPSET, FP8_IR


def _fp8_tensor(name: str, values: Array) -> onnx.TensorProto:
    """The values rounded to E4M3, those beyond its range at its end."""
    rounded = np.clip(values, -FP8_LIMIT, FP8_LIMIT).astype(ml_dtypes.float8_e4m3fn)
    return helper.make_tensor(name, onnx.TensorProto.FLOAT8E4M3FN, values.shape, rounded.tobytes(), raw=True)


def _to_fp16(original: onnx.ModelProto, layers: Collection[Layer], source: str) -> onnx.ModelProto:
    """Casts around the layers, their weights and biases stored in float16."""
    model = onnx.ModelProto()
    model.CopyFrom(original)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    chosen = {layer.name for layer in layers}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.name not in chosen:
            nodes.append(node)
            continue
        name, output = node.name, node.output[0]
        for index, constant in list(enumerate(node.input))[1:]:
            halved = f"{name}.{('weight', 'bias')[index - 1]}"
            model.graph.initializer.append(_half(halved, numpy_helper.to_array(constants[constant]), source))
            node.input[index] = halved
        nodes.append(helper.make_node("Cast", [node.input[0]], [f"{name}.in"], to=onnx.TensorProto.FLOAT16))
        node.input[0], node.output[0] = f"{name}.in", f"{name}.out"
        nodes += [node, helper.make_node("Cast", [f"{name}.out"], [output], to=onnx.TensorProto.FLOAT)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def _half(name: str, values: Array, source: str) -> onnx.TensorProto:
    limit = float(np.finfo(np.float16).max)
    greatest = float(np.abs(values).max(initial=0.0))
    if not greatest <= limit:
        raise QuantiseError(f"{source}: {name} reaches {greatest:g}, float16 ends at {limit:g}; keep float32")
    return numpy_helper.from_array(values.astype(np.float16), name)


def _drop_unused(model: onnx.ModelProto) -> None:
    """Drops constants that no node reads."""
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _said(model: onnx.ModelProto) -> dict[str, str]:
    """What the float graph says of itself; its provenance is the header's."""
    own = {entry.key: entry.value for entry in model.metadata_props if entry.key.startswith(KEY_PREFIX)}
    return {key: value for key, value in own.items() if not key.startswith(PROVENANCE_PREFIX)}


def _finished(model: onnx.ModelProto, entries: dict[str, str]) -> bytes:
    """Drops what is unused, names the nodes as the exporter does, and puts the metadata in."""
    _drop_unused(model)
    graph = model.graph
    for node in graph.node:
        node.name = node.output[0]
        node.ClearField("doc_string")
    for label in ("value_info", "metadata_props", "doc_string", "quantization_annotation"):
        graph.ClearField(label)
    for label in ("doc_string", "domain", "model_version"):
        model.ClearField(label)
    graph.name = "policy"
    model.producer_name, model.producer_version = "physai", ""
    del model.metadata_props[:]
    helper.set_model_props(model, entries)
    _onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)
