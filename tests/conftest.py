"""Tests that take many minutes run when they are asked for by name: `pytest -m exhaustive`. None is timed."""

import os
import signal

import pytest
from hypothesis import settings

# A shell ignores SIGINT in what it starts in the background, and so would the programs that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads of several processes, and of what they start, would wait for each other's processors: twice the time.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked exhaustive unless the marker is asked for."""
    if "exhaustive" in str(config.getoption("markexpr")):
        return
    skip = pytest.mark.skip(reason="takes many minutes: pytest -m exhaustive")
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker(skip)
