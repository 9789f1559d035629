"""Real `ros2 bag`: what it records is a robot log, and what it plays back is no robot."""

import signal
from pathlib import Path

import pytest
from tests.support.ros_calls import WAIT_S, eventually
from tests.support.ros_world import RosWorld, not_driven, up

pytestmark = pytest.mark.ros("ros2bag", "rosbag2_py", "ros2launch", "launch_ros", "colcon_core")

BINDING = """\
format_version: 1
robot: pendulum
reads:
  - topic: /joint_states
    type: sensor_msgs/msg/JointState
    stamp: {stamp}
    fields: {{joint_pos: position}}
writes:
  - topic: /joint_command
    type: sensor_msgs/msg/JointState
    fields: {{joint_effort_target: effort}}
"""


@pytest.fixture
def bag(world: RosWorld, prefix: Path) -> Path:
    """A driver and a policy, recorded."""
    world.overlay(prefix)
    driver, node = world.driver(), world.policy()
    up(world, node)
    folder = world.folder / "bag"
    recorder = world.launch("record.launch.py", f"output:={folder}")
    recorder.says("Subscribed to topic '/joint_command'")
    recorder.says("Subscribed to topic '/joint_states'")
    recorder.says("Recording...")
    eventually(lambda: sum(path.stat().st_size for path in folder.glob("*.mcap")) > 100_000, "100 kB of recording")
    recorder.end(signal.SIGINT)
    for process in (driver, node):
        process.end(signal.SIGINT)
    return folder


def test_what_is_recorded_is_a_robot_log(world: RosWorld, bag: Path) -> None:
    assert list(bag.glob("*.mcap"))
    assert (bag / "metadata.yaml").exists()
    info = world.ros2("bag", "info", str(bag)).stdout
    assert "Topic: /joint_command | Type: sensor_msgs/msg/JointState" in info
    checked = world.physai("logs", "check", str(bag))
    assert checked.process.wait(WAIT_S) in (0, 1), checked.text()
    assert "Traceback" not in checked.text()
    assert "pivot" in checked.text()


def test_a_robot_of_yesterday_is_not_driven(world: RosWorld, bag: Path) -> None:
    world.driver(name="listener", publish=False)
    player = world.play(bag)
    node = world.policy(activation_timeout_s=2.0)
    not_driven(world, node, "s old by its own stamp")
    assert player.process.poll() is None


def test_played_back_by_the_time_of_sending_it_drives(world: RosWorld, bag: Path) -> None:
    binding = world.folder / "binding.yaml"
    binding.write_text(BINDING.format(stamp="source"))
    log = world.folder / "commands"
    world.driver(name="listener", publish=False, log=str(log))
    player = world.play(bag)
    node = world.policy(binding=str(binding))
    up(world, node)
    eventually(lambda: log.exists() and len(log.read_text().splitlines()) > 50, "commands")
    player.end(signal.SIGINT)
    node.says("HOLD: ")
