"""The launch files, built by colcon: the whole chain with the twin as the robot, and both ends of it dying."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.support.ros_calls import WAIT_S, eventually
from tests.support.ros_world import NODE, RosWorld, Slots, Started, physai, present, transition

from physai.deploy_jetson.runtime.commands.control_socket import CONTROL_FILE

pytestmark = pytest.mark.ros("ros2launch", "launch_ros", "colcon_core", "torch")


def rehearsed(world: RosWorld, slots: Slots, prefix: Path, task: str, robot: str) -> Started:
    world.overlay(prefix)
    words = (f"task:={task}", f"root:={slots(task, robot)}", f"params_file:={world.parameters()}")
    started = world.launch("simulate.launch.py", *words)
    started.says("active at ")
    return started


@pytest.fixture
def launched(world: RosWorld, slots: Slots, prefix: Path) -> Started:
    return rehearsed(world, slots, prefix, "cartpole-swingup", "cartpole")


def ended_in_order(text: str) -> None:
    """The policy ends while the robot is there."""
    assert "Traceback" not in text
    assert "Caught exception in launch" not in text
    assert "process has died" not in text
    assert text.index("not active any more: shutdown") < text.index("commands executed"), text


def ended_at_rest(text: str) -> None:
    """The policy brings the robot to rest first, and nothing reads like an accident."""
    ended_in_order(text)
    accident = "DAMP|PROTECTIVE|sensor stale|did not come to rest|no subscriber in domain"
    assert not re.search(accident, text.partition("user interrupted")[2]), text


@pytest.mark.parametrize(("task", "robot"), [("cartpole-swingup", "cartpole"), ("ur10e-reach", "ur10e")])
def test_the_whole_chain(world: RosWorld, slots: Slots, prefix: Path, task: str, robot: str) -> None:
    launched = rehearsed(world, slots, prefix, task, robot)
    launched.says("receiving commands")
    present(world)
    present(world, "/physai_virtual_robot")
    assert world.calls.state(NODE) == "active"
    launched.end(signal.SIGINT)
    ended_in_order(launched.text())


def test_ctrl_c_in_a_terminal_ends_it_at_rest(world: RosWorld, slots: Slots, prefix: Path) -> None:
    """A terminal tells every process at once, the robot as well as the policy."""
    launched = rehearsed(world, slots, prefix, "ur10e-reach", "ur10e")
    launched.says("receiving commands")
    os.killpg(launched.process.pid, signal.SIGINT)
    launched.process.wait(WAIT_S)
    ended_at_rest(launched.text())


def test_a_rehearsal_in_a_namespace(world: RosWorld, slots: Slots, prefix: Path) -> None:
    world.overlay(prefix)
    root = slots("cartpole-swingup", "cartpole")
    words = ("task:=cartpole-swingup", f"root:={root}", f"params_file:={world.parameters()}")
    one = world.launch("simulate.launch.py", *words, "namespace:=left")
    one.says("active at ")
    present(world, "/left/physai_policy")
    present(world, "/left/physai_virtual_robot")
    one.says("receiving commands")


def test_only_the_first_configuration_drives_by_itself(launched: Started, world: RosWorld) -> None:
    """Who takes the node down and configures it again wants to look at it first."""
    for name in ("deactivate", "cleanup", "configure"):
        assert transition(world, name), launched.text()
    time.sleep(3.0)
    assert world.calls.state(NODE) == "inactive"
    assert transition(world, "activate"), launched.text()


def test_a_refused_first_configuration_drives_nothing_later(world: RosWorld, slots: Slots, prefix: Path) -> None:
    world.overlay(prefix)
    root, made = world.folder / "slots", slots("cartpole-swingup", "cartpole")
    words = ("task:=cartpole-swingup", f"root:={root}", f"params_file:={world.parameters()}")
    launched = world.launch("simulate.launch.py", *words)
    launched.says("the policy was refused; see the reason above")
    launched.says("`physai robot watch` has ended")
    # Without the socket of a runtime that an earlier test killed.
    shutil.copytree(made, root, symlinks=True, ignore=shutil.ignore_patterns(CONTROL_FILE))
    assert transition(world, "configure"), launched.text()
    time.sleep(3.0)
    assert world.calls.state(NODE) == "inactive"
    assert "active at " not in launched.text()
    assert transition(world, "activate"), launched.text()
    launched.says("active at ")


def test_the_launch_ends_a_trial(world: RosWorld, slots: Slots, prefix: Path) -> None:
    """Committed, or rolled back on a machine so busy that the policy could not show itself; both end it."""
    made, root = slots("ur10e-reach", "ur10e"), world.folder / "slots"
    patient = ("--health-window-s", "2", "--max-interventions", "1000000", "--max-missed", "1")
    keys, bundle = made.parent / "keys", made.parent / "policy.physai"
    physai("robot", "setup", "--root", str(root), "--robot", "ur10e", "--trust", str(keys / "trust.json"), *patient)
    physai("robot", "install", str(bundle), "--root", str(root), "--activate", "--unsafe-no-verdict")
    world.overlay(prefix)
    params = world.parameters()
    params.write_text(f"{params.read_text()}    root: {root}\n")
    launched = world.launch("simulate.launch.py", "task:=ur10e-reach", f"params_file:={params}")
    launched.says("active at ")
    eventually(lambda: re.search("version 1 (committed|rolled-back): ", launched.text()), "the end of the trial")
    launched.end(signal.SIGINT)
    assert "robot watch` has ended" not in launched.text()


def test_a_policy_node_that_is_killed_takes_the_launch_down(launched: Started) -> None:
    victims = subprocess.run(["pgrep", "-f", "physai_ros/policy_node"], capture_output=True, text=True).stdout.split()
    mine = [int(pid) for pid in victims if _parent(int(pid)) == launched.process.pid]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGKILL)
    launched.says("process[policy_node-2] was required: shutting down")
    eventually(lambda: launched.process.poll() is not None, "the end of the launch")


def test_a_robot_that_is_killed_takes_the_launch_down(launched: Started) -> None:
    found = subprocess.run(["pgrep", "-f", "physai robot simulate"], capture_output=True, text=True).stdout.split()
    mine = [int(pid) for pid in found if _parent(int(pid)) == launched.process.pid]
    assert mine
    for pid in mine:
        os.kill(pid, signal.SIGKILL)
    launched.says("process[robot-1] was required: shutting down")
    eventually(lambda: launched.process.poll() is not None, "the end of the launch")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
