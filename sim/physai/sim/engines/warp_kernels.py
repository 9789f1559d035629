"""Warp's compiled kernels: the folder that keeps them, and who is told when one is compiled."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from physai.sdk.base.user_cache import user_cache

PATIENCE_S = 2.0
"""Time spent compiling after which a line says so [s]."""

NOTICE = "compiling kernels (once per machine; `physai tasks warmup` does it ahead)"

_LOADED = re.compile(r"Module (\S+) (?:[0-9a-f]+ )?load on device '([^']+)'.* took ([0-9.]+) ms +\((compiled|cached)\)")


@dataclass(frozen=True, kw_only=True)
class LoadedModule:
    """A module of kernels that Warp has loaded."""

    name: str
    device: str
    seconds: float
    """How long it took to compile, if it was, and load [s]."""
    compiled: bool
    """Whether it was compiled; else it came from the folder."""


Listener = Callable[[LoadedModule], None]


class SlowCompileNotice:
    """Says once on stderr that kernels are compiled, when that has taken a while."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def __call__(self, module: LoadedModule) -> None:
        before = self._seconds
        self._seconds += module.seconds * module.compiled
        if before <= PATIENCE_S < self._seconds:
            print(NOTICE, file=sys.stderr, flush=True)


class _Log:
    """Warp's logger: drops everything except errors and what it says about loaded modules."""

    def __init__(self) -> None:
        self.listener: Listener = SlowCompileNotice()

    def debug(self, message: str) -> None:
        """Nothing."""

    def info(self, message: str) -> None:
        """Tells the listener of a loaded module."""
        found = _LOADED.search(message)
        if found is not None:
            name, device, milliseconds, how = found.groups()
            compiled = how == "compiled"
            self.listener(LoadedModule(name=name, device=device, seconds=float(milliseconds) / 1e3, compiled=compiled))

    def warning(self, message: str, category: Any = None, stacklevel: int = 1) -> None:
        """Nothing."""

    def error(self, message: str) -> None:
        """Writes to stderr."""
        print(message, file=sys.stderr)


_LOG = _Log()


def configure(warp: Any) -> None:
    """Chooses the folder, unless the user or another library has, and listens to Warp instead of letting it print."""
    if warp.config.kernel_cache_dir is None and not os.environ.get("WARP_CACHE_PATH"):
        warp.config.kernel_cache_dir = str(user_cache("warp"))
    warp.set_logger(_LOG)
    warp.config.log_level = warp.LOG_INFO


@contextlib.contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Tells the listener of every module that is loaded inside the block, instead of writing `NOTICE`."""
    before = _LOG.listener
    _LOG.listener = listener
    try:
        yield
    finally:
        _LOG.listener = before
