"""The watchdog of a runtime that drives through rclpy: its robot's driver uses ROS 2, or DDS without it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support import hanging_policy
from tests.support.robot_end import RobotEnd
from tests.support.watched_runtime import WatchedRuntime, assert_braked, at_full_speed, installed, is_alive

from physai.transport.dds.domain import LOOPBACK

pytestmark = [pytest.mark.ros, pytest.mark.slow]


HIDDEN = "import sys; sys.modules['cyclonedds'] = None"


@pytest.fixture(params=["ros", "dds", "ros, no other DDS"])
def setup(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchedRuntime]:
    robot, comma, _ = request.param.partition(",")
    domain = str(1 + os.getpid() % 100)
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    monkeypatch.setenv("CYCLONEDDS_URI", LOOPBACK)
    if comma:
        # As on a Jetson, where rclpy is all there is.
        (tmp_path / "sitecustomize.py").write_text(HIDDEN)
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    contract = hanging_policy.contract("joint_pos")
    end = RobotEnd(contract, robot, {"domain": domain})
    made = WatchedRuntime(installed(tmp_path, contract), end, "ros", {"domain": domain})
    yield made
    made.close()
    end.close()


def test_killed_the_joint_is_braked(setup: WatchedRuntime, request: pytest.FixtureRequest) -> None:
    watchdog = at_full_speed(setup)
    uses_ros = "rclpy" in Path(f"/proc/{watchdog}/maps").read_text()
    assert uses_ros == ("no other DDS" in request.node.name)
    assert not any("publishers" in problem for problem in setup.robot.problems), setup.robot.problems
    since_ns = setup.robot.log[-1].received_ns
    setup.process.kill()
    setup.process.wait()
    setup.wait_for(lambda: not is_alive(watchdog))
    assert_braked(setup, since_ns)
    assert "every joint was measured at rest" in setup.text()
