"""`--transport dds`, which needs no ROS, against ROS's own nodes, which may use another vendor's DDS."""

import json
import re
import signal

import pytest
from tests.support.ros_calls import eventually
from tests.support.ros_world import PRIORITY, RosWorld, Started, present

pytestmark = pytest.mark.ros


JOINT_STATE_HASH = "RIHS01_a13ee3a330e346c9d87b5aa18d24e11690752bd33a0350f11c5882bc9179260e"
TRIES = 10
THE_MACHINE = {"deadline missed", "periods skipped", "not sent", "sensor stale"}
"""Reasons to hold that a busy machine gives: the loop, which may have no priority here, or the driver came too late."""


def run(world: RosWorld) -> Started:
    words = ("robot", "run", "--root", str(world.root), "--transport", "dds", "--no-lock", "--priority", str(PRIORITY))
    runtime = world.physai(*words)
    runtime.says("active at 100 Hz")
    return runtime


def held(runtime: Started) -> bool:
    """Whether it had to hold without being asked to, which only the machine may have brought about."""
    found = re.findall(r"(?:HOLD|DAMP|PROTECTIVE_STOP): ([a-z ,]+)", runtime.text())
    reasons = {reason for line in found for reason in line.split(", ")} - {"hold requested"}
    assert reasons <= THE_MACHINE, runtime.text()
    return bool(reasons)


def driven_in_order(world: RosWorld, number: int) -> bool:
    """Drives and is told to end; False where the machine was too busy for it to drive on."""
    log = world.folder / f"commands{number}"
    driver, runtime = world.driver(log=str(log)), run(world)
    eventually(lambda: log.exists() and len(log.read_text().splitlines()) > 50, "commands")
    one = json.loads(log.read_text().splitlines()[20])
    assert one["name"] == ["pivot"]
    assert abs(one["effort"][0]) <= 2.5
    code = runtime.end(signal.SIGTERM)
    driver.end(signal.SIGINT)
    for process in (driver, runtime):
        assert "Traceback" not in process.text()
    assert code == (1 if held(runtime) else 0), runtime.text()
    return code == 0


def test_the_runtime_without_ros_drives_a_ros_driver(world: RosWorld) -> None:
    """Nothing else runs meanwhile, and a try in which the machine held the loop up does not count."""
    assert any(driven_in_order(world, number) for number in range(TRIES)), "the machine is too busy"


def test_the_runtime_without_ros_shows_in_ros(world: RosWorld) -> None:
    from diagnostic_msgs.msg import DiagnosticArray

    driver, runtime = world.driver(), run(world)
    node = world.calls.node
    present(world, "/physai_runtime")
    # The graph tells of the node before it tells of its topics.
    reads = eventually(lambda: dict(node.get_subscriber_names_and_types_by_node("physai_runtime", "/")), "its topics")
    writes = dict(node.get_publisher_names_and_types_by_node("physai_runtime", "/"))
    assert reads["/joint_states"] == writes["/joint_command"] == ["sensor_msgs/msg/JointState"]
    assert world.calls.message("/diagnostics", DiagnosticArray).status[0].name == "physai: runtime"
    # The watchdog publishes there, too.
    publishers = node.get_publishers_info_by_topic("/joint_command")
    assert {str(publisher.topic_type_hash) for publisher in publishers} == {JOINT_STATE_HASH}
    assert runtime.end(signal.SIGTERM) == (1 if held(runtime) else 0), runtime.text()
    for process in (driver, runtime):
        assert "type hash" not in process.text().lower()
        assert "Traceback" not in process.text()


def test_a_ros_driver_that_is_killed_and_started_again(world: RosWorld) -> None:
    driver, runtime = world.driver(), run(world)
    driver.end(signal.SIGKILL)
    runtime.says("HOLD: ")
    world.driver()

    def told(word: str) -> bool:
        return world.physai("robot", "command", word, "--root", str(world.root)).process.wait(60.0) == 0

    # Refused until the joint was seen to rest, which it is once the new driver is heard.
    eventually(lambda: told("reset") and told("start"), "reset and start")
    runtime.says("RUN: started by the operator")
