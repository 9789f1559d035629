"""Choice of the device that computes a policy in the twin: by the user, never by a file."""

import importlib.util

from physai.sdk.base.errors import DeviceError, MissingExtraError
from physai.sdk.onnx.device import CPU, PolicyDevice, require_provider
from physai.sim.policies.onnx import OnnxPolicy


def choose_policy_device(name: str) -> PolicyDevice:
    """The device named by `--device`, if this machine has it.

    Args:
        name: `cpu`, `cuda`, `cuda:N`, `tensorrt` or `tensorrt:N`.

    Raises:
        DeviceError: the name is malformed, or this machine lacks the GPU or the provider.
        MissingExtraError: torch is not installed, whose tensors hold what a GPU computes.
    """
    device = PolicyDevice.parse(name)
    if device.kind == "cpu":
        return device
    require_provider(device)
    if importlib.util.find_spec("torch") is None:
        raise MissingExtraError(f"`device` {device} needs torch: pip install 'physai-sdk[train]', or use `device` cpu")
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not device.index < count:
        known = ", ".join(f"{device.kind}:{index}" for index in range(count))
        raise DeviceError(f"`device` {device}: torch finds {count} GPUs; use {f'{known} or cpu' if known else 'cpu'}")
    return device


def make_policy(data: bytes, *, source: str, device: PolicyDevice = CPU) -> OnnxPolicy:
    """Open a policy on a device.

    Args:
        data: the ONNX file.
        source: name of the file in messages.
        device: where it is computed; only the CPU needs no torch.

    Raises:
        DeviceError: the device cannot compute all of it.
        PolicyError: the file is rejected, see `open_session`.
        ContractError: its contract is malformed.
    """
    if device.kind == "cpu":
        return OnnxPolicy(data, source=source)
    from physai.sim.policies.device_policy import DevicePolicy

    return DevicePolicy(data, source=source, device=device)
