"""The launch files, built by colcon: the whole chain with the twin as the robot, and both ends of it dying."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from ros_world import NODE, RosWorld, Slots, Started, eventually, transition

pytestmark = pytest.mark.ros


def rehearsed(world: RosWorld, slots: Slots, prefix: Path, task: str, robot: str) -> Started:
    world.overlay(prefix)
    words = (f"task:={task}", f"root:={slots(task, robot)}", f"params_file:={world.parameters()}")
    started = world.launch("rehearse.launch.py", *words)
    started.says("active at ")
    return started


@pytest.fixture
def launched(world: RosWorld, slots: Slots, prefix: Path) -> Started:
    return rehearsed(world, slots, prefix, "cartpole-swingup", "cartpole")


@pytest.mark.parametrize(("task", "robot"), [("cartpole-swingup", "cartpole"), ("ur10e-reach", "ur10e")])
def test_the_whole_chain(world: RosWorld, slots: Slots, prefix: Path, task: str, robot: str) -> None:
    launched = rehearsed(world, slots, prefix, task, robot)
    launched.says("commands come")
    nodes = world.ros2("node", "list").stdout
    assert "/physai_policy" in nodes
    assert "/physai_rehearsal" in nodes
    assert world.ros2("lifecycle", "get", "/physai_policy").stdout.startswith("active")
    launched.end(signal.SIGINT)
    text = launched.text()
    assert "Traceback" not in text
    assert "Caught exception in launch" not in text
    assert "commands obeyed" in text


def test_a_rehearsal_in_a_namespace(world: RosWorld, slots: Slots, prefix: Path) -> None:
    world.overlay(prefix)
    root = slots("cartpole-swingup", "cartpole")
    words = ("task:=cartpole-swingup", f"root:={root}", f"params_file:={world.parameters()}")
    one = world.launch("rehearse.launch.py", *words, "namespace:=left")
    one.says("active at ")
    nodes = world.ros2("node", "list").stdout
    assert "/left/physai_policy" in nodes
    assert "/left/physai_rehearsal" in nodes
    one.says("commands come")


def test_only_the_first_configuration_drives_by_itself(launched: Started, world: RosWorld) -> None:
    """Who takes the node down and configures it again wants to look at it first."""
    for name in ("deactivate", "cleanup", "configure"):
        assert transition(world, name), launched.text()
    time.sleep(3.0)
    assert world.ros2("lifecycle", "get", NODE).stdout.startswith("inactive")
    assert transition(world, "activate"), launched.text()


def test_a_policy_node_that_is_killed_takes_the_launch_down(launched: Started) -> None:
    victims = subprocess.run(["pgrep", "-f", "physai_ros/policy_node"], capture_output=True, text=True).stdout.split()
    mine = [int(pid) for pid in victims if _parent(int(pid)) == launched.process.pid]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGKILL)
    launched.says("process[policy_node-2] was required: shutting down")
    eventually(lambda: launched.process.poll() is not None, "the end of the launch")


def test_a_robot_that_is_killed_takes_the_launch_down(launched: Started) -> None:
    found = subprocess.run(["pgrep", "-f", "physai sim ros"], capture_output=True, text=True).stdout.split()
    mine = [int(pid) for pid in found if _parent(int(pid)) == launched.process.pid]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGKILL)
    launched.says("process[physai-1] was required: shutting down")
    eventually(lambda: launched.process.poll() is not None, "the end of the launch")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
