"""CUDA runtime calls through ctypes, because JetPack ships the library without a Python package.

Source of names and codes: https://docs.nvidia.com/cuda/cuda-runtime-api/ (cudaMalloc, cudaMemcpyAsync, …).
"""

import ctypes
from functools import cache
from typing import Any

from physai.deploy_jetson.inference.engine import InferenceError

_LIBRARIES = ("libcudart.so", "libcudart.so.13", "libcudart.so.12")
# Larger than cudaDeviceProp of any version, which starts with the name in 256 characters.
_PROPERTIES_BYTES = 8192

_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2
# cudaDevAttrComputeCapabilityMajor and -Minor.
_COMPUTE_CAPABILITY = (75, 76)


@cache
def _library() -> Any:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _call(name: str, *arguments: Any) -> None:
    library = _library()
    if library is None:
        raise InferenceError(f"the CUDA runtime is missing: none of {', '.join(_LIBRARIES)} can be loaded")
    code = getattr(library, name)(*arguments)
    if code != 0:
        # ctypes assumes int, which cuts a 64-bit pointer.
        library.cudaGetErrorString.restype = ctypes.c_char_p
        raise InferenceError(f"{name} failed: {library.cudaGetErrorString(code).decode()} ({code})")


def _query(name: str, *arguments: int) -> str:
    """Return the integer that a function writes to its first argument."""
    value = ctypes.c_int()
    _call(name, ctypes.byref(value), *arguments)
    return str(value.value)


@cache
def device_name() -> str | None:
    """Return the name of the first GPU, or None without a usable one."""
    properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
    # CUDA 12 renamed the function when the structure changed; older ones have only the second.
    for function in ("cudaGetDeviceProperties_v2", "cudaGetDeviceProperties"):
        try:
            _call(function, properties, 0)
        except (InferenceError, AttributeError):
            continue
        return properties.raw[:256].partition(b"\0")[0].decode("ascii", "replace")
    return None


def compute_capability() -> str:
    """Return the compute capability of the first GPU, such as `11.0`.

    Raises:
        EngineError: there is none.
    """
    return ".".join(_query("cudaDeviceGetAttribute", attribute, 0) for attribute in _COMPUTE_CAPABILITY)


def driver_version() -> str:
    """Return the CUDA version of the driver, such as `13000`.

    Raises:
        EngineError: there is none.
    """
    return _query("cudaDriverGetVersion")


class CudaStream:
    """A CUDA stream and the device memory allocated for it."""

    def __init__(self) -> None:
        self._stream = ctypes.c_void_p()
        self._memory: list[ctypes.c_void_p] = []
        _call("cudaStreamCreate", ctypes.byref(self._stream))

    @property
    def handle(self) -> int:
        """The stream's address, for TensorRT."""
        return self._stream.value or 0

    def allocate(self, size: int) -> int:
        """Allocate device memory, freed with the stream; return its address."""
        pointer = ctypes.c_void_p()
        # As size_t: ctypes passes a plain int as 32 bits.
        _call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        self._memory.append(pointer)
        return pointer.value or 0

    def upload(self, target: int, source: int, size: int) -> None:
        """Queue a copy from host memory."""
        self._copy(target, source, size, _HOST_TO_DEVICE)

    def download(self, target: int, source: int, size: int) -> None:
        """Queue a copy to host memory."""
        self._copy(target, source, size, _DEVICE_TO_HOST)

    def synchronise(self) -> None:
        """Wait until all queued work is done."""
        _call("cudaStreamSynchronize", self._stream)

    def close(self) -> None:
        """Free the memory and destroy the stream."""
        for pointer in self._memory:
            _call("cudaFree", pointer)
        self._memory.clear()
        _call("cudaStreamDestroy", self._stream)

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        addresses = (ctypes.c_void_p(target), ctypes.c_void_p(source))
        _call("cudaMemcpyAsync", *addresses, ctypes.c_size_t(size), kind, self._stream)
