"""The twin as a robot on rclpy, driven by the policy node, by the words of docs/how-to/ros2-without-ros.md."""

import re
from pathlib import Path

import pytest
from tests.support.ros_calls import WAIT_S
from tests.support.ros_world import NODE, RosWorld, present
from tests.support.untrained import untrained_slots

from physai.sim.tasks.registry import load_task

pytestmark = pytest.mark.ros

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ros2-without-ros.md"


def operator() -> str:
    """The page's program that configures and activates the node."""
    (found,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return found


def test_the_node_drives_the_twin(world: RosWorld) -> None:
    root = untrained_slots(load_task("ur10e-reach").contract, world.folder / "ur10e")
    twin = world.physai("robot", "simulate", "--transport", "ros", "ur10e-reach")
    node = world.policy(root=str(root), unsafe_no_verdict="true")
    asked = world.python("-c", operator())
    asked.process.wait(2 * WAIT_S)
    assert asked.text() == "configure: True\nactivate: True\n", node.text()
    twin.says("receiving commands")
    for name in (NODE, "/physai_virtual_robot", "/physai_policy_watchdog"):
        present(world, name)
    assert world.calls.state(NODE) == "active", node.text()
    assert node.end() == 0, node.text()
    assert "not active any more: shutdown" in node.text()
    assert twin.end() == 0, twin.text()
    for process in (twin, node):
        assert "Traceback" not in process.text()
