"""Builds a TensorRT engine from a policy's ONNX file: on the robot to run it, elsewhere to know that it can be built.

One recipe for TensorRT 10.12 to 11.x and TensorRT for RTX: the network is always STRONGLY_TYPED (needed up to 10,
ignored by 11), so that precision comes from the graph's own Q/DQ and casts alone; TF32 is off, so that float32 means
float32; STRICT_NANS is on, so that a NaN among the inputs reaches the guard. `tensorrt-rtx` (PyPI) builds for other
GPUs than this machine's, and on a machine without any, which `tensorrt` cannot.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from physai.sdk.base.errors import MissingExtraError, PhysaiError
from physai.sdk.onnx.graph import check_graph

Library = Literal["tensorrt", "tensorrt_rtx"]

WORKSPACE_BYTES = 256 << 20
"""Memory a layer may use while it computes; policies need far less."""

MAX_MESSAGES = 8
"""Messages of TensorRT that an error repeats, the first ones."""

FP8_FROM = 89
"""First compute capability with FP8 matrix products (Ada).

Source: https://docs.nvidia.com/deeplearning/tensorrt-rtx/latest/inference-library/work-quantized-types.html
"""


class TensorRtError(PhysaiError):
    """TensorRT refuses a policy's graph, or cannot build for what was asked."""


@dataclass(frozen=True)
class BuiltEngine:
    """A serialised engine: bound to the very version of TensorRT that built it, and to the GPUs it was built for."""

    plan: bytes
    library: Library
    version: str
    targets: tuple[int, ...]
    """Compute capabilities, 89 for 8.9; empty for this machine's GPU."""
    warnings: tuple[str, ...]
    """What TensorRT remarked while it built."""


def find_tensorrt(library: Library) -> Any:
    """TensorRT's Python module.

    Raises:
        MissingExtraError: it is not installed; says how to.
    """
    try:
        return importlib.import_module(library)
    except ImportError as error:
        cure = "it comes with JetPack (python3-libnvinfer)" if library == "tensorrt" else "pip install tensorrt-rtx"
        raise MissingExtraError(f"{library} is not installed: {cure}") from error


def cross_targets() -> tuple[int, ...]:
    """Compute capabilities that TensorRT for RTX can build for on this machine, whatever GPU it has.

    Raises:
        MissingExtraError: it is not installed.
    """
    names: list[str] = dir(find_tensorrt("tensorrt_rtx").ComputeCapability)
    return tuple(sorted(int(name[2:]) for name in names if name.startswith("SM") and name[2:].isdigit()))


def build_engine(
    onnx: bytes, *, source: str, batch: int = 1, targets: Sequence[int] = (), library: Library | None = None
) -> BuiltEngine:
    """Builds an engine for one fixed number of worlds; takes seconds to minutes.

    Args:
        onnx: a policy: inputs and outputs of shape (n, size).
        source: where it came from, for messages.
        batch: number of worlds the engine computes at once.
        targets: compute capabilities to build for (89 for 8.9), with TensorRT for RTX; none for this machine's GPU.
        library: which TensorRT; None for `tensorrt_rtx` where there are targets, else `tensorrt`.

    Raises:
        GraphError: the file holds something that a policy may not have.
        TensorRtError: the graph is refused; the message holds the parser's or the builder's own.
        MissingExtraError: the library is not installed.
    """
    check_graph(onnx, source=source)
    library = library or ("tensorrt_rtx" if targets else "tensorrt")
    building = _Building(find_tensorrt(library), library, source)
    if targets and library != "tensorrt_rtx":
        raise TensorRtError(f"{library} builds for this machine's GPU only; for {list(targets)} use tensorrt_rtx")
    network = building.parsed(onnx)
    plan = building.plan(network, batch, targets)
    warnings = tuple(building.said[:MAX_MESSAGES])
    return BuiltEngine(plan, library, building.version, tuple(targets), warnings)


class _Building:
    """One builder and what it says."""

    def __init__(self, trt: Any, library: Library, source: str) -> None:
        self._trt, self._library, self._source = trt, library, source
        self.version = str(trt.__version__)
        self._logger = _logger(library, trt)
        self.said: list[str] = self._logger.said
        self.said.clear()
        try:
            self._builder: Any = trt.Builder(self._logger)
        except Exception as error:  # its bindings raise TypeError where the library returns nothing
            raise self._refused("cannot start; is there a driver and a GPU?", str(error)) from error

    def parsed(self, onnx: bytes) -> Any:
        """The network of an ONNX file."""
        trt = self._trt
        network = self._builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, self._logger)
        if not parser.parse(onnx):
            errors = [str(parser.get_error(index).desc()) for index in range(min(parser.num_errors, MAX_MESSAGES))]
            raise self._refused("cannot read the graph", *errors)
        return network

    def plan(self, network: Any, batch: int, targets: Sequence[int]) -> bytes:
        """The serialised engine."""
        trt = self._trt
        config = self._builder.create_builder_config()
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE_BYTES)
        config.clear_flag(trt.BuilderFlag.TF32)
        config.set_flag(trt.BuilderFlag.STRICT_NANS)
        config.add_optimization_profile(self._profile(network, batch))
        self._aim(config, targets)
        plan = self._builder.build_serialized_network(network, config)
        if plan is None:
            raise self._refused("cannot build an engine from the graph")
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

    def _aim(self, config: Any, targets: Sequence[int]) -> None:
        if not targets:
            return
        config.num_compute_capabilities = len(targets)
        for index, target in enumerate(targets):
            capability = getattr(self._trt.ComputeCapability, f"SM{target}", None)
            if capability is None or not config.set_compute_capability(capability, index):
                known = ", ".join(map(str, cross_targets()))
                raise TensorRtError(f"{self._library} {self.version} cannot build for SM {target}; it knows {known}")

    def _refused(self, what: str, *reasons: str) -> TensorRtError:
        lines = (" ".join(text.split()) for text in (*reasons, *self.said[:MAX_MESSAGES]))
        told = "; ".join(dict.fromkeys(lines)) or "it does not say why"
        return TensorRtError(f"{self._source}: {self._library} {self.version} {what}: {told}")


_loggers: dict[Library, Any] = {}
"""One for each library: TensorRT keeps to the first it gets, whatever later builders come with."""


def _logger(library: Library, trt: Any) -> Any:
    """A logger whose list `said` gets errors and warnings; its class exists only once TensorRT is imported."""

    def start(self: Any) -> None:
        trt.ILogger.__init__(self)
        self.said = []

    def log(self: Any, severity: Any, message: str) -> None:
        if int(severity) <= int(trt.ILogger.WARNING):
            self.said.append(message)

    if library not in _loggers:
        _loggers[library] = type("Said", (trt.ILogger,), {"__init__": start, "log": log})()
    return _loggers[library]
