"""Devices that compute a policy, and the one place that turns their names into providers of ONNX Runtime.

Nothing else chooses a provider: neither the file of a policy nor ONNX Runtime's own fallback.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

import onnxruntime

from physai.sdk.base.errors import DeviceError

DeviceKind = Literal["cpu", "cuda", "tensorrt"]

Provider = tuple[str, dict[str, str]]
"""Name of a provider of ONNX Runtime, and its options."""

PROVIDERS: dict[DeviceKind, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}

ON_THE_HOST = frozenset({"Shape"})
"""Operators that a session of a GPU may compute on the CPU: they read a tensor's shape, which the host knows anyway."""


@dataclass(frozen=True)
class PolicyDevice:
    """Device that computes a policy: the CPU, or a GPU by ONNX Runtime's CUDA or TensorRT provider."""

    kind: DeviceKind = "cpu"
    index: int = 0
    """Number of the GPU, as CUDA counts them."""

    @classmethod
    def parse(cls, name: str) -> "PolicyDevice":
        """The device named `cpu`, `cuda`, `cuda:N`, `tensorrt` or `tensorrt:N`; without N the first GPU.

        Raises:
            DeviceError: the name is none of these.
        """
        match = re.fullmatch(r"cpu|(cuda|tensorrt)(?::([0-9]{1,3}))?", name)
        if match is None:
            raise DeviceError(f"`device` {name[:40]!r}: expected cpu, cuda, cuda:N, tensorrt or tensorrt:N")
        kinds: list[DeviceKind] = [kind for kind in PROVIDERS if name.startswith(kind)]
        return cls(kinds[0], int(match[2] or 0))

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.index}"

    @property
    def memory(self) -> str:
        """Device whose memory holds inputs and outputs, as torch names it: `cpu` or `cuda:N`."""
        return "cpu" if self.kind == "cpu" else f"cuda:{self.index}"

    @property
    def provider(self) -> str:
        """The provider that a session of this device must have."""
        return PROVIDERS[self.kind]

    @property
    def providers(self) -> list[Provider]:
        """The providers of a session with their options, in order of preference."""
        if self.kind == "cpu":
            return [(self.provider, {})]
        number = {"device_id": str(self.index)}
        # Full float32, and no choice of kernels by timing them: runs must be comparable with the CPU and each other.
        cuda = (PROVIDERS["cuda"], {**number, "use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"})
        if self.kind == "cuda":
            return [cuda]
        # No cache: an engine in a file would be loaded in place of the policy's bytes.
        exact = {"trt_fp16_enable": "0", "trt_int8_enable": "0", "trt_engine_cache_enable": "0"}
        # TensorRT leaves to CUDA what it does not implement; it is the same device.
        return [(self.provider, {**number, **exact, "trt_timing_cache_enable": "0"}), cuda]


CPU = PolicyDevice()


def require_provider(device: PolicyDevice) -> None:
    """Make sure that the installed ONNX Runtime was built with a device's provider.

    Raises:
        DeviceError: it was not.
    """
    available: list[str] = onnxruntime.get_available_providers()
    if device.provider not in available:
        raise DeviceError(
            f"`device` {device}: it needs ONNX Runtime's {device.provider}, the one installed has "
            f"{', '.join(available)}; use `device` cpu, or replace the package: pip uninstall onnxruntime && "
            "pip install onnxruntime-gpu"
        )


def configure(options: Any, device: PolicyDevice) -> None:
    """Set the session options that a session of a device needs beyond those of every session."""
    if device.kind != "cpu":
        options.use_deterministic_compute = True
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")


def require_computed_on(device: PolicyDevice, session: onnxruntime.InferenceSession, *, source: str) -> None:
    """Make sure that a session computes on the device: ONNX Runtime uses the CPU silently where it cannot.

    Args:
        device: the device that was asked for.
        session: a session whose options were set by `configure`.
        source: origin of the policy, for messages.

    Raises:
        DeviceError: the session lacks the device's provider, or computes a part of the graph on the CPU.
    """
    active: list[str] = session.get_providers()
    if device.provider not in active:
        raise DeviceError(
            f"{source}: ONNX Runtime could not start its {device.provider} for `device` {device} and would compute "
            f"with {', '.join(active)}; install the libraries of CUDA, cuDNN and, for tensorrt, TensorRT that "
            f"onnxruntime-gpu {onnxruntime.__version__} names, or use `device` cpu"
        )
    if device.kind == "cpu":
        return
    if not hasattr(session, "get_provider_graph_assignment_info"):
        raise DeviceError(
            f"`device` {device}: onnxruntime-gpu {onnxruntime.__version__} does not tell what it computes on the CPU; "
            "install a newer one, or use `device` cpu"
        )
    elsewhere = operators_elsewhere(device, session)
    if elsewhere:
        raise DeviceError(
            f"{source}: ONNX Runtime computes {', '.join(sorted(elsewhere))} on the CPU, not on {device}; "
            "use `device` cpu for this policy"
        )


def operators_elsewhere(device: PolicyDevice, session: onnxruntime.InferenceSession) -> set[str]:
    """Operators of the graph that a session computes with none of the device's providers; see `ON_THE_HOST`."""
    own = {name for name, _ in device.providers}
    parts: list[Any] = session.get_provider_graph_assignment_info()
    return {node.op_type for part in parts if part.ep_name not in own for node in part.get_nodes()} - ON_THE_HOST
