"""Tests that take many minutes run when they are asked for by name: `pytest -m exhaustive`. None is timed."""

import pytest
from hypothesis import settings

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
