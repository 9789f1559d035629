"""The policy beside real ros2_control: joint_state_broadcaster before it, forward_position_controller behind it."""

import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.ros_calls import eventually
from tests.support.ros_world import RosWorld, Slots

pytestmark = pytest.mark.ros("controller_manager", "ros2controlcli", "ros2launch", "launch_ros", "colcon_core", "torch")


@pytest.mark.parametrize(
    ("controller", "binding"),
    [("forward_position_controller", "ur10e"), ("scaled_joint_trajectory_controller", "ur10e_trajectory")],
)
def test_an_arm_of_mock_components_is_driven_towards_its_target(
    world: RosWorld, slots: Slots, prefix: Path, node: Any, controller: str, binding: str
) -> None:
    from geometry_msgs.msg import PoseStamped
    from sensor_msgs.msg import JointState

    world.overlay(prefix)
    states: list[Any] = []
    node.create_subscription(JointState, "joint_states", states.append, 100)
    publisher = node.create_publisher(PoseStamped, "target_pose", 1)
    target = PoseStamped()
    target.header.frame_id = "base_link"
    target.pose.position.x, target.pose.position.y, target.pose.position.z = 0.9, -0.2, 0.2
    target.pose.orientation.x, target.pose.orientation.w = 1.0, 0.0

    def aim() -> None:
        target.header.stamp = node.get_clock().now().to_msg()
        publisher.publish(target)

    node.create_timer(0.05, aim)
    root = slots("ur10e-reach", "ur10e")
    words = (f"load:=joint_state_broadcaster {controller}", f"binding:={binding}")
    launched = world.launch("control.launch.py", f"root:={root}", f"params_file:={world.parameters()}", *words)
    launched.says("active at ")
    first = _by_name(states[0])
    assert first["elbow_joint"] == pytest.approx(1.5708, abs=1e-3)
    eventually(lambda: _moved(first, _by_name(states[-1])) > 0.02, "a movement of the mock arm")
    # No joint was asked to jump: the quickest turn by 0.1 rad in a control period of 32 ms.
    assert max(_moved(_by_name(before), _by_name(after)) for before, after in pairwise(states)) < 0.11
    assert controller in world.ros2("control", "list_controllers").stdout
    launched.end(signal.SIGINT)
    assert "Traceback" not in launched.text()


def _by_name(message: Any) -> dict[str, float]:
    return dict(zip(message.name, message.position, strict=True))


def _moved(before: dict[str, float], after: dict[str, float]) -> float:
    return float(np.max([abs(after[name] - before[name]) for name in before]))
