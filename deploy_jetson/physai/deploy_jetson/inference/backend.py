"""Selects the inference engine: TensorRT where JetPack provides it, else ONNX Runtime."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from physai.deploy_jetson.inference.engine import EngineError, InferenceEngine
from physai.deploy_jetson.inference.onnx import OnnxEngine

Backend = Literal["onnxruntime", "tensorrt"]
BackendChoice = Literal["auto", "onnxruntime", "tensorrt"]


@dataclass(frozen=True)
class Built:
    """An engine that is ready to run."""

    backend: Backend
    engine: InferenceEngine
    plan: bytes | None = None
    """The serialised engine; None where the policy file itself is loaded."""
    key: str | None = None
    """Hash of all the plan depends on; another key at load time means the plan must be built again."""


def has_tensorrt() -> bool:
    """Whether TensorRT's Python package is installed and an NVIDIA GPU can be used."""
    if find_spec("tensorrt") is None:
        return False
    from physai.deploy_jetson.inference.cuda import device_name

    return device_name() is not None


def build(data: bytes, reference: OnnxEngine, *, source: str, choice: BackendChoice = "auto") -> Built:
    """The engine of a policy.

    Args:
        data: the ONNX file.
        reference: the same in onnxruntime; it is the engine where no TensorRT is.
        source: the file's name, for messages.
        choice: `auto` takes TensorRT where it is present; a graph it refuses is then an error, not a reason to run
            slower than was tested.

    Raises:
        EngineError: the backend is missing.
        TensorRtError: TensorRT refuses the graph.
    """
    if choice == "onnxruntime" or (choice == "auto" and not has_tensorrt()):
        return Built("onnxruntime", reference)
    if not has_tensorrt():
        raise EngineError("TensorRT or its GPU is not to be found; it comes with JetPack (python3-libnvinfer)")
    from physai.deploy_jetson.inference.tensorrt import TensorRtEngine, plan_key
    from physai.sdk.onnx.tensorrt_build import build_engine

    plan = build_engine(data, source=source).plan
    return Built("tensorrt", TensorRtEngine(plan, reference.header), plan, plan_key(data))


def load(data: bytes, plan: bytes | None, key: str | None, *, source: str) -> InferenceEngine:
    """The engine of an installed slot, as it was built and tested.

    Raises:
        EngineError: TensorRT, driver or GPU are not those the plan was built with: install again.
        PolicyError, ContractError: the policy is malformed.
    """
    reference = OnnxEngine(data, source=source)
    if plan is None:
        return reference
    if not has_tensorrt():
        raise EngineError(f"{source} was installed as a TensorRT engine, but TensorRT or its GPU is gone")
    from physai.deploy_jetson.inference.tensorrt import TensorRtEngine, plan_key

    found = plan_key(data)
    if found != key:
        raise EngineError(
            f"the engine of {source} was built with another TensorRT, driver or GPU than this machine has now (key "
            f"{(key or 'none')[:12]}, now {found[:12]}); a wrong one may compute wrong actions silently: install the "
            "bundle again"
        )
    return TensorRtEngine(plan, reference.header)
