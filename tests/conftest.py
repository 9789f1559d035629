"""Tests that take many minutes run when they are asked for by name: `pytest -m exhaustive`. None is timed."""

import gc
import os
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.harness.programs import let_children_import

let_children_import()

# A shell ignores SIGINT in what it starts in the background, and so would the programs that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Threads of several processes, and of what they start, would wait for each other's processors: twice the time.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Thousands of tests and a hundred imported libraries live to the end: each collection would look at all of them.
gc.disable()

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _own_stops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Stops of one test's robot bind no other test's, though ports and domains come back."""
    name = f"physai-stops-{os.getpid()}-{abs(hash(request.node.nodeid)):x}"
    monkeypatch.setenv("PHYSAI_STOPS", str(Path(tempfile.gettempdir()) / name))


def _ray_access() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_AUTH_")}


_GIVEN = _ray_access()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None, item: pytest.Item) -> Generator[None]:
    """A file leaves Ray's token and mode as it found them: with others, no actor of later tests would start."""
    yield
    if nextitem is None or nextitem.path != item.path:
        assert _ray_access() == _GIVEN, f"{item.path} or its fixtures changed Ray's token or mode for all that follow"


def pytest_collection_finish() -> None:
    """Takes what was imported and collected out of the garbage collector's sight, and starts it."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is marked exhaustive unless the marker is asked for."""
    if "exhaustive" in str(config.getoption("markexpr")):
        return
    skip = pytest.mark.skip(reason="takes many minutes: pytest -m exhaustive")
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker(skip)
