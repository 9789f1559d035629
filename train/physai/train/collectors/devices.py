"""Choice of the device on which a run learns and of the engine that steps its worlds."""

import importlib.util
import os
import re

import torch

from physai.sdk.base.errors import DeviceError


def choose_device(name: str, engine: str) -> str:
    """The device to learn on, `cpu` or `cuda:N`.

    Args:
        name: `auto`, `cpu`, `cuda` or `cuda:N`; `auto` is the first GPU for engine `warp`, else the CPU.
        engine: what steps the worlds; only `warp` steps them on a GPU.

    Raises:
        DeviceError: there is no such device, or torch cannot use it.
    """
    if name == "auto":
        return "cuda:0" if engine == "warp" and torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return name
    match = re.fullmatch(r"cuda(?::(\d{1,3}))?", name)
    if match is None:
        raise DeviceError(f"`device` {name}: expected auto, cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise DeviceError(f"`device` {name}: torch finds no GPU; use `device` cpu, or install a CUDA build of torch")
    number, count = int(match[1] or 0), torch.cuda.device_count()
    if number >= count:
        raise DeviceError(f"`device` {name}: there are {count} GPUs, the last is cuda:{count - 1}")
    return f"cuda:{number}"


def choose_engine(device: str) -> str:
    """The engine for a device: `warp` where there is a GPU and MuJoCo Warp is installed, else `mujoco`."""
    if device == "cpu" or not torch.cuda.is_available():
        return "mujoco"
    return "warp" if importlib.util.find_spec("mujoco_warp") else "mujoco"


def make_deterministic() -> None:
    """Makes torch's operations on a GPU the same in every run; call before the first of them."""
    # cuBLAS reads it when it starts; without it torch refuses matrix products.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
