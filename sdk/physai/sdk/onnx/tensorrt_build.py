"""Build TensorRT engines from ONNX policies, with TensorRT 10.12 to 11.x or TensorRT for RTX.

`tensorrt-rtx` (PyPI) can build for GPUs other than this machine's, and without a GPU; `tensorrt` cannot.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.onnx.graph import check_graph

Library = Literal["tensorrt", "tensorrt_rtx"]

WORKSPACE_BYTES = 256 << 20
"""Maximum scratch memory of a layer; policies need far less."""

MAX_MESSAGES = 8
"""Maximum number of TensorRT's messages in an error, the first ones."""

FP8_FROM = 89
"""First compute capability with FP8 matrix products (Ada).

Source: https://docs.nvidia.com/deeplearning/tensorrt-rtx/latest/inference-library/work-quantized-types.html
"""


class TensorRtError(PhysaiError):
    """TensorRT rejects a policy's graph, or cannot build for the requested target."""


@dataclass(frozen=True)
class BuiltEngine:
    """A serialised engine; it runs only with the TensorRT version and on the GPUs it was built for."""

    plan: bytes
    library: Library
    version: str
    targets: tuple[int, ...]
    """Compute capabilities, 89 for 8.9; empty for this machine's GPU."""
    warnings: tuple[str, ...]
    """First warnings of the build."""


def find_tensorrt(library: Library) -> Any:
    """Import TensorRT.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        cure = "it comes with JetPack (python3-libnvinfer)" if library == "tensorrt" else "pip install tensorrt-rtx"
        raise MissingExtraError(f"{library} is not installed: {cure}") from error


def cross_targets() -> tuple[int, ...]:
    """Return the compute capabilities that TensorRT for RTX can build for, regardless of this machine's GPU.

    Raises:
        MissingExtraError: it is not installed.
    """
    names: list[str] = dir(find_tensorrt("tensorrt_rtx").ComputeCapability)
    return tuple(sorted(int(name[2:]) for name in names if name.startswith("SM") and name[2:].isdigit()))


def build_engine(
    onnx: bytes, *, source: str, batch: int = 1, targets: Sequence[int] = (), library: Library | None = None
) -> BuiltEngine:
    """Build an engine with a fixed batch size; takes seconds to minutes.

    Args:
        onnx: a policy with inputs and outputs of shape (n, size).
        source: origin of the file, for messages.
        batch: batch size.
        targets: compute capabilities to build for (89 for 8.9), with TensorRT for RTX; empty for this machine's GPU.
        library: None for `tensorrt_rtx` if there are targets, else `tensorrt`.

    Raises:
        GraphError: the file has content that is not allowed in a policy.
        TensorRtError: TensorRT rejects the graph; the message includes its own.
        MissingExtraError: the library is not installed.
    """
    check_graph(onnx, source=source)
    library = library or ("tensorrt_rtx" if targets else "tensorrt")
    builder = _EngineBuilder(find_tensorrt(library), library, source)
    if targets and library != "tensorrt_rtx":
        raise TensorRtError(f"{library} builds for this machine's GPU only; for {list(targets)} use tensorrt_rtx")
    network = builder.parse(onnx)
    plan = builder.build(network, batch, targets)
    warnings = tuple(builder.messages[:MAX_MESSAGES])
    return BuiltEngine(plan, library, builder.version, tuple(targets), warnings)


class _EngineBuilder:
    """A TensorRT builder and its log messages."""

    def __init__(self, trt: Any, library: Library, source: str) -> None:
        self._trt, self._library, self._source = trt, library, source
        self.version = str(trt.__version__)
        self._logger = _logger(library, trt)
        self.messages: list[str] = self._logger.messages
        self.messages.clear()
        try:
            self._builder: Any = trt.Builder(self._logger)
        except Exception as error:  # the bindings raise TypeError if the library returns a null pointer
            raise self._error("cannot start; is there a driver and a GPU?", str(error)) from error

    def parse(self, onnx: bytes) -> Any:
        """Parse an ONNX file into a network."""
        trt = self._trt
        # STRONGLY_TYPED (required up to 10, ignored by 11): precision comes from the graph's Q/DQ and Cast nodes alone.
        network = self._builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, self._logger)
        if not parser.parse(onnx):
            errors = [str(parser.get_error(index).desc()) for index in range(min(parser.num_errors, MAX_MESSAGES))]
            raise self._error("cannot read the graph", *errors)
        return network

    def build(self, network: Any, batch: int, targets: Sequence[int]) -> bytes:
        """Build and serialise the engine."""
        trt = self._trt
        config = self._builder.create_builder_config()
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE_BYTES)
        # Full float32 precision.
        config.clear_flag(trt.BuilderFlag.TF32)
        # A NaN among the inputs must reach the guard.
        config.set_flag(trt.BuilderFlag.STRICT_NANS)
        config.add_optimization_profile(self._profile(network, batch))
        self._set_targets(config, targets)
        plan = self._builder.build_serialized_network(network, config)
        if plan is None:
            raise self._error("cannot build an engine from the graph")
        return bytes(plan)

    def _profile(self, network: Any, batch: int) -> Any:
        profile = self._builder.create_optimization_profile()
        for index in range(network.num_inputs):
            tensor = network.get_input(index)
            sizes = tuple(tensor.shape)
            if len(sizes) != 2 or not sizes[1] > 0:
                raise TensorRtError(f"{self._source}: input {tensor.name!r} has shape {sizes}, expected (n, size)")
            shape = (batch, sizes[1])
            profile.set_shape(tensor.name, shape, shape, shape)
        return profile

    def _set_targets(self, config: Any, targets: Sequence[int]) -> None:
        if not targets:
            return
        config.num_compute_capabilities = len(targets)
        for index, target in enumerate(targets):
            capability = getattr(self._trt.ComputeCapability, f"SM{target}", None)
            if capability is None or not config.set_compute_capability(capability, index):
                known = ", ".join(map(str, cross_targets()))
                raise TensorRtError(f"{self._library} {self.version} cannot build for SM {target}; it knows {known}")

    def _error(self, what: str, *reasons: str) -> TensorRtError:
        lines = (" ".join(text.split()) for text in (*reasons, *self.messages[:MAX_MESSAGES]))
        message = "; ".join(dict.fromkeys(lines)) or "no reason given"
        return TensorRtError(f"{self._source}: {self._library} {self.version} {what}: {message}")


_loggers: dict[Library, Any] = {}
"""One logger per library: TensorRT uses the first one it gets in a process and ignores those of later builders."""


def _logger(library: Library, trt: Any) -> Any:
    """Return the logger, which appends errors and warnings to its `messages`."""

    # The class is created here because its base class exists only after TensorRT is imported.
    def start(self: Any) -> None:
        trt.ILogger.__init__(self)
        self.messages = []

    def log(self: Any, severity: Any, message: str) -> None:
        if int(severity) <= int(trt.ILogger.WARNING):
            self.messages.append(message)

    if library not in _loggers:
        _loggers[library] = type("_Logger", (trt.ILogger,), {"__init__": start, "log": log})()
    return _loggers[library]
