"""A real ROS 2 around the policy node; without one, tests marked `ros` say so and are skipped."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from tests.harness.fixtures.sample import SampleSigners
from tests.harness.fixtures.site import Site
from tests.support.ros_calls import WAIT_S
from tests.support.ros_world import RosWorld, Slots, slots_of

DOMAINS = cycle(range(1, 101))
SOURCE = Path(__file__).parents[2] / "ros" / "colcon"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked `ros`, or `ros("package", …)`, where rclpy or one of the packages is missing, and names it."""
    for item in items:
        marks = list(item.iter_markers("ros"))
        needed = dict.fromkeys(["rclpy", *(name for mark in marks for name in mark.args)])
        missing = [name for name in needed if find_spec(name) is None]
        if marks and missing:
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)}"))


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[None]:
    """Of this process and of those that it starts: only this machine is reached, whichever middleware is chosen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Lets what is started here be interrupted: a shell has SIGINT ignored by what it runs in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def bundles() -> tuple[SampleSigners, dict[int, bytes]]:
    workshop = SampleSigners(created=datetime.now(UTC) - timedelta(minutes=5))
    return workshop, {version: workshop.bundle(version) for version in (1, 2)}


@pytest.fixture
def world(tmp_path: Path, bundles: tuple[SampleSigners, dict[int, bytes]]) -> Iterator[RosWorld]:
    workshop, made = bundles
    site = Site.make(tmp_path / "robot", workshop, made, now=datetime.now(UTC))
    site.run(1)
    environment = {
        **os.environ,
        # Of its own for each test: the watchdog of a killed runtime still brakes the robot while the next test begins.
        "ROS_DOMAIN_ID": str(next(DOMAINS)),
        "ROS_LOG_DIR": str(tmp_path / "log"),
        "PYTHONUNBUFFERED": "1",
    }
    made_world = RosWorld(tmp_path, environment, site)
    yield made_world
    made_world.close()


@pytest.fixture(scope="session")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Slots:
    """Slots with a policy by task and robot, made once; the policy has no verdict."""
    made: dict[str, Path] = {}

    def root(task: str, robot: str) -> Path:
        if task not in made:
            made[task] = slots_of(task, robot, tmp_path_factory.mktemp(robot))
        return made[task]

    return root


@pytest.fixture
def node(world: RosWorld) -> Any:
    """A node in this process and in the world's domain, which is spun."""
    return world.calls.node


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The colcon package, built."""
    folder = tmp_path_factory.mktemp("colcon")
    command = [sys.executable, "-m", "colcon", "build", "--merge-install", "--base-paths", str(SOURCE)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=5 * WAIT_S)
    return folder / "install"
