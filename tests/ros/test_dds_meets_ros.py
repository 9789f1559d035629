"""`--transport dds`, which needs no ROS, against ROS's own nodes and tools."""

import json
import signal

import pytest
from ros_world import RosWorld, eventually

pytestmark = pytest.mark.ros


def test_the_runtime_without_ros_drives_a_ros_driver(world: RosWorld) -> None:
    log = world.folder / "commands"
    driver = world.driver(log=str(log))
    words = ("robot", "run", "--root", str(world.root), "--transport", "dds", "--no-lock")
    runtime = world.physai(*words)
    runtime.says("active at 100 Hz")
    eventually(lambda: log.exists() and len(log.read_text().splitlines()) > 50, "commands")
    one = json.loads(log.read_text().splitlines()[20])
    assert one["name"] == ["pivot"]
    assert abs(one["effort"][0]) <= 2.5
    nodes = world.ros2("node", "list").stdout.split()
    assert "/physai_runtime" in nodes
    told = world.ros2("node", "info", "/physai_runtime").stdout
    assert "/joint_states: sensor_msgs/msg/JointState" in told
    assert "/joint_command: sensor_msgs/msg/JointState" in told
    echoed = world.ros2("topic", "echo", "--once", "--timeout", "20", "/diagnostics").stdout
    assert "physai: runtime" in echoed
    verbose = world.ros2("topic", "info", "--verbose", "/joint_command").stdout
    assert "Topic type hash: RIHS01_a13ee3a330e346c9d87b5aa18d24e11690752bd33a0350f11c5882bc9179260e" in verbose
    assert "INVALID" not in verbose
    assert runtime.end(signal.SIGTERM) == 0, runtime.text()
    for process in (driver, runtime):
        assert "type hash" not in process.text().lower()
        assert "Traceback" not in process.text()


def test_a_ros_driver_that_is_killed_and_started_again(world: RosWorld) -> None:
    driver = world.driver()
    words = ("robot", "run", "--root", str(world.root), "--transport", "dds", "--no-lock")
    runtime = world.physai(*words)
    runtime.says("active at 100 Hz")
    driver.end(signal.SIGKILL)
    runtime.says("HOLD: ")
    world.driver()
    reset = world.physai("robot", "tell", "reset", "--root", str(world.root))
    assert reset.process.wait(60.0) == 0, reset.text()
    runtime.says("RUN: reset by the operator")
