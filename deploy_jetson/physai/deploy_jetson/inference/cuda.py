"""The CUDA runtime calls that an engine needs, through ctypes: JetPack has the library, no Python package.

Source of names and codes: https://docs.nvidia.com/cuda/cuda-runtime-api/ (cudaMalloc, cudaMemcpyAsync, …).
"""

import ctypes
from functools import cache
from typing import Any

from physai.deploy_jetson.inference.engine import EngineError

_LIBRARIES = ("libcudart.so", "libcudart.so.13", "libcudart.so.12")
_PROPERTIES_BYTES = 8192
"""More than any version's cudaDeviceProp, which begins with 256 characters of name."""

_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2
_COMPUTE_CAPABILITY = (75, 76)
"""cudaDevAttrComputeCapabilityMajor and -Minor."""


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
        raise EngineError(f"the CUDA runtime is missing: none of {', '.join(_LIBRARIES)} can be loaded")
    code = getattr(library, name)(*arguments)
    if code != 0:
        library.cudaGetErrorString.restype = ctypes.c_char_p
        raise EngineError(f"{name} failed: {library.cudaGetErrorString(code).decode()} ({code})")


@cache
def device_name() -> str | None:
    """Name of the first GPU; None where there is none that can be used."""
    properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
    for function in ("cudaGetDeviceProperties_v2", "cudaGetDeviceProperties"):
        try:
            _call(function, properties, 0)
        except (EngineError, AttributeError):
            continue
        return properties.raw[:256].partition(b"\0")[0].decode("ascii", "replace")
    return None


def compute_capability() -> str:
    """Of the first GPU: `11.0`.

    Raises:
        EngineError: there is none.
    """
    found: list[str] = []
    for attribute in _COMPUTE_CAPABILITY:
        value = ctypes.c_int()
        _call("cudaDeviceGetAttribute", ctypes.byref(value), attribute, 0)
        found.append(str(value.value))
    return ".".join(found)


def driver_version() -> str:
    """The CUDA version of the driver: `13000`.

    Raises:
        EngineError: there is none.
    """
    value = ctypes.c_int()
    _call("cudaDriverGetVersion", ctypes.byref(value))
    return str(value.value)


class CudaStream:
    """A queue of work on the GPU, and the memory its work uses."""

    def __init__(self) -> None:
        self._stream = ctypes.c_void_p()
        self._memory: list[ctypes.c_void_p] = []
        _call("cudaStreamCreate", ctypes.byref(self._stream))

    @property
    def handle(self) -> int:
        """As TensorRT takes it."""
        return self._stream.value or 0

    def allocate(self, size: int) -> int:
        """Address of so many bytes on the GPU, freed with the stream."""
        pointer = ctypes.c_void_p()
        _call("cudaMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        self._memory.append(pointer)
        return pointer.value or 0

    def upload(self, target: int, source: int, size: int) -> None:
        """Queues a copy from the host's memory."""
        self._copy(target, source, size, _HOST_TO_DEVICE)

    def download(self, target: int, source: int, size: int) -> None:
        """Queues a copy to the host's memory."""
        self._copy(target, source, size, _DEVICE_TO_HOST)

    def synchronise(self) -> None:
        """Waits until all that was queued is done."""
        _call("cudaStreamSynchronize", self._stream)

    def close(self) -> None:
        """Frees the memory; the stream cannot be used any more."""
        for pointer in self._memory:
            _call("cudaFree", pointer)
        self._memory.clear()
        _call("cudaStreamDestroy", self._stream)

    def _copy(self, target: int, source: int, size: int, kind: int) -> None:
        addresses = (ctypes.c_void_p(target), ctypes.c_void_p(source))
        _call("cudaMemcpyAsync", *addresses, ctypes.c_size_t(size), kind, self._stream)
