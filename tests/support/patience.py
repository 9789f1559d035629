"""Waiting for what another thread, process or socket does, on a machine that may be busy."""

import time
from collections.abc import Callable

PATIENCE_S = 90.0
NAP_S = 0.02


def nap() -> None:
    time.sleep(NAP_S)


def until(holds: Callable[[], object], step: Callable[[], object] = nap, said: Callable[[], object] = str) -> None:
    """Takes steps until something holds; fails, with what was said, when it does not in time."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, said()
        step()
