"""Converts layers of a float graph to int8, FP8 or FP16; everything else stays float32.

The precision is explicit in the graph (Q/DQ pairs or casts), the only form that TensorRT 11 accepts. Only inputs and
weights of the chosen layers are quantised. Outputs are not, so that activation functions are computed in float32;
neither are biases, because TensorRT rejects their int32 DequantizeLinear.
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
"""Factor between the range of a quantised input and its range in the calibration states; values beyond it saturate.

Rare states exceed every recorded one: with a ur10e, single inputs reached 36 % further in one set of 36,000 states than
in another, at new commands, and saturation there cost twice the contract's bound."""

KEY_PREFIX = "physai."
"""Prefix of the policy's own metadata entries."""

FP8_OPSET, FP8_IR = 19, 9
"""Operator set and file format that introduced float8; the policy's other operators only gained types in it."""

_onnx: Any = onnx


def file_name(variant: Variant) -> str:
    """File name of a variant, next to `policy.onnx`."""
    return f"policy.{variant}.onnx"


class Quantiser:
    """Quantises one float graph."""

    def __init__(self, data: bytes, calibration: Arrays, *, source: str) -> None:
        """Finds the layers and computes their inputs in the calibration states.

        Args:
            data: the float graph's ONNX file.
            calibration: its inputs in visited states, shape (n, size).
            source: origin of the graph, for messages.

        Raises:
            QuantiseError: there is no layer to quantise.
        """
        self._model = onnx.load_from_string(data)
        self._source = source
        self.layers = network_layers(self._model, source=source)
        self._flows = layer_inputs(self._model, self.layers, calibration)
        # Scales depend on minima and maxima only, so these few states give the same ones as all states.
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
        return _finished(model, {**_own_metadata(self._model), **header.metadata()})


class _Reader:
    """Passes all states to onnxruntime's calibrator in one batch; implements its `CalibrationDataReader`."""

    def __init__(self, states: Mapping[str, Array]) -> None:
        self._batches: list[Mapping[str, Array]] = [states]

    def get_next(self) -> Mapping[str, Array] | None:
        """The next batch; None after the last."""
        return self._batches.pop() if self._batches else None


def _to_int8(model: onnx.ModelProto, layers: Collection[Layer], states: Mapping[str, Array]) -> onnx.ModelProto:
    """Static quantisation by onnxruntime: symmetric, per tensor for inputs and per output channel for weights."""
    # The quantiser modifies its argument.
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
        quantised: onnx.ModelProto = _onnx.load(str(path))
    _widen(quantised)
    return quantised


def _widen(model: onnx.ModelProto) -> None:
    """Applies RANGE_MARGIN to the scales of all layer inputs."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            scale = constants[node.input[1]]
            wider = numpy_helper.to_array(scale) * np.float32(RANGE_MARGIN)
            scale.CopyFrom(numpy_helper.from_array(np.asarray(wider, np.float32), scale.name))


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Silences the hints that onnxruntime's quantiser logs."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)


def _to_fp8(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Converts the int8 Q/DQ pairs of a graph to E4M3 with the same range; weights are rounded from the originals."""
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
    """The values rounded to E4M3, saturating."""
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
        raise QuantiseError(f"{source}: {name} reaches {greatest:g}, float16 at most {limit:g}; keep float32")
    return numpy_helper.from_array(values.astype(np.float16), name)


def _drop_unused(model: onnx.ModelProto) -> None:
    """Removes initialisers that no node reads."""
    used = {name for node in model.graph.node for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def _own_metadata(model: onnx.ModelProto) -> dict[str, str]:
    """The float graph's own metadata without its provenance, which the header adds."""
    own = {entry.key: entry.value for entry in model.metadata_props if entry.key.startswith(KEY_PREFIX)}
    return {key: value for key, value in own.items() if not key.startswith(PROVENANCE_PREFIX)}


def _finished(model: onnx.ModelProto, entries: dict[str, str]) -> bytes:
    """Removes unused data, names the nodes as the exporter does, adds the metadata and serialises."""
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
