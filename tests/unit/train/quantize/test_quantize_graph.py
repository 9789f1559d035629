"""Quantised graphs: which layers, which scales, what stays float32, and that TensorRT builds every variant."""

import functools
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from onnxruntime import quantization
from torch import Tensor, nn

from physai.gates.checks.parity import probe_inputs
from physai.sdk.onnx.tensorrt_build import TensorRtError, build_engine
from physai.sdk.policy.header import PolicyHeader
from physai.sim.engines.protocol import Array
from physai.sim.policies.onnx import OnnxPolicy
from physai.sim.tasks.arms.reach import ur10e_reach
from physai.sim.tasks.pendulums.cartpole import cartpole_swingup
from physai.sim.tasks.task import Task
from physai.train.models.policy_graph import PolicyGraph
from physai.train.onnx_export.onnx_graph import build_onnx
from physai.train.quantize.formats import VARIANTS, Quantiser, Variant
from physai.train.quantize.network import balanced, extreme_rows, layer_inputs, network_layers
from physai.train.quantize.states import QuantiseError
from physai.train.runners.runner import build_graph
from physai.train.settings.config import TrainConfig

STATES = 300
TYPES = onnx.TensorProto


class Steep(nn.Module):
    """An actor without biases, activation ReLU, as learners of other libraries have."""

    state_size = 0

    def __init__(self, observations: int) -> None:
        super().__init__()
        self.first = nn.Linear(observations, 8, bias=False)
        self.last = nn.Linear(8, 1)

    def forward(self, observation: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        return self.last(torch.relu(self.first(observation))), hidden


class Float:
    """A float graph with random weights, and inputs for it."""

    def __init__(self, task: Task, graph: PolicyGraph) -> None:
        generator = torch.Generator().manual_seed(1)
        for parameter in graph.actor.parameters():
            nn.init.normal_(parameter, 0.0, 0.3, generator)
        graph.normaliser.update(torch.randn(100, graph.observation.size, generator=generator) * 0.5 + 0.1)
        self.header = PolicyHeader(task.contract, graph.state_sizes, {"seed": "7"})
        self.data = build_onnx(graph, self.header).SerializeToString(deterministic=True)
        self.states: dict[str, Array] = probe_inputs(self.header, STATES)
        self.quantiser = Quantiser(self.data, self.states, source="policy.onnx")
        self.answers = OnnxPolicy(self.data, source="float").evaluate(self.states)

    def make(self, variant: Variant) -> bytes:
        return self.quantiser.make(variant, self.quantiser.layers, self.header)

    def model(self, variant: Variant) -> onnx.ModelProto:
        return onnx.load_from_string(self.make(variant))


CONFIGS: dict[str, tuple[Callable[[], Task], TrainConfig | None]] = {
    "mlp": (cartpole_swingup, TrainConfig(hidden=(16, 16), activation="tanh")),
    "gru": (cartpole_swingup, TrainConfig(actor="gru", hidden=(16,), gru_size=8)),
    "reach": (ur10e_reach, TrainConfig(hidden=(16,))),
    "steep": (cartpole_swingup, None),
}


@functools.cache
def made(name: str) -> Float:
    """A case, exported once."""
    make, config = CONFIGS[name]
    task = make()
    if config is None:
        return Float(task, PolicyGraph(task.contract, Steep(task.contract.observation_size)))
    return Float(task, build_graph(task, config))


@pytest.fixture(scope="module", params=list(CONFIGS))
def case(request: pytest.FixtureRequest) -> Float:
    return made(request.param)


@pytest.fixture(scope="module")
def mlp() -> Float:
    return made("mlp")


def constants(model: onnx.ModelProto) -> dict[str, Array]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def nodes(model: onnx.ModelProto, *kinds: str) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in kinds]


def test_the_layers_are_those_of_the_network(mlp: Float) -> None:
    layers = mlp.quantiser.layers
    assert [(layer.inputs, layer.outputs) for layer in layers] == [(5, 16), (16, 16), (16, 1)]
    assert all(layer.weight.startswith("actor.") and layer.bias for layer in layers)


def test_matrix_products_of_observation_terms_are_none_of_them() -> None:
    reach = made("reach")
    model = onnx.load_from_string(reach.data)
    kinematics = [node.name for node in nodes(model, "MatMul", "Gemm")]
    layers = [layer.name for layer in reach.quantiser.layers]
    assert len(layers) == 2
    assert len(kinematics) > 10, "the forward kinematics of the arm"
    for variant in VARIANTS:
        quantised = reach.model(variant)
        touched = {name for node in nodes(quantised, "QuantizeLinear", "Cast") for name in node.output}
        readers = {node.name for node in nodes(quantised, "MatMul") if touched & set(node.input)}
        assert not readers, "an observation term is quantised"


def test_a_policy_without_layers_is_refused() -> None:
    model = _product("Gemm", np.array([[1.0, 2.0]]), None)
    model.graph.node[0].input[1] = model.graph.initializer[0].name = "observation.weight"
    with pytest.raises(QuantiseError, match="no MatMul or Gemm"):
        network_layers(model, source="policy.onnx")


def _product(kind: str, weight: Array, bias: Array | None) -> onnx.ModelProto:
    """One layer y = x Wᵀ + b of two inputs."""
    stored = weight if kind == "Gemm" else weight.T
    tensors = [numpy_helper.from_array(np.ascontiguousarray(stored, np.float32), "actor.weight")]
    names = ["x", "actor.weight"]
    if bias is not None:
        tensors.append(numpy_helper.from_array(bias.astype(np.float32), "actor.bias"))
        names.append("actor.bias")
    node = (
        helper.make_node("Gemm", names, ["y"], "y", transB=1)
        if kind == "Gemm"
        else helper.make_node("MatMul", names, ["y"], "y")
    )
    values = [helper.make_tensor_value_info(name, TYPES.FLOAT, ["n", size]) for name, size in (("x", 2), ("y", 1))]
    graph = helper.make_graph([node], "layer", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_balancing_centres_and_scales_by_hand() -> None:
    model = _product("Gemm", np.array([[1.0, 2.0]]), np.array([3.0]))
    states = {"x": np.array([[0.0, -4.0], [2.0, 4.0]], np.float32)}
    layers = network_layers(model, source="test")
    flows = layer_inputs(model, layers, states)
    found = constants(balanced(model, layers, flows))
    # Ranges [0, 2] and [-4, 4]: centres 1 and 0, reaches 1 and 4; greatest weights 1 and 2.
    scale = np.array([1.0**0.7 / 1.0**0.3, 4.0**0.7 / 2.0**0.3])
    np.testing.assert_allclose(found["y.centre"], [1.0, 0.0])
    np.testing.assert_allclose(found["y.inverse_scale"], 1.0 / scale, rtol=1e-6)
    np.testing.assert_allclose(found["y.weight"], [[1.0 * scale[0], 2.0 * scale[1]]], rtol=1e-6)
    np.testing.assert_allclose(found["y.bias"], [3.0 + 1.0 * 1.0])


def test_an_input_that_never_moved_keeps_a_tenth_of_the_range() -> None:
    model = _product("Gemm", np.array([[1.0, 1.0]]), None)
    states = {"x": np.array([[-5.0, 7.0], [5.0, 7.0]], np.float32)}
    layers = network_layers(model, source="test")
    found = constants(balanced(model, layers, layer_inputs(model, layers, states)))
    np.testing.assert_allclose(found["y.inverse_scale"], [5.0**-0.7, 0.5**-0.7], rtol=1e-6)
    np.testing.assert_allclose(found["y.bias"], [7.0])


@pytest.mark.parametrize("kind", ["Gemm", "MatMul"])
def test_balancing_keeps_the_function(kind: str) -> None:
    random = np.random.default_rng(0)
    model = _product(kind, random.normal(size=(1, 2)), None)
    states = {"x": random.normal(size=(50, 2)).astype(np.float32) * 3 + 1}
    layers = network_layers(model, source="test")
    even = balanced(model, layers, layer_inputs(model, layers, states))
    layer = replace(layers[0], data="y")
    wanted = layer_inputs(model, [layer], states)["y"]
    np.testing.assert_allclose(layer_inputs(even, [layer], states)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_the_extremes_are_the_rows_that_hold_them() -> None:
    flow = np.array([[0.0, 5.0], [3.0, 1.0], [1.0, 2.0], [-2.0, 3.0]])
    assert extreme_rows({"first": flow}).tolist() == [0, 1, 3]
    assert extreme_rows({"first": flow, "last": np.array([[0.0], [0.0], [9.0], [1.0]])}).tolist() == [0, 1, 2, 3]


def test_int8_is_symmetric_and_reaches_a_fifth_beyond_the_states(mlp: Float) -> None:
    original = onnx.load_from_string(mlp.data)
    flows = layer_inputs(original, mlp.quantiser.layers, mlp.states)
    even = constants(balanced(original, mlp.quantiser.layers, flows))
    model = mlp.model("int8")
    found = constants(model)
    pairs = nodes(model, "QuantizeLinear")
    assert len(pairs) == len(mlp.quantiser.layers), "one for the input of each layer, none for an output"
    for node in pairs:
        layer = node.input[0].removesuffix(".balanced")
        reach = np.abs((flows[layer] - even[f"{layer}.centre"]) * even[f"{layer}.inverse_scale"]).max()
        np.testing.assert_allclose(found[node.input[1]], 1.2 * reach / 127.0, rtol=1e-5)
        weight, scale = found[f"{layer}.weight_quantized"], found[f"{layer}.weight_scale"]
        assert weight.dtype == np.int8
        assert np.abs(weight.astype(int)).max() == 127
        np.testing.assert_allclose(scale, np.abs(even[f"{layer}.weight"]).max(axis=1) / 127.0, rtol=1e-5)
        error = np.abs(weight * scale[:, None] - even[f"{layer}.weight"])
        assert (error <= 0.5001 * scale[:, None]).all()
    zeros = [values for name, values in found.items() if name.endswith("_zero_point")]
    assert zeros
    assert all(values.dtype == np.int8 and not values.any() for values in zeros)


def test_all_but_inputs_and_weights_of_layers_stays_float(case: Float) -> None:
    original = {tensor.name for tensor in onnx.load_from_string(case.data).graph.initializer}
    for variant in VARIANTS:
        model = case.model(variant)
        kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        assert all(kinds[name] in (TYPES.FLOAT, TYPES.INT64) for name in original & set(kinds))
        assert TYPES.INT32 not in kinds.values(), "TensorRT refuses biases in int32"
        layers = nodes(model, "Gemm")
        written = {name for node in layers for name in node.output}
        assert not [node for node in nodes(model, "QuantizeLinear") if node.input[0] in written]
        for node in layers:
            if len(node.input) > 2 and variant != "fp16":
                assert kinds[node.input[2]] == TYPES.FLOAT


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_answers_nearly_as_the_float_graph(case: Float, variant: Variant) -> None:
    allowed = {"int8": 0.1, "fp8": 0.3, "fp16": 3e-3}[variant]
    policy = OnnxPolicy(case.make(variant), source=variant)
    scales = {term.target_name: np.asarray(term.scale) for term in case.header.contract.action.terms}
    for name, values in policy.evaluate(case.states).items():
        error = np.abs(values - case.answers[name]) / scales.get(name, 1.0)
        assert np.isfinite(error).all()
        assert error.mean() <= allowed, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_keeps_contract_memory_and_origin(case: Float, variant: Variant) -> None:
    data = case.make(variant)
    assert OnnxPolicy(data, source=variant).header == case.header
    assert case.make(variant) == data, "equal input gives equal bytes"


def test_a_variant_says_what_the_float_graph_says_of_itself(mlp: Float) -> None:
    model = onnx.load_from_string(mlp.data)
    entries = {entry.key: entry.value for entry in model.metadata_props}
    own = {"physai.later": "as newer exports may have"}
    helper.set_model_props(model, {**entries, **own, "physai.provenance.old": "x", "other": "x"})
    quantiser = Quantiser(model.SerializeToString(), mlp.states, source="policy.onnx")
    for variant in VARIANTS:
        made = onnx.load_from_string(quantiser.make(variant, quantiser.layers, mlp.header))
        assert {entry.key: entry.value for entry in made.metadata_props} == {**mlp.header.metadata(), **own}


def test_the_quantiser_leaves_the_float_graph_alone(mlp: Float) -> None:
    first = mlp.make("fp16")
    mlp.make("int8")
    mlp.make("fp8")
    assert mlp.make("fp16") == first


def test_fp8_weights_are_the_nearest_e4m3_numbers(mlp: Float) -> None:
    model = mlp.model("fp8")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    original = onnx.load_from_string(mlp.data)
    even = constants(balanced(original, mlp.quantiser.layers, layer_inputs(original, mlp.quantiser.layers, mlp.states)))
    # Every finite E4M3 number, from its 256 codes.
    codes = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    known = np.unique(codes[np.isfinite(codes)])
    assert known.max() == 448.0
    for layer in mlp.quantiser.layers:
        tensor = tensors[f"{layer.name}.weight_quantized"]
        assert tensor.data_type == TYPES.FLOAT8E4M3FN
        stored = np.frombuffer(tensor.raw_data, ml_dtypes.float8_e4m3fn).astype(np.float64).reshape(tensor.dims)
        scale = numpy_helper.to_array(tensors[f"{layer.name}.weight_scale"]).astype(np.float64)[:, None]
        wanted = even[f"{layer.name}.weight"] / scale
        assert np.abs(stored).max() == 448.0
        nearest = np.abs(wanted[..., None] - known).min(axis=-1)
        np.testing.assert_allclose(np.abs(stored - wanted), nearest, atol=1e-3)


def test_weights_beyond_float16_are_refused(mlp: Float) -> None:
    model = onnx.load_from_string(mlp.data)
    tensor = next(t for t in model.graph.initializer if t.name == mlp.quantiser.layers[1].weight)
    values = numpy_helper.to_array(tensor).copy()
    values[0, 0] = 70000.0
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    quantiser = Quantiser(model.SerializeToString(), mlp.states, source="policy.onnx")
    with pytest.raises(QuantiseError, match="reaches 70000, float16 at most 65504"):
        quantiser.make("fp16", quantiser.layers, mlp.header)


needs_rtx = pytest.mark.skipif(
    find_spec("tensorrt_rtx") is None, reason="tensorrt-rtx is not installed, so no engine can be built"
)


@needs_rtx
@pytest.mark.parametrize("variant", VARIANTS)
def test_tensorrt_builds_an_engine_of_every_variant(case: Float, variant: Variant) -> None:
    engine = build_engine(case.make(variant), source=variant, targets=(89, 120))
    assert engine.targets == (89, 120)
    assert len(engine.plan) > len(case.data)


@needs_rtx
def test_tensorrt_builds_for_several_generations_at_once(mlp: Float) -> None:
    engine = build_engine(mlp.make("int8"), source="int8", targets=(86, 89, 120), batch=3)
    assert engine.library == "tensorrt_rtx"
    assert engine.targets == (86, 89, 120)


@needs_rtx
def test_tensorrt_refuses_what_onnxruntime_makes_by_default(mlp: Float, tmp_path: Path) -> None:
    """The reason for QuantizeBias: False; if this ever builds, the quantiser's options can be looked at again."""
    out = tmp_path / "default.onnx"
    options: dict[str, Any] = {
        "activation_type": quantization.QuantType.QInt8,
        "extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True},
    }
    quantization.quantize_static(onnx.load_from_string(mlp.data), str(out), Reader(mlp.states), **options)
    made = onnx.load_from_string(out.read_bytes())
    made.graph.ClearField("value_info")
    with pytest.raises(TensorRtError, match=r"default: tensorrt_rtx .* cannot read the graph: .*Int32"):
        build_engine(made.SerializeToString(), source="default", targets=(89,))


class Reader:
    """One batch for onnxruntime's calibrator."""

    def __init__(self, states: dict[str, Array]) -> None:
        self.left = [states]

    def get_next(self) -> dict[str, Array] | None:
        return self.left.pop() if self.left else None


@needs_rtx
def test_an_unknown_target_is_refused_with_those_that_are_known(mlp: Float) -> None:
    with pytest.raises(TensorRtError, match="cannot build for SM 12; it knows 75, "):
        build_engine(mlp.data, source="policy.onnx", targets=(12,))
