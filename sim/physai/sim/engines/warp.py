"""The packages warp and mujoco_warp, imported when they are needed."""

import contextlib
import functools
import importlib
import os
import reprlib
import sys
from collections.abc import Generator
from typing import Any

from physai.sdk.base.errors import DeviceError, MissingExtraError
from physai.sim.engines import warp_kernels

PIP_LINE = "pip install warp-lang mujoco-warp"


@functools.cache
def modules() -> tuple[Any, Any]:
    """The packages warp and mujoco_warp.

    Raises:
        MissingExtraError: one is not installed.
    """
    try:
        warp: Any = importlib.import_module("warp")
        warp_kernels.configure(warp)
        with _muted():
            warp.init()
            return warp, importlib.import_module("mujoco_warp")
    except ImportError as error:
        raise MissingExtraError(f"the second engine needs {error.name}: {PIP_LINE}") from error


@contextlib.contextmanager
def _muted() -> Generator[None]:
    """Discards stderr, including that of native code."""
    # Warp's native library warns on every machine without a GPU.
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


@contextlib.contextmanager
def on_torch_stream(device: str) -> Generator[None]:
    """Launches Warp's kernels on a device in the order of torch's operations there."""
    warp = modules()[0]
    with warp.ScopedDevice(device):
        if device == "cpu":
            yield
            return
        import torch

        current = torch.cuda.current_stream(device)
        if warp.get_stream(device).cuda_stream == current.cuda_stream:
            yield
            return
        # Everything runs in torch's stream, so there is nothing in Warp's to wait for; a capture forbids to wait.
        with warp.ScopedStream(warp.stream_from_torch(current), sync_enter=False):
            yield


def require_device(name: str) -> None:
    """Checks that Warp has a device.

    Raises:
        MissingExtraError: warp or mujoco_warp is not installed.
        DeviceError: it has not.
    """
    warp, _ = modules()
    found = ["cpu", *(f"cuda:{number}" for number in range(warp.get_cuda_device_count()))]
    if name not in found and not (name == "cuda" and len(found) > 1):
        raise DeviceError(f"there is no device {reprlib.repr(name)}; this machine has {', '.join(found)}")
