"""The arm that the launch files show to ROS is the one that policies are trained for: same joints, same tool."""

from math import pi
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mujoco
import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from physai.sim.robots import load_robot
from physai.sim.tasks.registry import load_task
from physai.transport.binding import find_binding

Array = npt.NDArray[np.float64]
URDF = Path(__file__).parents[3] / "ros" / "colcon" / "physai_ros" / "config" / "ur10e_mock.urdf"
ROBOT = load_robot("ur10e")


def turned(axis: Array, angle: float) -> Array:
    """Rodrigues' formula."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def numbers(text: str) -> Array:
    return np.array([float(word) for word in text.split()])


def pose(link: str, of: str, positions: dict[str, float]) -> Array:
    """Where a link is in the frame of another above it, shape (4, 4)."""
    joints = {joint.find("child").get("link"): joint for joint in ElementTree.parse(URDF).getroot().iterfind("joint")}  # pyright: ignore[reportOptionalMemberAccess]
    found = np.eye(4)
    while link != of:
        joint: Any = joints[link]
        roll, pitch, yaw = numbers(joint.find("origin").get("rpy"))
        here = np.eye(4)
        here[:3, :3] = turned(np.eye(3)[2], yaw) @ turned(np.eye(3)[1], pitch) @ turned(np.eye(3)[0], roll)
        here[:3, 3] = numbers(joint.find("origin").get("xyz"))
        turn = np.eye(4)
        if joint.get("type") == "revolute":
            turn[:3, :3] = turned(numbers(joint.find("axis").get("xyz")), positions[joint.get("name")])
        found = here @ turn @ found
        link = joint.find("parent").get("link")
    return found


@settings(max_examples=30)
@given(st.lists(st.floats(-3.0, 3.0), min_size=6, max_size=6))
def test_its_tool_is_where_the_model_has_it(angles: list[float]) -> None:
    model: Any = ROBOT.model
    data: Any = mujoco.MjData(model)
    data.qpos[:] = angles
    mujoco.mj_kinematics(model, data)
    found = pose("tool0", "base_link", dict(zip(ROBOT.spec.joint_names, angles, strict=True)))
    np.testing.assert_allclose(found[:3, 3], data.site("ee").xpos, atol=1e-9)
    np.testing.assert_allclose(found[:3, :3], data.site("ee").xmat.reshape(3, 3), atol=1e-9)


def test_its_joints_are_the_contracts() -> None:
    root = ElementTree.parse(URDF).getroot()
    joints = {joint.get("name"): joint for joint in root.iterfind("joint") if joint.get("type") == "revolute"}
    controlled = root.findall("ros2_control/joint")
    assert tuple(joint.get("name") for joint in controlled) == tuple(joints) == ROBOT.spec.joint_names
    for own, described, mock in zip(ROBOT.spec.joints, joints.values(), controlled, strict=True):
        limit: Any = described.find("limit")
        assert float(limit.get("lower")) == own.position_lower
        assert float(limit.get("velocity")) == own.velocity_limit
        start: Any = mock.find("state_interface/param")
        assert abs(float(start.text) - own.default_pos) < 1e-4


def test_targets_are_in_the_frame_of_the_contract() -> None:
    """base_link, where x points forward: in UR's own `base` every target would lie behind the arm."""
    contract = load_task("ur10e-reach").contract
    (target,) = contract.command.fields
    assert target.frame == "b"
    for name in ("ur10e", "ur10e_trajectory"):
        (read,) = (one for one in find_binding(contract, name).reads if one.frame is not None)
        assert read.frame == "base_link"
    np.testing.assert_allclose(pose("base", "base_link", {})[:3, :3], np.diag([-1.0, -1.0, 1.0]), atol=1e-12)
    home = dict(zip(ROBOT.spec.joint_names, (0.0, -pi / 2, pi / 2, -pi / 2, -pi / 2, 0.0), strict=True))
    assert pose("tool0", "base_link", home)[0, 3] > 0.5
