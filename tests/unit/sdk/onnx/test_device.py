"""A policy is computed where the user said, or not at all."""

import json
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from onnx import helper

from physai.sdk.base.errors import DeviceError
from physai.sdk.onnx import device as onnx_device
from physai.sdk.onnx.device import CPU, PolicyDevice, configure, operators_elsewhere, require_computed_on
from physai.sdk.onnx.graph import GraphError
from physai.sdk.onnx.session import Session, open_session
from physai.sdk.policy.header import PolicyError

POLICY = (Path(__file__).parents[3] / "data" / "policies" / "cartpole-00" / "policy.onnx").read_bytes()
AVAILABLE: list[str] = onnxruntime.get_available_providers()
no_cuda = pytest.mark.skipif("CUDAExecutionProvider" in AVAILABLE, reason="this ONNX Runtime has CUDA")


@pytest.mark.parametrize(
    ("name", "device", "shown"),
    [
        ("cpu", PolicyDevice("cpu"), "cpu"),
        ("cuda", PolicyDevice("cuda", 0), "cuda:0"),
        ("cuda:3", PolicyDevice("cuda", 3), "cuda:3"),
        ("tensorrt", PolicyDevice("tensorrt", 0), "tensorrt:0"),
        ("tensorrt:12", PolicyDevice("tensorrt", 12), "tensorrt:12"),
    ],
)
def test_names(name: str, device: PolicyDevice, shown: str) -> None:
    assert PolicyDevice.parse(name) == device
    assert str(device) == shown
    assert PolicyDevice.parse(shown) == device


@pytest.mark.parametrize("name", ["", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:1000", "cuda:٣", "CUDA", "cuda:0\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(DeviceError, match="expected cpu, cuda, cuda:N, tensorrt or tensorrt:N"):
        PolicyDevice.parse(name)


def test_providers_round_as_float32_does_and_read_no_files() -> None:
    cuda = ("CUDAExecutionProvider", {"device_id": "2", "use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"})
    assert CPU.providers == [("CPUExecutionProvider", {})]
    assert PolicyDevice("cuda", 2).providers == [cuda]
    (name, options), second = PolicyDevice("tensorrt", 2).providers
    assert (name, second) == ("TensorrtExecutionProvider", cuda)
    off = ("trt_fp16_enable", "trt_int8_enable", "trt_engine_cache_enable", "trt_timing_cache_enable")
    assert options == {"device_id": "2", **dict.fromkeys(off, "0")}
    assert PolicyDevice("tensorrt", 2).memory == "cuda:2"


@no_cuda
@pytest.mark.parametrize("name", ["cuda:0", "tensorrt:1"])
def test_a_provider_that_is_not_installed_is_refused(name: str) -> None:
    with pytest.raises(DeviceError) as caught:
        open_session(POLICY, source="it", device=PolicyDevice.parse(name))
    message = str(caught.value)
    assert message.startswith(f"`device` {name}: it needs ONNX Runtime's ")
    assert f"the one installed has {', '.join(AVAILABLE)}; use `device` cpu, or" in message
    assert "pip install onnxruntime-gpu" in message


@no_cuda
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_the_silent_fallback_of_onnxruntime_is_an_error() -> None:
    session = Session(POLICY, providers=["CUDAExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"], "ONNX Runtime itself says nothing"
    with pytest.raises(DeviceError, match="could not start its CUDAExecutionProvider for `device` cuda:0 and would"):
        require_computed_on(PolicyDevice("cuda"), session, source="it")


def test_operators_left_to_the_cpu_are_named() -> None:
    options = onnxruntime.SessionOptions()
    configure(options, PolicyDevice("cuda"))
    session = Session(POLICY, options, providers=["CPUExecutionProvider"])
    parts: list[Any] = session.get_provider_graph_assignment_info()
    assert "Shape" in {node.op_type for part in parts for node in part.get_nodes()}
    computed = {"Clip", "Concat", "Cos", "Expand", "Gather", "Gemm", "Mul", "Sin", "Sub", "Tanh"}
    assert operators_elsewhere(PolicyDevice("cuda"), session) == computed
    assert operators_elsewhere(CPU, session) == set()


@pytest.mark.skipif("AzureExecutionProvider" not in AVAILABLE, reason="no provider here that computes nothing")
def test_a_provider_that_starts_but_computes_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Azure's provider starts anywhere and takes no node of such a graph."""
    monkeypatch.setitem(onnx_device.PROVIDERS, "cuda", "AzureExecutionProvider")
    with pytest.raises(
        DeviceError, match=r"^it: ONNX Runtime computes Clip, Concat, .* on the CPU, not on cuda:0; use"
    ):
        open_session(POLICY, source="it", device=PolicyDevice("cuda"))


def test_a_file_cannot_bring_an_engine_or_options(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = onnx.load_from_string(POLICY)
    node = helper.make_node(
        "EPContext", [made.graph.input[0].name], ["x"], domain="com.microsoft", ep_cache_context="e"
    )
    made.graph.node.append(node)
    with pytest.raises(GraphError):
        open_session(made.SerializeToString(), source="it", device=PolicyDevice("tensorrt"))
    made = onnx.load_from_string(POLICY)
    wish = {"session_options": {"intra_op_num_threads": 7}}
    made.metadata_props.add(key="ort_config", value=json.dumps(wish))
    session, _ = open_session(made.SerializeToString(), source="it", num_threads=2)
    assert session.get_session_options().intra_op_num_threads == 2
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    with pytest.raises(PolicyError, match="onnxruntime cannot load it"):
        open_session(made.SerializeToString(), source="it", num_threads=2)
