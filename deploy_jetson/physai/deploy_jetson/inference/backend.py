"""Selects the inference engine: TensorRT if JetPack provides it, else ONNX Runtime."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from physai.deploy_jetson.inference.engine import InferenceEngine, InferenceError
from physai.deploy_jetson.inference.onnx import OnnxEngine

Backend = Literal["onnxruntime", "tensorrt"]
BackendChoice = Literal["auto", "onnxruntime", "tensorrt"]


@dataclass(frozen=True)
class Built:
    """An engine that is ready to run."""

    backend: Backend
    engine: InferenceEngine
    plan: bytes | None = None
    """The serialised engine; None if the policy file itself is loaded."""
    key: str | None = None
    """Hash of everything the plan depends on; a different key at load time requires a rebuild."""


def has_tensorrt() -> bool:
    """Whether TensorRT's Python package and a usable NVIDIA GPU are present."""
    # Looked up without importing it, which takes seconds.
    if find_spec("tensorrt") is None:
        return False
    from physai.deploy_jetson.inference.cuda import device_name

    return device_name() is not None


def build(data: bytes, reference: OnnxEngine, *, source: str, choice: BackendChoice = "auto") -> Built:
    """Build the engine of a policy.

    Args:
        data: the ONNX file.
        reference: the same policy in onnxruntime; used as the engine without TensorRT.
        source: the file's name, for messages.
        choice: `auto` takes TensorRT if present; a graph that it rejects is then an error, as a silent fallback would
            be slower than tested.

    Raises:
        EngineError: the backend is missing.
        TensorRtError: TensorRT rejects the graph.
    """
    # An explicit choice of TensorRT never falls back in silence: the policy would be slower than expected.
    if choice == "onnxruntime" or (choice == "auto" and not has_tensorrt()):
        return Built("onnxruntime", reference)
    if not has_tensorrt():
        raise InferenceError("TensorRT or its GPU is missing; TensorRT comes with JetPack (python3-libnvinfer)")
    from physai.deploy_jetson.inference.tensorrt import TensorRtEngine, plan_key
    from physai.sdk.onnx.tensorrt_build import build_engine

    plan = build_engine(data, source=source).plan
    return Built("tensorrt", TensorRtEngine(plan, reference.header), plan, plan_key(data))


def load(data: bytes, plan: bytes | None, key: str | None, *, source: str) -> InferenceEngine:
    """Load the engine of an installed slot, as it was built and tested.

    Raises:
        EngineError: TensorRT, driver or GPU differ from those the plan was built with; install again.
        PolicyError, ContractError: the policy is malformed.
    """
    reference = OnnxEngine(data, source=source)
    if plan is None:
        return reference
    if not has_tensorrt():
        raise InferenceError(f"{source} was installed as a TensorRT engine, but TensorRT or its GPU is gone")
    from physai.deploy_jetson.inference.tensorrt import TensorRtEngine, plan_key

    actual = plan_key(data)
    # An engine of another TensorRT, driver or GPU may load and compute wrong actions without an error.
    if actual != key:
        raise InferenceError(
            f"the engine of {source} was built with another TensorRT, driver or GPU than this machine has now (key "
            f"{(key or 'none')[:12]}, now {actual[:12]}); a wrong one may compute wrong actions silently: install the "
            "bundle again"
        )
    return TensorRtEngine(plan, reference.header)
