"""Fixtures of these tests; see `tests.support.fixtures_robot`."""

import pytest
from tests.harness.fixtures.sample import SampleSigners
from tests.support.fixtures_robot import folder, now, site, workshop

__all__ = ["bundles", "folder", "now", "site", "workshop"]


@pytest.fixture(scope="session")
def bundles(workshop: SampleSigners) -> dict[int, bytes]:
    # Slow, so that a busy machine skips no periods: that is a HOLD of its own.
    return {version: workshop.bundle(version, slower=15.0) for version in range(1, 5)}
