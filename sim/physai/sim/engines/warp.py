"""The packages warp and mujoco_warp, imported when they are needed."""

import contextlib
import importlib
import os
import sys
from collections.abc import Generator
from typing import Any

from physai.sdk.base.errors import MissingExtraError

PIP_LINE = "pip install warp-lang mujoco-warp"


def modules() -> tuple[Any, Any]:
    """The packages warp and mujoco_warp.

    Raises:
        MissingExtraError: one is not installed.
    """
    try:
        warp: Any = importlib.import_module("warp")
        # Warp otherwise prints a line per loaded kernel; `quiet` is the name before version 1.11.
        warp.config.quiet, warp.config.log_level = True, getattr(warp, "LOG_ERROR", 40)
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
