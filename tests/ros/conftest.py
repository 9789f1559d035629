"""A real ROS 2 around the policy node; without one, tests marked `ros` say so and are skipped."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest
from ros_world import RosWorld

from physai.deploy_jetson.bench.sample import Workshop
from physai.deploy_jetson.bench.site import Site


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what needs ROS 2 where there is none."""
    if find_spec("rclpy") is None:
        skip = pytest.mark.skip(reason="needs ROS 2: source its setup file, then `pytest -m ros`")
        for item in items:
            if item.get_closest_marker("ros"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def bundles() -> tuple[Workshop, dict[int, bytes]]:
    workshop = Workshop(created=datetime.now(UTC) - timedelta(minutes=5))
    return workshop, {version: workshop.bundle(version) for version in (1, 2)}


@pytest.fixture
def world(tmp_path: Path, bundles: tuple[Workshop, dict[int, bytes]]) -> Iterator[RosWorld]:
    workshop, made = bundles
    site = Site.make(tmp_path / "robot", workshop, made, now=datetime.now(UTC))
    site.run(1)
    environment = {
        **os.environ,
        "ROS_DOMAIN_ID": str(1 + os.getpid() % 100),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "RMW_IMPLEMENTATION": "rmw_cyclonedds_cpp",
        "ROS_LOG_DIR": str(tmp_path / "log"),
        "PYTHONUNBUFFERED": "1",
    }
    made_world = RosWorld(tmp_path, environment, site)
    yield made_world
    made_world.close()
