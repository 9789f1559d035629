"""A robot in a folder, and bundles it accepts."""

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.site import Site

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def now() -> datetime:
    """What the robot's clock shows."""
    return NOW


@pytest.fixture(scope="session")
def workshop() -> SampleSigners:
    return SampleSigners(created=NOW - timedelta(hours=1))


@pytest.fixture(scope="session")
def bundles(workshop: SampleSigners) -> dict[int, bytes]:
    return {version: workshop.bundle(version) for version in range(1, 5)}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, on a RAM disk where there is one: syncing a disk a thousand times takes minutes."""
    ram = Path("/dev/shm")
    if not os.access(ram, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="physai-test-", dir=ram) as name:
        yield Path(name)


@pytest.fixture
def site(folder: Path, workshop: SampleSigners, bundles: dict[int, bytes]) -> Site:
    return Site.make(folder / "robot", workshop, bundles, now=NOW)
