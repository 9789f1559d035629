"""Inference with TensorRT, built on the robot from the ONNX file by `physai.sdk.onnx.tensorrt_build`.

An engine depends on TensorRT version, driver and GPU, hence the key. TensorRT can compute wrong actions silently under
another version than tested, hence the golden states after every build.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from physai.deploy_jetson.inference import cuda
from physai.deploy_jetson.inference.engine import Floats, InferenceError
from physai.sdk.onnx.tensorrt_build import WORKSPACE_BYTES, find_tensorrt
from physai.sdk.policy.header import PolicyHeader

# Version of the build; increment it if `physai.sdk.onnx.tensorrt_build` builds a graph differently.
RECIPE = 1


def _tensorrt() -> Any:
    return find_tensorrt("tensorrt")


def versions() -> dict[str, str]:
    """Return the versions an engine depends on.

    Raises:
        EngineError: there is no GPU.
    """
    return {
        "tensorrt": str(_tensorrt().__version__),
        "cuda_driver": cuda.driver_version(),
        "gpu": cuda.device_name() or "none",
        "sm": cuda.compute_capability(),
    }


def plan_key(data: bytes) -> str:
    """Return the SHA-256 of the ONNX file and everything its engine depends on.

    Raises:
        EngineError: there is no GPU.
    """
    parts = {
        **versions(),
        "onnx": hashlib.sha256(data).hexdigest(),
        "workspace": WORKSPACE_BYTES,
        "recipe": RECIPE,
    }
    # Sorted keys, so that the digest does not depend on the order of the dictionary.
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class TensorRtEngine:
    """A built engine with its own stream, fixed shapes and fixed addresses."""

    def __init__(self, plan: bytes, header: PolicyHeader) -> None:
        """Load a plan.

        Raises:
            EngineError: it was built for another TensorRT or GPU, or its tensors do not match the policy.
        """
        trt = _tensorrt()
        self.header = header
        self._runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise InferenceError(f"TensorRT {trt.__version__} cannot load the engine; install the bundle again")
        self._context = self._engine.create_execution_context()
        self._stream = cuda.CudaStream()
        self._host: dict[str, Floats] = {}
        self._device: dict[str, int] = {}
        sizes = {**header.inputs, **header.outputs}
        tensors = {self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)}
        # A plan of another policy would be read at wrong addresses.
        if tensors != set(sizes):
            raise InferenceError(f"the engine has the tensors {sorted(tensors)}, its policy {sorted(sizes)}")
        for name, size in sizes.items():
            self._host[name] = np.zeros((1, size), np.float32)
            self._device[name] = self._stream.allocate(self._host[name].nbytes)
            if name in header.inputs:
                self._context.set_input_shape(name, (1, size))
            # Set once, so that a tick sets none.
            self._context.set_tensor_address(name, self._device[name])

    @property
    def versions(self) -> dict[str, str]:
        """See `InferenceEngine`."""
        return versions()

    def run(self, inputs: Mapping[str, Floats]) -> dict[str, Floats]:
        """See `InferenceEngine`."""
        for name in self.header.inputs:
            host = self._host[name]
            host[:] = inputs[name]
            self._stream.upload(self._device[name], host.ctypes.data, host.nbytes)
        if not self._context.execute_async_v3(self._stream.handle):
            raise InferenceError("TensorRT could not start the computation")
        for name in self.header.outputs:
            host = self._host[name]
            self._stream.download(host.ctypes.data, self._device[name], host.nbytes)
        # The copies above are asynchronous; the results are in host memory only after this.
        self._stream.synchronise()
        # Copied, because the next call overwrites the buffers.
        return {name: self._host[name].copy() for name in self.header.outputs}
